"""Several PTX texts as one module, as a linker makes a program of several objects (PTX ISA, "Linking Directives")."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

__all__ = ["GRID_SYNC", "link"]

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|[{};]|^[ \t]*\.(?:version|target|address_size|file)\b[^\n]*',
    re.DOTALL | re.MULTILINE,
)
_NAMED = re.compile(r"(?:\.entry|\.func)\s*(?:\([^)]*\)\s*)?([\w$%]+)")
_VARIABLE = re.compile(r"\.(?:global|const)\b[^;={]*?([A-Za-z_$%][\w$]*)\s*(?:\[[^\]]*\]\s*)*(?:=|;)")
_FILE = re.compile(r"^(\s*\.file\s+)(\d+)", re.MULTILINE)
_LOCATION = re.compile(r"^(\s*\.loc\s+)(\d+)", re.MULTILINE)
_INLINED = re.compile(r"(\binlined_at\s+)(\d+)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

GRID_SYNC = """
.version 7.0
.target sm_70
.address_size 64
.global .align 4 .u32 gpuperf_grid_arrived = 0;
.visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    .reg .b64 %rd<2>;
    mov.u64 %rd1, gpuperf_grid_arrived;
    cvta.global.u64 %rd1, %rd1;
    st.param.b64 [handle], %rd1;
    ret;
}
.visible .func (.param .b32 status) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
    .reg .pred %p<4>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<2>;
    ld.param.b64 %rd1, [handle];
    bar.sync 0;
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;
    or.b32 %r4, %r1, %r2; or.b32 %r4, %r4, %r3;
    setp.ne.u32 %p1, %r4, 0;
    @%p1 bra $together;
    mov.u32 %r5, %nctaid.x; mov.u32 %r6, %nctaid.y; mov.u32 %r7, %nctaid.z;
    mul.lo.u32 %r5, %r5, %r6; mul.lo.u32 %r5, %r5, %r7;
    mov.u32 %r8, %ctaid.x; mov.u32 %r9, %ctaid.y; mov.u32 %r10, %ctaid.z;
    or.b32 %r8, %r8, %r9; or.b32 %r8, %r8, %r10;
    setp.eq.u32 %p2, %r8, 0;
    sub.u32 %r11, 0x80000001, %r5;
    selp.u32 %r12, %r11, 1, %p2;
    fence.acq_rel.gpu;
    atom.add.relaxed.gpu.u32 %r13, [%rd1], %r12;
$waiting:
    ld.acquire.gpu.u32 %r14, [%rd1];
    xor.b32 %r15, %r13, %r14;
    setp.ge.s32 %p3, %r15, 0;
    @%p3 bra $waiting;
$together:
    bar.sync 0;
    mov.u32 %r16, 0;
    st.param.b32 [status], %r16;
    ret;
}
"""
"""What ``libcudadevrt`` has for ``this_grid().sync()``: the CTAs of a cooperative launch wait until all have arrived. The highest bit
of the counter changes with the last of them: the first CTA adds 2^31 - (CTAs - 1), each other 1."""


def link(texts: Sequence[str]) -> str:
    """One module of several. Of what is defined in more than one (``.weak``, ``.common``), the first definition stays."""
    texts = [text.strip("\0") for text in texts]
    if any("cudaCGSynchronize" in text or "cudaCGGetIntrinsicHandle" in text for text in texts):
        texts = [*texts, GRID_SYNC]
    if len(texts) == 1:
        return texts[0]
    kept, seen, files = [], set(), 0
    for number, text in enumerate(texts):
        text, files = _renumbered(text, files)
        for statement in _statements(text):
            bare = _COMMENT.sub("", statement).strip()
            if number and re.match(r"\.(version|target|address_size|section)\b", bare):
                continue
            defined = _definition(bare)
            if defined in seen and defined is not None:
                continue
            seen.add(defined)
            kept.append(statement)
    return "".join(kept)


def _statements(text: str) -> Iterator[str]:
    """What stands side by side in a module, with the space before it."""
    start, depth = 0, 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
        line = token.lstrip().startswith(".")
        if depth or not (token in ("}", ";") or line):
            continue
        if token == "}" and text[match.end() : match.end() + 8].lstrip().startswith(";"):
            continue  # of an initialiser
        if line and text[start : match.start()].strip():
            yield text[start : match.start()]
            start = match.start()
        yield text[start : match.end()]
        start = match.end()
    yield text[start:]


def _definition(statement: str) -> str | None:
    """The name that a statement defines, if it does."""
    function = _NAMED.search(statement.partition("{")[0])
    if function is not None:
        return function[1] if "{" in statement else None
    variable = _VARIABLE.match(re.sub(r"^(\.(?:visible|weak|common)\s+)*", "", statement))
    return variable[1] if variable is not None and ".extern" not in statement else None


def _renumbered(text: str, before: int) -> tuple[str, int]:
    """Files are numbered through."""
    most = max((int(found[1]) for found in _FILE.findall(text)), default=0)

    def shifted(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) + before}"

    if before and most:
        for pattern in (_FILE, _LOCATION, _INLINED):
            text = pattern.sub(shifted, text)
    return text, before + most
