"""The LLVM backend around the code: cache of objects, host threads, what is left to the reference backend."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import gc
import itertools
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import llvmlite.binding
import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.device.device import Runtime
from gpuperf_engine.jit import backend as native
from gpuperf_engine.jit import cache as native_cache
from gpuperf_engine.jit import dispatch as native_threads
from gpuperf_engine.jit import llvm as native_jit
from gpuperf_engine.jit import runtime_libraries, runtime_objects
from gpuperf_engine.jit.callback import Callback
from gpuperf_engine.jit.compiled import Code
from gpuperf_engine.jit.host_arrays import aligned
from gpuperf_engine.jit.ir.abi import Context, Cta
from gpuperf_engine.jit.ir.access_records import SITE_BYTES, Counter
from gpuperf_engine.jit.runtime import compile_python
from gpuperf_engine.jit.worker import Worker
from gpuperf_engine.machines.yaml_nodes import read_yaml
from gpuperf_engine.memory.arena import Allocation, Memory
from tests.support import compiled, wait_for_compilation, with_fresh_libraries

INDEX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u32 n) {
.reg .pred %p; .reg .b32 %i, %n, %c, %v; .reg .b64 %a, %x;
ld.param.u64 %a, [a]; ld.param.u32 %n, [n];
mov.u32 %c, %ctaid.x; mov.u32 %i, %tid.x; mad.lo.u32 %i, %c, 64, %i;
mov.u32 %v, 0;
LOOP: add.u32 %v, %v, %i; sub.u32 %n, %n, 1; setp.ne.u32 %p, %n, 0; @%p bra LOOP;
mul.wide.u32 %x, %i, 4; add.u64 %a, %a, %x; st.global.u32 [%a], %v; ret; }
"""
SHARED = """.version 8.0
.target sm_80
.address_size 64
.visible .entry shared(.param .u64 a) {
.reg .b32 %i, %t, %s, %v; .reg .b64 %a, %x; .shared .b32 tile[64];
ld.param.u64 %a, [a]; mov.u32 %t, %tid.x; mul.wide.u32 %x, %t, 4; add.u64 %a, %a, %x;
ld.global.u32 %i, [%a]; shl.b32 %i, %i, 2; mov.u32 %s, tile; add.u32 %i, %i, %s; st.shared.u32 [%i], %t;
bar.sync 0;
xor.b32 %i, %t, 32; shl.b32 %i, %i, 2; add.u32 %i, %i, %s; ld.shared.u32 %v, [%i]; st.global.u32 [%a], %v; ret; }
"""


