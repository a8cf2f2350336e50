"""Scalar types of PTX (manual section "Fundamental Types") and what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["BITS", "FLOAT", "INT", "SCALAR_TYPES", "SIGNED", "UNSIGNED", "ScalarType", "scalar_type"]


@dataclass(frozen=True, slots=True, eq=False)
class ScalarType:
    """One scalar type, of which there is one object each: ``kind`` is ``s``, ``u``, ``b``, ``f`` (IEEE), ``bf`` (bfloat16), ``tf``
    (tf32), ``x`` (other narrow floats and packed formats) or ``pred``; ``bits`` its width; ``lanes`` 2 or 4 for packed types such as
    ``f16x2``."""

    name: str
    kind: str
    bits: int
    lanes: int = 1
    bytes: int = field(init=False, repr=False)
    is_float: bool = field(init=False, repr=False)
    is_signed: bool = field(init=False, repr=False)
    is_integer: bool = field(init=False, repr=False)
    is_bits: bool = field(init=False, repr=False)
    is_predicate: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # analyses and backends read these constantly, and reading an attribute takes a tenth of the time of a property
        derived = {
            "bytes": max(1, self.bits // 8),
            "is_float": self.kind in ("f", "bf", "tf", "x"),
            "is_signed": self.kind == "s",
            "is_integer": self.kind in ("s", "u"),
            "is_bits": self.kind == "b",
            "is_predicate": self.kind == "pred",
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], ScalarType], tuple[str]]:
        return scalar_type, (self.name,)


def _types() -> dict[str, ScalarType]:
    types = [ScalarType(f"{kind}{bits}", kind, bits) for kind in "sub" for bits in (8, 16, 32, 64)]
    types += [ScalarType("b128", "b", 128), ScalarType("pred", "pred", 1)]
    types += [ScalarType(f"f{bits}", "f", bits) for bits in (16, 32, 64)]
    types += [
        ScalarType("f16x2", "f", 32, 2),
        ScalarType("bf16", "bf", 16),
        ScalarType("bf16x2", "bf", 32, 2),
    ]
    types += [ScalarType("f32x2", "f", 64, 2), ScalarType("tf32", "tf", 32)]
    types += [ScalarType(name, "x", 8) for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "ue8m0", "ue4m3")]
    for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "ue8m0", "ue5m3", "s2f6"):
        types.append(ScalarType(f"{name}x2", "x", 8 if name == "e2m1" else 16, 2))
    for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1"):
        types.append(ScalarType(f"{name}x4", "x", 16 if name == "e2m1" else 32, 4))
    types += [ScalarType("e2m1p4x4", "x", 32, 4), ScalarType("ue8m0x4", "x", 32, 4)]
    types += [ScalarType("u16x2", "u", 32, 2), ScalarType("s16x2", "s", 32, 2)]
    types += [ScalarType("u8x4", "u", 32, 4), ScalarType("s8x4", "s", 32, 4)]
    return {scalar.name: scalar for scalar in types}


SCALAR_TYPES: dict[str, ScalarType] = _types()

SIGNED = ("s16", "s32", "s64")
UNSIGNED = ("u16", "u32", "u64")
INT = UNSIGNED + SIGNED
BITS = ("b16", "b32", "b64")
FLOAT = ("f32", "f64")


def scalar_type(name: str) -> ScalarType:
    """The type of that PTX name, without the dot. Raises ``KeyError`` for names that are not types."""
    return SCALAR_TYPES[name]
