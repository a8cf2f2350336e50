"""``wgmma`` against a plain loop over the manual's fragments and layouts of shared memory, on both backends."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpuperf_engine as ge
from gpuperf_engine.errors import PtxError
from gpuperf_engine.isa.table import check_available, lookup, rows
from gpuperf_engine.jit.compiled import Code
from tests.isa.sample import ALL, is_drawn
from tests.isa.test_sparse_matrices import decoded, finish, pattern_of, same, start
from tests.support import BACKENDS, compiled

SHARED = 48640
#: modes of swizzling by their field in a descriptor, and their width in bytes
WIDTH = {0: 16, 1: 128, 2: 64, 3: 32}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1}
Place = Callable[[int, int], int]


def canonical(across: bool, mode: int, bits: int, leading: int, stride: int) -> Place:
    """Byte offset of element (line, k), before swizzling: the manual's table of canonical layouts, in elements."""
    t = 128 // bits
    per = WIDTH[mode] // 16
    lbo, sbo = leading * 8 // bits, stride * 8 // bits

    def place(line: int, k: int) -> int:
        if across and mode == 0:  # ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO))
            element = line % t + line // t * sbo + k % 8 * t + k // 8 * lbo
        elif across:  # ((T,per,m),(8,k)):((1,T,LBO),(per T,SBO))
            element = (
                line % t + line // t % per * t + line // (t * per) * lbo + k % 8 * per * t + k // 8 * sbo
            )
        elif mode == 0:  # ((8,m),(T,2k)):((1T,SBO),(1,LBO))
            element = line % 8 * t + line // 8 * sbo + k % t + k // t * lbo
        else:  # ((8,m),(T,2k)):((per T,SBO),(1,T))
            element = line % 8 * per * t + line // 8 * sbo + k % t + k // t * t
        return element

    return place


def swizzled(address: int, mode: int, phase: int = 0) -> int:
    """``Swizzle<B,4,3>``: bits 7… are added, without carry, to bits 4…; counted from where the pattern starts."""
    keep = WIDTH[mode] // 16 - 1
    return address ^ ((address >> 7) - phase & keep) << 4


