"""Further instructions that random kernels are made of, by family; written like those of ``random_instructions``.

A family is drawn first, then one of its lines, so that a family with few spellings is as frequent as one with many.
"""

from __future__ import annotations

from tests.engine.random_instructions import COMPARE, ROUND, UNORDERED, UNSIGNED, spread

__all__ = ["FAMILIES"]

PACKED = (
    *spread(
        "*.f16x2 @Dr, @Rr, @Rr",
        "add sub mul add.ftz sub.sat mul.ftz.sat min max min.NaN max.ftz min.xorsign.abs",
    ),
    *spread("fma.rn*.f16x2 @Dr, @Rr, @Rr, @Rr", ".ftz .sat .relu .ftz.relu"),
    *spread("*.bf16x2 @Dr, @Rr, @Rr", "add sub mul min max min.NaN max.NaN max.NaN.xorsign.abs"),
    *spread("fma.rn*.bf16x2 @Dr, @Rr, @Rr, @Rr", ".relu"),
    "fma.rn.bf16x2 @Dr, @Rr, @Rr, @Rr",
    *spread("*.bf16 @Dx, @Rx, @Rx", "add sub mul min max max.NaN"),
    *spread("fma.rn*.bf16 @Dx, @Rx, @Rx, @Rx", ".relu"),
    *spread("neg.*2 @Dr, @Rr", "f16x bf16x"),
    *spread("abs.*2 @Dr, @Rr", "f16x bf16x"),
    *spread("add.*.f32x2 @Dd, @Rd, @Rd", ROUND, "rn.ftz rz.ftz"),
    *spread("sub.*.f32x2 @Dd, @Rd, @Rd", ROUND, "rp.ftz"),
    *spread("mul.*.f32x2 @Dd, @Rd, @Rd", ROUND, "rm.ftz"),
    *spread("fma.*.f32x2 @Dd, @Rd, @Rd, @Rd", ROUND, "rn.ftz"),
    *spread("add.*x2 @Dr, @Rr, @Rr", "u16 s16"),
    *spread("*.u16x2 @Dr, @Rr, @Rr", "min max"),
    *spread("*.s16x2 @Dr, @Rr, @Rr", "min max min.relu max.relu"),
    *spread("set.*.f16x2.f16x2 @Dr, @Rr, @Rr", COMPARE, UNORDERED),
    *spread("setp.*.f16x2 @Dp|@Dp, @Rr, @Rr", COMPARE, UNORDERED),
    *spread("setp.lt.*.bf16x2 @Dp|@Dp, @Rr, @Rr, @Rp", "and or xor"),
)
MIXED = (
    *spread("add.*.f32.f16 @Df, @Rx, @Rf", ROUND, "rn.sat"),
    *spread("sub.*.f32.bf16 @Df, @Rx, @Rf", ROUND, "rz.sat"),
    *spread("fma.*.f32.f16 @Df, @Rx, @Rx, @Rf", ROUND, "rp.sat"),
    *spread("fma.*.f32.bf16 @Df, @Rx, @Rx, @Rf", ROUND),
    *spread("*.f32 @Df, @Rf, @Rf, @Rf", "min max min.NaN max.ftz.NaN min.abs max.NaN.abs"),
    *spread("*.xorsign.abs.f32 @Df, @Rf, @Rf", "min max min.NaN max.ftz"),
    "copysign.f32 @Df, @Rf, @Rf",
    "copysign.f64 @De, @Re, @Re",
    *spread("testp.*.f64 @Dp, @Re", "finite infinite number notanumber normal subnormal"),
    *spread("neg*.f32 @Df, @Rf", ".ftz"),
    *spread("abs*.f32 @Df, @Rf", ".ftz"),
    *spread("*.f64 @De, @Re", "neg abs"),
    "slct.b64.s32 @Dd, @Rd, @Rd, @Rr",
    *spread("slct*.f64.f32 @De, @Re, @Re, @Rf", ".ftz"),
)
VIDEO = (
    *spread("vadd.*.u32 @Dr, @Rr.b1, @Rr.h0", "s32.s32 u32.s32 s32.u32"),
    *spread("vsub.*.sat @Dr.h1, @Rr, @Rr.b3, @Rr", "s32.s32.s32 u32.u32.u32 s32.u32.s32"),
    *spread("vabsdiff.s32.s32.s32.* @Dr, @Rr.h1, @Rr, @Rr", "add min max sat.add"),
    *spread("vmin.u32.s32.u32.* @Dr, @Rr, @Rr.b2, @Rr", "add min max sat.max"),
    *spread("vmax.s32.u32.s32* @Dr.b2, @Rr, @Rr, @Rr", ".sat"),
    *spread("vshl.u32.u32.u32.* @Dr, @Rr, @Rr", "wrap clamp sat.wrap sat.clamp"),
    *spread("vshr.s32.s32.u32.*.max @Dr, @Rr.h0, @Rr, @Rr", "wrap clamp sat.clamp"),
    *spread("vset.s32.u32.* @Dr, @Rr.b0, @Rr", COMPARE),
    *spread("vmad.u32.u32.u32* @Dr, @Rr.b1, @Rr.h0, @Rr", ".po .shr7 .sat.shr15 .po.sat.shr7"),
    *spread("vmad.s32.s32.s32* @Dr, @Rr, -@Rr, @Rr", ".sat .shr15 .sat.shr7"),
    "vmad.s32.s32.u32 @Dr, @Rr, @Rr, -@Rr",
    *spread("v*.s32.u32.s32.sat @Dr.h10, @Rr.h21, @Rr.h03, @Rr", "add2 sub2 avrg2 absdiff2 min2 max2"),
    *spread("v*.u32.u32.u32.add @Dr, @Rr, @Rr, @Rr", "add2 sub2 avrg2 absdiff2 min2 max2"),
    *spread("v*.u32.s32.u32.sat @Dr.b310, @Rr.b7520, @Rr.b0361, @Rr", "add4 sub4 avrg4 absdiff4 min4 max4"),
    *spread("v*.s32.s32.s32.add @Dr.b20, @Rr, @Rr, @Rr", "add4 sub4 avrg4 absdiff4 min4 max4"),
    *spread("vset4.u32.s32.* @Dr, @Rr, @Rr, @Rr", COMPARE),
    *spread("vset2.s32.s32.*.add @Dr, @Rr, @Rr, @Rr", COMPARE),
)
NARROW = (
    *spread("cvt.rn.satfinite*x2.f32 @Dh, @Rf, @Rf", ".e4m3 .e5m2 .relu.e4m3 .e2m3 .e3m2 .relu.e3m2"),
    *spread("cvt.rn.satfinite*x2.f16x2 @Dh, @Rr", ".e4m3 .e5m2 .relu.e5m2"),
    *spread(
        "cvt.rn*x2 @Dr, @Rh", ".f16x2.e4m3 .f16x2.e5m2 .relu.f16x2.e4m3 .f16x2.e2m3 .f16x2.e3m2 .bf16x2.ue8m0"
    ),
    *spread("cvt.*.ue8m0x2.f32 @Dh, @Rf, @Rf", "rz rp rz.satfinite rp.satfinite"),
    *spread("cvt.*.ue8m0x2.bf16x2 @Dh, @Rr", "rz rp.satfinite"),
    *spread("cvt.*.f16x2.f32 @Dr, @Rf, @Rf", "rn rz rn.relu rz.satfinite"),
    *spread("cvt.*.bf16x2.f32 @Dr, @Rf, @Rf", "rn rz rz.relu rn.satfinite"),
    *spread("cvt.*.bf16.f32 @Dx, @Rf", "rn rz rn.relu rz.satfinite"),
    *spread("cvt.*.tf32.f32 @Dr, @Rf", "rna rn rz rna.satfinite rn.relu"),
    "cvt.f32.bf16 @Df, @Rx",
    *spread("cvt.*.f32.f32 @Df, @Rf", "rni.sat rzi.ftz rmi.ftz.sat"),
    *spread("cvt.*.f64.f64 @De, @Re", "rni rzi rmi rpi"),
    *spread("cvt.*.f16.f16 @Dx, @Rx", "rni rzi rmi rpi"),
    *spread("cvt.*.f16.f64 @Dx, @Re", ROUND),
    *spread("cvt.rni.*.f16 @Dr, @Rx", "u8 s8 u16 s16 u32"),
    *spread("cvt.rzi.*.f16 @Dd, @Rx", "u64 s64"),
    *spread("cvt.*.f16.u64 @Dx, @Rd", ROUND),
    *spread("cvt.*.bf16.s32 @Dx, @Rr", ROUND),
    *spread("cvt.rpi.*.f64 @Dr, @Re", "u32 s32 u8 s8"),
    *spread("cvt.*.f32.u64 @Df, @Rd", ROUND),
    *spread("cvt.pack.sat.*.s32 @Dr, @Rr, @Rr", "u16 s16"),
    *spread("cvt.pack.sat.*.s32.b32 @Dr, @Rr, @Rr, @Rr", "u8 s8 u4 s4 u2 s2"),
)
FIELDS = (
    *spread("bfe.*32 @Dr, @Sr, @Rr, @#70", "u s"),
    *spread("bfe.*32 @Dr, @Sr, @#70, @Rr", "u s"),
    *spread("bfe.*64 @Dd, @Sd, @#70, @Rr", "u s"),
    *spread("bfe.*64 @Dd, @Sd, @#130, @#130", "u s"),
    "bfi.b32 @Dr, @Sr, @Sr, @#70, @Rr",
    "bfi.b64 @Dd, @Sd, @Sd, @Rr, @Rr",
    "bfi.b64 @Dd, @Sd, @Sd, @Rr, @#130",
    *spread("bmsk.*.b32 @Dr, @Sr, @Sr", "clamp wrap"),
    *spread("bmsk.*.b32 @Dr, @#40, @#40", "clamp wrap"),
    *spread("szext.*32 @Dr, @Sr, @Sr", "clamp.u clamp.s wrap.u wrap.s"),
    *spread("szext.*32 @Dr, @Rr, @#40", "clamp.u clamp.s wrap.u wrap.s"),
    *spread("bfind.shiftamt.*64 @Dr, @Sd", "u s"),
    "fns.b32 @Dr, @Rr, @#32, @#8",
    "fns.b32 @Dr, @Rr, @#32, -@#8",
    *spread("lop3.*.b32 @Dr|@Dp, @Sr, @Sr, @Sr, @#256, @Rp", "and or"),
    *spread("lop3.*.b32 @Dr|@Dp, @Sr, @Sr, @Sr, @#256, !@Rp", "and or"),
    *spread("shf.*.b32 @Dr, @Rr, @Rr, @#65", "l.wrap l.clamp r.wrap r.clamp"),
    *spread("prmt.b32* @Dr, @Rr, @Rr, @#16", ".f4e .b4e .rc8 .ecl .ecr .rc16"),
    *spread("dp2a.* @Dr, @Rr, @Rr, @Sr", "lo.u32.u32 hi.s32.s32 lo.s32.u32 hi.s32.u32"),
    *spread("mul24.*.s32 @Dr, @Sr, @Sr", "lo hi"),
    *spread("mad24.* @Dr, @Sr, @Sr, @Sr", "lo.u32 hi.u32 hi.s32 hi.sat.s32"),
    *spread("sad.*16 @Dh, @Sh, @Sh, @Sh", "s u"),
    *spread("sad.*64 @Dd, @Sd, @Sd, @Sd", "s u"),
    *spread("set.*.and.u32.s32 @Dr, @Sr, @Sr, @Rp", COMPARE),
    *spread("set.*.xor.f32.u32 @Df, @Sr, @Sr, !@Rp", UNSIGNED),
    *spread("set.*.or.ftz.u32.f32 @Dr, @Rf, @Rf, @Rp", UNORDERED),
    *spread("setp.*.s64 @Dp|@Dp, @Sd, @Sd", COMPARE),
    *spread("setp.*.or.f32 @Dp|@Dp, @Rf, @Rf, @Rp", UNORDERED),
)
#: names say what a failing kernel was about
FAMILIES = {"packed": PACKED, "mixed": MIXED, "video": VIDEO, "narrow": NARROW, "fields": FIELDS}
