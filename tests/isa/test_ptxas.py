"""The table against ptxas: what it accepts, what it refuses, and the version and target that it asks for."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from pathlib import Path

import pytest

import gpuperf_engine as ge
from gpuperf_engine.errors import PtxError
from gpuperf_engine.isa.model import Form
from gpuperf_engine.isa.special import SPECIAL_REGISTERS
from gpuperf_engine.isa.table import check_available, lookup, needs, rows

from .assembler import PTXAS, forms, instruction_text, module_text, ptxas_version, refused, requirements
from .near_misses import refused_by_ptxas, refused_by_us
from .ptxas_versions import departs

pytestmark = pytest.mark.skipif(PTXAS is None, reason="no ptxas on the PATH")

#: Lowest that ptxas of CUDA 13 knows: what is older is always there.
LOWEST = ((6, 3), 75)
TARGETS = (75, 80, 86, 89, 90, 100)
#: The PTX version that introduced a target.
FIRST = {75: (6, 3), 80: (7, 0), 86: (7, 1), 89: (7, 8), 90: (7, 8), 100: (8, 6), 103: (8, 8), 107: (9, 4), 110: (9, 0), 120: (8, 7),
         121: (8, 8)}  # fmt: skip


@pytest.fixture(scope="module")
def texts() -> dict[str, Form]:
    """One instruction for each form of every row (of rows with many modifiers: those that differ in two), of unified mode."""
    found: dict[str, Form] = {}
    for row in rows():
        if row.available.removed is None and row.accepts.texmode != "independent":
            for form in forms(row, 60):
                found.setdefault(instruction_text(form), form)
    return found


def known(form: Form) -> bool:
    """Whether this ptxas is new enough for the form."""
    return needs(form)[0] <= ptxas_version()


def test_every_form_assembles(texts: dict[str, Form], tmp_path: Path) -> None:
    newest = ptxas_version()
    groups: dict[str, list[str]] = defaultdict(list)
    for text, form in texts.items():
        if known(form):
            for target in form.row.available.only or (("90a",) if needs(form)[1] <= 90 else ("100a",)):
                groups[target].append(text)
    assert len(groups) > 5
    for target, group in groups.items():
        if FIRST.get(int(target[:-1]), newest) <= newest:
            assert refused(group, newest, target, tmp_path) == {}, target


def test_texturing_modes(tmp_path: Path) -> None:
    """In independent mode ptxas and we take the forms of fetches with a sampler and no others. In unified mode we take the others;
    ptxas takes some samplers for other operands there."""
    fetches = {
        instruction_text(form): form
        for row in rows()
        if row.name in ("tex", "tld4")
        for form in forms(row, 60)
        if known(form)
    }
    named = {text for text, form in fetches.items() if form.row.accepts.texmode == "independent"}
    assert 0 < len(named) < len(fetches)
    target = "90, texmode_independent"
    # a few of each opcode, as ptxas ends at some errors
    drawn = {text.split()[0]: text for text in [*fetches][::-1] if text not in named}
    theirs = refused_by_ptxas([*named, *drawn.values()], ptxas_version(), target, tmp_path)
    assert theirs.keys() == set(drawn.values())
    assert refused_by_us(list(fetches), ptxas_version(), target).keys() == fetches.keys() - named
    assert refused_by_us(list(fetches), ptxas_version(), "90").keys() == named


def test_targets_alone(texts: dict[str, Form], tmp_path: Path) -> None:
    """What is for some targets alone is refused for the higher ones and those without its letter, by both."""
    alone = {text: form for text, form in texts.items() if known(form) and form.row.available.only}
    assert len(alone) > 30
    newest = ptxas_version()
    for target in (
        "90a",
        "100",
        "100f",
        "100a",
        "103f",
        "103a",
        "110f",
        "110a",
        "120",
        "120f",
        "120a",
        "121f",
        "121a",
    ):
        found = re.fullmatch(r"(\d+)([af]?)", target)
        assert found is not None
        ours = set()
        for text, form in alone.items():
            try:
                check_available(form, newest, int(found[1]), found[2])
            except PtxError as error:
                assert f"this module has sm_{target}" in str(error)
                ours.add(text)
        # ptxas takes .kind::f8f6f4 of 8-bit types on sm_100f and sm_110f too, which the manual does not have
        theirs = set(refused(list(alone), newest, target, tmp_path))
        different = {text for text in theirs ^ ours if "kind::f8f6f4" not in text}
        assert different == set(), target


def test_version_and_target(texts: dict[str, Form], tmp_path: Path) -> None:
    """ptxas names the features that an old version or target lacks; the highest of those are the row's requirements."""
    spelled = [
        text
        for text, form in texts.items()
        if known(form)
        and needs(form)[1] <= 90
        and not form.row.available.variant
        and not form.row.available.only
        and " q" not in text
        and "{q" not in text
        and " _," not in text  # ends the run on lower targets
    ]
    asked = requirements(spelled, tmp_path, *LOWEST)
    different: dict[str, object] = {}
    for text in spelled:
        version, target = needs(texts[text])
        ours = max(version, LOWEST[0]), max(target, LOWEST[1])
        theirs = asked.get(text, LOWEST)
        if "::generic" in text or departs(text):
            continue  # refused on lower targets, but no target is named
        if ours != theirs:
            different[text] = (ours, theirs)
    assert different == {}


