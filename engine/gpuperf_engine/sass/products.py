"""Machine instructions that multiply matrices held by a warp: what they compute, which registers they use, and how long they take."""

from __future__ import annotations

import re
from functools import lru_cache

from ..machines.products import Cost, Product, cost_of

__all__ = ["PRODUCTS", "machine_cost", "machine_product", "product_registers"]

PRODUCTS = frozenset(["HMMA", "IMMA", "BMMA", "DMMA", "QMMA", "OMMA"])
#: Rows, columns (8) and depth: ``HMMA.16816``, ``DMMA.8x8x4``.
_SHAPE = re.compile(r"(16|8)(x?)8\2(\d+)")
_TYPES = {
    "S8": "s8", "U8": "s8", "S4": "s4", "U4": "s4", "BF16": "bf16", "TF32": "tf32", "E4M3": "e4m3", "E5M2": "e5m2",
    "E3M2": "e3m2", "E2M3": "e2m3", "E2M1": "e2m1",
}  # fmt: skip
#: Factors of opcodes that do not name their type.
_UNNAMED = {"HMMA": "f16", "BMMA": "b1", "DMMA": "f64"}
#: Bits of an element in a register, by type; for 8-bit and smaller floats by opcode.
_BITS = {"f64": 64, "tf32": 32, "bf16": 16, "f16": 16, "s8": 8, "s4": 4, "b1": 1}
_FLOATS = {"QMMA": 8, "OMMA": 4}


@lru_cache(maxsize=1024)
def machine_product(opcode: str) -> Product | None:
    """What ``HMMA.SP.16816.F32.TF32`` and others compute; ``None`` for opcodes that are none of ``PRODUCTS``, or not known here."""
    read = _read(opcode)
    if read is None:
        return None
    rows, depth, types = read
    words = opcode.split(".")
    done = rows * 8 * depth
    if _is_step(words):
        # of four products, one per quad pair, a half or a quarter
        done = 4 * done // (4 if "F32" in words[2:3] else 2)
    return Product(opcode, types, done // 2 if "SP" in words else done, rows * 8)


@lru_cache(maxsize=1024)
def product_registers(opcode: str) -> tuple[int, int, int, int] | None:
    """Registers of the operands a, b and c and of the result; ``None`` as for ``machine_product``."""
    read = _read(opcode)
    if read is None:
        return None
    rows, depth, types = read
    base, *words = opcode.split(".")
    if _is_step([base, *words]):
        return 2, 2, 2, 2
    bits = _FLOATS.get(base) or _BITS[types[0]]
    made = 64 if base == "DMMA" else 16 if "F16" in words and "F32" not in words else 32
    a, b, d = rows * depth * bits, 8 * depth * bits, rows * 8 * made
    a //= 2 if "SP" in words else 1
    return max(1, a // 1024), max(1, b // 1024), d // 1024, d // 1024


def machine_cost(opcode: str, architecture: int) -> Cost | None:
    """The time of a machine product on an architecture (``86``); ``None`` as for ``machine_product``."""
    product = machine_product(opcode)
    return None if product is None else cost_of(product, divmod(architecture, 10))


def _read(opcode: str) -> tuple[int, int, tuple[str, ...]] | None:
    """Rows, depth and the types of the factors."""
    base, *words = opcode.split(".")
    shape = next((match for match in map(_SHAPE.fullmatch, words) if match), None)
    types = tuple(_TYPES[word] for word in words if word in _TYPES) or (_UNNAMED.get(base, ""),)
    if base not in PRODUCTS or shape is None or not types[0]:
        return None
    return int(shape[1]), int(shape[3]), types


def _is_step(words: list[str]) -> bool:
    """Whether it is a step of the products of Volta: ``HMMA.884.F32.F16.STEP2``."""
    return words[:2] == ["HMMA", "884"]
