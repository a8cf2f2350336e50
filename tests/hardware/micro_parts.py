"""Bodies of micro kernels that every machine runs: chains of instructions, memory, barriers, atomics; ``micro.py`` says the rest."""

from __future__ import annotations

__all__ = [
    "CHAINS", "LOOPS", "UNROLL", "atomics", "barrier", "busy_warps", "chain", "frame", "global_access", "keep", "matrix",
    "pointer_chase", "repeated", "shared_access", "shared_chase", "stream", "three_operands", "two_pipes",
]  # fmt: skip

UNROLL = 64
LOOPS = 8
CHAINS = 4
LETTER = {"b32": "%r", "b64": "%l", "f32": "%f", "f64": "%d"}
LOADED = {"b32": "%r3", "b64": "%l3", "f32": "%f3", "f64": "%d3"}


def frame(
    entry: str,
    before: str,
    body: str,
    after: str,
    target: str,
    shared: str = "",
    rounds: int = 2,
    directives: str = "",
) -> str:
    """A module with one kernel that times ``body``; ``after`` uses what the body made, so that it is not dropped. What is stored is
    the last of the rounds: those before it bring the instructions into the cache. ptxas must not make copies of a round."""
    version = {"sm_89": "8.4", "sm_90": "8.0", "sm_90a": "8.0", "sm_100": "8.6"}.get(target, "7.8")
    return f""".version {version}
.target {target}
.address_size 64
{shared}
.visible .entry {entry}(.param .u64 out, .param .u64 data, .param .u64 size){directives}
{{
.reg .pred %p<8>;
.reg .b32 %r<320>;
.reg .b64 %l<80>;
.reg .f32 %f<80>;
.reg .f64 %d<80>;
.reg .b64 %c<4>, %t<4>, %out, %data, %size, %mine;
ld.param.u64 %out, [out];
ld.param.u64 %data, [data];
ld.param.u64 %size, [size];
mov.u32 %r310, %tid.x;
mov.u32 %r311, %ctaid.x;
mov.u32 %r312, %ntid.x;
mad.lo.u32 %r313, %r311, %r312, %r310;
and.b32 %r314, %r310, 31;
mad.wide.u32 %mine, %r314, 8, %data;
{before}
mov.u32 %r315, 0;
round:
.pragma "nounroll";
bar.sync 0;
mov.u64 %t0, %globaltimer;
mov.u64 %c0, %clock64;
{body}
mov.u64 %c1, %clock64;
mov.u64 %t1, %globaltimer;
add.u32 %r315, %r315, 1;
setp.lt.u32 %p7, %r315, {rounds};
@%p7 bra round;
{after}
sub.u64 %c1, %c1, %c0;
sub.u64 %t1, %t1, %t0;
setp.ne.u32 %p7, %r314, 0;
shr.u32 %r313, %r313, 5;
mad.wide.u32 %out, %r313, 16, %out;
@!%p7 st.global.v2.u64 [%out], {{%c1, %t1}};
ret;
}}
"""


def keep(kind: str, count: int) -> str:
    """Stores that never happen (the size is not an address of the data), but that no compiler can leave out."""
    lines = ["setp.eq.u64 %p6, %size, %data;"]
    wide = "b64" if kind in ("b64", "f64") else "b32"
    lines += [f"@%p6 st.global.{wide} [%data], {LETTER[kind]}{i + 8};" for i in range(count)]
    return "\n".join(lines)


def repeated(lines: list[str], label: str = "loop", count: int = LOOPS) -> str:
    """The lines, ``count`` times, as a loop that is not unrolled."""
    inner = "\n".join(lines)
    return f"""mov.u32 %r300, 0;
{label}:
.pragma "nounroll";
{inner}
add.u32 %r300, %r300, 1;
setp.lt.u32 %p0, %r300, {count};
@%p0 bra {label};"""