def test_lowest_is_enough(texts: dict[str, Form], tmp_path: Path) -> None:
    """Each form assembles at exactly the version and target that its row asks for."""
    groups: dict[tuple[tuple[int, int], str], list[str]] = defaultdict(list)
    for text, form in texts.items():
        if not known(form) or departs(text):
            continue
        version, target = needs(form)
        if form.row.available.only:
            for name in form.row.available.only:
                first = max(version, FIRST[int(name[:-1])], (8, 8) if name.endswith("f") else version)
                if first <= ptxas_version():
                    groups[first, name].append(text)
            continue
        target = next(sm for sm in TARGETS if sm >= target)
        version = max(version, FIRST[target])
        if " q" in text or "{q" in text:
            version = max(version, (8, 3))
        name = f"{target}{form.row.available.variant}"
        groups[
            max(version, (8, 6)) if form.row.available.variant and target == 100 else version, name
        ].append(text)
    assert len(groups) > 10
    for (version, target_name), group in groups.items():
        assert refused(group, version, target_name, tmp_path) == {}, (version, target_name)


def test_what_was_removed(tmp_path: Path) -> None:
    """Exchange without .sync ended with PTX 6.4 on sm_70 and higher, ``mad.f32`` without a rounding before."""
    old = {
        instruction_text(form): row.available.removed[0]
        for row in rows()
        if row.available.removed is not None
        for form in forms(row)
    }
    assert len(old) == 16
    early = {text for text, ended in old.items() if ended <= LOWEST[0]}
    assert set(refused(list(old), (6, 3), "75", tmp_path)) == early
    assert set(refused(list(old), (6, 4), "75", tmp_path)) == set(old)
    for text, (major, minor) in old.items():
        for form in lookup(text.split()[0]):
            if form.row.available.removed is not None:
                check_available(form, (major, minor - 1), 75)
                with pytest.raises(PtxError):
                    check_available(form, (major, minor), 75)


