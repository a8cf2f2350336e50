"""What the manuals forbid or leave undefined, in one table: whether it would go wrong on a GPU, and what is done about it.

``PTX``: *PTX ISA*; ``CUDA``: *CUDA C++ Programming Guide*.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["NOTED", "RULES", "STRICTNESS", "Noted", "Rule", "render"]

#: what ``strict`` takes: what becomes of an access that breaks a rule whose breach works on today's GPUs
STRICTNESS = ("note", "error", "off")


class Rule(NamedTuple):
    """``works``: undefined by the manual, but today's GPUs let it pass; else a GPU goes wrong, and it is always an error."""

    says: str
    section: str
    works: bool = False


RULES = {
    "peer-not-started": Rule(
        "shared memory of another block of the cluster is accessed only after that block has started: after a barrier of the cluster",
        "CUDA: Distributed Shared Memory",
        works=True,
    ),
    "arrival-at-ended-block": Rule(
        "a block that others of its cluster have yet to signal has not ended: no arrival at its mbarriers comes later",
        "CUDA: Distributed Shared Memory; PTX: mbarrier.arrive",
        works=True,
    ),
    "object-end": Rule(
        "an access ends where its object ends: no element that begins inside runs past the last byte",
        "CUDA: Device Memory Accesses",
        works=True,
    ),
    "aligned-barrier": Rule(
        "all threads of a warp execute an aligned barrier together; GPUs from sm_70 on count threads, whatever their warp does",
        "PTX: bar, barrier; CUDA: Independent Thread Scheduling",
        works=True,
    ),
    "shuffle-mask": Rule(
        "the member mask of `shfl.sync` contains each lane that executes it; in a warp that is not diverged, GPUs let all exchange",
        "PTX: shfl.sync",
        works=True,
    ),
    "peer-ended": Rule(
        "shared memory of another block of the cluster is read and written only while that block has not ended",
        "CUDA: Distributed Shared Memory",
    ),
    "cluster-rank": Rule(
        "an address in the shared memory of the cluster names one of its blocks", "PTX: mapa"
    ),
    "state-space": Rule(
        "an address lies in the state space that the instruction names: `.shared` and `.shared::cta` in the block's own memory",
        "PTX: State Spaces",
    ),
    "bounds": Rule("an access lies inside of an object", "CUDA: Device Memory Accesses"),
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
        "each thread arrives at the barrier of the cluster and waits there in turn", "PTX: barrier.cluster"
    ),
    "whole-warp": Rule(
        "all 32 lanes of a warp execute the same matrix instruction",
        "PTX: mma, wmma, ldmatrix, stmatrix, wgmma",
    ),
    "whole-warpgroup": Rule(
        "the four warps of a warpgroup execute as many products, and `wgmma.commit_group`",
        "PTX: wgmma.mma_async",
    ),
    "matrix-descriptor": Rule(
        "a matrix descriptor is the same in all threads of a warp, with a swizzle that its lines fit",
        "PTX: Matrix Descriptor Format",
    ),
    "sparsity": Rule(
        "metadata and selector of a sparse matrix mean something",
        "PTX: mma.sp, wgmma.mma_async.sp, tcgen05.mma.sp",
    ),
    "tensor-memory": Rule(
        "columns of tensor memory are allocated before they are used, and freed once; a warp loads and stores its own lanes",
        "PTX: tcgen05.alloc, tcgen05.dealloc, tcgen05.ld",
    ),
    "instruction-descriptor": Rule(
        "an instruction descriptor has a shape, types and scales that the instruction takes",
        "PTX: tcgen05.mma",
    ),
    "mbarrier-object": Rule(
        "an mbarrier object lies in shared memory and has been initialised", "PTX: mbarrier.init"
    ),
    "mbarrier-counts": Rule(
        "arrivals and bytes of a phase of an mbarrier stay in the range that the object can count",
        "PTX: mbarrier",
    ),
    "tensor-map": Rule(
        "what a tensor copy takes for a tensor map is one, of the instruction's dimension and mode, with all of its fields",
        "PTX: cp.async.bulk.tensor, tensormap.replace",
    ),
    "tensor-operands": Rule(
        "coordinates, offsets, boxes and addresses of a tensor copy are those that the manual allows",
        "PTX: cp.async.bulk.tensor",
    ),
    "bulk-size": Rule("sizes and addresses of a bulk copy are multiples of 16", "PTX: cp.async.bulk"),
    "indirect-target": Rule(
        "an index is one of the table, and an address one of a function that may be called",
        "PTX: brx.idx, call",
    ),
    "stack": Rule(
        "`stackrestore` takes what `stacksave` gave, and `alloca` what there is room for", "PTX: alloca"
    ),
    "image-handle": Rule(
        "a handle leads to a texture or surface of the geometry that the instruction names",
        "PTX: tex, suld, sust",
    ),
}


