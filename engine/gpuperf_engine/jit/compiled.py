"""A compiled program in memory, and the state that its launches keep for the next one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ..simt.launch import Dim3
from ..simt.program import Program
from .codegen.generator import Generated
from .forms import instructions_of
from .llvm import Library, link
from .runtime_libraries import generation, runtime_addresses
from .site_tables import SiteTables
from .slots import Slot
from .worker_context import WorkerContext

__all__ = ["Code"]


@dataclass
class Code:
    """A compiled program: its object file, and the library linked from it."""

    program: Program
    #: whether its instructions share functions, see ``forms``
    outlined: bool
    generated: Generated
    content: bytes
    library: Library
    generation: int
    #: slots of earlier launches for reuse, by the key of interchangeable slots
    slots: dict[tuple[int, ...], Slot] = field(default_factory=dict)
    #: zeroed contexts of earlier launches for later ones
    contexts: list[WorkerContext] = field(default_factory=list)
    #: grid and block of the last launch, if it took so little time that other host threads were not considered
    brief: tuple[Dim3, Dim3] | None = None

    @cached_property
    def instructions(self) -> int:
        """The instructions of the program, with inlined functions wherever they are called."""
        return self.program.once(instructions_of)

    @cached_property
    def tables(self) -> SiteTables:
        """The tables about the program's sites that compiled code reads."""
        return SiteTables(self.program)

    def refresh(self) -> None:
        """Link against the most optimised runtime functions available."""
        if self.generation != generation():
            self.generation = generation()
            self.library = link([self.content], ("warp",), runtime_addresses(self.generated.needs))