#: Near misses: one wrong type, modifier or combination each.
MISSES = """
add.b32 r0, r1, r2;                add.sat.u32 r0, r1, r2;           add.ftz.f64 d0, d1, d2;
add.sat.f64 d0, d1, d2;            add.rn.s32 r0, r1, r2;            add.rz.f16 g0, g1, g2;
add.ftz.bf16 h0, h1, h2;           sub.u16x2 r0, r1, r2;             sub.sat.s64 l0, l1, l2;
mul.s32 r0, r1, r2;                mul.wide.s64 q0, l1, l2;          mul.lo.f32 f0, f1, f2;
mad.f32 f0, f1, f2, f3;            mad.lo.sat.s32 r0, r1, r2, r3;    mad24.lo.s64 l0, l1, l2, l3;
fma.f32 f0, f1, f2, f3;            fma.f16 g0, g1, g2, g3;           fma.rn.sat.bf16 h0, h1, h2, h3;
fma.rn.sat.f64 d0, d1, d2, d3;     div.f32 f0, f1, f2;               div.approx.f64 d0, d1, d2;
rcp.f32 f0, f1;                    rcp.approx.f64 d0, d1;            sqrt.f32 f0, f1;
rsqrt.rn.f32 f0, f1;               sin.f32 f0, f1;                   ex2.approx.f64 d0, d1;
tanh.approx.ftz.f32 f0, f1;        lg2.approx.f16 g0, g1;            min.b32 r0, r1, r2;
min.sat.f32 f0, f1, f2;            min.relu.u32 r0, r1, r2;          max.xorsign.f32 f0, f1, f2;
abs.u32 r0, r1;                    neg.b32 r0, r1;                   neg.sat.f32 f0, f1;
popc.u32 r0, r1;                   clz.u32 r0, r1;                   brev.u32 r0, r1;
bfe.b32 r0, r1, r2, r3;            bfi.u32 r0, r1, r2, r3, r0;       szext.clamp.b32 r0, r1, r2;
bmsk.b32 r0, r1, r2;               dp4a.u32 r0, r1, r2, r3;          dp2a.u32.u32 r0, r1, r2, r3;
add.cc.b32 r0, r1, r2;             and.u32 r0, r1, r2;               not.u32 r0, r1;
xor.b8 c0, c1, c2;                 shl.u32 r0, r1, r2;               shr.f32 f0, f1, r2;
shf.l.b32 r0, r1, r2, r3;          shf.l.wrap.b64 l0, l1, l2, r3;    prmt.u32 r0, r1, r2, r3;
lop3.u32 r0, r1, r2, r3, 1;        lop3.xor.b32 r0|p0, r1, r2, r3, 1, p1;
setp.lt.b32 p0, r1, r2;            setp.lo.s32 p0, r1, r2;           setp.hi.b32 p0, r1, r2;
setp.equ.s32 p0, r1, r2;           setp.lt.u8 p0, c1, c2;            setp.eq.pred p0, p1, p2;
setp.lt.ftz.f64 p0, d1, d2;        set.lt.u32.b32 r0, r1, r2;        set.eq.b32.b32 r0, r1, r2;
set.eq.f64.f64 d0, d1, d2;         selp.f16 g0, g1, g2, p0;          selp.pred p0, p1, p2, p3;
slct.f32.u32 f0, f1, f2, r3;       testp.finite.f16 p0, g1;          copysign.f16 g0, g1, g2;
mov.f16 g0, g1;                    mov.u8 c0, c1;                    mov.f16x2 r0, r1;
ld.global.f16 g0, [l8];            ld.global.pred p0, [l8];          ld.global.v3.f32 f0, [l8];
ld.volatile.ca.f32 f0, [l8];       ld.relaxed.f32 f0, [l8];          ld.volatile.const.u32 r0, [con];
ld.shared.nc.f32 f0, [sha];        ld.const.wb.f32 f0, [con];        st.const.f32 [con], f0;
st.global.ca.f32 [l8], f0;         st.acquire.gpu.f32 [l8], f0;      st.global.nc.f32 [l8], f0;
atom.inc.s32 r0, [l8], r1;         atom.min.f32 f0, [l8], f1;        atom.min.b32 r0, [l8], r1;
atom.and.u32 r0, [l8], r1;         atom.add.s64 l0, [l8], l1;        atom.exch.u32 r0, [l8], r1;
atom.cas.f32 f0, [l8], f1, f2;     atom.add.f16 g0, [l8], g1;        atom.local.add.u32 r0, [loc], r1;
red.exch.b32 [l8], r1;             red.acquire.gpu.add.u32 [l8], r1; red.add.s64 [l8], l1;
shfl.sync.idx.u32 r0, r1, r2, r3, r0;                                shfl.sync.b32 r0, r1, r2, r3, r0;
vote.sync.ballot.u32 r0, p1, r2;   vote.sync.popc.pred p0, p1, r2;   match.any.sync.u32 r0, r1, r2;
match.sync.b32 r0, r1, r2;         redux.sync.add.b32 r0, r1, r2;    redux.sync.and.u32 r0, r1, r2;
activemask.u32 r0;                 bar.sync.aligned 0;               bar.red.xor.pred p0, 0, p1;
barrier.wait 0;                    membar.gpu;                       fence;
fence.sc;                          fence.relaxed.gpu;                cvta.u64 l0, l1;
cvta.global.b64 l0, l1;            prefetch.shared.L1 [sha];         prefetch.global.L3 [l8];
cvt.rn.s32.f32 r0, f1;             cvt.f32.s32 f0, r1;               cvt.rzi.f32.s32 f0, r1;
cvt.rni.f64.f32 d0, f1;            cvt.rn.f64.f32 d0, f1;            cvt.f32.f64 f0, d1;
cvt.ftz.f64.f64 d0, d1;            cvt.sat.u32.u8 r0, h1;            cvt.rn.sat.bf16.f32 h0, f1;
cvt.rm.f16x2.f32 r0, f1, f2;       cvt.rn.relu.f32.f64 f0, d1;       cvt.rz.e4m3x2.f32 h0, f1, f2;
vadd.u32.u32.u32.add r0.b0, r1, r2, r3;                              vadd.u32.u32.u32 r0.b0, r1, r2;
vadd.u32.u32.u32 r0, r1.h10, r2;   vadd.u32.u32.u32 r0, -r1, r2;     vadd.u32.u32.b32 r0, r1, r2;
vavrg.u32.u32.u32 r0, r1, r2;      vshl.u32.u32.u32 r0, r1, r2;      vshl.u32.u32.s32.clamp r0, r1, r2;
vset.u32.u32.u32.lt r0, r1, r2;    vset.u32.u32.lt.sat r0, r1, r2;   vset.s32.u32.lo r0, r1, r2;
vmad.s32.u32.s32 r0, -r1, r2, -r3; vmad.u32.u32.u32.po r0, r1, r2, -r3;
vmad.u32.u32.u32.po r0, -r1, r2, r3;                                 vmad.u32.u32.u32 r0.b0, r1, r2, r3;
vmad.u32.u32.u32.shr8 r0, r1, r2, r3;                                vmad.u32.u32.u32 r0, r1, r2;
vadd2.u32.u32.u32 r0, r1, r2;      vadd2.u32.u32.u32.sat.add r0, r1, r2, r3;
vadd2.u32.u32.u32 r0.h01, r1, r2, r3;                                vadd2.u32.u32.u32 r0, r1.h40, r2, r3;
vadd2.u32.u32.u32 r0, r1.h0, r2, r3;                                 vadd2.u32.u32.u32 r0, 5, r2, r3;
vadd2.u32.u32.u32 r0, r1, r2, 5;   vadd2.u32.u32.u32 r0, -r1, r2, r3;
vadd4.u32.u32.u32 r0.b01, r1, r2, r3;                                vadd4.u32.u32.u32 r0, r1.b8000, r2, r3;
vadd4.u32.u32.u32 r0, r1.b000, r2, r3;                               vset4.u32.s32.lt r0.b31, r1.b0000, r2.b1111;
vadd.u32.u32.u32 f0, r1, r2;       vmad2.u32.u32.u32 r0, r1, r2, r3; add.u32 r0, r1.b0, r2;
createpolicy.fractional.L2::evict_last.b64 l0, 1.5;                  createpolicy.fractional.L2::evict_last.b64 l0, 0.0;
createpolicy.fractional.L2::evict_first.L2::evict_last.b64 l0;
applypriority.L2::evict_normal [l8], 64;                             discard.L2 [l8], 256;
cvta.global.u64 l0, con;           pmevent 16;                       pmevent.mask 65536;
setmaxnreg.dec.sync.aligned.u32 25;                                  setmaxnreg.inc.sync.aligned.u32 264;
setmaxnreg.inc.sync.aligned.u32 16;                                  elect.sync r0|_, r1;
mov.b64 {_, _}, l0;                ld.v4.b32 {_, _, _, _}, [l8];     st.global.v4.b32 [l8], {r0, _, r2, r3};
alloca.u64 l0, 64, 12;             alloca.u64 l0, 64, 16777216;      alloca.u64 l0, l1, r0;
alloca.b64 l0, l1;                 alloca.u64 l0, l1, 0;             alloca.u64 _, 8;
stackrestore.u64 100;              stacksave.b32 r0;                 stacksave.u64 _;
ldu.global.v8.b8 {c0, c1, c2, c3, c4, c5, c6, c7}, [l8];             ld.global.v2.b128 {q0, q1}, [l8];
ld.mmio.relaxed.sys.v2.b32 {r0, r1}, [l8];                           ld.global.v8.f16 {h0, h1, h2, h3, h4, h5, h6, h7}, [l8];
prefetchu.L2 [l8];                 prefetchu.global.L1 [l8];         isspacep.param::func p0, l1;
bra.div there;                     exit.uni;                         trap.uni;
nanosleep.u64 l0;                  griddepcontrol.stop;              discard.shared.L2 [sha], 128;
"""
NEAR_MISSES = re.findall(r"\S[^;]*;", MISSES)


