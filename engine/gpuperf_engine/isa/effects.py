"""What instructions do beyond computing their destinations from their sources: one object per kind.

A row of the table names the effect of its instructions. Analyses test a property of the effect, or its identity
(``instruction.effect is LOAD``), never the name of an instruction. A backend executes an effect by the function that it has
registered for it (``Handlers``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Handler = TypeVar("Handler", bound=Callable[..., object])


@dataclass(frozen=True, eq=False, kw_only=True)
class Effect:
    """One kind of effect; the properties hold of every instruction that has it.

    ``reads`` and ``writes``: it accesses memory. ``atomic``: it reads and writes in one indivisible step. ``per_lane``: each lane
    accesses the address in its own operand. ``site``: the kind of site in messages (a copy is a load that also stores to shared
    memory), ``""`` if it has no counters of its own. ``copies``: bytes move from memory to memory.

    ``collective``: the threads whose operands make up one result. ``exchanges``: results depend on registers of other lanes.
    ``whole_warp``: all 32 lanes must take part.

    ``ends_block``: it is the last of its basic block. ``may_wait``: the warp may be suspended before it. ``orders``: memory
    accesses before and after it keep their order. ``observes``: its result may depend on concurrent stores of other threads.
    ``varies``: results may differ between lanes with equal sources.

    ``tensor``: it accesses tensor memory. ``needs_semantics``: it runs only if its row has semantics. ``folded``: the handler applies
    the semantics repeatedly, and their results are not the destinations (see ``evaluation``).
    """

    name: str
    description: str
    reads: bool = False
    writes: bool = False
    atomic: bool = False
    per_lane: bool = False
    site: Literal["", "load", "store", "atomic", "reduction"] = ""
    copies: bool = False
    collective: Literal["", "warp", "warpgroup", "cta", "cluster"] = ""
    exchanges: bool = False
    whole_warp: bool = False
    ends_block: bool = False
    may_wait: bool = False
    orders: bool = False
    observes: bool = False
    varies: bool = False
    tensor: bool = False
    needs_semantics: bool = False
    folded: bool = False

    def __repr__(self) -> str:
        return f"<effect {self.name}>"

    def __deepcopy__(self, memo: object) -> Effect:
        """Effects are compared by identity, so a copy must be the same object."""
        return self

    @property
    def joins_lanes(self) -> bool:
        """Whether the lanes of a warp execute it together: those of ``.sync`` instructions wait for each other."""
        return self.collective in ("warp", "warpgroup")

    @property
    def is_barrier(self) -> bool:
        """Whether warps wait at it for warps of the CTA or cluster, or arrive at a barrier without waiting."""
        return self.collective in ("cta", "cluster")


PURE = Effect(
    name="pure", description="none: destinations are a function of the sources", needs_semantics=True
)
LOAD = Effect(name="load", description="reads memory", reads=True, per_lane=True, site="load")
STORE = Effect(name="store", description="writes memory", writes=True, per_lane=True, site="store")
ATOMIC = Effect(
    name="atomic",
    description="reads, changes and returns memory (atom)",
    reads=True, writes=True, atomic=True, per_lane=True, site="atomic",
    observes=True, varies=True, needs_semantics=True, folded=True,
)  # fmt: skip
REDUCTION = Effect(
    name="reduction",
    description="changes memory, returns nothing (red)",
    reads=True, writes=True, atomic=True, per_lane=True, site="reduction",
    needs_semantics=True, folded=True,
)  # fmt: skip


def _exchange(name: str, description: str) -> Effect:
    return Effect(
        name=name,
        description=description,
        collective="warp",
        exchanges=True,
        varies=True,
        folded=True,
    )


SHFL = _exchange("shfl", "reads a register of another lane (shfl)")
VOTE = _exchange("vote", "combines a predicate of all lanes (vote)")
MATCH = _exchange("match", "finds the lanes that hold the same value (match)")
REDUX = _exchange("redux", "combines a register of all lanes (redux)")
ACTIVEMASK = _exchange("activemask", "finds the active lanes (activemask)")
ELECT = _exchange("elect", "finds the lowest lane (elect)")
WARP_BARRIER = Effect(
    name="warp_barrier", description="waits for lanes of the warp (bar.warp.sync)", collective="warp"
)
BARRIER = Effect(
    name="barrier",
    description="waits for warps of the CTA or announces arrival (bar, barrier)",
    collective="cta",
    ends_block=True,
)
CLUSTER_BARRIER = Effect(
    name="cluster_barrier",
    description="waits for warps of the cluster or announces arrival (barrier.cluster)",
    collective="cluster",
    ends_block=True,
)
FENCE = Effect(name="fence", description="orders memory (membar, fence)", orders=True)
BRANCH = Effect(name="branch", description="continues at a label (bra)", ends_block=True)
INDIRECT_BRANCH = Effect(
    name="indirect_branch", description="continues at a label of a table (brx.idx)", ends_block=True
)
CALL = Effect(name="call", description="calls a function (call)", ends_block=True, varies=True)
RETURN = Effect(name="return", description="leaves the function (ret)", ends_block=True)
THREAD_EXIT = Effect(name="exit", description="ends the thread (exit)", ends_block=True)
TRAP = Effect(name="trap", description="ends the launch with an error (trap, brkpt)")
HINT = Effect(
    name="hint",
    description="changes nothing that can be observed (prefetch, discard, nanosleep, pmevent …)",
)
STACK = Effect(
    name="stack",
    description="reads or moves the stack pointer of the function (alloca, stacksave, stackrestore)",
    varies=True,
    needs_semantics=True,
    folded=True,
)
ASYNC_COPY = Effect(
    name="async_copy",
    description="copies memory asynchronously, each lane some bytes (cp.async), or groups and awaits copies",
    reads=True, writes=True, site="load", copies=True, varies=True,
)  # fmt: skip
BULK_COPY = Effect(
    name="bulk_copy",
    description="copies, combines or fills many bytes, and may signal an mbarrier (cp.async.bulk, st.bulk …)",
    reads=True, writes=True, site="load", copies=True,
)  # fmt: skip
TENSOR_MAP = Effect(
    name="tensor_map", description="changes a tensor map (tensormap.replace)", reads=True, writes=True
)
MBARRIER = Effect(
    name="mbarrier",
    description="changes an mbarrier object (mbarrier.init, arrive …), or waits for copies to do so",
    reads=True, writes=True, observes=True, varies=True,
)  # fmt: skip
# not ``varies``: lanes that test one phase of one object together get the same result
MBARRIER_WAIT = Effect(
    name="mbarrier_wait",
    description="asks whether a phase of an mbarrier object is complete; the warp may have to wait",
    reads=True, may_wait=True, observes=True,
)  # fmt: skip
MATRIX = Effect(
    name="matrix",
    description="multiplies or moves fragments of matrices in the registers of a warp (mma, movmatrix …)",
    collective="warp", whole_warp=True, varies=True, needs_semantics=True,
)  # fmt: skip
MATRIX_LOAD = Effect(
    name="matrix_load",
    description="loads fragments of matrices of a whole warp (ldmatrix, wmma.load)",
    reads=True, site="load", collective="warp", whole_warp=True, varies=True, needs_semantics=True,
)  # fmt: skip
MATRIX_STORE = Effect(
    name="matrix_store",
    description="stores fragments of matrices of a whole warp (stmatrix, wmma.store)",
    writes=True, site="store", collective="warp", whole_warp=True, needs_semantics=True,
)  # fmt: skip
WARPGROUP = Effect(
    name="warpgroup",
    description="multiplies matrices of a warpgroup that lie in shared memory (wgmma.mma_async)",
    reads=True, site="load", collective="warpgroup", whole_warp=True, varies=True,
    needs_semantics=True, folded=True,
)  # fmt: skip
WARPGROUP_FENCE = Effect(
    name="warpgroup_fence",
    description="orders registers before products of the warpgroup, whose warps wait for each other (wgmma.fence)",
    may_wait=True,
    orders=True,
)
WARPGROUP_COMMIT = Effect(
    name="warpgroup_commit",
    description="makes a group of the products that the warpgroup has issued (wgmma.commit_group)",
    orders=True,
)
WARPGROUP_WAIT = Effect(
    name="warpgroup_wait",
    description="waits until groups of products of the warpgroup are complete (wgmma.wait_group)",
    may_wait=True,
    orders=True,
)
TENSOR = Effect(
    name="tensor",
    description="moves or multiplies tensor memory, in forms that are not run (tcgen05)",
    reads=True, writes=True, tensor=True, varies=True, needs_semantics=True,
)  # fmt: skip
TENSOR_ALLOC = Effect(
    name="tensor_alloc",
    description="allocates tensor memory, for which the warp may have to wait (tcgen05.alloc)",
    reads=True, writes=True, tensor=True, site="store", may_wait=True,
)  # fmt: skip
TENSOR_FREE = Effect(
    name="tensor_free",
    description="frees tensor memory, or gives up allocating it (tcgen05.dealloc, relinquish_alloc_permit)",
    reads=True, writes=True, tensor=True,
)  # fmt: skip
TENSOR_LOAD = Effect(
    name="tensor_load",
    description="loads tensor memory of the lanes of a warp (tcgen05.ld)",
    reads=True, tensor=True, collective="warp", whole_warp=True, varies=True,
)  # fmt: skip
TENSOR_STORE = Effect(
    name="tensor_store",
    description="stores to tensor memory of the lanes of a warp (tcgen05.st)",
    writes=True, tensor=True, collective="warp", whole_warp=True,
)  # fmt: skip
TENSOR_COPY = Effect(
    name="tensor_copy",
    description="copies a matrix from shared to tensor memory (tcgen05.cp)",
    reads=True, writes=True, tensor=True, site="load",
)  # fmt: skip
TENSOR_PRODUCT = Effect(
    name="tensor_product",
    description="multiplies matrices in shared and tensor memory (tcgen05.mma)",
    reads=True, writes=True, tensor=True, site="load",
)  # fmt: skip
TENSOR_SHIFT = Effect(
    name="tensor_shift",
    description="moves the rows of a matrix in tensor memory (tcgen05.shift)",
    reads=True, writes=True, tensor=True,
)  # fmt: skip
TENSOR_ORDER = Effect(
    name="tensor_order",
    description="orders accesses of tensor memory (tcgen05.wait, tcgen05.fence)",
    orders=True,
)
TEXTURE = Effect(
    name="texture",
    description="reads an image through a texture or surface (tex, tld4, suld)",
    reads=True,
    varies=True,
    needs_semantics=True,
)
SURFACE = Effect(
    name="surface",
    description="changes an image through a surface (sust, sured)",
    reads=True,
    writes=True,
    needs_semantics=True,
)
IMAGE_QUERY = Effect(
    name="image_query",
    description="asks for properties of a texture, sampler or surface (txq, suq, istypep)",
    needs_semantics=True,
)
#: No row has it: slices replace matrix products by it if they do not compute the operands.
CONVERGENCE = Effect(
    name="convergence",
    description="waits for all lanes of the warp, as a matrix product does",
    collective="warp", whole_warp=True,
)  # fmt: skip

EFFECTS: tuple[Effect, ...] = tuple(value for value in globals().values() if isinstance(value, Effect))


def _identity(handler: Callable[..., object]) -> tuple[str, str]:
    """Module and name, which stay equal if a module is imported again, as by pytest inside pytest."""
    return handler.__module__, handler.__qualname__


class Handlers(Generic[Handler]):
    """The handlers of a backend: ``@handles(LOAD, STORE)`` makes a function the handler of both effects.

    An effect has at most one handler (``ValueError``). All handlers of a backend have the same signature.
    """

    def __init__(self) -> None:
        self._of: dict[Effect, Handler] = {}

    def __call__(self, *effects: Effect) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            for effect in effects:
                before = self._of.get(effect)
                if before is not None and _identity(before) != _identity(handler):
                    raise ValueError(f"{effect.name} has a handler already: {before.__name__}")
                self._of[effect] = handler
            return handler

        return register

    def __contains__(self, effect: Effect) -> bool:
        return effect in self._of

    def __iter__(self) -> Iterator[Effect]:
        return iter(self._of)

    def for_effect(self, effect: Effect) -> Handler | None:
        """The handler of an effect, or ``None``."""
        return self._of.get(effect)