class Matrix:
    """A or B in shared memory: ``lines`` rows or columns of ``depth`` elements."""

    def __init__(
        self, lines: int, depth: int, bits: int, across: bool, mode: int, begin: int, advance: int = 0, phase: int = 0
    ) -> None:  # fmt: skip
        self.bits, self.mode, self.begin, self.phase = bits, mode, begin + advance, phase
        self.end = begin
        width = WIDTH[mode]
        if across and mode == 0:
            self.leading, self.stride = 128 * (lines // 8), 128
        elif across:
            self.leading, self.stride = 8 * width * (depth // 8), 8 * width
        elif mode == 0:
            self.leading, self.stride = 16 * lines, 128
        else:
            self.leading, self.stride = 16, 8 * width
        self.place = canonical(across, mode, bits, self.leading, self.stride)

    def put(self, memory: bytearray, line: int, k: int, pattern: int) -> None:
        offset = self.place(line, k) * self.bits
        address = swizzled(self.begin + offset // 8, self.mode, self.phase)
        self.end = max(self.end, address + self.bits // 8 + 1)
        if self.bits >= 8:
            memory[address : address + self.bits // 8] = pattern.to_bytes(self.bits // 8, "little")
        else:
            memory[address] |= pattern << offset % 8

    @property
    def descriptor(self) -> int:
        return (
            self.begin >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32 | self.phase << 49 | self.mode << 62
        )  # fmt: skip


class Product:
    """One instruction with its operands."""

    def __init__(
        self, opcode: str, *, registers: bool = False, modes: tuple[int, int] = (0, 0), across: tuple[bool, bool] = (False, False),
        signs: tuple[int, int] = (1, 1), scale: str = "1", seed: int = 0, edges: bool = False, advance: int = 0, phase: int = 0,
    ) -> None:  # fmt: skip
        rng = random.Random(seed)
        self.opcode, self.registers, self.signs, self.scale = opcode, registers, signs, scale
        found = re.search(r"m64n(\d+)k(\d+)", opcode)
        assert found is not None
        self.columns, self.depth = int(found[1]), int(found[2])
        self.result, self.left, self.right = [
            word for word in opcode.split(".") if word in (*BITS, "f32", "s32")
        ][:3]
        self.sparse = ".sp." in opcode
        self.bits = BITS[self.left]
        stored = self.depth // 2 if self.sparse else self.depth
        self.a = [[self._element(rng, self.left, edges) for _ in range(stored)] for _ in range(64)]
        self.b = [
            [self._element(rng, self.right, edges) for _ in range(self.columns)] for _ in range(self.depth)
        ]
        self.c = [[self._sum(rng, edges) for _ in range(self.columns)] for _ in range(64)]
        self.memory = bytearray(SHARED)
        self.left_matrix = Matrix(64, stored, self.bits, across[0], modes[0], 0, advance, phase)
        self.right_matrix = Matrix(
            self.columns, self.depth, self.bits, across[1], modes[1], 8192 + 128 * phase, advance, phase
        )
        for row, k in itertools.product(range(64), range(stored)):
            if not registers:
                self.left_matrix.put(self.memory, row, k, self.a[row][k])
        for k, column in itertools.product(range(self.depth), range(self.columns)):
            self.right_matrix.put(self.memory, column, k, self.b[k][column])
        self.across = across
        self.selector = rng.randrange(2) if self.sparse and self.bits >= 16 else 0
        self.places = [self._places(rng) for _ in range(64)] if self.sparse else []

    @staticmethod
    def _element(rng: random.Random, kind: str, edges: bool) -> int:
        return rng.getrandbits(1) if kind == "b1" else pattern_of(rng, kind, edges)

    def _sum(self, rng: random.Random, edges: bool) -> int:
        if self.result == "s32" or edges:
            return rng.getrandbits(16 if self.result == "f16" else 32)
        kind = np.float16 if self.result == "f16" else np.float32
        return int(
            np.array([rng.uniform(-8, 8)], kind).view(np.uint16 if kind is np.float16 else np.uint32)[0]
        )

    def _places(self, rng: random.Random) -> list[tuple[int, list[int]]]:
        """Of a row, group by group: bits of metadata, and where the stored elements belong."""
        found = []
        if self.bits == 32:
            for group in range(self.depth // 2):
                at = rng.randrange(2)
                found.append(((0b0100, 0b1110)[at], [2 * group + at]))
            return found
        for group in range(self.depth // 4):
            pair = rng.sample(range(4), 2)
            found.append((pair[0] | pair[1] << 2, [4 * group + at for at in pair]))
        return found

    def metadata(self, thread: int) -> int:
        """Of one thread: the figures for ``mma.sp.m16n8k32`` (16 bits), ``m16n8k16`` (tf32) and ``m16n8k64`` (8 bits)."""
        warp, lane = divmod(thread, 32)
        group, inner = divmod(lane, 4)
        low, high = (
            sum(bits << 4 * place for place, (bits, _) in enumerate(self.places[16 * warp + group + eight]))
            for eight in (0, 8)
        )
        if self.bits == 8:
            return (high if inner % 2 else low) >> 32 * (inner // 2) & 0xFFFFFFFF
        if inner // 2 != self.selector:
            return 0  # not looked at
        return low >> 16 * (inner % 2) & 0xFFFF | (high >> 16 * (inner % 2) & 0xFFFF) << 16

    @property
    def turns(self) -> int:
        """How often 128 threads copy 16 bytes each until all that was put is in shared memory."""
        return -(-max(self.left_matrix.end, self.right_matrix.end) // 2048)

    def words(self) -> npt.NDArray[np.uint32]:
        """(128, 133): registers of A, metadata, then of D."""
        made = np.zeros((128, 133), np.uint32)
        per = 32 // self.bits
        for thread in range(128):
            warp, lane = divmod(thread, 32)
            group, inner = divmod(lane, 4)
            for register in range(4):
                row, first = 16 * warp + group + 8 * (register % 2), (4 * (register // 2) + inner) * per
                pieces = self.a[row][first : first + per]
                made[thread, register] = sum(piece << self.bits * place for place, piece in enumerate(pieces))
            if self.sparse:
                made[thread, 4] = self.metadata(thread)
            for place in range(self.columns // 2):
                row, column = (
                    16 * warp + group + 8 * (place // 2 % 2),
                    8 * (place // 4) + 2 * inner + place % 2,
                )
                if self.result == "f16":
                    made[thread, 5 + place // 2] |= self.c[row][column] << 16 * (place % 2)
                else:
                    made[thread, 5 + place] = self.c[row][column]
        return made

    @property
    def count(self) -> int:
        """Registers of D."""
        return self.columns // (4 if self.result == "f16" else 2)

    def instruction(self) -> str:
        held = "f" if self.result == "f32" else "d"
        operands = ["{" + ", ".join(f"%{held}{place}" for place in range(self.count)) + "}"]
        operands += ["{%a0, %a1, %a2, %a3}" if self.registers else "%da", "%db"]
        operands += ["%a4", str(self.selector)] if self.sparse else []
        operands.append(self.scale)
        if self.result != "s32":
            operands += [str(sign) for sign in self.signs]
            if self.bits == 16:
                operands += [str(int(self.across[0]))] * (not self.registers) + [str(int(self.across[1]))]
        return f"{self.opcode} {', '.join(operands)};"

    def module(self, before: str = "", after: str = "") -> str:
        held = "f" if self.result == "f32" else "d"
        loads = [f"ld.global.b32 %a{place}, [%in+{4 * place}];" for place in range(5)]
        loads += [f"ld.global.b32 %{held}{place}, [%in+{20 + 4 * place}];" for place in range(self.count)]
        stores = [f"st.global.b32 [%out+{4 * place}], %{held}{place};" for place in range(self.count)]
        return f""".version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 memory, .param .u64 out)
{{
.reg .b64 %in, %out, %m, %da, %db; .reg .b32 %t, %l, %i, %s, %w, %v<4>, %a<5>, %d<128>; .reg .f32 %f<128>; .reg .pred %p, %q;
.shared .align 1024 .b8 tile[{SHARED + 512}];
mov.u32 %t, %tid.x; mov.u32 %l, %laneid;
setp.ne.u32 %q, %t, %t;
ld.param.u64 %in, [in]; ld.param.u64 %m, [memory]; ld.param.u64 %out, [out];
mad.wide.u32 %in, %t, {4 * 133}, %in;
mad.wide.u32 %out, %t, 512, %out;
mad.wide.u32 %m, %t, 16, %m;
mov.u32 %s, tile; mad.lo.u32 %s, %t, 16, %s;
mov.u32 %i, 0;
fill:
ld.global.v4.b32 {{%v0, %v1, %v2, %v3}}, [%m]; st.shared.v4.b32 [%s], {{%v0, %v1, %v2, %v3}};
add.u64 %m, %m, 2048; add.u32 %s, %s, 2048; add.u32 %i, %i, 1;
setp.lt.u32 %p, %i, {self.turns};
@%p bra fill;
fence.proxy.async.shared::cta; bar.sync 0;
mov.b64 %da, {self.left_matrix.descriptor:#x}; mov.b64 %db, {self.right_matrix.descriptor:#x};
{chr(10).join(loads)}
wgmma.fence.sync.aligned;
{before}
{self.instruction()}
{after}
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
{chr(10).join(stores)}
ret;
}}
"""

    def run(self, backend: str, text: str = "", threads: int = 128) -> tuple[npt.NDArray[Any], ge.Profile]:
        device = ge.Device(backend=backend)
        words = self.words()
        given = device.array(np.concatenate([words, words[:32]]))
        memory = device.array(np.frombuffer(bytes(self.memory) + bytes(4096), np.uint32))
        out = device.zeros((160, 128), np.uint32)
        kernel = ge.parse(text or self.module(), path="wg.ptx")["k"]
        profile = device.launch(kernel, 1, threads, [given, memory, out])
        if backend == "llvm":
            assert isinstance(compiled(kernel), Code)
        return self.matrix(out.numpy()), profile

    def matrix(self, registers: npt.NDArray[np.uint32]) -> npt.NDArray[Any]:
        """D, (64, columns)."""
        held = registers[:128, : self.count]
        if self.result == "f16":
            held = np.stack([held & 0xFFFF, held >> 16], 2).reshape(128, -1)
        # lane 4 g + t of warp w: row 16 w + g, columns 2 t and 2 t + 1; the same of row + 8; then of the next eight columns
        values = start(held, self.result).reshape(4, 8, 4, -1, 2, 2)
        return values.transpose(0, 4, 1, 3, 2, 5).reshape(64, self.columns)

    def expected(self) -> npt.NDArray[Any]:
        """Exact products added up in the documented order, in double precision, rounded once."""
        x, y, total = decoded(self.a, self.left), decoded(self.b, self.right), start(self.c, self.result)
        if self.scale not in ("1", "!%q"):
            total = np.zeros_like(total)
        ks = np.broadcast_to(np.arange(self.depth), (64, self.depth))
        if self.sparse:
            ks = np.array([[k for _, part in row for k in part] for row in self.places])
        with np.errstate(invalid="ignore"):
            for stored, lines in enumerate(ks.T):
                total = total + self.signs[0] * self.signs[1] * x[:, stored, None] * y[lines]
        return finish(total, self.result, "satfinite" in self.opcode)

    def check(self, backend: str) -> None:
        found, _ = self.run(backend)
        same(found, self.expected())


DENSE = [
    "f16.f16.f16", "f32.f16.f16", "f32.bf16.bf16", "f32.tf32.tf32", "f16.e4m3.e5m2", "f32.e5m2.e5m2", "s32.s8.u8",
    "satfinite.s32.u8.u8", "s32.b1.b1.and.popc",
]  # fmt: skip


def opcode(types: str, columns: int, sparse: bool = False) -> str:
    left = next(word for word in types.split(".")[1:] if word in BITS)
    depth = 256 // BITS[left] * (2 if sparse else 1)
    return f"wgmma.mma_async{'.sp' if sparse else ''}.sync.aligned.m64n{columns}k{depth}.{types}"


def drawn(types: Sequence[str]) -> list[tuple[str, bool, str]]:
    """Types of products, whether A is in registers, and backends: all types on the reference backend with A in memory, and some of
    the others."""
    every = itertools.product(types, (False, True), BACKENDS)
    return [
        case for case in every if case[1:] == (False, "reference") or is_drawn("".join(map(str, case)), 2)
    ]


@pytest.mark.parametrize(("types", "registers", "backend"), drawn(DENSE))
def test_dense_products(types: str, registers: bool, backend: str) -> None:
    for seed, columns in enumerate((8, 48)):
        Product(opcode(types, columns), registers=registers, modes=(seed, 2 * seed), seed=seed).check(backend)
    if "s32" not in types:
        Product(opcode(types, 24), registers=registers, modes=(3, 1), seed=5, edges=True).check(backend)


@pytest.mark.parametrize(
    ("types", "registers", "backend"), drawn([types for types in DENSE if "b1" not in types])
)
def test_sparse_products(types: str, registers: bool, backend: str) -> None:
    Product(opcode(types, 8, True), registers=registers, seed=1).check(backend)
    Product(opcode(types, 48, True), registers=registers, modes=(3, 2), seed=2).check(backend)
    Product(opcode(types, 24, True), registers=registers, modes=(1, 1), seed=3).check(backend)


LAYOUTS = list(itertools.product(WIDTH, itertools.product((False, True), repeat=2), BACKENDS))


@pytest.mark.parametrize(
    ("mode", "across", "backend"),
    # each layout on one backend, each mode and each way across on both
    [case for case in LAYOUTS if ALL or (case[0] + sum(case[1])) % 2 == BACKENDS.index(case[2])],
)
def test_layouts_of_shared_memory(mode: int, across: tuple[bool, bool], backend: str) -> None:
    Product(opcode("f32.bf16.bf16", 64), modes=(mode, mode), across=across, seed=mode).check(backend)
    if mode != 3 or across[1]:
        Product(opcode("f32.f16.f16", 64, True), modes=(mode, mode), across=across, seed=mode).check(backend)


def test_matrices_may_begin_inside_a_pattern(backend: str) -> None:
    """A step along k moves the start by 32 bytes inside the 128 of the pattern; patterns may start at any multiple of 128 bytes."""
    for step in range(1, 4):
        Product(opcode("f32.f16.f16", 16), modes=(1, 1), advance=32 * step, seed=step).check(backend)
    for phase in (1, 5):
        made = Product(opcode("f32.f16.f16", 16), registers=True, modes=(1, 1), phase=phase, seed=phase)
        assert made.right_matrix.begin % 1024 == 128 * phase
        made.check(backend)


def test_widest_product(backend: str) -> None:
    Product(opcode("f32.e4m3.e4m3", 256), registers=True, seed=4).check(backend)


def test_signs_and_scale(backend: str) -> None:
    for signs in ((-1, 1), (1, -1), (-1, -1)):
        Product(opcode("f32.f16.f16", 8), signs=signs, seed=3).check(backend)
    for scale in ("0", "%q", "!%q"):
        Product(opcode("f16.f16.f16", 8), scale=scale, seed=3).check(backend)
        Product(opcode("s32.s8.s8", 8), scale=scale, seed=3).check(backend)


def failing(backend: str, product: Product, message: str, before: str = "", threads: int = 128) -> str:
    with pytest.raises(ge.EngineError, match=message) as caught:
        product.run(backend, product.module(before), threads)
    assert re.match(r"wg.ptx:\d+:\d+: ", str(caught.value))
    return str(caught.value)


def test_the_whole_warpgroup_must_be_there(backend: str) -> None:
    product = Product(opcode("f32.f16.f16", 8))
    for threads in (32, 96, 160):
        said = failing(backend, product, "the warpgroup of this warp has fewer than four warps", "", threads)
        assert f"thread ({(threads - 1) // 32 * 32}, 0, 0)" in said and "multiple of 128 threads" in said
    failing(
        backend, product, "16 of the 32 lanes of a warp execute it", "setp.lt.u32 %p, %l, 16;\n@!%p exit;"
    )
    failing(backend, product, "8 of the 32 lanes of a warp execute it", "", 104)


@pytest.mark.parametrize("warp", [0, 2, 3])
def test_no_warp_of_a_warpgroup_may_leave_it_out(warp: int, backend: str) -> None:
    product = Product(opcode("f32.f16.f16", 8))
    before = f"shr.u32 %w, %t, 5;\nsetp.eq.u32 %p, %w, {warp};\n@%p bra without;"
    text = product.module(before, "without:")
    with pytest.raises(
        ge.EngineError, match=r"wg.ptx:\d+:\d+: wgmma.*: not all warps of a warpgroup execute it"
    ) as caught:
        product.run(backend, text)
    assert re.search(rf"warp {warp} 0 and warp \d 1|warp \d 1 and warp {warp} 0", str(caught.value))
    product.run(backend, text.replace(f"setp.eq.u32 %p, %w, {warp};", "setp.ge.u32 %p, %w, 0;"))  # all may


WAIT = "wgmma.wait_group.sync.aligned 0;"
FENCE = "wgmma.fence.sync.aligned;"
#: of A, from the start of shared memory on
WORDS = 512
#: one thread clears A
CLEARS = f"""setp.ne.u32 %p, %t, {{thread}};
@%p bra cleared;
mov.u32 %s, tile; mov.u32 %i, 0;
clear:
st.shared.b32 [%s], 0; add.u32 %s, %s, 4; add.u32 %i, %i, 1;
setp.lt.u32 %p, %i, {WORDS};
@%p bra clear;
cleared:"""


#: all warps but the first wait for a flag
HELD = f"""mov.u32 %i, tile; mov.u32 %s, {SHARED};
add.u32 %s, %s, %i; setp.lt.u32 %p, %t, 32;
@%p bra first;
spin:
ld.volatile.shared.u32 %w, [%s];
setp.eq.u32 %p, %w, 0;
@%p bra spin;
first:
"""


@pytest.mark.parametrize(("thread", "wait"), [(0, "0"), (70, "0"), (0, "1")])
def test_nothing_behind_a_wait_changes_a_product(thread: int, wait: str, backend: str) -> None:
    """A warp that has waited may write over the matrices: the other warps of the warpgroup have read them."""
    product = Product(opcode("f32.f16.f16", 8), seed=4)
    waits = f"{'wgmma.commit_group.sync.aligned;' * int(wait)}\n{WAIT.replace('0', wait)}\n"
    text = product.module().replace(WAIT, waits + CLEARS.format(thread=thread))
    found, _ = product.run(backend, text)
    same(found, product.expected())


@pytest.mark.parametrize("thread", [0, 96])
def test_products_read_what_is_there_when_the_last_warp_comes(thread: int, backend: str) -> None:
    """One thread makes A of what lies there, and the other warps do not wait for it: the warps gather at the fence."""
    product = Product(opcode("f32.f16.f16", 8), seed=4)
    makes = CLEARS.replace(
        "st.shared.b32 [%s], 0;", "ld.shared.b32 %w, [%s]; xor.b32 %w, %w, 0x10001; st.shared.b32 [%s], %w;"
    )
    text = product.module().replace(FENCE, makes.format(thread=thread) + "fence.proxy.async;\n" + FENCE)
    memory = np.frombuffer(bytes(product.memory), np.uint32).copy()
    memory[:WORDS] ^= 0x10001
    product.memory = bytearray(memory.tobytes())
    found, _ = product.run(backend, text)
    same(found, product.expected())


def test_a_fence_does_not_hold_warps_that_others_wait_for(backend: str) -> None:
    """The manual does not say that warps wait for each other there: warp 0 lets the others come behind its product."""
    product = Product(opcode("f32.f16.f16", 8), seed=4)
    clean = f"mov.u32 %s, tile; st.shared.u32 [%s+{SHARED}], 0;\nbar.sync 0;"
    text = product.module(after="st.volatile.shared.u32 [%s], 1;").replace("bar.sync 0;", clean)
    found, _ = product.run(backend, text.replace(FENCE, HELD + FENCE))
    same(found, product.expected())


def test_a_wait_leaves_so_many_groups(backend: str) -> None:
    """Warp 0 goes on with its group pending, and lets the others come; a wait for that group would never end."""
    product = Product(opcode("f32.f16.f16", 8), seed=4)
    lets = f"{WAIT.replace('0', '1')}\nst.volatile.shared.u32 [%s], 1;\n{WAIT}"
    text = product.module(before=HELD).replace(WAIT, lets)
    clean = f"mov.u32 %s, tile; st.shared.u32 [%s+{SHARED}], 0;\nbar.sync 0;"
    text = text.replace("bar.sync 0;", clean)
    found, _ = product.run(backend, text)
    same(found, product.expected())
    with pytest.raises(ge.Deadlock, match=r"wgmma\.wait_group"):
        product.run(backend, text.replace(WAIT.replace("0", "1"), WAIT))


def test_a_wait_for_a_warp_that_never_comes_is_a_deadlock(backend: str) -> None:
    product = Product(opcode("f32.f16.f16", 8))
    leaves = "shr.u32 %w, %t, 5;\nsetp.eq.u32 %p, %w, 2;\n@%p bra gone;"
    text = product.module(before=leaves).replace("ret;", "gone:\nret;")
    with pytest.raises(ge.Deadlock, match=r"wg.ptx:\d+:\d+: deadlock") as caught:
        product.run(backend, text)
    said = str(caught.value)
    assert "96 threads at wgmma.wait_group.sync.aligned, for the products of warp 2 of the warpgroup" in said
    assert "first thread (0, 0, 0)" in said


def test_waits_are_the_same_in_slices(backend: str) -> None:
    """Who waits how often must not depend on whether the products are made."""
    product = Product(opcode("f32.f16.f16", 8))
    turns = """mov.u32 %s, tile;
again:
ld.volatile.shared.u32 %w, [%s];
setp.ne.u32 %p, %w, 0;
@%p bra again;"""
    text = product.module().replace(WAIT, WAIT + CLEARS.format(thread=0) + turns)
    kernel = ge.parse(text, path="wg.ptx")["k"]
    counted = []
    for demand in ("values", "control"):
        device = ge.Device(backend=backend)
        args = [device.array(np.concatenate([product.words(), product.words()[:32]]))]
        args += [device.array(np.frombuffer(bytes(product.memory) + bytes(4096), np.uint32))]
        profile = device.launch(kernel, 1, 128, [*args, device.zeros((160, 128), np.uint32)], demand=demand)
        counted.append(dict(profile.warp_opcodes))
    assert counted[0] == counted[1]


def test_descriptors_that_mean_nothing(backend: str) -> None:
    product = Product(opcode("f32.f16.f16", 8))
    said = failing(
        backend, product, "a matrix descriptor differs", "setp.eq.u32 %p, %l, 7;\n@%p add.u64 %db, %db, 1;"
    )
    assert "thread (103, 0, 0)" in said  # the last warp to come goes on first
    said = failing(backend, product, "out-of-bounds", "mov.b64 %da, 0x3fff;")
    assert "0x3fff0" in said and "16-byte load from shared" in said
    sparse = Product(opcode("f32.f16.f16", 8, True))
    failing(backend, sparse, "longer than the swizzling pattern", "or.b64 %db, %db, 0xc000000000000000;")


def test_metadata_that_means_nothing(backend: str) -> None:
    for types in ("f32.bf16.bf16", "s32.s8.s8", "f32.tf32.tf32"):
        product = Product(opcode(types, 8, True), registers=True)
        inner = 2 * product.selector
        wrong = f"setp.eq.u32 %p, %t, {68 + inner};\n@%p mov.b32 %a4, 0;"
        said = failing(backend, product, "sparsity metadata", wrong)
        assert f"thread ({68 + inner}, 0, 0)" in said


def test_memory_that_nobody_wrote_is_zero_and_noted(backend: str) -> None:
    product = Product(opcode("f32.f16.f16", 8), scale="0")
    text = re.sub(r"fill:.*?@%p bra fill;", "", product.module(), flags=re.S)
    found, profile = product.run(backend, text)
    assert not found.any()
    (site,) = [site for site in profile.sites if site.opcode.startswith("wgmma")]
    assert (site.requests, site.lanes, site.wavefronts) == (4, 0, 0)
    assert any("reads uninitialised memory" in note for note in profile.notes)


@pytest.mark.parametrize(
    ("operands", "said"),
    [
        ("1, 1, 2, 0, 0", "sign_b is 2"),
        ("1, 0, 1, 0, 0", "sign_a is 0"),
        ("1, 1, 1, 0, 3", "trans_b is 3"),
        ("5, 1, 1, 0, 0", "scale is 5"),
    ],
)
def test_constants_that_operands_do_not_take(operands: str, said: str) -> None:
    product = Product(opcode("f32.f16.f16", 8))
    text = product.module().replace("%db, 1, 1, 1, 0, 0;", f"%db, {operands};")
    with pytest.raises(PtxError, match=said):
        ge.Device().launch(ge.parse(text, path="wg.ptx")["k"], 1, 128, [None, None, None])


def test_registers_of_the_result_are_read_too() -> None:
    product = Product(opcode("f32.f16.f16", 8))
    with pytest.raises(PtxError, match="d is read as well and cannot be discarded with '_'"):
        text = product.module().replace("{%f0, %f1,", "{%f0, _,")
        ge.Device().launch(ge.parse(text, path="wg.ptx")["k"], 1, 128, [None, None, None])


def test_products_that_decide_a_branch_are_in_the_slice(backend: str) -> None:
    """Through the registers of D, which are read too, and through shared memory."""
    product = Product(opcode("f32.f16.f16", 8), scale="!%q", seed=2)
    again = product.instruction()
    deciding = f"{again}\nsetp.gt.f32 %p, %f3, 0f00000000;\n@%p bra over;\nmov.u32 %i, 3;\nover:"
    kernel = ge.parse(product.module(after=deciding), path="wg.ptx")["k"]
    counted = []
    for demand in ("values", "control"):
        device = ge.Device(backend=backend)
        given = device.array(product.words())
        memory = device.array(np.frombuffer(bytes(product.memory) + bytes(4096), np.uint32))
        out = device.zeros((160, 128), np.uint32)
        profile = device.launch(kernel, 1, 128, [given, memory, out], demand=demand)
        counted.append((profile.thread_instructions, profile.branches.divergent, dict(profile.opcodes)))
    assert counted[0] == counted[1]
    assert counted[0][1] > 0


def test_products_that_nobody_asks_for_are_met_and_not_made(backend: str) -> None:
    """In a slice lanes may have to wait for each other at a product whose descriptors and metadata are not worked out."""
    waits = """wait:
ld.volatile.global.u32 %w, [%m];
setp.ne.u32 %p, %w, 0;
@%p bra wait;
setp.lt.u32 %p, %l, 5;
@%p bra apart;
add.u32 %w, %w, 1;
apart:
"""
    product = Product(opcode("f32.f16.f16", 8, True))
    kernel = ge.parse(product.module(before=waits), path="wg.ptx")["k"]
    counted = []
    for demand in ("values", "addresses", "control"):
        device = ge.Device(backend=backend)
        words = np.concatenate([product.words(), product.words()[:32]])
        memory = device.array(np.frombuffer(bytes(product.memory) + bytes(8192), np.uint32))
        args = [device.array(words), memory, device.zeros((160, 128), np.uint32)]
        profile = device.launch(kernel, 1, 128, args, demand=demand)
        counted.append((profile.thread_instructions, profile.branches.divergent, dict(profile.warp_opcodes)))
    assert counted[0] == counted[1] == counted[2]


def test_only_hopper_has_them() -> None:
    for row in rows():
        if row.name == "wgmma":
            assert row.available.only == ("90a",)
    for form in lookup("wgmma.fence.sync.aligned"):
        check_available(form, (8, 0), 90, "a")
        for target in ((90, ""), (100, "a"), (120, "a")):
            with pytest.raises(PtxError):
                check_available(form, (9, 0), *target)
