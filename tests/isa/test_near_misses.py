"""Instructions one change away from right ones: ptxas and we say the same of each, but for what is listed here.

Some are drawn for each row; ``GPUPERF_MISSES=all`` tries all, ``GPUPERF_MISSES=N`` draws N for each row.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from gpuperf_engine.isa.table import Form, needs, rows

from .assembler import PTXAS, ptxas_version
from .near_misses import near_misses, refused_by_ptxas, refused_by_us
from .ptxas_versions import departs

pytestmark = pytest.mark.skipif(PTXAS is None, reason="no ptxas on the PATH")

ASKED = os.environ.get("GPUPERF_MISSES", "")
#: Near misses of each row.
COUNT = None if ASKED == "all" else int(ASKED or 8)
#: What ptxas takes and we refuse: why, and the instructions.
LAX = {
    "a modifier written twice, which means nothing": re.compile(r"^\S*?(\.[\w:]+)\b\S*\1\b(?!::)"),
    "'.pred' beside the type of instructions on numbers": re.compile(r"^\S*\.pred\b"),
    "any vector as an operand of bfloat16 and of packed narrow numbers, or as a count or mask": re.compile(
        r"\.bf16(x2)?\b.*\{|^(add|sub|mul|fma)\S*\.u?e\dm\dx4\b.*\{|^(mbarrier|st\.async|cp).*\{"
    ),
    "roundings of single numbers with '.pzo', of which the manual has two": re.compile(
        r"^cvt\.r[mp]\S*\.pzo\.b?f16\.f32 "
    ),
    "a third operand of conversions of packed numbers": re.compile(r"^cvt\S*\.ue5m3x2\S* \w+, \w+, \w+;"),
    "a predicate, a constant or f32 as a bfloat16 or a packed number": re.compile(
        r"^(setp?|cvt|multimem|add|sub)\b\S*\.(bf16(x2)?|e[45]m\dx4|ue8m0x2)\b\S* .*?\b([pf]\d|-?\d+|0f3F800000)\b"
    ),
    "a single predicate of setp on two numbers": re.compile(r"^setp\S*\.b?f16x2 p\d, "),
    "'.sat' beside '.oob'": re.compile(r"^fma(?=\S*\.oob)\S*\.sat"),
    "signed types of addresses and sizes": re.compile(r"^(setmaxnreg|mapa|getctarank)\S*\.s(32|64)\b"),
    "a floating-point number as offset or lane": re.compile(r"^(fns|shfl)\S* .*(0f3F800000|f4)"),
    "any register and constant in movmatrix": re.compile(r"^movmatrix\S* .*([pf]4|0f3F800000)"),
    "a predicate as the last element of a vector": re.compile(r"\{[^}]*\bp\d\}"),
    "a function as a number": re.compile(r"\bcallee\b"),
    "an address of 32 bits, which the assembler refuses afterwards": re.compile(
        r"\[r\d\b|^isspacep.* [rf]\d"
    ),
    "a result that is not there: '_' or a constant": re.compile(
        r"^istypep.* -?\d+;|^(match\.all|lop3|red)\S* .*\b_|^createpolicy\S* -?\d"
    ),
    "an instruction without its operation": re.compile(r"^testp\.f\d+ "),
    "no rounding between f16 and bf16, which the manual demands": re.compile(r"^cvt\.(b?f16)\.(?!\1)b?f16 "),
    "constants of single precision as descriptors and sparse elements": re.compile(r"^sp(de)?compress.*\b0f"),
    "priorities at variables of shared memory": re.compile(r"^(ld|st)\.\S*L[12]::evict\S* .*\[sha\]"),
    "any rounding of bfloat16 in fma, which the manual has to nearest": re.compile(r"^fma\.r[zmp]\S*\.bf16"),
    "'.ftz' and a rounding of rcp.f64": re.compile(r"^rcp(?=\S*\.ftz)(?=\S*\.r[nzmp]\b)\S*\.f64"),
    "selectors 2 and 3 of one sparse product of f16": re.compile(
        r"^mma\.sp\S*m16n8k32\S*f32\.f16\S* .* [23];"
    ),
    "words of other forms of prefetch and multimem": re.compile(
        r"^prefetch\S*(valid_addr\S*tensormap|tensormap\S*valid_addr)|^multimem\.cp\.\S*acc::"
    ),
    "reports without the predicate that says whether there is one": re.compile(r"^mbarrier\.t\S* p\d, c\d,"),
    "tensors of any number of axes where four rows are meant": re.compile(
        r"^applypriority\.async\.bulk\.tensor\.(?!\S*\dd\.)"
    ),
    "an operand of fabric.wait": re.compile(r"^fabric\.wait\S* \S"),
    "vectors as the mask of bytes of strong copies": re.compile(r"^(multimem\.)?cp\S*cp_mask.*, \{h\d"),
    "b128 as the type of weak bulk copies": re.compile(
        r"^(multimem\.)?cp\.async\.bulk(?!\S*relaxed)\S*\.b128"
    ),
    "formats of tcgen05.cp beside other forms": re.compile(r"^tcgen05\.\S*(b[468]x16|\.b2\b)"),
    "a constant as address of tensor memory": re.compile(r"^tcgen05\.dealloc\S* -?\d"),
    "a scale of tcgen05.mma with integers": re.compile(r"^tcgen05\.mma\S*i8.*p\d, "),
    "'.sp' in another place in wgmma, and any metadata for two types": re.compile(
        r"^wgmma\.mma_async(?=\S*\.sp\b)(\.sync\.sp|"
        r"\S*(e4m3\.e5m2|e5m2\.e4m3|s8\.u8|u8\.s8) .*, (!?p4|\{r\d(, r\d)?\}|r\d, 4294967296),)"
    ),
    "vectors, and other types, in wmma.load and wmma.store": re.compile(
        r"^wmma\.(load|store)\S*(\.v2|m8n8k(32|128)\S*\.(f32|tf32|b1|[su]4))(?=[. ])"
    ),
    "wgmma without .aligned, which the manual demands": re.compile(r"^wgmma\.(?!.*\.aligned)"),
    "asynchronous stores and reductions without their mbarrier or order": re.compile(
        r"^(st|red)\.async\S* \[\w+\], \w+;"
    ),
    "spaces, scopes and vectors that st.async does not have": re.compile(
        r"^st\.async\S*\.(cluster|shared(::cta)?|v[24])(?![\w:])"
    ),
    "an mbarrier for asynchronous stores and reductions in global memory": re.compile(
        r"^(st|red)\.async\.(mmio\.)?release\S* \[\w+\], \w+, \["
    ),
    "a constant or register as mbarrier": re.compile(
        r"^cp\.async\.bulk\.shared\S*bytes \[\w+\], \[\w+\], \w+, (-?\d+|[hl]\d);"
    ),
    "'.cta' behind cp.async.bulk": re.compile(r"^cp\.async\.bulk\S*\.cta\b"),
    "an accumulator beside multimem.st and multimem.red": re.compile(r"^multimem\.(st|red)\S*\.acc::"),
    "eviction from L2 beside a cache operator or '.volatile'": re.compile(
        r"^(ld|st)(?=\S*\.L2::evict)\S*\.(c[agsv]|lu|w[bt]|volatile)\b"
    ),
    "types in another order, and braces, in clusterlaunchcontrol": re.compile(r"^clusterlaunchcontrol"),
    "a fourth operand of atom": re.compile(r"^atom\S* \S+, \[\w+\], \w+, [\w.]+;"),
    "L2 priorities of prefetch from generic addresses": re.compile(r"^prefetch\.L2::evict"),
    "'.sync_restrict' and spaces beside other forms of fence": re.compile(
        r"^fence\.\S*(restrict|shared|global)"
    ),
    "barrier numbers modulo 2^32": re.compile(r"^bar\S* .*4294967296"),
    "operands of other lengths in instructions on textures and surfaces, and '.uni'": re.compile(
        r"^(tex|tld4|txq\.level|suld|sust|sured)\.\S* .*\["
    ),
    "types of tensormap.replace in another order, its fields beside tensormap.cp_fenceproxy": re.compile(
        r"^tensormap\S*(\.b(32|64)\.b1024|fenceproxy\S*\.(rank|global_|swizzle_|box_|elem|fill_|inter))"
    ),
    "other than whole vectors in mov": re.compile(r"^mov\.\S+ .*[{]|^mov\.b(16|128) \w+, con"),
    "registers of any width in some conversions": re.compile(
        r"^cvt\.(pack\.sat\.\w+\.\w+(\.b32)?|\w+(\.relu)?(\.satfinite)?\.f16(x2)?\.f32|rs\S*) "
    ),
}
#: What ptxas refuses and we take.
STRICT = {
    "a negated constant as mask of members": re.compile(r"^fabric\.try_pullred.*, !0x"),
    "masks of blocks that have more than their 16 bits": re.compile(
        r"^cp\S*multicast::cluster\b(?!::32).*, 4294967296;"
    ),
    "metadata of sparse products in braces, which ptxas takes with other types": re.compile(
        r"^mma\.sp\S*\.([su]4|e[45]m\d)\S* .*\{r\d\}, \d+;"
    ),
    "a variable in st.bulk, for whose name ptxas makes an addition": re.compile(
        r"^st\.bulk\S*\.shared\S* \[sha"
    ),
    "a constant as offset of a texel beside a depth": re.compile(r"^tex\.grad\.1d\S* .*\}, -?\d+, f\d;"),
    "f32 as bits in red.async of global memory, which it may be in shared memory": re.compile(
        r"^red\.async\S*\.release\S*\.b32 .*, (f4|0f3F800000);"
    ),
    "the index of an array of images in a register of f32": re.compile(
        r"^(tex|tld4|su\w+)\S*\.a(1d|2d|cube)"
    ),
    "a constant for tf32": re.compile(r"^cvt\S*\.tf32\S* r0, [\d.]"),
    "registers of f32 for tf32, which the manual has in b32": re.compile(r"^cvt\S*\.tf32\S* f\d"),
    "a constant instead of a predicate, which others but bfloat16 may have": re.compile(
        r"^setp?\S*\.bf16\S* .*, -?\d+;"
    ),
    "variables without their space, where the manual wants a generic address": re.compile(
        r"^(prefetchu\S* \[sha|prefetch\.tensormap \[)"
    ),
}


def target_of(form: Form) -> str:
    """A target that has the form, and as much else as can be."""
    if form.row.available.only:
        return f"{form.row.available.only[0][:-1]}a"
    return "90a" if needs(form)[1] <= 90 else "100a"


@pytest.fixture(scope="module")
def misses() -> dict[str, tuple[str, Form]]:
    """Near misses of all rows that this ptxas knows, by their text, with the kind of the change."""
    found: dict[str, tuple[str, Form]] = {}
    for row in rows():
        if (
            row.available.removed is None
            and row.accepts.texmode != "independent"
            and row.available.since <= ptxas_version()
        ):
            found.update(near_misses(row, COUNT))
    return found


def test_near_misses(misses: dict[str, tuple[str, Form]], tmp_path: Path) -> None:
    different: dict[str, str] = {}
    listed: Counter[str] = Counter()
    groups: dict[str, list[str]] = {}
    for text, (_, form) in misses.items():
        groups.setdefault(target_of(form), []).append(text)
    for target, group in groups.items():
        theirs = refused_by_ptxas(group, ptxas_version(), target, tmp_path)
        ours = refused_by_us(group, ptxas_version(), target)
        for text in group:
            if theirs.get(text) == "crash" or (text in ours) == (text in theirs) or departs(text):
                continue
            patterns = LAX if text in ours else STRICT
            reason = next((reason for reason, pattern in patterns.items() if pattern.search(text)), None)
            if reason is None:
                said = f"we say {ours[text]!r}" if text in ours else f"ptxas says {theirs[text]!r}"
                different[text] = f"{misses[text][0]}: {said}"
            else:
                listed[reason] += 1
    print(f"{len(misses)} near misses, {sum(listed.values())} listed differences", listed)
    assert not different, "\n".join(f"{text}  {said}" for text, said in different.items())