def test_near_misses_are_refused_by_both(tmp_path: Path) -> None:
    assert len(NEAR_MISSES) > 130
    theirs = refused(NEAR_MISSES, ptxas_version(), "90a", tmp_path)
    assert [text for text in NEAR_MISSES if text not in theirs] == []
    for text in NEAR_MISSES:
        with pytest.raises(PtxError):
            _read(text)


def _read(text: str) -> None:
    """Raises what the opcode, or else its operands are refused with."""
    if lookup(text.split()[0].rstrip(";")):
        ge.parse(module_text([text], ptxas_version(), "90a"), path="miss.ptx").function("k")


def test_all_conversions(tmp_path: Path) -> None:
    """Every ``cvt`` between scalar types with every rounding, ``.ftz`` and ``.sat``: both say the same."""
    types = ["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "bf16", "f32", "f64"]
    roundings = ("", *(f".{rounding}" for rounding in ["rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"]))
    register = {"8": "c", "16": "h", "32": "r", "64": "l"}

    def name(kind: str, index: int) -> str:
        letter = {"f16": "g", "f32": "f", "f64": "d"}.get(kind) or register[kind.lstrip("usbf")]
        return f"{letter}{index}"

    instructions = {}
    for rounding, ftz, sat, target, source in itertools.product(
        roundings, ("", ".ftz"), ("", ".sat"), types, types
    ):
        opcode = f"cvt{rounding}{ftz}{sat}.{target}.{source}"
        instructions[f"{opcode} {name(target, 0)}, {name(source, 1)};"] = opcode
    theirs = refused(list(instructions), ptxas_version(), "90a", tmp_path)
    different = []
    for text, opcode in instructions.items():
        try:
            lookup(opcode)
            accepted = True
        except PtxError:
            accepted = False
        if accepted == (text in theirs):
            different.append(opcode)
    assert different == []


def test_all_narrow_conversions(tmp_path: Path) -> None:
    """Every ``cvt`` to and from packed and narrow formats with every modifier: both say the same."""
    packed = {"f16x2": "r", "bf16x2": "r", "tf32": "r", "e2m1x2": "c", "e2m1x4": "h"}
    packed |= dict.fromkeys(("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "ue8m0x2", "ue5m3x2", "s2f6x2"), "h")
    packed |= dict.fromkeys(("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4"), "r")
    target = "107a" if ptxas_version() >= (9, 4) else "100a"
    instructions = {}
    for dtype, atype in itertools.product(packed, ("f32", "f16x2", *packed)):
        if dtype == atype or atype.endswith("x4") or atype == "tf32":
            continue
        for modifiers in itertools.product(
            ("", ".rn", ".rz", ".rp", ".rs", ".rna"), ("", ".satfinite"), ("", ".relu"), ("", ".pzo"),
            ("", ".scaled::n1::ue8m0", ".scaled::n2::ue8m0"),
        ):  # fmt: skip
            opcode = f"cvt{''.join(modifiers)}.{dtype}.{atype}"
            operands = [f"{packed[dtype]}0"]
            if atype != "f32":
                operands.append(f"{packed[atype]}1")
            elif dtype.endswith("x4"):
                operands.append("{f1, f2, f3, f4}")
            else:
                operands += ["f1"] if dtype == "tf32" else ["f1", "f2"]
            if "scaled" in opcode:
                operands.append("c2" if "n1" in opcode else "h2")
            if ".rs" in opcode:
                operands.append("r2")
            instructions[f"{opcode} {', '.join(operands)};"] = opcode
    theirs = refused(list(instructions), ptxas_version(), target, tmp_path)
    different = []
    for text, opcode in instructions.items():
        try:
            spelled = [
                form for form in lookup(opcode) if instruction_text(form).count(",") == text.count(",")
            ]
            for form in spelled:
                check_available(form, ptxas_version(), int(target[:-1]), "a")
            accepted = bool(spelled)
        except PtxError:
            accepted = False
        if accepted == (text in theirs):
            different.append(opcode)
    # the manual has these two from PTX 9.1 on, as later versions of ptxas
    early = ["cvt.rn.satfinite.e2m1x2.f16x2", "cvt.rn.satfinite.relu.e2m1x2.f16x2"]
    assert different == (early if ptxas_version() < (9, 1) else [])


def test_special_registers(tmp_path: Path) -> None:
    letters = {"u32": "r", "u64": "l", "pred": "p"}
    moves = {
        f"mov.{form.type} {letters[form.type.name]}0, %{name};": form
        for name, form in SPECIAL_REGISTERS.items()
        if form.since <= ptxas_version() and not form.directive
    }
    assert refused(list(moves), ptxas_version(), "90a", tmp_path) == {}
    asked = requirements(list(moves), tmp_path, *LOWEST)
    for text, form in moves.items():
        assert asked.get(text, LOWEST) == (max(form.since, LOWEST[0]), max(form.target, LOWEST[1])), text
