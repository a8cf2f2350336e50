"""Statements with what ptxas 13.0 says of them: accepted or refused. ``test_verdicts`` asks both it and us."""

from __future__ import annotations

HEADER = """\
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 g[4] = {1, 2};
.visible .entry k(.param .u64 a)
{
\t.reg .f32 %f<4>; .reg .f64 %d<4>; .reg .b32 %r<4>; .reg .b16 %h<4>; .reg .u64 %rd<3>;
\t.reg .f16 %hh; .reg .s32 %s; .reg .u32 %u; .reg .pred %p;
"""


def module(body: str) -> str:
    """A kernel with registers of every kind around the statements."""
    return f"{HEADER}{body}\n\tret;\n}}\n"


ACCEPTED = """\
add.f32 %f1, %f1, 1.5;
add.f32 %f1, %f1, 0d3FF0000000000000;
add.f64 %d1, %d1, 0f3F800000;
mov.b32 %r1, 0f3F800000;
mov.f32 %r1, 0f3F800000;
mov.b32 %f1, 1;
mov.b32 %f1, %r1;
add.f32 %r1, %r1, %r1;
add.s32 %s, %u, %u;
add.s32 %r1, %r1, 4294967295;
add.s32 %r1, %r1, -4294967295;
add.u16 %h1, %h1, -1;
add.s64 %rd1, %rd1, 18446744073709551615;
ld.global.u8 %r1, [%rd1];
ld.global.u8 %rd1, [%rd1];
ld.global.u32 %rd1, [%rd1];
ld.global.f32 %r1, [%rd1];
ld.global.b32 %f1, [%rd1];
ld.global.b8 %f1, [%rd1];
st.global.b32 [%rd1], %d1;
st.global.b32 [%rd1], %rd1;
cvt.u32.u8 %r1, %r1;
cvt.u8.u32 %r1, %r1;
cvt.u32.u16 %r1, %h1;
cvt.u32.u16 %r1, %rd2;
cvt.f32.f16 %f1, %h1;
cvt.rn.f32.s32 %r1, %r1;
cvt.rzi.s32.f32 %rd1, %f2;
and.b32 %f1, %f1, %f1;
and.pred %p, %p, 1;
selp.b32 %r1, 1, 2, %p;
selp.b32 %r1, 1, 2, !%p;
mov.u64 %rd1, g;
mov.u64 %rd1, g+8;
mov.u64 %rd1, g[1];
mov.b64 %rd1, g;
mov.u64 %rd1, a;
shl.b32 %r1, 1, 99999999999;
add.f16 %hh, %hh, %hh;
add.f16 %h1, %h1, %h1;
mov.u32 %r1, %tid.x;
mov.u32 %r1, %tid.r;
mov.u16 %h1, %tid.x;
mov.s32 %r1, %laneid;
mov.b32 %f1, %tid.x;
cvt.u16.u32 %h1, %tid.x;
cvt.u64.u32 %rd1, %tid.x;
mov.u32 %r1, %lanemask_le;
mov.u64 %rd1, %globaltimer;
mov.b32 %r1, %envreg1;
mov.b32 %r1, {%h1,%h2};
mov.b32 {%h1,%h2}, %r1;
mov.b32 {%h1,_}, %r1;
mov.b64 {%r1,%f1}, %rd1;
mov.b64 %rd1, {%r1,5};
ld.global.u32 %r1, [g];
ld.global.u32 %r1, [g+4];
ld.global.u32 %r1, [g+-4];
ld.global.u32 %r1, [g+4-8];
ld.global.u32 %r1, [%rd1+(4*2)];
ld.local.u32 %r1, [16];
ld.shared.u32 %r1, [%r2];
ld.shared.u32 %r1, [%rd2];
ld.u32 %r1, [g];
ld.param.u64 %rd1, [a];
ld.global.v2.u32 {%r1,%r2}, [%rd1];
ld.global.v2.u32 {%r1,_}, [%rd1];
st.global.v2.u32 [%rd1], {%r1,5};
add .u32 %r1, %r1, WARP_SZ;
add.u32 %r1, WARP_SZ*2-1, %r1;
T: .branchtargets A<3>; brx.idx %r1, T; A0: A1: A2: ret;
@ !%p add.u32 %r1, %r1, 1;
@%p add.u32 %r1, %r1, 1>2?3:4;
st.global.u32 [%rd1], 5;
st.global.f32 [%rd1], 1.5;
st.global.u8 [%rd1], 300;
{ .reg .u32 %r1; mov.u32 %r1, 5; }
mov.s32 %r1, (.s64)5;
mov.s32 %r1, 0b101U;
mov.s32 %r1, 017;
mov.f32 %f1, 5.0+1.0;
mov.f32 %f1, -5.0;
mov.f32 %f1, .5;
mov.f32 %f1, 5.;
mov.f32 %f1, 5e3;
mov.f32 %f1, 0F3F800000;
mov.u32 %r1, 5|3;
.reg .v4 .f32 %v; mov.f32 %f1, %v.x; mov.f32 %v.y, %f1; ld.global.v4.f32 %v, [%rd1];
L: { bra L; L: ret; }
{ L: ret; } { L: ret; }
bra L; L: .reg .b32 zz; mov.b32 zz, 1; bra L;
setp.eq.s32 %p|_, %r1, 1;
setp.eq.s32 _|%p, %r1, 1;
atom.global.add.u32 _, [%rd1], 1;
shfl.sync.bfly.b32 %r1|%p, %r1, 1, 31, -1;
mov.pred %p, 1;
selp.f32 %f1, 1.0, 0f00000000, %p;
bar.sync 0;
bar.sync %r1, 64;
lop3.b32 %r1, %r1, %r1, %r1, 300;
add.u32 %r1 , %r1 , 1 ;
.reg .f16x2 %x; add.f16x2 %x, %r1, %r2;
.reg .b8 %x; ld.global.u8 %x, [%rd1];
""".splitlines()

