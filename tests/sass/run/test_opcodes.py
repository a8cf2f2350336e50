"""What machine instructions do, as ``ptxas`` chooses them for PTX that is defined exactly: the run must leave the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import SMALL, execute

import gpuperf_engine as ge
from gpuperf_engine.sass.code import counted_code
from gpuperf_engine.sass.run.operands import Register
from gpuperf_engine.sass.run.writer import Writer
from tests.support import head, needs_assembler

pytestmark = needs_assembler

INTEGERS = """
add.cc.u32 %d0, %x, %y; addc.u32 %d1, %y, %z;
sub.cc.u32 %d2, %x, %z; subc.u32 %d3, %y, %x;
mul.hi.u32 %d4, %x, %y; mul.hi.s32 %d5, %y, %z;
mad.wide.s32 %q0, %x, %y, %q; mad.wide.u32 %q1, %y, %z, %q0; mul.lo.u64 %q2, %q0, %q1;
shf.l.wrap.b32 %d6, %x, %y, %z; shf.r.clamp.b32 %d7, %y, %z, %x; and.b32 %n, %z, 127;
shl.b32 %d8, %x, %n; shr.s32 %d9, %y, %n; shr.u32 %d10, %z, 5; shl.b64 %q0, %q0, %n; shr.s64 %q1, %q1, %n; shr.u64 %q2, %q2, 9;
bfe.s32 %d11, %x, 3, 9; bfi.b32 %d12, %x, %y, 7, 11; prmt.b32 %d13, %x, %y, 0x6250; lop3.b32 %d14, %x, %y, %z, 0x6a;
min.s32 %d15, %x, %y; max.u32 %d16, %y, %z; abs.s32 %d17, %z; popc.b32 %d18, %x; clz.b32 %d19, %y; brev.b32 %d20, %z;
dp4a.s32.s32 %d21, %x, %y, %z; setp.lt.s32 %p, %x, %y; setp.ge.u32 %o, %y, %z; xor.pred %p, %p, %o; selp.b32 %d22, %x, %z, %p;
setp.lt.s64 %p, %q0, %q1; selp.b32 %d23, %x, %y, %p; or.b32 %n, %z, 1; div.u32 %d24, %x, %n; rem.s32 %d25, %y, %n;
sad.u32 %d26, %x, %y, %z; neg.s32 %d27, %x; not.b32 %d28, %y; mad.lo.s32 %d29, %x, %y, %z; add.s64 %q, %q0, %q1; xor.b64 %q, %q, %q2;
"""
FLOATS = """
and.b32 %n, %x, 0xffff; cvt.rn.f32.u32 %d0, %n; and.b32 %n, %y, 0xfff; cvt.rn.f32.s32 %d1, %n; add.rn.f32 %d1, %d1, 0f3F000000;
div.rn.f32 %d2, %d0, %d1; sqrt.rn.f32 %d3, %d0; rcp.rn.f32 %d4, %d1; fma.rn.f32 %d5, %d0, %d1, %d2; sub.rn.f32 %d6, %d0, %d5;
min.f32 %d7, %d0, %d6; max.f32 %d8, %d1, %d6; abs.f32 %d9, %d6;
neg.f32 %d10, %d9; cvt.rzi.s32.f32 %d11, %d6;
cvt.rni.u32.f32 %d12, %d1;
cvt.rmi.f32.f32 %d13, %d2; setp.ltu.f32 %p, %d0, %d1; selp.b32 %d14, %d0, %d1, %p; mul.rn.f32 %d15, %d1, 0f3DCCCCCD;
mov.b32 %d16, %d15; cvt.rn.f16x2.f32 %d17, %d0, %d1; cvt.rn.f16x2.f32 %d18, %d2, %d3; fma.rn.f16x2 %d19, %d17, %d18, %d17;
cvt.f64.f32 %q0, %d0; cvt.f64.f32 %q1, %d1; mul.rn.f64 %q2, %q0, %q1; fma.rn.f64 %q, %q0, %q1, %q2; add.rn.f64 %q, %q, %q1;
cvt.rn.f32.f64 %d20, %q; setp.gt.f64 %p, %q0, %q1; selp.b32 %d21, 7, 9, %p; cvt.rn.f64.s32 %q0, %x; cvt.rzi.s32.f64 %d22, %q2;
"""
LANES = """
and.b32 %n, %t, 31; st.shared.b32 [pool], 0; bar.sync 0; mul.lo.u32 %m, %t, 4; mov.u32 %a32, pool; add.u32 %m, %m, %a32;
shfl.sync.bfly.b32 %d0, %x, 5, 31, -1; shfl.sync.up.b32 %d1|%p, %y, 3, 0, -1; selp.b32 %d2, %d1, %z, %p;
setp.lt.u32 %p, %x, %y; vote.sync.ballot.b32 %d3, %p, -1; vote.sync.any.pred %o, %p, -1; selp.b32 %d4, 1, 2, %o;
st.shared.b32 [%m+64], %x; bar.sync 0; xor.b32 %m, %m, 4; ld.shared.b32 %d5, [%m+64]; red.shared.add.u32 [pool], %n; bar.sync 0;
ld.shared.b32 %d6, [pool]; mov.u32 %d7, 0; and.b32 %n, %x, 15;
MORE: setp.eq.u32 %p, %n, 0; @%p bra LEFT; mad.lo.u32 %d7, %d7, %x, %n; and.b32 %d8, %d7, 64; setp.ne.u32 %o, %d8, 0; @%o bra ODD;
xor.b32 %d7, %d7, %y; bra NEXT; ODD: mul.hi.u32 %d7, %d7, %z; NEXT: sub.u32 %n, %n, 1; bra MORE; LEFT:
setp.ge.u32 %p, %t, 32; @%p bra LATE; shfl.sync.up.b32 %d12, %d7, 1, 0, -1; add.u32 %d12, %d12, %d7; LATE:
and.b32 %n, %y, 3; PLACES: .branchtargets A0, A1, A2, A3; brx.idx %n, PLACES;
A0: add.u32 %d9, %x, 1; bra OUT; A1: mul.lo.u32 %d9, %x, %y; bra OUT; A2: xor.b32 %d9, %x, %z; bra OUT; A3: popc.b32 %d9, %x; OUT:
and.b32 %n, %x, 7; shl.b32 %n, %n, 2; mov.u32 %a32, own; add.u32 %n, %n, %a32;
st.local.b32 [own], %x; st.local.b32 [own+4], %y; st.local.b32 [own+8], %z; st.local.b32 [own+12], %x; st.local.b32 [own+16], %y;
st.local.b32 [own+20], %z; st.local.b32 [own+24], %x; st.local.b32 [own+28], %y; ld.local.b32 %d10, [%n];
atom.global.add.u32 %d11, [%g], 3; setp.gt.u32 %p, %t, 40; @%p bra GONE;
"""
NARROW_AND_WIDE = """
mul.wide.u32 %q0, %x, %z; mul.wide.s32 %q1, %y, %z; min.s64 %q2, %q0, %q1; max.u64 %q, %q0, %q1; xor.b64 %q, %q, %q2;
setp.lt.u32 %p, %x, %y; selp.b64 %q2, %q0, 1, %p; xor.b64 %q, %q, %q2; and.b64 %q2, %q0, 3; match.any.sync.b64 %d0, %q2, -1;
cvt.rn.f64.s32 %q0, %x; cvt.rn.f64.s32 %q1, %y; min.f64 %q2, %q0, %q1; mov.b64 {%d1, %d2}, %q2; max.f64 %q2, %q0, %q1;
mov.b64 {%d3, %d4}, %q2; setp.lt.u32 %p, %t, 9; selp.b64 %q1, 0x7FF8000000000000, %q1, %p;
max.f64 %q2, %q0, %q1; mov.b64 {%d5, %d6}, %q2;
and.b32 %d7, %x, 0x3fff3fff; and.b32 %d8, %y, 0x3fff3fff; set.gt.f16x2.f16x2 %d9, %d7, %d8; set.leu.u32.f16x2 %d10, %d7, %d8;
set.neu.bf16x2.bf16x2 %d11, %d7, %d8; mov.b32 {%h, %l}, %d7; cvt.rzi.s16.f16 %l, %h; cvt.s32.s16 %d12, %l; cvt.rmi.s32.bf16 %d13, %h;
mov.b32 {%h, %l}, %d8; setp.gt.f16 %p, %h, %l; selp.b32 %d14, 3, 4, %p; cvt.rni.u16.f16 %l, %h; cvt.u32.u16 %d15, %l;
and.b32 %n, %z, 15; mov.u64 %q0, table; cvt.u64.u32 %q1, %n; add.u64 %q0, %q0, %q1; ld.const.u8 %d16, [%q0]; ld.const.s8 %d17, [%q0+1];
and.b32 %n, %t, 7; mul.lo.u32 %n, %n, 8; mov.u32 %a32, pool; add.u32 %m, %n, %a32; st.shared.b64 [%m], 0; bar.sync 0;
mov.b64 %q0, 0d3FF0000000000000; red.shared.add.f64 [%m], %q0; bar.sync 0; ld.shared.b64 %q1, [%m]; mov.b64 {%d18, %d19}, %q1;
and.b32 %n, %t, 3; setp.eq.u32 %p, %n, 0; selp.b32 %d20, 0x80000000, %x, %p; setp.eq.u32 %p, %n, 1; selp.b32 %d20, 0, %d20, %p;
setp.eq.u32 %p, %n, 2; selp.b32 %d20, 0x1234, %d20, %p; and.b32 %d21, %y, 0x807fffff; or.b32 %d21, %d21, 0x41000000;
and.b32 %d22, %x, 0x007fffff; or.b32 %d22, %d22, 0xc1800000; setp.eq.u32 %p, %n, 3; selp.b32 %d20, %d22, %d20, %p;
div.rn.f32 %d23, %d20, %d21;
"""

# divisions whose slow path carries out of products, sums cut off at 0 (RELU), products that are halved, a function that nobody calls
SCALED = """
mul.wide.u32 %q0, %x, %z; not.b64 %q1, %q0; shr.u64 %q1, %q1, 7; or.b64 %q1, %q1, 1; div.u64 %q, %q0, %q1; rem.u64 %q2, %q1, %q0;
xor.b64 %q, %q, %q2; mul.wide.u32 %q2, %y, %z; or.b64 %q2, %q2, 0x8000000000000000; shr.u64 %q0, %q0, 20; or.b64 %q0, %q0, 0x300000001;
div.u64 %q2, %q2, %q0; add.s64 %q, %q, %q2;
min.s32 %d0, %x, %y; max.s32 %d0, %d0, 0; add.s32 %d1, %x, %z; max.s32 %d1, %d1, %y; max.s32 %d1, %d1, 0;
max.s32 %d2, %x, %z; max.s32 %d2, %d2, 0;
add.s32 %d3, %z, %y; min.s32 %d3, %d3, %x; max.s32 %d3, %d3, 0;
mul.f32 %d4, %x, %y; mul.f32 %d4, %d4, 0f3F000000; mul.f32 %d5, %x, 0fBE4CCCCD; mul.f32 %d5, %d5, 0f3F000000;
mul.f32 %d6, %z, %y; mul.f32 %d6, %d6, 0f40800000; mul.rn.ftz.f32 %d7, %z, %y; mul.rn.ftz.f32 %d7, %d7, 0f3E800000;
setp.gt.u32 %p, %t, 64; @!%p bra PAST;
{ .param .b64 f, g; .param .b32 r; st.param.b64 [f], %q; st.param.b64 [g], 0; call.uni (r), vprintf, (f, g); } PAST:
setp.gt.u32 %p, %t, 40; setp.ne.u32 %o, %z, 0; @!%p bra STAY; @%o exit; STAY: add.u32 %d8, %x, 1;
"""

# numbers of 16 bits in the code, and absolute ones as singles
HALVES = """
mov.b32 {%h, %l}, %x; mov.b16 %s, 0x2e66; setp.lt.f16 %p, %h, %s; selp.b32 %d0, 1, 2, %p; setp.geu.f16 %p, %l, %s;
selp.b32 %d1, 3, 4, %p; mov.b32 %c, 0x3c012e66;
and.b32 %d2, %x, 0x3fff3fff; set.gt.u32.f16x2 %d3, %d2, %c; set.lt.f16x2.f16x2 %d4, %d2, %c;
abs.f16 %s, %h; cvt.f32.f16 %d5, %s; neg.f16 %s, %l; cvt.f32.f16 %d6, %s; cvt.f32.f16 %d7, %l;
"""

# products of matrices of whole numbers of 8, 4 and 1 bits, of tf32 and of double precision
SMALL_PRODUCTS = """
mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%d0,%d1}, {%x}, {%y}, {%z,%x};
mma.sync.aligned.m8n8k32.row.col.s32.u4.s4.s32 {%d2,%d3}, {%x}, {%y}, {%z,%x};
"""
PRODUCTS = """
mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.u8.s32 {%d2,%d3,%d4,%d5}, {%x,%y}, {%z}, {%z,%x,%y,%z};
mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%d6,%d7,%d8,%d9}, {%x,%y,%z,%x}, {%z,%y}, {%z,%x,%y,%z};
mma.sync.aligned.m16n8k32.row.col.s32.s4.u4.s32 {%d10,%d11,%d12,%d13}, {%x,%y}, {%z}, {%z,%x,%y,%z};
mma.sync.aligned.m16n8k64.row.col.s32.u4.u4.s32 {%d14,%d15,%d16,%d17}, {%x,%y,%z,%x}, {%z,%y}, {%z,%x,%y,%z};
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%d18,%d19,%d20,%d21}, {%x,%y,%z,%x}, {%z,%y}, {%x,%y,%z,%x};
mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%d22,%d23,%d24,%d25}, {%x,%y}, {%z}, {%x,%y,%z,%x};
mul.wide.u32 %q2, %x, %z; mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%q0,%q1}, {%q}, {%q2}, {%q,%q2}; xor.b64 %q, %q0, %q1;
"""
BITS = """
mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc {%d0,%d1,%d2,%d3}, {%x,%y,%z,%x}, {%z,%y}, {%x,%x,%y,%z};
mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc {%d4,%d5}, {%x}, {%y}, {%z,%x};
"""
# clocks that decide nothing in the end, and a generic address of shared memory
CLOCKS = """
mov.u32 %d0, %clock; setp.eq.u32 %p, %d0, 0x7fffffff; selp.b32 %d0, 1, 2, %p; mov.u64 %q0, %clock64; setp.eq.u64 %p, %q0, -5;
selp.b32 %d1, 3, 4, %p; mov.u64 %q1, %globaltimer; setp.eq.u64 %p, %q1, -7; selp.b32 %d2, 5, 6, %p; mov.u32 %d3, %smid;
shr.u32 %d3, %d3, 31; mov.u32 %d4, %clock_hi; setp.eq.u32 %p, %d4, 0x7fffffff; selp.b32 %d4, 1, 2, %p; st.shared.b32 [pool], 77;
bar.sync 0;
mov.u32 %a32, pool; cvt.u64.u32 %q1, %a32; cvta.shared.u64 %q1, %q1; xor.b64 %q1, %q1, %q0; xor.b64 %q1, %q1, %q0; ld.b32 %d5, [%q1];
"""
# one of two generic addresses of local memory
GENERIC = """
st.local.b32 [own], %x; st.local.b32 [own+4], %y; mov.u64 %q0, own; cvta.local.u64 %q0, %q0; add.u64 %q1, %q0, 4;
setp.gt.u32 %p, %x, %z; selp.b64 %q2, %q0, %q1, %p; cvta.to.local.u64 %q2, %q2; ld.local.b32 %d0, [%q2];
selp.b64 %q2, %q1, %q0, %p; ld.b32 %d1, [%q2];
"""
# atomics and ordered accesses at generic addresses, of local memory in some lanes and of shared memory in others
LOCAL_ORDER = """
st.local.b32 [own], %x; mov.u64 %q0, own; cvta.local.u64 %q0, %q0; mov.u32 %a32, pool; mad.lo.u32 %a32, %t, 4, %a32;
cvt.u64.u32 %q1, %a32; cvta.shared.u64 %q1, %q1; st.b32 [%q1], %z; setp.gt.u32 %p, %x, %z; selp.b64 %q2, %q0, %q1, %p;
atom.add.u32 %d0, [%q2], %y; atom.max.s32 %d1, [%q2], %z; atom.cas.b32 %d2, [%q2], %z, %y; red.xor.b32 [%q2], %x; ld.b32 %d3, [%q2];
cvt.rn.f32.u32 %c, %y; atom.exch.b32 %d4, [%q2], %c; cvt.rn.f32.u32 %c, %x; atom.add.f32 %d5, [%q2], %c; ld.acquire.gpu.b32 %d6, [%q2];
st.relaxed.gpu.b32 [%q2], %x; atom.inc.u32 %d7, [%q2], %y; ld.b32 %d8, [%q2];
"""
# smaller numbers of pairs of halves, products of two 16-bit numbers, conversions to 16 and 8 bits
SHORT = """
min.f16x2 %d0, %x, %y; max.f16x2 %d1, %x, %y; min.NaN.f16x2 %d2, %y, %z; max.NaN.bf16x2 %d3, %x, %z; min.bf16x2 %d4, %x, %y;
dp2a.lo.s32.u32 %d5, %x, %y, %z; dp2a.hi.u32.s32 %d6, %y, %x, %z; mul.wide.s32 %q0, %x, %z; mov.b32 {%h, %l}, %x;
cvt.rz.bf16.s32 %s, %x; cvt.u32.u16 %d7, %s; cvt.rn.bf16.s64 %s, %q0; cvt.u32.u16 %d8, %s; cvt.rm.bf16.u16 %s, %h; cvt.u32.u16 %d9, %s;
tanh.approx.f16 %s, %h; cvt.u32.u16 %d10, %s; cvt.rn.satfinite.e4m3x2.f32 %s, %x, %y; cvt.rn.satfinite.e5m2x2.f32 %h, %z, %y;
mov.b32 %d11, {%s, %h}; cvt.rn.satfinite.e4m3x2.f16x2 %s, %x; cvt.rn.satfinite.relu.e5m2x2.f16x2 %l, %y; mov.b32 %d12, {%l, %s};
add.cc.u64 %q1, %q0, %q; addc.u64 %q2, %q, %q0; sub.cc.u64 %q, %q2, %q1; subc.u64 %q1, %q1, %q0; xor.b64 %q, %q, %q1;
"""

# four bytes at once, and a value that all lanes of a warp may have
BYTES = """
mov.u32 %n, 0; vabsdiff4.u32.u32.u32 %d0, %x, %y, %n; vabsdiff4.u32.u32.u32.add %d1, %y, %z, %x; vmin4.u32.u32.u32 %d2, %x, %z, %n;
vmax4.u32.u32.u32 %d3, %y, %z, %n; vsub4.u32.u32.u32 %d4, %d3, %d2, %n; vadd4.u32.u32.u32 %d5, %x, %y, %n;
match.all.sync.b32 %d6|%p, %x, -1; selp.b32 %d7, 3, 5, %p; shr.u32 %n, %t, 5; match.all.sync.b32 %d8|%p, %n, -1;
selp.b32 %d9, 3, 5, %p;
"""

# addresses in front of a register, of all memories
BELOW = """
setp.ne.u32 %p, %t, 0; @%p ld.global.b32 %d0, [%g+-4]; and.b32 %n, %x, 7; shl.b32 %n, %n, 2; mov.u32 %a32, own; add.u32 %n, %n, %a32;
st.local.v4.b32 [own], {%x, %y, %z, %x}; st.local.v4.b32 [own+16], {%y, %z, %x, %y}; setp.ne.u32 %p, %n, %a32;
@%p ld.local.b32 %d1, [%n+-4]; mov.u32 %a32, pool; mad.lo.u32 %n, %t, 4, %a32; st.shared.b32 [%n], %x; bar.sync 0;
setp.ne.u32 %p, %t, 0; @%p ld.shared.b32 %d2, [%n+-4]; and.b32 %n, %x, 7; mov.u64 %q0, table; cvt.u64.u32 %q1, %n;
add.u64 %q0, %q0, %q1; ld.const.u8 %d3, [%q0+5]; setp.ne.u32 %p, %n, 0; @%p ld.const.u8 %d4, [%q0+-1];
"""
MATRICES = """
mov.u32 %a32, pool; and.b32 %n, %t, 31; mul.lo.u32 %n, %n, 16; add.u32 %a32, %a32, %n; setp.ge.u32 %p, %t, 32; @%p bra GONE;
stmatrix.sync.aligned.m8n8.x4.shared.b16 [%a32], {%x, %y, %z, %t}; ld.shared.v4.b32 {%d0, %d1, %d2, %d3}, [%a32];
stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%a32], {%y, %z}; ld.shared.v4.b32 {%d4, %d5, %d6, %d7}, [%a32];
stmatrix.sync.aligned.m8n8.x1.shared.b16 [%a32], {%z}; ld.shared.v4.b32 {%d8, %d9, %d10, %d11}, [%a32];
setp.ne.u32 %p, %t, 0; mov.u32 %a32, pool; @%p bra LAST;
mbarrier.init.shared.b64 [%a32], 1; mbarrier.arrive.shared.b64 %q0, [%a32]; mbarrier.test_wait.parity.shared.b64 %o, [%a32], 0;
selp.b32 %d12, 3, 5, %o; mbarrier.inval.shared.b64 [%a32]; st.shared.b32 [%a32], %x; ld.shared.b32 %d13, [%a32]; LAST:
"""
PAIRS = "min.u16x2 %d0, %x, %y; max.s16x2 %d1, %y, %z; add.u16x2 %d2, %x, %y; max.s16x2.relu %d3, %x, %y;"


def kernel(body: str, target: str = "sm_75") -> ge.Kernel:
    """Values of each thread in ``x``, ``y`` and ``z``, made of a word of its own, and 30 words of results."""
    stores = "".join(f"st.global.b32 [%a+{4 * number}], %d{number};\n" for number in range(30))
    return ge.parse(
        head("8.0", target)
        + ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 g);\n" * ("vprintf" in body)
        + ".const .b8 table[17] = {1, 2, 3, 200, 5, 6, 7, 130, 9, 10, 11, 12, 13, 254, 15, 16, 128};\n"
        ".visible .entry k(.param .u64 data, .param .u64 out)\n{\n.shared .b32 pool[128]; .local .align 4 .b8 own[32];\n"
        ".reg .b32 %d<30>, %x, %y, %z, %t, %n, %m, %a32, %c; .reg .pred %p, %o; .reg .b16 %h, %l, %s;\n"
        ".reg .b64 %a, %g, %q, %q0, %q1, %q2;\n"
        "ld.param.u64 %a, [data]; mov.u32 %t, %tid.x; mad.wide.u32 %g, %t, 4, %a; ld.global.b32 %x, [%g];\n"
        "mul.lo.u32 %y, %x, 0x9E3779B1; xor.b32 %z, %y, 0x5bd1e995; mul.wide.u32 %q, %y, %z; mov.b64 %q0, 0; mov.b64 %q1, 0;\n"
        + "".join(f"mov.u32 %d{number}, 0;\n" for number in range(30))
        + f"ld.param.u64 %a, [out]; mad.wide.u32 %a, %t, 128, %a;\n{body}\nst.global.b64 [%a+120], %q;\n{stores}GONE: ret;\n}}\n",
        path="k.ptx",
    )["k"]


@pytest.mark.parametrize(
    ("body", "target"),
    [
        (INTEGERS, "sm_75"),
        (FLOATS, "sm_80"),
        (LANES, "sm_75"),
        (NARROW_AND_WIDE, "sm_90"),
        (SCALED, "sm_75"),
        (HALVES, "sm_75"),
        (SMALL_PRODUCTS, "sm_75"),
        (PRODUCTS, "sm_80"),
        (PAIRS, "sm_90"),
        (MATRICES, "sm_90"),
        (CLOCKS, "sm_75"),
        (GENERIC, "sm_75"),
        (LOCAL_ORDER, "sm_75"),
        (BELOW, "sm_75"),
        (SHORT, "sm_90"),
        (BYTES, "sm_75"),
    ],
    ids=[
        "integers",
        "floats",
        "lanes",
        "narrow and wide",
        "scaled",
        "halves",
        "small products",
        "products",
        "pairs",
        "matrices",
        "clocks",
        "generic",
        "local order",
        "below",
        "short",
        "bytes",
    ],
)
def test_a_run_leaves_the_same_bytes(body: str, target: str) -> None:
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    data = device.array(np.random.default_rng(7).integers(0, 1 << 32, 64, np.uint32))
    profile = device.launch(kernel(body, target), 1, 64, [data, device.zeros((64, 32), np.uint32)])
    machines = ("t4", "rtx-3090", "h100-sxm", "b200", "rtx-5090")
    for machine in machines[{"sm_75": 0, "sm_80": 1, "sm_90": 2}[target] :]:
        code = ge.machine_code(profile, machine)
        assert "run" in code.ways, (machine, code.notes)  # so only if the bytes are the same


@pytest.mark.parametrize("target", ["sm_75", "sm_90", "sm_120"])
def test_halves_among_the_parameters_and_what_the_launch_tells(target: str) -> None:
    """``HADD2.F32 R3, -RZ, c[0x0] [0x17c].H0_H0``, ``SGXT.W``, and special registers in constant bank 0."""
    body = (
        ".visible .entry k(.param .u64 out, .param .b16 half)\n{\n.reg .b64 %q<4>; .reg .b32 %r<12>; .reg .b16 %h; .reg .pred %p;\n"
        "ld.param.u64 %q1, [out]; ld.param.b16 %h, [half]; mov.u32 %r1, %tid.x; mad.wide.u32 %q1, %r1, 32, %q1;\n"
        "cvt.f32.f16 %r2, %h; mul.f32 %r2, %r2, 0f40400000; szext.wrap.u32 %r3, 0xabcdef, %r1; szext.wrap.s32 %r4, %r1, 3;\n"
        "mov.u32 %r5, %dynamic_smem_size; mov.u32 %r6, %nsmid; mov.u64 %q2, %gridid; mov.u32 %r7, %warpid;\n"
        "st.global.v4.u32 [%q1], {%r2, %r3, %r4, %r5};\n"
        "st.global.v2.u32 [%q1+16], {%r6, %r7}; st.global.u64 [%q1+24], %q2; ret;\n}\n"
    )
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    out = device.zeros((64, 8), np.uint32)
    kernel = ge.parse(head("8.7", target) + body, path="k.ptx")["k"]
    profile = device.launch(kernel, 1, 64, [out, np.float16(1.25)], shared_bytes=48)
    assert out.numpy()[40, :4].tolist() == [np.float32(3.75).view(np.uint32), 0xABCDEF & 0xFF, 0, 48]
    assert out.numpy()[3, 2] == 3 and out.numpy()[4, 2] == 0xFFFFFFFC
    code = counted_code(profile, target)
    assert (code.ways, code.residue, code.notes) == ("flow and run", 0.0, ())


def test_products_of_bits() -> None:
    """Blackwell makes them of products of bytes, by instructions that are not known here."""
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    data = device.array(np.random.default_rng(7).integers(0, 1 << 32, 32, np.uint32))
    profile = device.launch(kernel(BITS, "sm_80"), 1, 32, [data, device.zeros((32, 32), np.uint32)])
    for machine in ("rtx-3090", "h100-sxm"):
        code = ge.machine_code(profile, machine)
        assert "run" in code.ways, (machine, code.notes)


def test_what_is_rounded_once_does_not_hide_a_division() -> None:
    """``ptxas`` makes one rounding of a product and a sum, so results differ. The reciprocal in a division that is defined to the last
    bit decides nothing: how often its slow way is gone stays known."""
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    data = device.array((np.arange(64, dtype=np.float32) + np.float32(0.7)) / np.float32(3))
    body = "mul.f32 %d0, %x, %x; add.f32 %d0, %d0, %x; div.rn.f32 %d1, 0f40400000, %x; rcp.rn.f32 %d2, %x; sqrt.rn.f32 %d3, %x;"
    out = device.zeros((64, 32), np.float32)
    profile = device.launch(kernel(body), 1, 64, [data, out])
    x = data.numpy()
    assert (out.numpy()[:, 1] == np.float32(3) / x).all()
    for machine in ("t4", "rtx-3090", "h100-sxm", "rtx-5090"):
        code = ge.machine_code(profile, machine)
        assert (code.ways, code.residue, code.notes) == ("flow and run", 0.0, ()), machine


@pytest.mark.parametrize("name", ["triton_attention.sm_90", "qgemm_mma"])
def test_warp_groups_and_numbers_of_eight_bits(name: str) -> None:
    """Factors in shared memory and in registers, transposed ones."""
    case = next(case for case in SMALL if case.name.startswith(name))
    module, profiles = ge.parse(case.text, path=str(case.ptx)), []
    device = ge.Device(observe={"memory", "inputs"})

    def launch(one: Any, args: Any) -> None:
        values = [device.array(item) if isinstance(item, np.ndarray) else item for item in args]
        profiles.append(
            device.launch(module[one.entry], one.grid, one.block, values, shared_bytes=one.shared_bytes)
        )

    execute(case.program(), launch)
    for machine in ("h100-sxm", "rtx-4090") if name == "qgemm_mma" else ("h100-sxm",):
        code = ge.machine_code(profiles[0], machine)
        assert (code.ways, code.residue, code.notes) == ("flow and run", 0.0, ())


ALIGNED = """.visible .entry k(.param .u32 n, .param .align 64 .b8 map[64], .param .u64 data)
{
.reg .b32 %d, %t, %e; .reg .b64 %a, %g; .reg .pred %p;
mov.u32 %t, %tid.x; ld.param.u64 %a, [data]; mad.wide.u32 %g, %t, 4, %a; ld.param.u32 %d, [map+60]; ld.param.u32 %e, [n];
add.u32 %d, %d, %e; elect.sync _|%p, 0xffffffff; @%p add.u32 %d, %d, 5; st.global.b32 [%g], %d; ret;
}
"""


def test_parameters_lie_where_alignment_puts_them_in_the_bank() -> None:
    """Parameters of sm_90 begin at 0x210: what is aligned to 64 bytes lies at 0x240, not 64 bytes behind the first. And one
    lane of the warp is elected."""
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    kernel = ge.parse(head("8.0", "sm_90") + ALIGNED, path="k.ptx")["k"]
    data, words = device.zeros(32, np.uint32), np.arange(100, 116, dtype=np.uint32)
    profile = device.launch(kernel, 1, 32, [np.int32(7), words.tobytes(), data])
    assert data.numpy().tolist() == [115 + 7 + 5, *[115 + 7] * 31]
    for machine in ("h100-sxm", "b200"):
        code = ge.machine_code(profile, machine)
        assert "run" in code.ways, (machine, code.notes)


def test_a_value_goes_straight_to_its_register_unless_it_is_used_again() -> None:
    def written(again: bool, guard: str = "") -> list[str]:
        to = Writer(lambda *_: "0")
        to.start("N0")
        to.line("mov.b32 %R9, 0")
        value = to.r("add.s32", "%R4", 1)
        to.guard = guard
        to.put(Register(False, 2), value)
        if again:
            to.compute(Register(False, 3), "neg.s32", value)
        to.settle()
        return to.lines[2:]

    assert written(again=False) == ["add.s32 %R2, %R4, 1;"]
    assert written(again=False, guard="@%P0 ") == ["@%P0 add.s32 %R2, %R4, 1;"]
    assert written(again=True) == ["add.s32 %r0, %R4, 1; mov.b32 %R2, %r0;", "neg.s32 %R3, %r0;"]


def test_executions_of_a_block_are_those_of_a_statement_of_its_own() -> None:
    """The first line after a label counts its block, so that it holds one statement."""
    to = Writer(lambda *_: "0")
    to.start("N0")
    to.put(Register(False, 2), to.r("add.s32", "%R4", 1))
    assert to.lines == ["N0:", "add.s32 %r0, %R4, 1;", "mov.b32 %R2, %r0;"]


def test_what_a_guard_must_not_skip_keeps_its_value() -> None:
    to = Writer(lambda *_: "0", guard="@!%P1 ")
    to.start("N0")
    to.line("mov.b32 %R9, 0")
    to.put(Register(False, 2), to.r("activemask.b32"))
    assert to.lines[2:] == ["activemask.b32 %r0;", "@!%P1 mov.b32 %R2, %r0;"]