def launch(
    text: str = INDEX, ctas: int = 200, size: int | None = None, rounds: int = 3
) -> tuple[Runtime, np.ndarray, object]:
    runtime = Runtime(memory_bytes=1 << 24)
    array = runtime.array(np.zeros(64 * ctas if size is None else size, np.uint32), name="a")
    kernel = ge.parse(text, path="k.ptx")["k"]
    _, _, seen = runtime.run(kernel, ctas, 64, [array, np.uint32(rounds)])
    return runtime, array.numpy(), seen


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    wait_for_compilation()
    monkeypatch.delenv("GPUPERF_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gpuperf"


def programs(cache: Path) -> set[Path]:
    return {path for path in cache.iterdir() if not path.name.startswith(".")} if cache.exists() else set()


def test_a_cached_start_generates_no_code(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, first, _ = launch()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert programs(cache)

    def refuse(*_: object) -> None:
        raise AssertionError("code was generated although it is in the cache")

    monkeypatch.setattr(native, "generate", refuse)
    _, second, _ = launch()
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("damage", [b"", b"gpuperf1", b"x" * 5000])
def test_a_damaged_cache_means_compiling_again(cache: Path, damage: bytes) -> None:
    _, first, _ = launch()
    for path in programs(cache):
        path.write_bytes(damage if len(damage) != 8 else path.read_bytes()[:-1])
    _, second, _ = launch()
    np.testing.assert_array_equal(first, second)


def test_runtime_functions_stay_where_others_were_linked_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short program ends before what it compiled in haste is stored, so the next one finds functions in the cache and not those
    that they call. These are linked to functions of ``script`` in between, which must be there as long as they are."""
    wait_for_compilation()
    number = itertools.count(1)
    called: set[int] = set()

    def link(contents: object, exports: tuple[str, ...], imports: dict[str, int]) -> SimpleNamespace:
        called.update(imports.values())
        return SimpleNamespace(addresses={name: next(number) for name in exports})

    stored = {"script", "values_of_u32", "global_4"}
    monkeypatch.setattr(runtime_libraries, "_stored", lambda name: b"" if name in stored else None)
    monkeypatch.setattr(runtime_libraries, "compile_object", lambda text, level: b"")
    monkeypatch.setattr(runtime_libraries, "link", link)
    monkeypatch.setattr(runtime_libraries, "_install_loaded", lambda: None)
    monkeypatch.setattr(runtime_libraries, "_libraries", {})
    monkeypatch.setattr(runtime_libraries, "_unoptimised", {})
    monkeypatch.setattr(runtime_libraries, "_due", {})
    runtime_libraries.runtime_addresses(("values_of_u32", "global_load_4"))
    kept = {
        address for library in runtime_libraries._libraries.values() for address in library.addresses.values()
    }
    assert called and called <= kept


def test_a_kernel_is_compiled_before_runtime_functions_are_optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM works for one thread at a time: a kernel would wait until the largest of them is done."""
    wait_for_compilation()
    started = threading.Event()

    def compile_object(text: str, level: int) -> bytes:
        started.set()
        raise RuntimeError

    monkeypatch.setattr(runtime_libraries, "compile_object", compile_object)
    monkeypatch.setattr(runtime_libraries, "_IDLE", (0.0, 0.0))
    monkeypatch.setattr(runtime_libraries, "_key", lambda name, level: f"{name}-{level}")
    monkeypatch.setattr(runtime_libraries.store, "read", lambda key: None)
    monkeypatch.setattr(runtime_libraries, "_due", {"script": "text"})
    with runtime_libraries.kernel_in_preparation():
        runtime_libraries.improve((), 0.0)
        assert not started.wait(0.1)
    assert started.wait(10)
    monkeypatch.setattr(runtime_libraries, "_LONGEST_DELAY", 0.0)
    monkeypatch.setattr(runtime_libraries, "_due", {"script": "text"})
    started.clear()
    with runtime_libraries.kernel_in_preparation():
        runtime_libraries.improve((), 0.0)
        assert started.wait(10)
    wait_for_compilation()


def test_a_slot_that_is_kept_holds_no_records_of_races() -> None:
    """They are kept up to a limit, for all kernels; each kernel with one of its own would have none."""
    device = ge.Device()
    out = device.array(np.arange(64, dtype=np.uint32))
    module = ge.parse(SHARED)
    assert device.launch(module["shared"], 1, 64, [out]).races == ()
    (code,) = (item for item in module["shared"].memo.values() if isinstance(item, Code))
    (shape,), (slot,) = code.slots.keys(), code.slots.values()
    assert shape[-1], "not checked"
    assert slot.races.size == 0
    device.launch(module["shared"], 1, 64, [out])
    assert out.numpy().tolist() == [*range(64)]


def test_any_changed_bit_and_any_cut_is_seen(cache: Path) -> None:
    native_cache.write("name", b"code")
    (entry,) = programs(cache)
    whole = entry.read_bytes()
    changed = [
        whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :]
        for place in range(len(whole))
        for bit in range(8)
    ]
    for wrong in [*changed, *(whole[:size] for size in range(len(whole))), whole + b"\0"]:
        entry.write_bytes(wrong)
        assert native_cache.read("name") is None
    entry.write_bytes(whole)
    assert native_cache.read("name") == b"code"


def test_an_entry_in_the_place_of_another_is_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs, runtime functions and what is remembered of the sources alike."""
    monkeypatch.setattr(native_cache, "_SETTLED", 0)
    with_fresh_libraries(monkeypatch)
    _, first, _ = launch()
    before = programs(cache)
    native_cache._digest_of(native_cache._BASE)
    _, second, _ = launch(INDEX.replace("add.u32 %v, %v, %i", "sub.u32 %v, %v, %i"))
    assert not np.array_equal(first, second)
    found = {path: path.read_bytes() for path in programs(cache)}
    # runtime functions that earlier tests had compiled better may have come as well
    other = min(path for path, raw in found.items() if path not in before and len(raw) > 100)
    for path in found:
        for content in {found[other], found[min(before)]} - {found[path]}:
            path.write_bytes(content)
            assert native_cache.read(path.name) is None
    _, again, _ = launch()
    np.testing.assert_array_equal(again, first)


OTHERS = {
    "processor": (native_jit, "host", lambda: native_jit.Host("x86_64", "other", "+sse2", False)),
    "features": (
        native_jit,
        "host",
        lambda: dataclasses.replace(native_jit._host(), features=native_jit._host().features + ",+other"),
    ),
    "LLVM": (llvmlite.binding, "llvm_version_info", (1, 2, 3)),
    "llvmlite": (llvmlite, "__version__", "0.1"),
    "Python": (sys, "version_info", (3, 99, 0, "final", 0)),
    "sources": (native_cache, "source_digest", lambda: b"others"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_cache_of_another_host_is_not_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    place = native_cache.key("program", native_jit.fingerprint(0))
    native_cache.write(place, b"code")
    monkeypatch.setattr(*OTHERS[other])
    there = native_cache.key("program", native_jit.fingerprint(0))
    assert there != place
    (cache / place).rename(cache / there)
    assert native_cache.read(there) is None


def test_code_is_kept_for_the_functions_that_it_was_made_of(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel whose module was given a function of another text, or whose instructions were changed, is another kernel."""
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    called = head + ".visible .func (.reg .b32 r) f() {{ mov.u32 r, {}; ret; }}"
    caller = head + (
        ".extern .func (.reg .b32 r) f();\n.visible .entry k(.param .u64 a) { .reg .b64 %a; .reg .b32 %v;"
        "ld.param.u64 %a, [a]; call (%v), f; add.u32 %v, %v, 0; add.u32 %v, %v, 1; st.global.u32 [%a], %v; ret; }"
    )

    def value(number: int, left_out: int) -> int:
        module = ge.parse(caller, path="k.ptx")
        module.functions["f"] = ge.parse(called.format(number), path="f.ptx").function("f")
        kernel = module["k"]
        del kernel.instructions[left_out]
        device = ge.Device(memory_bytes=1 << 20)
        result = device.zeros(1, np.uint32)
        device.launch(kernel, 1, 1, [result])
        return int(result.numpy()[0])

    assert [value(3, 3), value(5, 3), value(3, 2), value(3, 3)] == [3, 5, 4, 3]


def test_a_kernel_is_the_same_from_whichever_parse(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [ge.parse(INDEX, path=f"{number}.ptx") for number in range(3)]
    device = ge.Device(memory_bytes=1 << 20)
    for kernel in (modules[0]["k"], modules[1].kernels["k"], modules[2].functions["k"], modules[0]["k"]):
        array = device.zeros(64, np.uint32)
        profile = device.launch(kernel, 1, 64, [array, np.uint32(2)])
        assert profile.thread_instructions == 64 * (6 + 2 * 4 + 4)
        np.testing.assert_array_equal(array.numpy(), 2 * np.arange(64))


def test_a_kernel_without_a_body_is_not_launched() -> None:
    kernel = ge.parse(INDEX.partition(".visible")[0] + ".visible .entry k();")["k"]
    with pytest.raises(ge.LaunchError, match="declared and has no body"):
        ge.Device().launch(kernel, 1, 32, [])


@pytest.mark.parametrize(("limit", "most"), [("MOST_ENTRIES", 4), ("MOST_BYTES", 140)])
def test_of_too_many_entries_or_bytes_those_in_use_stay(
    cache: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    """Six entries of 29 bytes: two are half of four, and of 140 bytes."""
    monkeypatch.setattr(native_cache, limit, most)
    monkeypatch.setattr(native_cache, "_FEW_ENTRIES", 4)
    native_cache._make_room.cache_clear()
    for age, name in enumerate("abcdef"):
        native_cache.write(name, name.encode())
        os.utime(cache / name, (1000 - age, 1000 - age))
    for name in "ef":
        assert native_cache.read(name) == name.encode()
    native_cache._make_room.cache_clear()
    native_cache.write("g", b"g")
    assert {path.name for path in programs(cache)} == {"e", "f", "g"}


def test_a_cache_that_others_may_write_to_is_not_used(cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    native_cache._folder.cache_clear()
    launch()
    assert not programs(cache)


def test_the_cache_can_be_turned_off(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", "off")
    launch()
    assert not programs(cache)


@pytest.mark.skipif(os.name != "posix", reason="needs file modes")
def test_a_cache_that_cannot_be_made_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "file" / "below"))
    launch()


@pytest.fixture
def sources(cache: Path, tmp_path: Path) -> Path:
    for package in native_cache._PACKAGES:
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "a.py").write_text("1")
    for nested in (tmp_path / "jit" / "runtime" / "races", tmp_path / "timing" / "expanded"):
        nested.mkdir(parents=True)
        (nested / "a.py").write_text("1")
    return tmp_path


@pytest.mark.parametrize("folder", ["isa", "jit/runtime/races", "timing/expanded"])
def test_the_digest_of_the_sources_is_remembered_until_one_is_touched(
    folder: str, sources: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_cache, "_SETTLED", 0)
    first = native_cache._digest_of(sources)
    (remembered,) = programs(cache)
    native_cache.write(remembered.name, b"sixteen bytes...")
    assert native_cache._digest_of(sources) == b"sixteen bytes..."

    edited = sources / folder / "a.py"
    before = edited.stat()
    edited.write_text("2")
    os.utime(edited, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert native_cache._digest_of(sources) not in (first, b"sixteen bytes...")
    edited.write_text("1")
    assert native_cache._digest_of(sources) == first


def test_code_of_sources_that_were_edited_meanwhile_is_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_cache, "_BEGAN", 0)
    monkeypatch.setattr(native_cache, "_found_with", (0, 0))
    native_cache.keep("name", b"of old sources, or of both")
    assert not programs(cache)
    assert native_cache._source_digest.__wrapped__() != native_cache._source_digest.__wrapped__()


@pytest.mark.parametrize("read", ["module", "machine"])
def test_edits_matter_to_what_is_read_after_them(
    read: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native_cache.keep("first", b"of what was read")
    monkeypatch.setattr(native_cache, "_BEGAN", 0)
    native_cache.keep("second", b"of what was read before the edit")
    if read == "module":
        monkeypatch.setitem(sys.modules, "one_more", sys)
    else:
        read_yaml(Path(ge.__file__).parent / "machines" / "common.yaml")
    native_cache.keep("third", b"of what was read after it")
    assert {path.name for path in programs(cache)} == {"first", "second"}


@pytest.mark.skipif(os.name != "posix", reason="needs file locks")
def test_of_several_processes_one_compiles(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock belongs to an open file, so two threads are as good as two processes. One that stands still stops nobody."""
    order = []

    def other() -> None:
        with native_cache.alone("name", 10):
            order.append("other")

    with native_cache.alone("name", 10):
        thread = threading.Thread(target=other)
        thread.start()
        with native_cache.alone("name", 0.01):
            order.append("without waiting longer")
        order.append("first")
    thread.join()
    assert order == ["without waiting longer", "first", "other"]
    assert not list(cache.glob("*.lock"))

    text = "define i64 @vector_probe() { ret i64 7 }"
    level = runtime_objects.level("vector_probe")
    content = native_jit.compile_object(text, level)
    native_cache.write(runtime_libraries._key("vector_probe", level), content)
    monkeypatch.setattr(
        runtime_libraries, "compile_object", lambda text, level: pytest.fail("compiled again")
    )
    monkeypatch.setattr(runtime_libraries, "_libraries", {"vector_probe": None})
    monkeypatch.setattr(runtime_libraries, "_replaced", [])
    runtime_libraries._improve({"vector_probe": text})
    assert runtime_libraries._libraries["vector_probe"] is not None


def test_sources_that_just_changed_are_read_every_time(sources: Path, cache: Path) -> None:
    first = native_cache._digest_of(sources)
    assert not programs(cache)
    (sources / "flow" / "b.py").write_text("")
    assert native_cache._digest_of(sources) != first


def test_several_threads_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda: 1)
    _, alone, one = launch()
    monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda: 3)
    monkeypatch.setattr(native_threads, "WORTH_IT", 0.0)
    _, together, three = launch()
    np.testing.assert_array_equal(alone, together)
    for name in ("block_warps", "block_lanes", "divergent", "taken", "predicated", "sites"):
        np.testing.assert_array_equal(getattr(one, name), getattr(three, name))
    np.testing.assert_array_equal(alone, 3 * np.arange(200 * 64, dtype=np.uint32))


def test_of_several_errors_the_first_block_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda: 3)
    monkeypatch.setattr(native_threads, "WORTH_IT", 0.0)
    for _ in range(5):
        with pytest.raises(ge.EngineError, match=r"thread \(36, 0, 0\) of block \(57, 0, 0\)"):
            launch(size=64 * 57 + 36)


def test_an_interrupted_launch_has_ended_on_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory may be given back as soon as that is raised."""
    monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda: 3)
    monkeypatch.setattr(native_threads, "WORTH_IT", 0.0)
    begun, ended, others = [], [], threading.Event()
    real = Worker.call

    def call(self: Worker, *arguments: object) -> int:
        if threading.current_thread() is threading.main_thread():
            if self.launch.contexts[1:]:  # those of others
                others.wait(10)
                raise KeyboardInterrupt
            return real(self, *arguments)
        begun.append(self)
        others.set()
        time.sleep(0.05)
        try:
            return real(self, *arguments)
        finally:
            ended.append(self)

    monkeypatch.setattr(Worker, "call", call)
    with pytest.raises(KeyboardInterrupt):
        launch()
    assert begun
    assert sorted(map(id, begun)) == sorted(map(id, ended))
    monkeypatch.setattr(Worker, "call", real)
    _, values, _ = launch()
    np.testing.assert_array_equal(values, 3 * np.arange(200 * 64, dtype=np.uint32))


def test_what_is_raised_at_the_first_access_ends_the_launch() -> None:
    runtime = Runtime(memory_bytes=1 << 24)
    array = runtime.array(np.zeros(64, np.uint32), name="a")
    kernel = ge.parse(INDEX, path="k.ptx")["k"]
    told: list[object] = []

    def tell(allocation: object) -> None:
        told.append(allocation)
        raise KeyboardInterrupt("from below")

    runtime.memory.on_access = tell
    with pytest.raises(KeyboardInterrupt, match="from below"):
        runtime.run(kernel, 1, 64, [array, np.uint32(3)])
    runtime.memory.on_access = told.append
    runtime.run(kernel, 1, 64, [array, np.uint32(5)])
    assert told == [array.allocation] * 2
    np.testing.assert_array_equal(array.numpy(), 5 * np.arange(64, dtype=np.uint32))


@pytest.fixture
def alarm() -> Iterator[int]:
    """A signal whose handler raises."""

    def handler(number: int, frame: object) -> None:
        raise KeyboardInterrupt("from the handler")

    before = signal.signal(signal.SIGALRM, handler)
    yield int(signal.SIGALRM)
    signal.signal(signal.SIGALRM, before)


def test_no_exception_is_lost_in_a_callback(alarm: int) -> None:
    """Neither one that is pending, nor its own, nor that of a handler, which runs before its first instruction."""
    given: list[tuple[int, int]] = []

    def function(first: int, second: int) -> None:
        given.append((first, second))
        if second:
            raise ValueError("its own")

    callback = Callback(function)
    kinds = ctypes.c_int, *(ctypes.c_int64,) * 3

    def behind(call: str) -> Callable[..., int]:
        text = f"""
        define i32 @behind(i64 %record, i64 %first, i64 %second) {{
          {call}
          %code = call i32 inttoptr (i64 {callback.address} to ptr)(i64 %record, i64 %first, i64 %second)
          ret i32 %code
        }}"""
        libraries.append(native_jit.link([native_jit.compile_object(text, 0)], ("behind",), {}))
        return ctypes.PYFUNCTYPE(*kinds)(libraries[-1].addresses["behind"])

    libraries: list[native_jit.Library] = []
    no_memory = ctypes.cast(ctypes.pythonapi.PyErr_NoMemory, ctypes.c_void_p).value
    unwinds = behind(f"%none = call ptr inttoptr (i64 {no_memory} to ptr)()")
    rings = ctypes.cast(getattr(ctypes.CDLL(None), "raise"), ctypes.c_void_p).value
    interrupted = behind(f"%rung = call i32 inttoptr (i64 {rings} to ptr)(i32 {alarm})")

    call = ctypes.PYFUNCTYPE(*kinds)(callback.address)
    assert [call(callback.record, -1, number) for number in (0, 1)] == [0, 1]
    with pytest.raises(MemoryError):
        unwinds(callback.record, -1, 2)
    assert given == [(-1, 0), (-1, 1), (-1, 2)]
    assert interrupted(callback.record, -1, 0) == 1
    assert given[3:] == []
    assert [str(error) for error in callback.raised] == ["its own", "its own", "from the handler"]
    assert callback.raised[0].__traceback__ is not None


def test_better_runtime_functions_take_over_between_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime(memory_bytes=1 << 24)
    kernel = ge.parse(INDEX, path="k.ptx")["k"]
    array = runtime.array(np.zeros(64, np.uint32))
    runtime.run(kernel, 1, 64, [array, np.uint32(1)])
    before = compiled(kernel)
    assert isinstance(before, Code)
    library = before.library
    runtime_libraries._improve({name: runtime_objects.object_text(name) for name in ("script", "global_4")})
    runtime.run(kernel, 1, 64, [array, np.uint32(2)])
    assert before.library is not library
    np.testing.assert_array_equal(array.numpy(), 2 * np.arange(64, dtype=np.uint32))


def test_products_are_compiled_well_when_their_launches_take_long(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the cache or not: short runs must not pay for long ones."""
    name = "v_matrix_mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32"
    levels: list[int] = []

    def compiled(text: str, level: int) -> bytes:
        levels.append(level)
        return compile_object(text, level)

    compile_object = native_jit.compile_object
    monkeypatch.setattr(runtime_libraries, "compile_object", compiled)
    monkeypatch.setattr(runtime_libraries, "_libraries", {})
    monkeypatch.setattr(runtime_libraries, "_unoptimised", {})
    monkeypatch.setattr(runtime_libraries, "_due", {})
    monkeypatch.setattr(runtime_libraries, "_taken", collections.defaultdict(float))
    for expected in ([0], []):
        runtime_libraries._libraries.clear()
        runtime_libraries._library(name)
        assert levels == expected
        levels.clear()
        for needs, seconds in (((), 9.0), ((name,), 0.4)):
            runtime_libraries.improve(needs, seconds * runtime_libraries._LONG)
            assert name in runtime_libraries._unoptimised
    runtime_libraries.improve((name,), 0.4 * runtime_libraries._LONG)
    wait_for_compilation()
    assert (levels, runtime_libraries._unoptimised) == ([1], {})
    runtime_libraries._libraries.clear()
    runtime_libraries._library(name)
    assert (levels, runtime_libraries._unoptimised) == ([1], {})


def test_states_of_warps_are_aligned() -> None:
    for size in (64, 100, 4096):
        assert aligned(size).ctypes.data % 64 == 0


def test_fields_of_layouts_do_not_overlap() -> None:
    """Two fields at one place would be found by chance only."""
    for layout in (Context, Cta, Counter):
        fields = {name: place for name, place in vars(layout).items() if name.isupper()}
        size = fields.pop("BYTES", SITE_BYTES)
        fields.pop("INDICES", None)  # X, Y and Z by number
        assert len(set(fields.values())) == len(fields), layout.__name__
        assert max(fields.values()) + 8 <= size, layout.__name__


@pytest.mark.parametrize("name", runtime_objects.SCRIPTS)
def test_llvm_takes_the_runtime(name: str) -> None:
    """Where it does not, kernels run on the reference backend: right, 500 times slower, and with no more than a remark."""
    assert native_jit.compile_object(runtime_objects.object_text(name), 0)


def test_what_llvm_has_freed_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so much IR, not after each kernel. Without it the gate on the examples takes 35 MB more."""
    given_back: list[int] = []
    give_back = native_jit._give_back
    monkeypatch.setattr(native_jit, "_give_back", lambda: (given_back.append(1), give_back()))
    text = "define i32 @f() { ret i32 1 }\n"
    monkeypatch.setattr(native_jit, "_compiled", [0])
    monkeypatch.setattr(native_jit, "_GIVEN_BACK_AFTER", 3 * len(text))
    for expected in ([], [], [1], [1], [1], [1, 1]):
        assert native_jit.compile_object(text, 1)[:4] == b"\x7fELF"
        assert given_back == expected


def test_a_function_of_the_runtime_that_is_defined_twice(tmp_path: Path) -> None:
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file in files:
        file.write_text("def add(a: int, b: int) -> int:\n    return a + b\n")
    assert "define" in compile_python.translate(files[:1], {})
    for given in (files, files[:1] * 2):
        with pytest.raises(ValueError, match=r"^add is defined twice"):
            compile_python.translate(given, {})
    with pytest.raises(ValueError, match=r"^add is defined twice"):
        compile_python.translate(files[:1], {}, files[1:])


def test_arrays_freed_while_a_launch_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finalizers of a program's arrays run whenever the collector does: the array with the highest address stays reachable."""
    device = ge.Device(memory_bytes=1 << 24)
    first, last = device.zeros(64, np.uint32), device.array(np.zeros(64, np.uint32))
    from gpuperf_engine.jit import launch

    ids, left = launch._thread_ids, [first]

    def collects(block: tuple[int, int, int]) -> object:
        if left:
            device.free(left.pop())
        return ids(block)

    monkeypatch.setattr(launch, "_thread_ids", collects)
    device.launch(ge.parse(INDEX, path="k.ptx")["k"], 1, 64, [last, np.uint32(3)])
    assert not left
    np.testing.assert_array_equal(last.numpy(), 3 * np.arange(64, dtype=np.uint32))


def test_nothing_is_freed_while_rows_of_allocations_change(monkeypatch: pytest.MonkeyPatch) -> None:
    collects: list[bool] = []
    row = Memory._row

    def watched(item: Allocation) -> tuple[int, int, int, int]:
        collects.append(gc.isenabled())
        return row(item)

    monkeypatch.setattr(Memory, "_row", staticmethod(watched))
    device = ge.Device(memory_bytes=1 << 24)
    arrays = [device.zeros(64) for _ in range(4)]
    device.memory.table()
    device.free(arrays[1])
    device.zeros(32)
    device.memory.table()
    assert len(collects) >= 5 and not any(collects) and gc.isenabled()
