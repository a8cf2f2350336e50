"""Availability by a module's ``.version`` and ``.target``, other than of instructions (``isa.table.check_available``)."""

from __future__ import annotations

import re

from ..errors import PtxError, nearest
from ..isa.availability import Version
from ..isa.targets import TARGETS
from ..source import Span
from .module import Module
from .text import shorten

__all__ = ["check_target", "check_type", "require"]

#: Types with a minimum version and target.
_TYPES: dict[str, tuple[Version, int]] = {"b128": ((8, 3), 70)}


def check_target(module: Module, name: str, span: Span, newest: Version) -> None:
    """Raises ``PtxError`` if a target is unknown, or newer than the module's version. Unknown targets are allowed in versions after
    the newest known one."""
    first = TARGETS.get(name)
    if first is None and module.version <= newest:
        hint = nearest(name, TARGETS, noun="target")
        raise PtxError(f".target {shorten(name)!r} is not known", span=span, hint=hint)
    if first is not None and module.version < first:
        raise PtxError(
            f".target {name} needs .version {first[0]}.{first[1]}, this module has "
            f"{module.version[0]}.{module.version[1]}",
            span=span,
            hint=f"write .version {first[0]}.{first[1]} or higher",
        )


def require(module: Module, what: str, needs: tuple[Version, int], span: Span) -> None:
    """Raises ``PtxError`` if the module has an older version or a lower target than ``what`` needs."""
    version, target = needs
    number = re.search(r"\d+", module.target)
    if module.version < version or int(number[0] if number else 0) < target:
        raise PtxError(
            f"{what} needs .version {version[0]}.{version[1]} and .target sm_{target}, this module has "
            f"{module.version[0]}.{module.version[1]} and {module.target}",
            span=span,
            hint="compile for a newer target" if module.version >= version else "write a higher .version",
        )


def check_type(module: Module, name: str, span: Span) -> None:
    """Raises ``PtxError`` if the module's version and target do not have a type."""
    if name in _TYPES:
        require(module, f"type .{name}", _TYPES[name], span)