class Noted:
    """Numbers of the rules that compiled code notes."""

    NOT_STARTED = 0
    ARRIVAL = 1
    ALIGNED_BARRIER = 2
    SHUFFLE_MASK = 3
    #: the most that are reported of one launch, by instruction
    MOST = 64
    #: bytes of a record: rule, site, CTA, warp, lane, address
    BYTES = 48


#: rules by these numbers
NOTED = ("peer-not-started", "arrival-at-ended-block", "aligned-barrier", "shuffle-mask")


def render() -> str:
    """The page of the rules."""
    lines = [
        "# Rules",
        "",
        "What the manuals forbid or leave undefined and the engine looks for. Where a GPU goes wrong it is an error, with line and",
        "thread. Where today's GPUs let it pass, `strict` of the [engine](engine.md#devices) and `gpuperf_strict` of the",
        "[gate](gate.md#options) decide: `note` (the default), `error` or `off`. Notes, and these errors, name the rule in brackets.",
        "",
    ]
    for title, works in (("Undefined, works on today's GPUs", True), ("Wrong on a GPU", False)):
        lines += [f"## {title}", "", "| rule | what it says | manual | default |", "|---|---|---|---|"]
        for name, rule in RULES.items():
            if rule.works == works:
                lines.append(f"| `{name}` | {rule.says} | {rule.section} | {'note' if works else 'error'} |")
        lines.append("")
    lines += [
        "Reads of memory that was never written have a setting of their own, `gpuperf_uninitialized`. Not looked for: what `shfl`",
        "reads from a lane that takes no part, which the manual leaves undefined (here it is 0).",
        "",
        "`aligned-barrier`: [what is carried out](engine.md#aligned-barriers).",
        "",
        "**Lanes outside of their member mask.** In machine code the mask is an operand of `WARPSYNC`, which waits for lanes; `SHFL`,",
        "`VOTE`, `MATCH`, `REDUX` and `ELECT` have none. ptxas 13.0 (`sm_80`, `sm_90`, `sm_100`, `sm_120`; a warp that is not",
        "diverged) leaves `WARPSYNC` out where the mask is a constant, so that all lanes take part. Else it depends:",
        "",
        "| instruction | where the mask is in a register | here |",
        "|---|---|---|",
        "| `shfl.sync` | `SHFL` (`sm_80`), after `WARPSYNC` from `sm_90` on | `shuffle-mask` |",
        "| `vote.sync`, `match.sync`, `redux.sync` | as with a constant by a look at all masks, or code for diverged warps (`sm_80`), "
        "after `WARPSYNC.EXCLUSIVE` from `sm_90` on | error |",
        "| `elect.sync` | after `WARPSYNC.EXCLUSIVE` | error |",
        "| `bar.warp.sync` | `WARPSYNC`, or nothing where the warp is together | error |",
        "",
        "What `WARPSYNC.EXCLUSIVE` does with a lane outside of its mask, and which lanes are there afterwards, is not documented:",
        "such a vote has one value or another by how the mask was computed, so it is an error. Of shuffles it is known from a GPU",
        "too: on a V100 [masks 0, 0xff and 0xffffffff gave the same][v100] in all lanes. Here all lanes exchange where all that live",
        "execute a shuffle together, with one mask; in a diverged warp, or with masks of several values, a lane outside is an error",
        "(`member-mask`).",
        "",
        "[v100]: https://forums.developer.nvidia.com/t/what-does-mask-mean-in-warp-shuffle-functions-shfl-sync/67697",
        "",
    ]
    return "\n".join(lines)
