"""Instructions that random kernels are made of: everything without a last bit that PTX leaves open.

A line is PTX with places to fill: ``@D`` a destination and ``@S`` a source (register or constant), ``@R`` a
source register,
followed by the kind: ``r`` 32 bits, ``d`` 64 bits, ``h`` 16 bits, ``p`` predicate, ``f`` float, ``e`` double, ``x`` half,
``y`` two halves in 32 bits; ``@#N`` is a constant of 0 to N − 1.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["INSTRUCTIONS"]


def spread(line: str, *choices: str) -> Iterable[str]:
    """The line with ``*`` replaced by each of the space-separated choices in turn."""
    for choice in " ".join(choices).split():
        yield line.replace("*", choice)


COMPARE = "eq ne lt le gt ge"
UNSIGNED = "lo ls hi hs"
UNORDERED = "equ neu ltu leu gtu geu num nan"
ROUND = "rn rz rm rp"

INSTRUCTIONS: tuple[str, ...] = (
    # 32-bit integers
    *spread("add.* @Dr, @Sr, @Sr", "s32 u32 sat.s32"),
    *spread("sub.* @Dr, @Sr, @Sr", "s32 u32 sat.s32"),
    *spread("mul.*.s32 @Dr, @Sr, @Sr", "lo hi"),
    *spread("mul.*.u32 @Dr, @Sr, @Sr", "lo hi"),
    *spread("mad.*.s32 @Dr, @Sr, @Sr, @Sr", "lo hi hi.sat"),
    *spread("mad.*.u32 @Dr, @Sr, @Sr, @Sr", "lo hi"),
    *spread("mul24.*.u32 @Dr, @Sr, @Sr", "lo hi"),
    *spread("mad24.*.s32 @Dr, @Sr, @Sr, @Sr", "lo hi"),
    *spread("sad.* @Dr, @Sr, @Sr, @Sr", "s32 u32"),
    *spread("div.* @Dr, @Sr, @Sr", "s32 u32"),
    *spread("rem.* @Dr, @Sr, @Sr", "s32 u32"),
    *spread("min.* @Dr, @Sr, @Sr", "s32 u32"),
    *spread("max.* @Dr, @Sr, @Sr", "s32 u32"),
    *spread("*.s32 @Dr, @Sr", "abs neg"),
    *spread("*.b32 @Dr, @Sr", "popc clz brev not cnot"),
    *spread("bfind.* @Dr, @Sr", "u32 s32 shiftamt.u32 shiftamt.s32"),
    *spread("bfe.* @Dr, @Sr, @Rr, @Rr", "u32 s32"),
    *spread("bfe.* @Dr, @Sr, @#256, @#256", "u32 s32"),
    "bfi.b32 @Dr, @Sr, @Sr, @Rr, @Rr",
    "bfi.b32 @Dr, @Sr, @Sr, @#256, @#256",
    *spread("*.b32 @Dr, @Sr, @Sr", "and or xor"),
    "lop3.b32 @Dr, @Sr, @Sr, @Sr, @#256",
    *spread("shl.b32 @Dr, @Sr, @*", "Sr #40"),
    *spread("shr.u32 @Dr, @Sr, @*", "Sr #40"),
    *spread("shr.s32 @Dr, @Sr, @*", "Sr #40"),
    *spread("shf.*.b32 @Dr, @Sr, @Sr, @Sr", "l.wrap l.clamp r.wrap r.clamp"),
    *spread("shf.*.b32 @Dr, @Sr, @Sr, @#40", "l.wrap l.clamp r.wrap r.clamp"),
    *spread("prmt.b32* @Dr, @Sr, @Sr, @Sr", ".f4e .b4e .rc8 .ecl .ecr .rc16"),
    "prmt.b32 @Dr, @Sr, @Sr, @Sr",
    "prmt.b32 @Dr, @Sr, @Sr, @#65536",
    *spread("dp4a.* @Dr, @Rr, @Rr, @Sr", "u32.u32 s32.s32 u32.s32 s32.u32"),
    *spread("dp2a.*.u32.s32 @Dr, @Rr, @Rr, @Sr", "lo hi"),
    "selp.b32 @Dr, @Sr, @Sr, @Rp",
    "slct.s32.s32 @Dr, @Sr, @Sr, @Sr",
    "slct.u32.f32 @Dr, @Sr, @Sr, @Rf",
    *spread("set.*.u32.s32 @Dr, @Sr, @Sr", COMPARE),
    *spread("set.*.s32.f32 @Dr, @Rf, @Rf", COMPARE, UNORDERED),
    *spread("set.*.f32.u32 @Df, @Sr, @Sr", UNSIGNED),
    "mov.b32 @Dr, @Sr",
    "mov.b32 @Dr, {@Rh, @Rh}",
    "mov.b32 {@Dh, @Dh}, @Rr",
    # 64-bit integers
    *spread("*.s64 @Dd, @Sd, @Sd", "add sub mul.lo mul.hi div rem min max"),
    *spread("*.u64 @Dd, @Sd, @Sd", "add sub mul.lo mul.hi div rem min max"),
    *spread("mul.wide.* @Dd, @Sr, @Sr", "s32 u32"),
    *spread("mad.wide.* @Dd, @Sr, @Sr, @Sd", "s32 u32"),
    "mad.lo.s64 @Dd, @Sd, @Sd, @Sd",
    *spread("*.b64 @Dd, @Sd, @Sd", "and or xor"),
    *spread("*.b64 @Dd, @Sd", "not brev"),
    *spread("*.s64 @Dd, @Sd", "abs neg"),
    *spread("*.b64 @Dr, @Sd", "popc clz"),
    *spread("bfind.* @Dr, @Sd", "u64 s64"),
    *spread("shl.b64 @Dd, @Sd, @*", "Sr #70"),
    *spread("shr.u64 @Dd, @Sd, @*", "Sr #70"),
    *spread("shr.s64 @Dd, @Sd, @*", "Sr #70"),
    *spread("bfe.* @Dd, @Sd, @Rr, @Rr", "u64 s64"),
    *spread("bfe.* @Dd, @Sd, @#256, @#256", "u64 s64"),
    "bfi.b64 @Dd, @Sd, @Sd, @#256, @#256",
    "selp.b64 @Dd, @Sd, @Sd, @Rp",
    "mov.b64 @Dd, {@Rr, @Rr}",
    "mov.b64 {@Dr, @Dr}, @Rd",
    # 16-bit integers
    *spread("*.s16 @Dh, @Sh, @Sh", "add sub mul.lo mul.hi div rem min max"),
    *spread("*.u16 @Dh, @Sh, @Sh", "mul.lo mul.hi div rem min max"),
    "mad.lo.u16 @Dh, @Sh, @Sh, @Sh",
    *spread("mul.wide.* @Dr, @Sh, @Sh", "s16 u16"),
    *spread("*.b16 @Dh, @Sh, @Sh", "and or xor"),
    *spread("*.s16 @Dh, @Sh", "abs neg"),
    *spread("shr.* @Dh, @Sh, @Sr", "u16 s16"),
    "shl.b16 @Dh, @Sh, @#20",
    "selp.u16 @Dh, @Sh, @Sh, @Rp",
    # predicates
    *spread("setp.*.s32 @Dp, @Sr, @Sr", COMPARE),
    *spread("setp.*.u32 @Dp, @Sr, @Sr", UNSIGNED, COMPARE),
    *spread("setp.*.s64 @Dp, @Sd, @Sd", COMPARE),
    *spread("setp.*.u64 @Dp, @Sd, @Sd", UNSIGNED),
    *spread("setp.*.s16 @Dp, @Sh, @Sh", COMPARE),
    *spread("setp.*.f32 @Dp, @Rf, @Rf", COMPARE, UNORDERED),
    *spread("setp.*.ftz.f32 @Dp, @Rf, @Rf", COMPARE, UNORDERED),
    *spread("setp.*.f64 @Dp, @Re, @Re", COMPARE, UNORDERED),
    *spread("setp.*.f16 @Dp, @Rx, @Rx", COMPARE, UNORDERED),
    *spread("setp.lt.*.s32 @Dp, @Sr, @Sr, @Rp", "and or xor"),
    *spread("setp.gt.*.u32 @Dp, @Sr, @Sr, !@Rp", "and or xor"),
    *spread("*.pred @Dp, @Rp, @Rp", "and or xor"),
    "not.pred @Dp, @Rp",
    "mov.pred @Dp, @Rp",
    *spread("testp.*.f32 @Dp, @Rf", "finite infinite number notanumber normal subnormal"),
    # conversions
    *spread("cvt.*.u32 @Dr, @Rr", "u8 s8 u16 s16 s32 sat.s8 sat.u8 sat.s16 sat.s32"),
    *spread("cvt.*.s32 @Dr, @Rr", "u8 s8 u16 s16 sat.u8 sat.u16 sat.u32 sat.s8"),
    *spread("cvt.*.u32 @Dd, @Rr", "u64 s64"),
    *spread("cvt.*.s32 @Dd, @Rr", "u64 s64 sat.u64"),
    *spread("cvt.*.s64 @Dr, @Rd", "u32 s32 sat.u32 sat.s32 sat.u8"),
    *spread("cvt.*.u64 @Dr, @Rd", "u32 sat.s32 sat.u16"),
    *spread("cvt.*.u16 @Dr, @Rh", "u32 s32"),
    *spread("cvt.*.s16 @Dr, @Rh", "u32 s32"),
    *spread("cvt.*.u32 @Dh, @Rr", "u16 s16 sat.u16"),
    *spread("cvt.*.f32.s32 @Df, @Rr", ROUND),
    *spread("cvt.*.f32.u32 @Df, @Rr", ROUND),
    *spread("cvt.*.f32.s64 @Df, @Rd", ROUND),
    *spread("cvt.*.f64.u64 @De, @Rd", ROUND),
    "cvt.rn.f64.s32 @De, @Rr",
    *spread("cvt.*.s32.f32 @Dr, @Rf", "rni rzi rmi rpi"),
    *spread("cvt.*.u32.f32 @Dr, @Rf", "rni rzi rmi rpi rzi.ftz"),
    *spread("cvt.*.s64.f64 @Dd, @Re", "rni rzi rmi rpi"),
    *spread("cvt.*.u64.f32 @Dd, @Rf", "rni rzi"),
    *spread("cvt.*.u8.f32 @Dr, @Rf", "rni rzi"),
    *spread("cvt.*.s16.f64 @Dh, @Re", "rni rzi"),
    *spread("cvt.*.f32.f32 @Df, @Rf", "rni rzi rmi rpi sat"),  # .ftz alone leaves the bits of a NaN open
    "cvt.f64.f32 @De, @Rf",
    *spread("cvt.*.f32.f64 @Df, @Re", ROUND, "rn.ftz rn.sat"),
    *spread("cvt.*.f16.f32 @Dx, @Rf", "rn rz"),
    "cvt.f32.f16 @Df, @Rx",
    "cvt.rn.f16.s32 @Dx, @Rr",
    "cvt.rzi.s32.f16 @Dr, @Rx",
    # floats; their bits travel through integers
    "mov.b32 @Df, @Sr",
    "mov.b32 @Dr, @Rf",
    "mov.b64 @De, @Sd",
    "mov.b64 @Dd, @Re",
    *spread("add.*.f32 @Df, @Sf, @Sf", ROUND, "rn.ftz rn.sat rn.ftz.sat"),
    *spread("sub.*.f32 @Df, @Sf, @Sf", ROUND, "rn.ftz"),
    *spread("mul.*.f32 @Df, @Sf, @Sf", ROUND, "rn.ftz rn.sat"),
    *spread("fma.*.f32 @Df, @Sf, @Sf, @Sf", ROUND, "rn.ftz rn.sat"),
    *spread("div.*.f32 @Df, @Sf, @Sf", ROUND, "rn.ftz"),
    *spread("sqrt.*.f32 @Df, @Sf", ROUND, "rn.ftz"),
    *spread("rcp.*.f32 @Df, @Sf", ROUND, "rn.ftz"),
    *spread("*.f32 @Df, @Sf, @Sf", "min max min.NaN max.NaN min.ftz max.ftz"),
    "selp.f32 @Df, @Sf, @Sf, @Rp",
    *spread("add.*.f64 @De, @Se, @Se", ROUND),
    *spread("mul.*.f64 @De, @Se, @Se", ROUND),
    *spread("fma.*.f64 @De, @Se, @Se, @Se", ROUND),
    *spread("div.*.f64 @De, @Se, @Se", ROUND),
    *spread("*.rn.f64 @De, @Se", "sqrt rcp"),
    *spread("*.f64 @De, @Se, @Se", "min max"),
    "selp.f64 @De, @Se, @Se, @Rp",
    *spread("*.f16 @Dx, @Rx, @Rx", "add sub mul min max add.sat mul.ftz"),
    *spread("fma.rn*.f16 @Dx, @Rx, @Rx, @Rx", ".sat .relu .ftz"),
    *spread("*.f16x2 @Dr, @Rr, @Rr", "add sub mul"),
    "fma.rn.f16x2 @Dr, @Rr, @Rr, @Rr",
)  # fmt: skip