REFUSED = """\
add.f32 %f1, %f1, 1;
add.f64 %d1, %d1, 1;
mov.b32 %r1, 1.5;
mov.u32 %r1, 0f3F800000;
mov.f32 %f1, 1;
mov.u32 %f1, 1;
add.s32 %f1, %r1, %r1;
add.s32 %s, %rd1, %u;
ld.global.u32 %h1, [%rd1];
ld.global.f32 %d1, [%rd1];
ld.global.f32 %rd1, [%rd1];
ld.global.f32 %f1, [%r1];
ld.global.u32 %f1, [%rd1];
ld.global.u32 %r1, [%f1];
ld.global.u32 %r1, [k];
ld.u32 %r1, [%r2];
ld.shared.u32 %r1, [16];
st.global.u8 [%rd1], %f1;
st.global.u32 [%rd1], %f1;
cvt.rn.f16.f32 %f1, %f2;
cvt.f32.f16 %f1, %f2;
cvt.s64.s32 %r1, %r2;
cvt.rzi.s32.f32 %f1, %f2;
setp.eq.s32 %r1, %r1, 1;
and.pred %p, %p, %r1;
shl.b32 %r1, %r1, %rd1;
shl.b32 %r1, %r1, %h1;
add.f16 %hh, %hh, 0f3F800000;
add.f16 %hh, %hh, 1.0;
mov.u32 %r1, %tid;
add.u32 %r1, %tid.x, 1;
mul.wide.u32 %rd1, %tid.x, 4;
cvt.rn.f32.u32 %f1, %tid.x;
mov.f32 %f1, %tid.x;
mov.u32 %r1, %nosuch;
ld.global.u32 %r1, [4096];
ld.global.u32 %r1, g;
ld.shared.u32 %r1, [g];
ld.param.u64 %rd1, [b];
ld.global.v2.u32 {%r1,%r2,%r3}, [%rd1];
ld.global.v2.u32 %r1, [%rd1];
ld.global.u32 _, [%rd1];
st.global.v2.u32 [%rd1], {%r1,_};
mov.b64 %rd1, {_,%r1};
@%r1 add.u32 %r1, %r1, 1;
st.global.f32 [%rd1], 5;
bra LL;
bra %r1;
add.u32 5, %r1, %r1;
add.u32 _, %r1, %r1;
.reg .u32 %r1;
mov.u32 %r1, -%r2;
mov.s32 %r1, 08;
mov.s32 %r1, 5 + 3u;
mov.f32 %f1, -0f3F800000;
mov.f32 %f1, 0f3F80;
L: L: ret;
{ L: ret; } bra L;
mov.b32 late, 1; .reg .b32 late;
.shared .b8 h[4]; .shared .b8 h[4];
add.u32 %r1, %r1;
add.u32 %r1, %r1, %r1, %r1;
add.u32 %r1, %r1, %r1
add.u33 %r1, %r1, %r1;
add.u32 %r1 %r1, %r1;
shfl.sync.bfly.b32 _|%p, %r1, 1, 31, -1;
bar.sync 17;
lop3.b32 %r1, %r1, %r1, %r1, %r1;
add.u32 %envreg1, %r1, 1;
.reg .bf16 %x;
.reg .u16 %hu; add.f16 %hu, %hu, %hu;
.reg .u16 %hu; cvt.f32.f16 %f1, %hu;
.reg .f16 %hf; mov.u16 %h1, %hf;
nosuch.u32 %r1, %r2;
""".splitlines()
