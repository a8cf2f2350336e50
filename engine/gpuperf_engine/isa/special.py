"""Special registers and predefined constants (manual: "Special Registers", "Predefined Constants")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import PtxError, nearest
from .types import ScalarType, scalar_type

__all__ = ["SPECIAL_REGISTERS", "WARP_SZ", "SpecialForm", "check_register", "special_register"]

#: Lanes of a warp.
WARP_SZ = 32


@dataclass(frozen=True, slots=True)
class SpecialForm:
    """A special register, component included: ``name`` without the percent sign (``tid.x``).

    ``scope`` is where it is constant: ``launch``, ``cta``, ``warp`` or ``thread``; ``clock`` registers change while
    the kernel runs. ``since`` and ``target`` are the PTX version and SM number that introduced it. Programs must not rely on the
    value of ``virtual`` registers (``%smid``, ``%clock`` …).
    """

    name: str
    type: ScalarType
    scope: str
    since: tuple[int, int]
    target: int
    text: str
    virtual: bool = False
    #: the directive that a kernel must have to read it
    directive: str = ""


U32, U64, PRED = scalar_type("u32"), scalar_type("u64"), scalar_type("pred")


def _forms() -> Iterator[SpecialForm]:
    yield from _threads()
    yield from _counters()
    yield from _shared_memory()
    yield from _clusters()


def _threads() -> Iterator[SpecialForm]:
    """Registers with the position of a thread in the grid."""
    for name, scope, text in (
        ("tid", "thread", "index of the thread in its CTA"),
        ("ntid", "launch", "threads of a CTA"),
        ("ctaid", "cta", "index of the CTA in the grid"),
        ("nctaid", "launch", "CTAs of the grid"),
    ):
        yield from (SpecialForm(f"{name}.{axis}", U32, scope, (1, 0), 0, text) for axis in "xyzw")
    yield SpecialForm("laneid", U32, "thread", (1, 3), 0, "index of the lane in its warp")
    yield SpecialForm("warpid", U32, "warp", (1, 3), 0, "index of the warp in its CTA", True)
    yield SpecialForm("nwarpid", U32, "launch", (2, 0), 20, "largest number of warps of a CTA", True)
    yield SpecialForm("smid", U32, "cta", (1, 3), 0, "index of the multiprocessor", True)
    yield SpecialForm("nsmid", U32, "launch", (2, 0), 20, "largest number of multiprocessors", True)
    yield SpecialForm("gridid", U64, "launch", (1, 0), 0, "number of the launch in its context", True)
    for name, text in (
        ("eq", "this lane's bit"),
        ("le", "bits of this lane and those below"),
        ("lt", "bits of the lanes below"),
        ("ge", "bits of this lane and those above"),
        ("gt", "bits of the lanes above"),
    ):
        yield SpecialForm(f"lanemask_{name}", U32, "thread", (2, 0), 20, text)


def _counters() -> Iterator[SpecialForm]:
    """Clocks, performance counters and registers that the driver sets."""
    yield SpecialForm("clock", U32, "clock", (1, 0), 0, "cycle counter", True)
    yield SpecialForm("clock_hi", U32, "clock", (5, 0), 20, "upper half of %clock64", True)
    yield SpecialForm("clock64", U64, "clock", (2, 0), 20, "cycle counter", True)
    yield SpecialForm("globaltimer", U64, "clock", (3, 1), 30, "nanoseconds", True)
    yield SpecialForm("globaltimer_lo", U32, "clock", (3, 1), 30, "nanoseconds, lower half", True)
    yield SpecialForm("globaltimer_hi", U32, "clock", (3, 1), 30, "nanoseconds, upper half", True)
    for index in range(8):
        old = index < 4
        yield SpecialForm(
            f"pm{index}",
            U32,
            "clock",
            (1, 3) if old else (3, 0),
            0 if old else 20,
            "performance counter",
            True,
        )
        yield SpecialForm(f"pm{index}_64", U64, "clock", (4, 0), 50, "performance counter", True)
    for index in range(32):
        yield SpecialForm(f"envreg{index}", U32, "launch", (2, 1), 0, "set by the driver", True)


def _shared_memory() -> Iterator[SpecialForm]:
    yield SpecialForm(
        "total_smem_size",
        U32,
        "launch",
        (4, 1),
        20,
        "bytes of shared memory of a CTA, in units of allocation",
    )
    yield SpecialForm(
        "aggr_smem_size", U32, "launch", (8, 1), 90, "bytes of shared memory, the system's included"
    )
    yield SpecialForm(
        "dynamic_smem_size", U32, "launch", (4, 1), 20, "bytes of dynamic shared memory of a CTA"
    )
    for name in ("begin", "end", "cap", "0", "1"):
        text = "shared memory reserved for the system"
        yield SpecialForm(f"reserved_smem_offset_{name}", U32, "launch", (7, 6), 80, text, True)


def _clusters() -> Iterator[SpecialForm]:
    """Registers with the position of a CTA in its cluster, and later additions."""
    for name, scope, text in (
        ("clusterid", "cta", "index of the cluster in the grid"),
        ("nclusterid", "launch", "clusters of the grid"),
        ("cluster_ctaid", "cta", "index of the CTA in its cluster"),
        ("cluster_nctaid", "launch", "CTAs of a cluster"),
    ):
        yield from (SpecialForm(f"{name}.{axis}", U32, scope, (7, 8), 90, text) for axis in "xyzw")
    yield SpecialForm("cluster_ctarank", U32, "cta", (7, 8), 90, "rank of the CTA in its cluster")
    yield SpecialForm("cluster_nctarank", U32, "launch", (7, 8), 90, "CTAs of a cluster")
    yield SpecialForm(
        "is_explicit_cluster", PRED, "launch", (7, 8), 90, "whether the launch names a cluster shape"
    )
    for name, type_, text in (
        ("perctamemoryoffset", U64, "address of the CTA's part of the memory per CTA: 0 here, there is none"),
        ("perctamemorysize", U32, "bytes of the memory per CTA: 0 here, as with drivers that have none"),
    ):
        yield SpecialForm(name, type_, "launch", (9, 4), 80, text, directive=".minperctamemory")
    yield SpecialForm("current_graph_exec", U64, "launch", (8, 0), 50, "handle of the running graph", True)


#: By name, without the percent sign, with the component: ``tid.x``, ``laneid``, ``clock64`` …
SPECIAL_REGISTERS: dict[str, SpecialForm] = {form.name: form for form in _forms()}


def special_register(name: str) -> SpecialForm:
    """The special register of that name, without the percent sign. Raises ``PtxError`` (without position)."""
    register = SPECIAL_REGISTERS.get(name)
    if register is None:
        if f"{name}.x" in SPECIAL_REGISTERS:
            raise PtxError(
                f"%{name} is a vector", hint=f"write a component: %{name}.x, %{name}.y or %{name}.z"
            )
        raise PtxError(
            f"unknown special register %{name}",
            hint=nearest(name, SPECIAL_REGISTERS, noun="special register"),
        )
    return register


def check_register(form: SpecialForm, version: tuple[int, int], target: int) -> None:
    """Raises ``PtxError`` (without position) if the module's ``.version`` or ``.target`` lacks the special register."""
    if version < form.since or target < form.target:
        raise PtxError(
            f"%{form.name} needs .version {form.since[0]}.{form.since[1]} and .target sm_{max(form.target, 10)}, "
            f"this module has {version[0]}.{version[1]} and sm_{target}",
            hint="write a higher .version, or compile for a newer target",
        )
