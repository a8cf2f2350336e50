"""The LLVM backend: programs compiled by LLVM to code of the host, with a warp as vectors of 32 lanes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Hashable
from dataclasses import asdict, replace

from .._gc import uncollected
from ..errors import EngineError, Unsupported
from ..flow.uniformity import analyse_uniformity
from ..memory.arena import Memory
from ..memory.undo import Undo
from ..simt.clusters import waits_for_cluster
from ..simt.counters import Observation
from ..simt.launch import LaunchPlan
from ..simt.program import Program
from . import cache as store
from .codegen.barrier import ArrivesDiverged
from .codegen.function import generate
from .codegen.generator import Generated
from .compiled import Code
from .dispatch import run
from .diverged_warps import may_arrive_diverged
from .forms import note_executed, prefers_shared, runs_much
from .launch import Launch
from .llvm import compile_object, fingerprint, link
from .observation import causes, observation_of
from .runtime_libraries import generation, improve, kernel_in_preparation, runtime_addresses

__all__ = ["LlvmBackend", "code_of"]


#: threads, clustered, diverged, values: see ``code_of``
_Form = tuple[bool, bool, bool, bool]
#: key in a kernel's memo: whether a warp was diverged at one of its barriers
_DIVERGED = "diverged"


class LlvmBackend:
    """Runs programs; see ``device.Backend``."""

    def run(self, program: Program, plan: LaunchPlan, memory: Memory, observe: frozenset[str]) -> Observation:
        """Raises the kernel's error: ``MemoryFault``, ``Deadlock``, ``BudgetExceeded``, ``TrapError``, ``Unsupported``."""
        clustered = plan.cluster_ctas > 1 or program.once(waits_for_cluster)
        memo, threads, values = program.kernel.memo, "threads" in observe, "accesses" in observe
        diverged = bool(memo.get(_DIVERGED))
        form = threads, clustered, diverged, values
        code = code_of(program, plan, *form)
        if isinstance(code, str):
            from ..interp.backend import ReferenceBackend

            observation = ReferenceBackend().run(program, plan, memory, observe)
            kernel = program.kernel
            remark = f"{kernel.span}: {kernel.name!r} runs on the reference backend, which is slow: {code}"
            return replace(observation, remarks=(remark, *observation.remarks))
        undo = Undo(memory) if not diverged and may_arrive_diverged(program, plan) else None
        launch = Launch(
            program, plan, memory, observe, code, clustered, diverged, None if undo is None else undo.keep
        )
        replaceable = code.outlined and program.outlined is None
        if replaceable:
            launch.direct = lambda: _code_in_form(program, form, outlined=False)
        if plan.launcher is not None:
            plan.launcher.begins(launch.stop, launch.refresh_table)
        began = time.perf_counter()
        try:
            run(launch)
        except ArrivesDiverged:
            assert undo is not None
            undo.restore()
            if memory.begin_again is not None:
                memory.begin_again()
            plan.console.clear()
            memo[_DIVERGED] = True
            return self.run(program, plan, memory, observe)
        except EngineError as error:
            error.causes = tuple(causes(launch))
            raise
        finally:
            improve(launch.code.generated.needs, time.perf_counter() - began)
        observation = observation_of(launch)
        observation.waited = plan.launcher is not None and plan.launcher.away
        if replaceable:
            note_executed(program, observation)
            if launch.code.outlined and runs_much(program) and store.folder() is not None:
                # for later processes: a launch of one CTA, for instance, ends in the form in which it begins
                _code_in_form(program, form, outlined=False)
        launch.end()
        return observation


def code_of(
    program: Program,
    plan: LaunchPlan,
    threads: bool = False,
    clustered: bool = False,
    diverged: bool = False,
    values: bool = False,
) -> Code | str:
    """The cached code of a program (with counters per thread, for clusters, with barriers for diverged warps, or with records of
    accessed values), compiled or loaded from disk, in the form that suits a launch (see ``forms``), or the reason why the reference
    backend must run it."""
    form = threads, clustered, diverged, values
    outlined = program.outlined
    if outlined is None:
        there = _memo_key(program, form, False) in program.kernel.memo
        outlined = not there and prefers_shared(program, plan) and not _finds_direct(program, form)
    return _code_in_form(program, form, outlined=outlined)


