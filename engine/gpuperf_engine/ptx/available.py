"""What a module may use by its ``.version`` and ``.target``, other than instructions (``isa.table.check_available``).

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import re

from ..errors import PtxError
from ..isa.model import Version
from ..source import Span
from .syntax import Module

__all__ = ["check_target", "check_type", "require"]

#: The version of PTX that introduced a target (PTX manual, "Release Notes").
_TARGETS: dict[int, Version] = {
    10: (1, 0), 11: (1, 0), 12: (1, 2), 13: (1, 2), 20: (2, 0), 21: (2, 0), 30: (3, 0), 32: (4, 0), 35: (3, 1), 37: (4, 1),
    50: (4, 0), 52: (4, 1), 53: (4, 2), 60: (5, 0), 61: (5, 0), 62: (5, 0), 70: (6, 0), 72: (6, 1), 75: (6, 3), 80: (7, 0),
    86: (7, 1), 87: (7, 4), 88: (9, 0), 89: (7, 8), 90: (7, 8), 100: (8, 6), 101: (8, 6), 103: (8, 8), 110: (9, 0),
    120: (8, 7), 121: (8, 8),
}  # fmt: skip
#: The same for all targets of a kind: ``sm_90a``, ``sm_100f``.
_KINDS: dict[str, Version] = {"": (1, 0), "a": (8, 0), "f": (8, 8)}
#: Types that older versions do not have.
_TYPES: dict[str, tuple[Version, int]] = {"b128": ((8, 3), 70)}


def check_target(module: Module, span: Span) -> None:
    """Raises ``PtxError`` if the module's version is older than its target."""
    found = re.fullmatch(r"sm_(\d+)([af]?)", module.target)
    if found is None or int(found[1]) not in _TARGETS:
        return
    first = max(_TARGETS[int(found[1])], _KINDS[found[2]])
    if module.version < first:
        raise PtxError(
            f".target {module.target} needs .version {first[0]}.{first[1]}, this module has "
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
    """Raises ``PtxError`` if the module has no registers and variables of a type."""
    if name in _TYPES:
        require(module, f"type .{name}", _TYPES[name], span)
