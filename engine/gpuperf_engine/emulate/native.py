"""The native backend: a program compiled through LLVM, one warp as 32-lane vectors, run at the speed of the machine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ..errors import Unsupported
from ..ptx.syntax import CallTarget
from .launch import LaunchPlan
from .memory import Memory
from .native_codegen import Generated, generate
from .native_jit import Library, load, runtime_addresses
from .native_launch import Launch
from .observe import Observation
from .program import Program

__all__ = ["Code", "NativeBackend", "code_of"]


@dataclass
class Code:
    """A compiled program."""

    generated: Generated
    library: Library

    @property
    def entry(self) -> int:
        """Address of the warp function."""
        return self.library.addresses["warp"]


class NativeBackend:
    """Runs programs; see ``device.Backend``."""

    def run(self, program: Program, plan: LaunchPlan, memory: Memory, observe: frozenset[str]) -> Observation:
        """Raises what the kernel deserves: ``MemoryFault``, ``Deadlock``, ``BudgetExceeded``, ``TrapError``, ``Unsupported``."""
        code = code_of(program)
        if code is None:
            from .lanes import LanesBackend

            return LanesBackend().run(program, plan, memory, observe)
        launch = Launch(program, plan, memory, observe, code)
        launch.run_rounds()
        memory.settle()
        return launch.observation()


def code_of(program: Program) -> Code | None:
    """The program's code, compiled or loaded once; ``None`` if it must be left to the reference backend."""
    memo = program.kernel.memo
    if "native" not in memo:
        memo["native"] = None if _too_rare(program) else _compile(program)
    found = memo["native"]
    assert found is None or isinstance(found, Code)
    return found


def _compile(program: Program) -> Code | None:
    try:
        generated = generate(program, _stores_parts_of_words(program))
    except Unsupported:
        # raised by the reference backend where the instruction is reached, if it is
        return None
    imports = runtime_addresses(generated.needs)
    digest = hashlib.blake2b(generated.text.encode()).hexdigest()
    library = load(digest, lambda: generated.text, 0, ("warp",), imports)
    return Code(generated, library)


def _stores_parts_of_words(program: Program) -> bool:
    """Whether shared memory may be written in pieces smaller than a word: then its shadow is kept byte by byte."""
    return any(
        site.kind != "load" and site.bytes < 4 and site.space in ("shared", "generic") for site in program.sites
    )


def _too_rare(program: Program) -> bool:
    """Recursion, barriers at which warps may arrive in parts, and indirect calls among lanes that take turns."""
    split = any(item.may_split for item in program.uniformity)
    for block in program.blocks:
        terminator = block.terminator
        if terminator is None:
            continue
        if block.kind == "barrier" and terminator.spelling.row.name == "barrier" and "aligned" not in terminator.opcode:
            if split or any(item.kind in ("branch", "indirect") for item in program.blocks):
                return True
        if block.kind == "call" and split:
            if any(isinstance(item, CallTarget) and item.function is None for item in terminator.operands):
                return True
    return bool(program.recursive)