def _code_in_form(program: Program, form: _Form, *, outlined: bool) -> Code | str:
    memo, key = program.kernel.memo, _memo_key(program, form, outlined)
    if key not in memo:
        memo[key] = _compile(program, form, outlined)
    code = memo[key]
    assert isinstance(code, (Code, str))
    if isinstance(code, Code):
        code.refresh()
    return code


def _memo_key(program: Program, form: _Form, outlined: bool) -> Hashable:
    return "llvm", form, program.variant, outlined


def _finds_direct(program: Program, form: _Form) -> bool:
    """Load direct code of a program that has no code yet from disk, if it is there."""
    memo = program.kernel.memo
    if _memo_key(program, form, True) in memo:
        return False
    code = _stored(program, _store_key(program, form, False), outlined=False)
    if code is not None:
        memo[_memo_key(program, form, False)] = code
    return code is not None


def _store_key(program: Program, form: _Form, outlined: bool) -> str:
    return store.key("program", *_content(program), outlined, *form, fingerprint(0))


@uncollected
@kernel_in_preparation()
def _stored(program: Program, key: str, *, outlined: bool) -> Code | None:
    """The code of a program from disk, if it is there."""
    stored = store.read(key)
    if stored is None:
        return None
    try:
        return _linked(program, outlined, *_unpack(stored))
    except (RuntimeError, ValueError, KeyError):
        return None


@uncollected
@kernel_in_preparation()
def _compile(program: Program, form: _Form, outlined: bool) -> Code | str:
    key = _store_key(program, form, outlined)
    stored = _stored(program, key, outlined=outlined)
    if stored is not None:
        return stored
    source = replace(program, outlined=outlined)
    _, _, diverged, _ = form
    if diverged:
        source = _for_divergence(source)
    try:
        ir, generated = generate(source, _stores_parts_of_words(program), *form)
    except Unsupported as error:
        # the reference backend raises it only if the instruction is reached
        return f"{error.message} ({error.span})"
    try:
        content = compile_object(ir, 0)
        code = _linked(program, outlined, generated, content)
    except RuntimeError as error:
        # LLVM rejects the code, or the host forbids executable memory: the reference backend is slow but runs
        return f"LLVM cannot generate code for it on this host ({str(error).strip().partition(chr(10))[0]})"
    store.keep(key, _pack(generated, content))
    return code


def _content(program: Program) -> tuple[object, ...]:
    """The key of a program's code: the texts of its functions, and which of their instructions it contains."""
    digests = {function.module: function.module.digest for function in program.functions}
    names = [(function.name, digests[function.module]) for function in program.functions]
    instructions = [
        f"{item.span.line}{item.opcode}{item.span.column}"
        for block in program.blocks
        for item in block.instructions
    ]
    return (
        program.variant,
        names,
        hashlib.blake2b("".join(instructions).encode(), digest_size=16).digest(),
    )


def _for_divergence(program: Program) -> Program:
    """The program with analyses that allow lanes of a warp to wait at a barrier while others continue."""
    return replace(
        program,
        uniformity=tuple(
            analyse_uniformity(
                function,
                program.blocks_of(number),
                assume_divergent=True,
                recursive=number in program.recursive,
            )
            for number, function in enumerate(program.functions)
        ),
    )


def _linked(program: Program, outlined: bool, generated: Generated, content: bytes) -> Code:
    addresses = runtime_addresses(generated.needs)
    return Code(program, outlined, generated, content, link([content], ("warp",), addresses), generation())


def _pack(generated: Generated, content: bytes) -> bytes:
    head = json.dumps(asdict(generated)).encode()
    return len(head).to_bytes(8, "little") + head + content


def _unpack(raw: bytes) -> tuple[Generated, bytes]:
    size = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8 : 8 + size])
    head["needs"] = tuple(head["needs"])
    slots = [{int(index): (offset, same) for index, (offset, same) in item.items()} for item in head["slots"]]
    constants = [{int(index): pattern for index, pattern in item.items()} for item in head["constants"]]
    head["slots"], head["constants"] = tuple(slots), tuple(constants)
    return Generated(**head), raw[8 + size :]


def _stores_parts_of_words(program: Program) -> bool:
    """Whether shared memory may be written in pieces smaller than a word, which requires a shadow per byte."""
    return any(
        site.kind != "load" and site.instruction.form.space in ("shared", "generic") and site.bytes < 4
        for site in program.sites
    )
