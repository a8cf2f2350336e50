"""Matrix products, and how long they take by shape and types: ``machines/products.yaml``, read strictly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from ..errors import nearest
from .schema import SCHEMA_VERSION, UNITS
from .yaml_nodes import Entry, read_yaml

__all__ = ["FACTORS", "Cost", "Product", "cost_of", "load_products", "product_of", "rate_of"]

#: Types of factors, the widest first.
FACTORS = (
    "f64", "tf32", "bf16", "f16", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "s8", "u8", "s4", "u4", "b1",
)  # fmt: skip
_OTHERS = ("f32", "s32")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
#: Multiply-adds in half precision of an instruction of the tensor unit (m16n8k8), and of one of another unit.
_TENSOR, _LANES = 1024, 32


@dataclass(frozen=True, slots=True)
class Product:
    """d = a · b + c, as one instruction. ``types`` are those of the factors; ``multiply_adds``: of a sparse a only those of its
    stored elements; ``results``: elements of d; ``warps``: that execute it together."""

    opcode: str
    types: tuple[str, ...]
    multiply_adds: int
    results: int
    warps: int = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """The unit that executes a product, its number of instructions of 32 lanes for each warp, and how many of them are on the
    dependence chain from operand to result."""

    unit: str
    instructions: float
    chain: int


@dataclass(frozen=True, slots=True)
class _Entry:
    types: tuple[str, ...]
    patterns: tuple[str, ...]
    capabilities: tuple[str, ...]
    unit: str
    rate: float
    other: str
    least: int
    chain: int

    def has(self, opcode: str, type: str, capability: str) -> bool:
        return (
            type in self.types
            and (not self.capabilities or capability in self.capabilities)
            and (not self.patterns or any(fnmatchcase(opcode, pattern) for pattern in self.patterns))
        )


@lru_cache(maxsize=1024)
def product_of(opcode: str) -> Product | None:
    """What an ``mma``, ``wmma.mma`` or ``wgmma.mma_async`` computes; ``None`` for all other opcodes."""
    name, *words = opcode.split(".")
    if name not in ("mma", "wmma", "wgmma"):
        return None
    shape = next((match for match in map(_SHAPE.fullmatch, words) if match), None)
    if shape is None or words[0] in ("load", "store"):
        return None
    types = [word for word in words if word in FACTORS or word in _OTHERS]
    factors = ("f16",) if name == "wmma" and len(types) == 2 else tuple(types[1:3])
    m, n, k = map(int, shape.groups())
    if shape[0] == "m8n8k4" and name == "mma" and "f16" in factors:
        m *= 4  # four independent products, one per quad pair
    if words[0].startswith("sp") or "sp" in words:
        k //= 2
    return Product(opcode, factors, m * n * k, m * n, 4 if name == "wgmma" else 1)


def cost_of(product: Product, capability: tuple[int, int]) -> Cost:
    """The time of a product on a compute capability, by its widest factor."""
    entry, least, chain = _entry_of(product, capability)
    done = product.multiply_adds * max(1.0, least / product.results) / product.warps
    if entry.unit != "tensor":
        return Cost(entry.unit, done / _LANES, chain)
    return Cost("tensor", done / (_TENSOR * entry.rate), chain)


def rate_of(type: str, capability: tuple[int, int], opcode: str = "") -> tuple[str, int]:
    """The unit that executes products with factors of a type, and its multiply-adds per instruction; ``opcode``: of an instruction
    that has an entry of its own."""
    entry, _, _ = _entry_of(Product(opcode, (type,), 1, 1), capability)
    return entry.unit, round(_TENSOR * entry.rate) if entry.unit == "tensor" else _LANES


def _entry_of(product: Product, capability: tuple[int, int]) -> tuple[_Entry, int, int]:
    """The entry that counts, with ``least`` and ``chain``."""
    type, name = min(product.types, key=FACTORS.index), f"{capability[0]}.{capability[1]}"
    entry = _find(product.opcode, type, name)
    chain = entry.chain
    if entry.other:
        entry = _find(product.opcode, entry.other, name)
    return entry, entry.least, chain


@lru_cache(maxsize=4096)
def _find(opcode: str, type: str, capability: str) -> _Entry:
    return next(entry for entry in load_products() if entry.has(opcode, type, capability))


@lru_cache(maxsize=1)
def load_products(path: Path | None = None) -> tuple[_Entry, ...]:
    """All entries in order. Raises :class:`MachineError`, with position, for a malformed file."""
    top = read_yaml(path or Path(str(files("gpuperf_engine") / "machines" / "products.yaml"))).mapping()
    schema = top.take("schema").integer(minimum=1)
    if schema != SCHEMA_VERSION:
        raise top.at("schema").fault(
            f"schema {schema} is not known", f"this version reads schema {SCHEMA_VERSION}"
        )
    sources = [*top.take("sources").mapping().fields, "assumed"]
    entries = tuple(_entry(entry, sources) for entry in top.take("products").sequence())
    top.finish(["schema", "sources", "products"])
    return entries


def _entry(entry: Entry, sources: list[str]) -> _Entry:
    fields = entry.mapping()
    types = tuple(_known(item, FACTORS, "type") for item in fields.take("types").sequence())
    patterns, capabilities = (
        tuple(item.text() for item in fields.take(key).sequence()) if key in fields else ()
        for key in ("match", "capabilities")
    )
    if sum(key in fields for key in ("rate", "unit", "as")) != 1:
        raise entry.fault("expected one of rate, unit and as")
    source = fields.take("source")
    if _known(source, sources, "source") == "assumed" and "note" not in fields:
        raise source.fault("an assumed rate without a note", "state in note: where it comes from")
    fields.finish(
        ["types", "match", "capabilities", "rate", "unit", "as", "least", "chain", "source", "note"]
    )
    return _Entry(
        types,
        patterns,
        capabilities,
        _known(fields.take("unit"), UNITS, "unit") if "unit" in fields else "tensor",
        fields.take("rate").number(minimum=0.001) if "rate" in fields else 0.0,
        _known(fields.take("as"), FACTORS, "type") if "as" in fields else "",
        fields.take("least").integer(minimum=1) if "least" in fields else 1,
        fields.take("chain").integer(minimum=1) if "chain" in fields else 1,
    )


def _known(entry: Entry, names: tuple[str, ...] | list[str], noun: str) -> str:
    if entry.text() not in names:
        raise entry.fault(f"unknown {noun} {entry.text()!r}", nearest(entry.text(), names, noun=noun))
    return entry.text()
