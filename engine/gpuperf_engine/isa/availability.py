"""Which versions of PTX and which targets have an instruction (manual: "PTX ISA Notes" and "Target ISA Notes" of each one)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import PtxError

__all__ = ["Available", "Needs", "Version"]

Version = tuple[int, int]
#: the lowest PTX version and SM number
Needs = tuple[Version, int]


@dataclass(frozen=True, kw_only=True)
class Available:
    """The PTX versions and targets that accept a syntax line of the table.

    ``since`` is the PTX version, ``target`` the SM number (80 for ``sm_80``) that introduced it. ``requires`` maps a modifier value or
    a combination of values separated by spaces, to its additional requirements. ``also`` is a later PTX version that added a lower
    target. ``removed``: modules of at least this version and at least this target may not use the line. ``variant`` is ``a`` if only
    targets such as ``sm_90a`` accept it. ``only`` lists the targets if higher ones do not accept it: ``100a`` is that target,
    ``100f`` it and the higher targets of its family, with suffix ``f`` or ``a``.
    """

    since: Version = (1, 0)
    target: int = 0
    requires: Mapping[str, Needs] = field(default_factory=dict)
    also: Needs | None = None
    removed: Needs | None = None
    variant: str = ""
    only: tuple[str, ...] = ()

    @classmethod
    def of(cls, since: Version, target: int, only: str, requires: Mapping[str, Needs]) -> Available:
        """From the arguments of a row: ``only`` is one string, and its lowest target becomes ``target``."""
        named = tuple(only.split())
        lowest = min((int(name[:-1]) for name in named), default=target)
        return cls(since=since, target=lowest, requires=dict(requires), only=named)

    def needs(self, words: Collection[object]) -> Needs:
        """The lowest PTX version and SM number that accept the line with these modifiers."""
        version, target = self.since, self.target
        for required, (other_version, other_target) in self.requires.items():
            if all(word in words for word in required.split()):
                version, target = max(version, other_version), max(target, other_target)
        return version, target

    def check(self, opcode: str, needs: Needs, version: Version, target: int, variant: str) -> None:
        """Raises ``PtxError`` (without position) if a module's ``.version`` or ``.target`` does not accept the line."""
        need_version, need_target = needs
        if self.also is not None and self.also[1] <= target < need_target:
            need_version, need_target = self.also
        if version < need_version:
            raise PtxError(
                f"{opcode} needs .version {_dotted(need_version)}, this module has {_dotted(version)}",
                hint=f"write .version {_dotted(need_version)} or higher",
            )
        if self.only and not any(_is_of(target, variant, name) for name in self.only):
            named = " or ".join(f"sm_{name}" for name in self.only)
            family = " (or one of its family)" if self.only[0].endswith("f") else ""
            raise PtxError(
                f"{opcode} is for .target {named} alone, this module has sm_{target}{variant}",
                hint=f"compile for sm_{self.only[0]}{family}",
            )
        if target < need_target or (self.variant and not variant):
            suffix = self.variant
            raise PtxError(
                f"{opcode} needs .target sm_{need_target}{suffix}, this module has sm_{target}{variant}",
                hint=f"compile for sm_{need_target}{suffix}{'' if suffix else ' or higher'}",
            )

    def is_removed(self, version: Version, target: int) -> bool:
        """Whether this PTX version removed the instruction from this target."""
        return self.removed is not None and version >= self.removed[0] and target >= self.removed[1]

    def removal(self, opcode: str, version: Version, target: int, accepted: Sequence[str]) -> PtxError:
        """The error about a removed instruction; ``accepted``: lines that describe its replacements."""
        assert self.removed is not None
        return PtxError(
            f"{opcode} is not available on sm_{self.removed[1]} and higher from .version {_dotted(self.removed[0])} on, "
            f"this module has sm_{target}, {_dotted(version)}",
            details=list(accepted),
        )


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _is_of(target: int, variant: str, name: str) -> bool:
    """Whether a target is the one of that name, or belongs to its family (manual: ".target")."""
    number = int(name[:-1])
    target = 110 if target == 101 else target  # the name of sm_110 before PTX 9.0
    if name.endswith("a"):
        return target == number and variant == "a"
    return target >= number and target // 10 == number // 10 and variant in ("a", "f")
