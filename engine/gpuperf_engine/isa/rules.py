"""Rules of the manuals whose violations are errors or undefined, in one table, and whether GPUs tolerate violations.

``PTX``: *PTX ISA*; ``CUDA``: *CUDA C++ Programming Guide*.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["NOTED", "RULES", "STRICTNESS", "Noted", "Rule", "render"]

#: values of ``strict``: how a violation that works on today's GPUs is reported
STRICTNESS = ("note", "error", "off")


class Rule(NamedTuple):
    """``works``: undefined by the manual, but tolerated by today's GPUs; violations of all other rules are always errors."""

    says: str
    section: str
    works: bool = False


RULES = {
    "peer-not-started": Rule(
        "shared memory of another block of the cluster is accessed only after that block has started: after a cluster barrier",
        "CUDA: Distributed Shared Memory",
        works=True,
    ),
    "arrival-at-ended-block": Rule(
        "a block does not end before the last arrival at its mbarriers by other blocks of the cluster",
        "CUDA: Distributed Shared Memory; PTX: mbarrier.arrive",
        works=True,
    ),
    "object-end": Rule(
        "an access ends inside its object: no element that begins inside extends past the last byte",
        "CUDA: Device Memory Accesses",
        works=True,
    ),
    "aligned-barrier": Rule(
        "all threads of a warp execute an aligned barrier together; GPUs from sm_70 on count individual threads",
        "PTX: bar, barrier; CUDA: Independent Thread Scheduling",
        works=True,
    ),
    "shuffle-mask": Rule(
        "the member mask of `shfl.sync` contains each lane that executes it; in a converged warp, GPUs let all lanes exchange",
        "PTX: shfl.sync",
        works=True,
    ),
    "local-order": Rule(
        "atomics, and loads and stores with a memory order, access global or shared memory; at a generic address in local memory "
        "GPUs access that of the thread",
        "PTX: atom, red, ld, st",
        works=True,
    ),
    "invalid-again": Rule(
        "`mbarrier.inval` is executed once for an mbarrier object that is valid; otherwise GPUs do nothing",
        "PTX: mbarrier.inval",
        works=True,
    ),
    "unseen-phase": Rule(
        "`mbarrier.init` comes after all threads that wait for a phase of an earlier object there have seen its end; on GPUs "
        "these have usually gone on by then",
        "PTX: mbarrier.init",
        works=True,
    ),
    "after-inval": Rule(
        "an mbarrier object is not used after `mbarrier.inval`; GPUs go on with the object, until something else is stored there",
        "PTX: mbarrier.inval",
        works=True,
    ),
    "peer-ended": Rule(
        "shared memory of another block of the cluster is accessed only until that block ends",
        "CUDA: Distributed Shared Memory",
    ),
    "cluster-rank": Rule(
        "an address in the shared memory of the cluster belongs to one of its blocks", "PTX: mapa"
    ),
    "state-space": Rule(
        "an address lies in the state space that the instruction names: `.shared` and `.shared::cta` in the block's own memory",
        "PTX: State Spaces",
    ),
    "bounds": Rule("an access lies inside an object", "CUDA: Device Memory Accesses"),
    "alignment": Rule("an address is a multiple of the size of the access", "PTX: Alignment"),
    "member-mask": Rule(
        "the member mask of a `.sync` instruction contains each lane that executes it (`shfl.sync`: of a diverged warp)",
        "PTX: shfl.sync, vote.sync, match.sync, redux.sync, elect.sync, bar.warp.sync",
    ),
    "barrier-operands": Rule(
        "a barrier has a number from 0 to 15, and a thread count that is a multiple of the warp size",
        "PTX: bar, barrier",
    ),
    "cluster-barrier": Rule(
        "each thread alternately arrives at the cluster barrier and waits there", "PTX: barrier.cluster"
    ),
    "whole-warp": Rule(
        "all 32 lanes of a warp execute the same matrix instruction",
        "PTX: mma, wmma, ldmatrix, stmatrix, wgmma",
    ),
    "whole-warpgroup": Rule(
        "the four warps of a warpgroup execute the same number of products and of `wgmma.commit_group`",
        "PTX: wgmma.mma_async",
    ),
    "matrix-descriptor": Rule(
        "a matrix descriptor is the same in all threads of a warp, and its swizzle fits its lines",
        "PTX: Matrix Descriptor Format",
    ),
    "sparsity": Rule(
        "metadata and selector of a sparse matrix are valid",
        "PTX: mma.sp, wgmma.mma_async.sp, tcgen05.mma.sp",
    ),
    "tensor-memory": Rule(
        "columns of tensor memory are allocated before use and freed once; a warp accesses its own lanes only",
        "PTX: tcgen05.alloc, tcgen05.dealloc, tcgen05.ld",
    ),
    "instruction-descriptor": Rule(
        "an instruction descriptor has a shape, types and scales that the instruction supports",
        "PTX: tcgen05.mma",
    ),
    "mbarrier-object": Rule(
        "an mbarrier object lies in shared memory and has been initialised", "PTX: mbarrier.init"
    ),
    "mbarrier-counts": Rule(
        "arrivals and bytes of an mbarrier phase stay in the range of the object's counters",
        "PTX: mbarrier",
    ),
    "tensor-map": Rule(
        "the tensor map of a tensor copy is complete and has the instruction's dimension and mode",
        "PTX: cp.async.bulk.tensor, tensormap.replace",
    ),
    "tensor-operands": Rule(
        "coordinates, offsets, boxes and addresses of a tensor copy are within the manual's limits",
        "PTX: cp.async.bulk.tensor",
    ),
    "bulk-size": Rule("sizes and addresses of a bulk copy are multiples of 16", "PTX: cp.async.bulk"),
    "indirect-target": Rule(
        "an index is in the table, and an address is that of a callable function",
        "PTX: brx.idx, call",
    ),
    "stack": Rule(
        "`stackrestore` takes a value of `stacksave`, and `alloca` a size that fits", "PTX: alloca"
    ),
    "image-handle": Rule(
        "a handle refers to a texture or surface of the instruction's geometry",
        "PTX: tex, suld, sust",
    ),
    "texture-operands": Rule(
        "offsets of a fetch are −8 to 7 texels; a texture has the sample, and the comparison for a depth, that it is asked for",
        "PTX: tex, tld4",
    ),
}


