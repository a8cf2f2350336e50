"""Creates the cases of a test's kernel: one, or one per variant of PTX for different targets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pytest

from gpuperf_engine.errors import EngineError, nearest
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.machines.targets import highest

from .._engine import engine, parse
from ..config.declared import CaseSettings, case_settings
from ..config.settings import Settings
from ..core.fingerprint import kernel_digest
from ..core.mangling import matching, stable_name
from ..sources.base import Alternatives, Compilation, PtxSource
from ..sources.cuda_source import DEFAULT_ARCHITECTURE
from .asking import ptx_of
from .record import CallSite, CaseRecord

if TYPE_CHECKING:
    from gpuperf_engine import Kernel

__all__ = ["Source", "are_alike", "lowest", "make_cases"]

Source: TypeAlias = "str | os.PathLike[str]"
_IDENTIFIER = re.compile(r"[\w$%.]+")
Made: TypeAlias = "tuple[CaseRecord, Kernel]"


def make_cases(
    given: PtxSource | Compilation | Mapping[str, object],
    entry: str | None,
    name: str | None,
    declared: Mapping[str, object],
    item: pytest.Item,
    settings: Settings,
    site: CallSite,
) -> list[Made]:
    """Return the cases of a kernel of a test, each with its kernel of the engine; several if ``given`` maps ``.target`` names or
    machine ids to PTX. Raises ``EngineError``."""
    rules = case_settings(settings, item, declared)
    machines = [*rules.targets, *rules.skipped_targets]
    if isinstance(given, Compilation):
        given = given.compile(lowest(machines, settings.target_files))
    elif isinstance(given, Alternatives):
        given = _selected(given, machines, settings.target_files)
    if isinstance(given, PtxSource):
        return [_case(given, entry, name, declared, settings, site, rules)]
    if not given:
        raise EngineError(
            "no variants were given",
            hint='for example gpuperf.kernel({"sm_80": "k.ptx", "sm_90a": "k90.ptx"})',
        )
    cases = {
        key: _case(
            _variant(text, entry, key, item), entry, name, declared, settings, site, rules, variant=key
        )
        for key, text in given.items()
    }
    shares = _assign(
        {key: case.module.target for key, (case, _) in cases.items()},
        machines,
        settings.target_files,
    )
    for key, (case, _) in cases.items():
        case.settings = replace(
            rules,
            targets=tuple(target for target in rules.targets if shares[target] == key),
            skipped_targets=tuple(target for target in rules.skipped_targets if shares[target] == key),
        )
        case.shadowed = key != list(cases)[-1]
    return list(cases.values())


def _variant(source: object, entry: str | None, target: str, item: pytest.Item) -> PtxSource:
    given = ptx_of(source, entry, str(target), item)
    assert isinstance(given, PtxSource)  # for a target there are no variants
    return given


def _case(
    ptx: PtxSource,
    entry: str | None,
    name: str | None,
    declared: Mapping[str, object],
    settings: Settings,
    site: CallSite,
    rules: CaseSettings,
    variant: str = "",
) -> Made:
    module = parse(ptx.text, ptx.path)
    if entry is None or not _IDENTIFIER.fullmatch(entry):  # a name expression, such as axpy<float>
        entry = ptx.entry or entry
    if entry is None:
        kernels = list(module.kernels)
        if len(kernels) != 1:
            raise EngineError(
                f"{ptx.path} has {len(kernels)} kernels: name one with entry=",
                hint=nearest("", kernels, noun="kernel"),
            )
        entry = kernels[0]
    elif entry not in module.kernels:
        alike = matching(entry, module.kernels)
        entry = alike[0] if len(alike) == 1 else entry
    function = module[entry]
    base = name or stable_name(entry)
    case = CaseRecord(
        key=f"{base}@{variant}" if variant else base,
        base=base,
        entry=entry,
        source=ptx,
        module=module,
        digest=kernel_digest(ptx.text, entry) if settings.enabled else "",
        settings=rules,
        declared={**declared, "variant": variant},
        site=site,
    )
    return case, function


def lowest(machines: Sequence[str], search: Sequence[str]) -> str:
    """Return the highest architecture whose PTX runs on all machines."""
    capabilities = _capabilities(machines, search)
    return "sm_{}{}".format(*min(capabilities)) if capabilities else DEFAULT_ARCHITECTURE


def are_alike(machines: Sequence[str], search: Sequence[str]) -> bool:
    """Whether all machines have one compute capability, so that architecture-specific PTX (``sm_90a``) runs on all."""
    return len(_capabilities(machines, search)) < 2


def _capabilities(machines: Sequence[str], search: Sequence[str]) -> set[tuple[int, int]]:
    return {load_machine(machine, search).compute_capability for machine in machines}


def _selected(
    given: Alternatives, machines: Sequence[str], search: Sequence[str]
) -> PtxSource | dict[str, PtxSource]:
    """Return the PTX that the machines run, one for all or by ``.target``; the highest if no machine is declared."""
    path = next(iter(given.values())).path.partition("[")[0]
    if not machines:
        return given[highest(given)]
    chosen: dict[str, PtxSource] = {}
    for machine in machines:
        source = given.for_machine(load_machine(machine, search))
        if source is None:
            raise EngineError(
                f"{path} has no PTX that runs on {machine}, which is declared as a target",
                details=[f"it has PTX for {', '.join(given)}"],
                hint="compile it for this machine too, or remove it from the targets",
            )
        chosen[parse(source.text, source.path).target] = source
    return chosen if len(chosen) > 1 else next(iter(chosen.values()))


def _assign(variants: Mapping[str, str], machines: Sequence[str], search: Sequence[str]) -> dict[str, str]:
    """Map each machine to its variant; ``variants`` maps keys to the ``.target`` of their PTX.

    A machine takes the variant of its id, else the most specific of those with a ``.target`` that runs on it.
    """
    known = engine.machine_ids(search)
    for key, target in variants.items():
        if key in known:
            if engine.best_target([target], key, search) is None:
                raise EngineError(
                    f"variant {key!r} is PTX for {target}, which cannot run on that machine",
                    hint="compile it for this machine, or omit it",
                )
        elif key != target:
            raise EngineError(
                f"variant {key!r} is PTX for {target}: its name must be that, or the id of a machine",
                hint=nearest(str(key), [target, *known], noun="name"),
            )
    general = [key for key in variants if key not in known]
    chosen = {}
    for machine in machines:
        best = machine if machine in variants else engine.best_target(general, machine, search)
        if best is None:
            names = ", ".join(f"{key!r}" for key in variants)
            raise EngineError(
                f"no variant of the kernel runs on {machine}, which is declared as a target",
                details=[f"variants: {names}"],
                hint="add PTX that this machine can run, or remove it from the targets",
            )
        chosen[machine] = best
    return chosen
