"""From what a test declares to its cases: one per kernel, or one per variant of PTX made for different targets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pytest

from gpuperf_engine.errors import EngineError, nearest

from .._engine import engine, parse
from ..config.declared import CaseSettings, case_settings
from ..config.settings import Settings
from ..core.fingerprint import kernel_digest
from ..core.mangling import stable_name
from ..sources.base import PtxSource
from .asking import ptx_of
from .record import CallSite, CaseRecord

if TYPE_CHECKING:
    from gpuperf_engine import Kernel

__all__ = ["Source", "make_cases"]

Source: TypeAlias = "str | os.PathLike[str]"
Made: TypeAlias = "tuple[CaseRecord, Kernel]"


def make_cases(
    source: Source | Mapping[str, Source],
    entry: str | None,
    name: str | None,
    declared: Mapping[str, object],
    item: pytest.Item,
    settings: Settings,
    site: CallSite,
) -> list[Made]:
    """The cases that a kernel of a test makes, each with its function of the engine; several where ``source`` maps ``.target``
    names or machine ids to PTX. Raises ``EngineError``."""
    rules = case_settings(settings, item, declared)
    given = ptx_of(source, entry, "", item)
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
        [*rules.targets, *rules.skipped_targets],
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
    entry = entry or ptx.entry or None
    if entry is None:
        kernels = list(module.kernels)
        if len(kernels) != 1:
            raise EngineError(
                f"{ptx.path} has {len(kernels)} kernels: say which one with entry=",
                hint=nearest("", kernels, noun="kernel"),
            )
        entry = kernels[0]
    elif entry not in module.kernels:
        alike = [kernel for kernel in module.kernels if stable_name(kernel) == entry]
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


def _assign(variants: Mapping[str, str], machines: Sequence[str], search: Sequence[str]) -> dict[str, str]:
    """Machine → the variant it gets; ``variants`` maps keys to the ``.target`` of their PTX.

    A machine gets the variant named after it, else of those named after a ``.target`` the most specific that runs on it.
    """
    known = engine.machine_ids(search)
    for key, target in variants.items():
        if key in known:
            if engine.best_target([target], key, search) is None:
                raise EngineError(
                    f"variant {key!r} is PTX for {target}, which cannot run on that machine",
                    hint="compile it for this machine, or leave it out",
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
                hint="add PTX that this machine can run, or leave it out of the targets",
            )
        chosen[machine] = best
    return chosen