class Noted:
    """Numbers of the rules whose violations compiled code records."""

    NOT_STARTED = 0
    ARRIVAL = 1
    ALIGNED_BARRIER = 2
    SHUFFLE_MASK = 3
    LOCAL_ORDER = 4
    INVALID_AGAIN = 5
    UNSEEN_PHASE = 6
    AFTER_INVAL = 7
    #: the maximum number reported per launch, by instruction
    MOST = 64
    #: bytes of a record: rule, site, CTA, warp, lane, address
    BYTES = 48


#: names of these rules, by number
NOTED = (
    "peer-not-started",
    "arrival-at-ended-block",
    "aligned-barrier",
    "shuffle-mask",
    "local-order",
    "invalid-again",
    "unseen-phase",
    "after-inval",
)


def render() -> str:
    """The page of the rules."""
    lines = [
        "# Rules",
        "",
        "The engine checks these rules of the manuals. A violation that goes wrong on a GPU is an error, with line and",
        "thread. For a violation that today's GPUs tolerate, `strict` of the [engine](engine.md#devices) and `gpuperf_strict` of the",
        "[gate](gate.md#options) decide: `note` (the default), `error` or `off`. Notes and these errors name the rule in brackets.",
        "",
    ]
    for title, works in (("Undefined, works on today's GPUs", True), ("Wrong on a GPU", False)):
        lines += [f"## {title}", "", "| rule | what it says | manual | default |", "|---|---|---|---|"]
        for name, rule in RULES.items():
            if rule.works == works:
                lines.append(f"| `{name}` | {rule.says} | {rule.section} | {'note' if works else 'error'} |")
        lines.append("")
    lines += [
        "Reads of uninitialised memory have their own setting, `gpuperf_uninitialized`. Not checked: the value that `shfl`",
        "reads from a lane that does not take part, which the manual leaves undefined (here it is 0).",
        "",
        "For `aligned-barrier` see [what is executed](engine.md#aligned-barriers).",
        "",
        "**Ordered accesses to local variables.** `cuda::atomic` and `cuda::barrier` of CUDA's C++ library may be local",
        "variables; nvcc generates the same generic accesses for them as elsewhere. Of a generic `atom` or `red` of up to 64",
        "bits, ptxas 13.0 (`sm_80` to `sm_120`) generates an `ATOM` that tells whether it was executed, and behind it, for",
        "addresses that are neither global nor shared, `LD`, the operation (of `add.f32` without flushing subnormals) and `ST`.",
        "`ld.acquire`, `st.relaxed` and others become `LD` and `ST`. Each thread accesses its own local memory, also at an",
        "address from another thread. Such an atomic counts as a load and a store of local memory. Of atomics of 128 bits there",
        "is no such code: an error.",
        "",
        "**Lanes outside their member mask.** In machine code the mask is an operand of `WARPSYNC`, which waits for lanes; `SHFL`,",
        "`VOTE`, `MATCH`, `REDUX` and `ELECT` have none. If the mask is a constant, ptxas 13.0 (`sm_80`, `sm_90`, `sm_100`,",
        "`sm_120`; a converged warp) omits `WARPSYNC`, so that all lanes take part. Otherwise it depends:",
        "",
        "| instruction | with the mask in a register | here |",
        "|---|---|---|",
        "| `shfl.sync` | `SHFL` (`sm_80`), after `WARPSYNC` from `sm_90` on | `shuffle-mask` |",
        "| `vote.sync`, `match.sync`, `redux.sync` | as with a constant after comparing masks, or code for diverged warps (`sm_80`), "
        "after `WARPSYNC.EXCLUSIVE` from `sm_90` on | error |",
        "| `elect.sync` | after `WARPSYNC.EXCLUSIVE` | error |",
        "| `bar.warp.sync` | `WARPSYNC`, or nothing if the warp is converged | error |",
        "",
        "How `WARPSYNC.EXCLUSIVE` treats a lane outside its mask, and which lanes are active afterwards, is not documented:",
        "the value of such a vote depends on how the mask was computed, so it is an error. For shuffles there is a measurement:",
        "on a V100 [masks 0, 0xff and 0xffffffff gave the same][v100] in all lanes. Here all lanes exchange if all live lanes",
        "execute a shuffle together, with one mask; in a diverged warp, or with different masks, a lane outside is an error",
        "(`member-mask`).",
        "",
        "[v100]: https://forums.developer.nvidia.com/t/what-does-mask-mean-in-warp-shuffle-functions-shfl-sync/67697",
        "",
    ]
    return "\n".join(lines)
