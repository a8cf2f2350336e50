"""Target architectures and the PTX version that introduced each (manual: ".target", "PTX ISA Notes")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

__all__ = ["TARGETS", "sm_number"]

Version = tuple[int, int]
#: version → numbers of the architectures with the letters that came with it: ``-`` for none
_INTRODUCED: tuple[tuple[Version, str], ...] = (
    ((1, 0), "10- 11-"),
    ((1, 2), "12- 13-"),
    ((2, 0), "20-"),
    ((3, 0), "30-"),
    ((3, 1), "35-"),
    ((4, 0), "32- 50-"),
    ((4, 1), "37- 52-"),
    ((4, 2), "53-"),
    ((5, 0), "60- 61- 62-"),
    ((6, 0), "70-"),
    ((6, 1), "72-"),
    ((6, 3), "75-"),
    ((7, 0), "80-"),
    ((7, 1), "86-"),
    ((7, 4), "87-"),
    ((7, 8), "89- 90-"),
    ((8, 0), "90a"),
    ((8, 6), "100-a 101-a"),
    ((8, 7), "120-a"),
    ((8, 8), "100f 101f 103-af 120f 121-af"),
    ((9, 0), "88- 110-af"),
    ((9, 4), "107-af"),
)


def _targets() -> Iterator[tuple[str, Version]]:
    for version, words in _INTRODUCED:
        for word in words.split():
            number = word.rstrip("-af")
            for letter in word[len(number) :]:
                yield f"sm_{number}{letter.strip('-')}", version


#: Name → the PTX version that introduced it.
TARGETS: Mapping[str, Version] = MappingProxyType(dict(_targets()))


def sm_number(target: str) -> int:
    """90 for ``sm_90a``; 0 for a name without a number."""
    return int("".join(filter(str.isdigit, target)) or 0)
