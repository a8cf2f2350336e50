"""A kernel with all it calls, cut into basic blocks that both backends run.

Blocks are numbered densely over the whole program (the entry's first, then each reachable device function's). A block
ends at a branch, return, exit or call, before a label that is a target, *after* every CTA barrier and *before* every
warp-synchronising instruction, so that a warp can stop there with all its registers in their slots. An instruction whose
guard cannot be applied as a mask (``@p call``, ``@p bar.sync``, ``@p shfl.sync``) gets a block of its own, entered by an
uncounted branch on the guard.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ptx.syntax import Function, Guard, Instruction, Register, Variable

__all__ = ["EXIT", "BasicBlock", "Program", "Site"]

#: As a reconvergence point or successor: the (virtual) exit of the block's own function.
EXIT = -1


@dataclass(slots=True, eq=False)
class BasicBlock:
    """``instructions`` execute in order under the warp's active mask; the terminator decides what follows.

    ``kind`` is one of
    ``fall``      → ``successors[0]``
    ``jump``      unguarded ``bra`` (last of ``instructions``) → ``successors[0]``
    ``branch``    on ``guard``: lanes where it holds → ``successors[0]``, others → ``successors[1]``; ``terminator`` is the guarded
                  ``bra``/``ret``/``exit`` if ``counted``, and the last of ``instructions``; a guarded ``ret``/``exit`` has
                  ``successors[0] == EXIT`` and ``leaves`` set to ``"return"`` or ``"exit"``
    ``indirect``  ``brx.idx``: lane value of its index operand i → ``successors[i]``
    ``call``      ``terminator`` is the call; continues at ``successors[0]``
    ``return``    → the function's exit;  ``exit`` → the lanes end;  ``trap`` → error
    ``barrier``   ``terminator`` is a CTA barrier (last of ``instructions``), continues at ``successors[0]``
    ``sync``      ``instructions[0]`` is a warp-synchronising instruction (``exchange`` with ``.sync`` or ``bar.warp.sync``), and the
                  only block kind that may start by waiting; otherwise it ends like ``fall``/``branch``/… see ``ends``
    A block that *starts* with a warp-synchronising instruction has ``synchronises`` set, whatever its kind.
    """

    index: int
    function: int
    label: str
    instructions: tuple[Instruction, ...]
    kind: str
    successors: tuple[int, ...]
    terminator: Instruction | None = None
    guard: Guard | None = None
    counted: bool = False
    leaves: str = ""
    synchronises: bool = False
    #: block where the lanes of a divergent branch meet again (immediate post-dominator), or EXIT
    reconvergence: int = EXIT
    #: successors that are reached by a back edge of this block
    back_edges: frozenset[int] = frozenset()
    #: a back edge from here costs this much fuel: 64 in loops that may wait for other threads, else 1
    fuel: int = 1
    #: registers (of this function) live at the start and at the end
    live_in: frozenset[Register] = frozenset()
    live_out: frozenset[Register] = frozenset()
    #: instructions that count in this block (0 for the blocks made for guarded calls and barriers)
    counts: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One memory instruction: its place among the per-site counters."""

    index: int
    block: int
    instruction: Instruction
    space: str  # as written: global shared local const param generic
    kind: str  # load store atomic reduction
    bytes: int  # per lane, all elements of a vector


@dataclass(eq=False)
class Program:
    """What a backend runs. ``entries[i]`` is the first block of ``functions[i]``; function 0 is the kernel.

    ``predicated`` lists the guarded instructions that are executed under a mask within blocks (the position is their
    counter); ``uniform`` holds the registers proved equal in all lanes of a warp, per function.
    """

    kernel: Function
    functions: tuple[Function, ...]
    entries: tuple[int, ...]
    blocks: tuple[BasicBlock, ...]
    sites: tuple[Site, ...]
    predicated: tuple[Instruction, ...]
    uniform: tuple[frozenset[Register], ...]
    #: call graph is recursive: functions that may be active more than once per lane
    recursive: frozenset[int]
    #: no CTA can observe the order in which CTAs run: they may run in parallel
    order_free: bool
    #: static shared variables with their offsets; dynamic shared memory begins at ``shared_static``
    shared: dict[Variable, int] = field(default_factory=dict)
    shared_static: int = 0
    #: per-thread local variables with their offsets, all functions side by side; bytes in all
    local: dict[Variable, int] = field(default_factory=dict)
    local_bytes: int = 0
    #: the variable of ``.extern .shared`` arrays; all start at ``shared_static``
    dynamic_shared: tuple[Variable, ...] = ()
    site_of: dict[Instruction, int] = field(default_factory=dict)
    predicated_of: dict[Instruction, int] = field(default_factory=dict)
    function_of: dict[str, int] = field(default_factory=dict)