def chain(entry: str, instruction: str, kind: str, target: str, chains: int, unroll: int = UNROLL) -> str:
    """``UNROLL`` · ``LOOPS`` steps of every chain; constants come from the data, so that no compiler knows them, and
    each lane's from another place, so that they are not taken for uniform."""
    letter, constant = LETTER[kind], LOADED[kind]
    before = [f"ld.global.{kind} {constant}, [%mine];", f"ld.global.{kind} {letter}4, [%mine+8];"]
    before += [f"ld.global.{kind} {letter}{i + 8}, [%mine+{16 + 8 * i}];" for i in range(chains)]
    step = [
        instruction.format(d=f"{letter}{i + 8}", a=constant, b=f"{letter}4")
        for _ in range(unroll)
        for i in range(chains)
    ]
    turns = UNROLL * LOOPS // unroll
    return frame(entry, "\n".join(before), repeated(step, count=turns), keep(kind, chains), target)


def three_operands(entry: str) -> str:
    """Multiplications and additions of three registers each, none of which the instruction before has read in the same place: no
    operand stays at hand, all come out of the register banks."""
    count = 16
    before = [f"ld.global.f32 %f{i + 40}, [%mine+{8 * i}];" for i in range(2 * count)]
    before += [f"ld.global.f32 %f{i + 8}, [%mine+{8 * i}];" for i in range(count)]
    step = [
        f"fma.rn.f32 %f{i + 8}, %f{(i + j) % count + 40}, %f{(3 * i + j) % count + 40 + count}, %f{i + 8};"
        for j in range(CHAINS * UNROLL // count)
        for i in range(count)
    ]
    return frame(entry, "\n".join(before), repeated(step), keep("f32", count), "sm_75")


def busy_warps(entry: str) -> str:
    """Chains of multiply-adds in the warps of a CTA whose bits are set in ``size``; the others wait at the barrier of each round. If
    all CTAs begin in the same sub-partition, warps 0 and 4 take twice as long as warps 0 and 1."""
    before = ["ld.global.f32 %f3, [%mine];", "ld.global.f32 %f4, [%mine+8];"]
    before += [f"ld.global.f32 %f{i + 8}, [%mine+{16 + 8 * i}];" for i in range(CHAINS)]
    before += [
        "cvt.u32.u64 %r6, %size;",
        "shr.u32 %r7, %r310, 5;",
        "shr.u32 %r6, %r6, %r7;",
        "and.b32 %r6, %r6, 1;",
    ]
    before += ["setp.eq.u32 %p5, %r6, 0;"]
    step = [f"fma.rn.f32 %f{i + 8}, %f{i + 8}, %f3, %f4;" for _ in range(UNROLL) for i in range(CHAINS)]
    body = f"@%p5 bra idle;\n{repeated(step)}\nidle:"
    return frame(entry, "\n".join(before), body, keep("f32", CHAINS), "sm_75", rounds=16)


def two_pipes(entry: str) -> str:
    """Floating-point and logical instructions in turn, which wait for different units: the issue slots are what they share."""
    before = [
        f"ld.global.f32 %f{i + 4}, [%mine+{8 * i}];\nld.global.b32 %r{i + 4}, [%mine+{8 * i}];"
        for i in range(8)
    ]
    step = [
        f"fma.rn.f32 %f{i + 8}, %f{i + 8}, %f4, %f5;\nlop3.b32 %r{i + 8}, %r{i + 8}, %r4, %r5, 0x6a;"
        for _ in range(UNROLL // 2)
        for i in range(4)
    ]
    return frame(entry, "\n".join(before), repeated(step), keep("f32", 4) + "\n" + keep("b32", 4), "sm_75")


def matrix(entry: str, facts: tuple[str, int, int, int, str, str], chains: int) -> str:
    """Matrix instructions that add to the same accumulators."""
    middle, results, left, right, kind, target = facts
    letter = LETTER[kind]
    operand = "%d" if kind == "f64" else "%r"
    step = []
    for i in range(chains):
        mine = ", ".join(f"{letter}{8 + i * results + j}" for j in range(results))
        a = ", ".join(f"{operand}{60 + j}" for j in range(left))
        b = ", ".join(f"{operand}{70 + j}" for j in range(right))
        step.append(f"mma.sync.aligned.{middle} {{{mine}}}, {{{a}}}, {{{b}}}, {{{mine}}};")
    wide = "f64" if kind == "f64" else "b32"
    before = [f"ld.global.{wide} {operand}{60 + j}, [%mine+{8 * j}];" for j in range(14)]
    before += [f"ld.global.{kind} {letter}{8 + j}, [%mine+{128 + 8 * j}];" for j in range(chains * results)]
    return frame(entry, "\n".join(before), repeated(step * 16), keep(kind, chains * results), target)


def pointer_chase(entry: str, operator: str) -> str:
    """Loads each of whose addresses is what the one before gave; ``size`` of them before the clock is read."""
    warm = f"""mov.u64 %l8, %data;
mov.u64 %l9, %size;
setp.le.s64 %p1, %l9, 0;
@%p1 bra ready;
warm:
ld.global.{operator}.u64 %l8, [%l8];
sub.u64 %l9, %l9, 1;
setp.gt.s64 %p1, %l9, 0;
@%p1 bra warm;
ready:"""
    step = [f"ld.global.{operator}.u64 %l8, [%l8];"] * UNROLL
    return frame(entry, warm, repeated(step), keep("b64", 1), "sm_75")


def shared_chase(entry: str) -> str:
    """The same in shared memory: word i holds the address of word i + 32, so that lanes never conflict."""
    fill = """mov.u32 %r7, pool;
mov.u32 %r9, %r310;
fill:
add.u32 %r10, %r9, 32;
and.b32 %r10, %r10, 1023;
shl.b32 %r10, %r10, 2;
add.u32 %r10, %r10, %r7;
shl.b32 %r11, %r9, 2;
add.u32 %r11, %r11, %r7;
st.shared.u32 [%r11], %r10;
add.u32 %r9, %r9, 32;
setp.lt.u32 %p1, %r9, 1024;
@%p1 bra fill;
shl.b32 %r8, %r310, 2;
add.u32 %r8, %r8, %r7;"""
    step = ["ld.shared.u32 %r8, [%r8];"] * UNROLL
    return frame(entry, fill, repeated(step), keep("b32", 1), "sm_75", ".shared .align 16 .b8 pool[4096];")


def shared_access(entry: str, vector: str) -> str:
    """Loads from shared memory, lane i at ``i · size`` vectors; the places change from turn to turn, so that none is left out."""
    count = {"": 1, ".v2": 2, ".v4": 4}[vector]
    before = f"""and.b32 %r5, %r310, 31;
cvt.u32.u64 %r6, %size;
mul.lo.u32 %r5, %r5, %r6;
mul.lo.u32 %r5, %r5, {4 * count};
and.b32 %r5, %r5, 16383;
mov.u32 %r7, pool;
add.u32 %r5, %r5, %r7;"""
    places = UNROLL // 4
    step = []
    for i in range(places):
        names = [f"%r{8 + i * count + j}" for j in range(count)]
        target = f"{{{', '.join(names)}}}" if vector else names[0]
        step.append(f"ld.shared{vector}.b32 {target}, [%r5+{i * 512}];")
        step += [f"xor.b32 %r{200 + j}, %r{200 + j}, {name};" for j, name in enumerate(names)]
    step += ["add.s32 %r5, %r5, %r6;", "neg.s32 %r6, %r6;"]
    before += "\nmov.u32 %r6, 8192;\n" + "\n".join(f"mov.u32 %r{200 + j}, 0;" for j in range(count))
    after = "\n".join(f"mov.b32 %r{8 + j}, %r{200 + j};" for j in range(count))
    return frame(
        entry, before, repeated(step), f"{after}\n{keep('b32', count)}", "sm_75", ".shared .align 16 .b8 pool[32768];"
    )  # fmt: skip


def global_access(entry: str, operator: str) -> str:
    """Loads of 4 bytes, lane i at ``i · size`` words; the places change from turn to turn, so that none is left out."""
    before = """cvt.u32.u64 %r6, %size;
mul.lo.u32 %r5, %r314, %r6;
mul.wide.u32 %l5, %r5, 4;
add.u64 %l5, %l5, %data;
mov.u64 %l6, 8192;
mov.u32 %r8, 0;"""
    step = [
        f"ld.global.{operator}.b32 %r{9 + i}, [%l5+{128 * i}];\nxor.b32 %r8, %r8, %r{9 + i};"
        for i in range(UNROLL // 4)
    ]
    turn = ["add.s64 %l5, %l5, %l6;", "neg.s64 %l6, %l6;"]
    return frame(entry, before, repeated([*step, *turn]), keep("b32", 1), "sm_75")


def stream(entry: str, kind: str, passes: int, together: int = 4) -> str:
    """All threads go through the data ``passes`` times, 16 bytes each, ``together`` of them on the way at once: they read it (through
    L1 or past it), write it, or copy its first half to the second."""
    each = kind == "read_l1"  # every CTA goes through all of it
    operator = "ca" if each else "cg"
    loads, uses = [], []
    for i in range(together):
        first = 8 + 4 * i
        names = ", ".join(f"%r{first + j}" for j in range(4))
        loads.append(
            f"setp.lt.u64 %p{i + 1}, %l10, %l12;\nadd.u64 %l{20 + i}, %data, %l10;\nadd.u64 %l10, %l10, %l11;"
        )
        if kind != "write":
            loads.append(f"@%p{i + 1} ld.global.{operator}.v4.b32 {{{names}}}, [%l{20 + i}];")
        if kind.startswith("read"):
            uses += [f"xor.b32 %r{2 + j % 2}, %r{2 + j % 2}, %r{first + j};" for j in range(4)]
        if kind == "copy":
            uses.append(f"add.u64 %l{20 + i}, %l{20 + i}, %l12;")
        if kind in ("write", "copy"):
            uses.append(f"@%p{i + 1} st.global.v4.b32 [%l{20 + i}], {{{names}}};")
    step = "\n".join(loads + uses)
    before = f"""mov.b32 %r2, 0;
mov.b32 %r3, 0;
mov.b32 %r4, 0;
mov.u64 %l12, %size;
{"shr.u64 %l12, %l12, 1;" if kind == "copy" else ""}
mov.u32 %r1, %nctaid.x;
mul.lo.u32 %r1, %r1, %r312;
mul.wide.u32 %l11, {"%r312" if each else "%r1"}, 16;"""
    body = f"""again:
.pragma "nounroll";
mul.wide.u32 %l10, {"%r310" if each else "%r313"}, 16;
setp.ge.u64 %p0, %l10, %l12;
@%p0 bra end;
loop:
.pragma "nounroll";
{step}
setp.lt.u64 %p0, %l10, %l12;
@%p0 bra loop;
add.u32 %r4, %r4, 1;
setp.lt.u32 %p0, %r4, {passes};
@%p0 bra again;
end:"""
    after = "xor.b32 %r8, %r2, %r3;\n" if kind.startswith("read") else ""
    return frame(entry, before, body, after + keep("b32", 1), "sm_75", rounds=1)


def barrier(entry: str) -> str:
    """Barriers of the whole CTA, one after the other."""
    return frame(entry, "", repeated(["bar.sync 0;"] * UNROLL), "", "sm_75")


def atomics(entry: str, space: str, spread: str) -> str:
    """Integer additions: all lanes of the grid on one word, each lane on its own, or each warp on its own."""
    offset = {
        # a multiple of zero, as no compiler can know: for an address that is the same it would have one lane add for all
        "same": "shr.u64 %l5, %size, 40;\ncvt.u32.u64 %r5, %l5;\nmul.lo.u32 %r5, %r5, %r313;",
        "lanes": "mul.lo.u32 %r5, %r313, 4;",
        "warps": "and.b32 %r5, %r313, -32;\nmul.lo.u32 %r5, %r5, 4;",
    }[spread]
    if space == "shared":
        address = "and.b32 %r5, %r5, 16383;\nmov.u32 %r7, pool;\nadd.u32 %r5, %r5, %r7;"
        place = "[%r5]"
    else:
        address = "cvt.u64.u32 %l5, %r5;\nadd.u64 %l5, %l5, %data;"
        place = "[%l5]"
    step = [f"atom.{space}.add.u32 %r8, {place}, %r8;"] * 8
    return frame(entry, f"mov.u32 %r8, 1;\n{offset}\n{address}", repeated(step), keep("b32", 1), "sm_75",
                 ".shared .align 16 .b8 pool[16384];" if space == "shared" else "")  # fmt: skip
