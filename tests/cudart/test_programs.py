"""CUDA programs, unchanged, on our ``libcudart``: a program in C, linked to it as nvcc's host code is, checks results by itself."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from gpuperf_engine.cudart import build, properties
from gpuperf_engine.cudart.build import LIBRARIES, build_libraries, names
from gpuperf_engine.cudart.calls import FUNCTIONS
from gpuperf_engine.cudart.program import check_program
from gpuperf_engine.errors import MachineError
from pytest_gpuperf.cli import main
from pytest_gpuperf.programs.start import say_nothing_ran
from tests.binaries.build import elf, entry, fatbin

HERE = Path(__file__).resolve().parent
PTX = """\
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 more = 1;
.visible .entry add(.param .u64 p, .param .u32 n) {
    .reg .b64 %rd<3>; .reg .b32 %r<6>;
    ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r2, %r3, 32, %r2;
    mul.wide.u32 %rd2, %r2, 4; add.s64 %rd2, %rd1, %rd2;
    ld.global.u32 %r3, [%rd2]; ld.global.u32 %r4, [more];
    add.u32 %r3, %r3, %r1; add.u32 %r3, %r3, %r4; st.global.u32 [%rd2], %r3;
    ret;
}
.visible .entry bad(.param .u64 p, .param .u32 n) {
    .reg .b64 %rd<3>; .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;
    st.global.u32 [%rd2], %r1;
    ret;
}
.visible .entry traps(.param .u64 p, .param .u32 n) { trap; ret; }
.visible .entry races(.param .u64 p, .param .u32 n) {
    .reg .b64 %rd1; .reg .b32 %r1;
    ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; st.global.u32 [%rd1], %r1;
    ret;
}
"""
COMPILER = shutil.which("cc")
needs_compiler = pytest.mark.skipif(
    not sys.platform.startswith("linux") or COMPILER is None, reason="needs a C compiler on Linux"
)


def run(
    folder: Path, *arguments: str, options: tuple[str, ...] = (), name: str = "program"
) -> subprocess.CompletedProcess[str]:
    """The program under ``gpuperf run``."""
    command = [sys.executable, "-m", "pytest_gpuperf.cli", "run", "--target", "a100-sxm-80gb", *options, "--"]
    return subprocess.run(
        [*command, str(folder / name), str(folder / "k.fatbin"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    (folder / "k.fatbin").write_bytes(fatbin(entry(PTX.encode())))
    library = build_libraries() / "libcudart.so.13"
    command = [COMPILER, "-w", str(HERE / "program.c"), "-o", "program", str(library), "-lpthread", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


@needs_compiler
def test_a_program_that_checks_itself(program):
    result = run(program, "works", options=("-o", str(program / "counts.json")))
    assert (result.stdout, result.returncode) == ("right\natexit\n", 42), result.stderr
    (row,) = json.loads((program / "counts.json").read_text())["kernels"]
    # 2 warps, then one of each: managed, registered, 3, 2 and 6 of graphs, 80 of threads; 13 instructions each
    warps = 2 + 1 + 1 + 3 + 2 + 6 + 80
    assert row == {
        "kernel": "add",
        "launches": warps - 1,
        "thread_instructions": warps * 32 * 13,
        "warp_instructions": warps * 13,
    }


@needs_compiler
@pytest.mark.parametrize("where", ["executable", "library", "loaded later"])
def test_a_program_that_contains_the_runtime(program, where):
    """Functions of these names that all fail, as nvcc links them by default: where the program has them, ours are called."""
    (program / "runtime.c").write_text(
        "".join(
            f"__attribute__((aligned(16))) int {name}(void) {{ return 35; }}\n"
            for name in sorted(
                set(re.findall(r"\b(?:__)?cuda[A-Z]\w+(?=\()", (HERE / "program.c").read_text()))
            )
        )
    )
    sources, libraries = ["-O1", "-w", str(HERE / "program.c"), "runtime.c"], ["-lpthread"]
    name = where.replace(" ", "-")
    commands = [[*sources, "-o", name, *libraries]]
    if where != "executable":
        main = "int main(int n, char **a) { return in_library(n, a); }\n"
        if where == "loaded later":
            main = (
                "#include <dlfcn.h>\nint main(int n, char **a) { int (*f)(int, char **) = "
                'dlsym(dlopen("./libruntime.so", RTLD_NOW), "in_library"); return f(n, a); }\n'
            )
        (program / "main.c").write_text(main)
        shared = ["-shared", "-fPIC", "-Dmain=in_library", "-o", "libruntime.so"]
        linked_to = ["libruntime.so", "-Wl,-rpath,$ORIGIN"] if where == "library" else []
        commands = [
            [*sources, *shared, *libraries],
            ["-w", "main.c", "-o", name, *linked_to, *libraries, "-ldl"],
        ]
    for command in commands:
        subprocess.run([COMPILER, *command], cwd=program, check=True)
    result = run(program, "works", name=name)
    assert (result.stdout, result.returncode) == ("right\natexit\n", 42), result.stderr


@needs_compiler
def test_errors_are_codes_of_cuda_and_messages(program):
    result = run(program, "errors")
    assert (result.stdout, result.returncode) == ("right\natexit\n", 42), result.stderr
    assert "nothing was run" not in result.stderr
    for line in (
        "cudaLaunchKernel: 0x77 is no handle of a stream",
        "cudaLaunchKernel: block.x is 2,000",
        "is the host function of no kernel",
        "cudaMalloc: 18,446,744,073,709,551,615 bytes, but",
        "cudaImportExternalMemory is not supported (cudaErrorNotSupported)",
        "cudaDeviceDisablePeerAccess: device 1 is not a peer: there is one device",
        "cudaDeviceGetP2PAttribute: devices 0 and 1 are not peers: there is one device",
        "was not allocated, or has been freed",
        "program[sm_80]:17:5: out-of-bounds st.global.u32",
        "program[sm_80]:20:55: trap executed",
    ):
        assert line in result.stderr
    assert "Traceback" not in result.stderr


@needs_compiler
def test_races_are_told_once(program):
    """Of three launches in which two warps store to one word; the program goes on."""
    result = run(program, "races", options=("--races", "note"))
    assert (result.stdout, result.returncode) == ("right\natexit\n", 42), result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "race on" in line]
    assert "race on global memory (WAW): st.global.u32 by thread (63, 0, 0) of block (0, 0, 0)" in line
    assert "at an array" in line
    assert "race on" not in run(program, "races").stderr


@needs_compiler
def test_a_forked_process_goes_on(program):
    """While another thread of the program launches. The counts are those of the first process: 300 launches of one warp."""
    result = run(program, "forks", options=("-o", str(program / "forks.json")))
    assert (result.stdout, result.returncode) == ("atexit\n" * 6 + "right\natexit\n", 42), result.stderr
    (row,) = json.loads((program / "forks.json").read_text())["kernels"]
    assert (row["launches"], row["warp_instructions"]) == (300, 300 * 13)


@needs_compiler
def test_reads_of_uninitialised_memory_are_told_once(program):
    """Of three launches on arrays whose end nothing has written."""
    # 172 bytes are 43 words: the first read past them is that of thread 11 of the second block
    told = (
        r"program\[sm_80\]:10:5: ld\.global\.u32 reads uninitialised memory at 0x(\w+)\n"
        r"  thread \(11, 0, 0\) of block \(1, 0, 0\) of kernel 'add'\n"
        r"  byte 172 of an array \(256 bytes at 0x(\w+)\)\n"
    )
    result = run(program, "blank", options=("--uninitialized", "note"))
    assert (result.stdout, result.returncode) == ("0\nright\natexit\n", 42), result.stderr
    ((address, start),) = re.findall(told, result.stderr)
    assert int(address, 16) - int(start, 16) == 172
    assert result.stderr.count("reads uninitialised memory") == 1
    # an error stays, as that of any kernel: cudaErrorLaunchFailure
    result = run(program, "blank", options=("--uninitialized", "error"))
    assert (result.stdout, result.returncode) == ("719\nright\natexit\n", 42), result.stderr
    assert re.search(told, result.stderr) and "write it first, or use --uninitialized note" in result.stderr
    assert "uninitialised" not in run(program, "blank").stderr
    # copies, fills, kernels and pointers of the host write what this program reads
    assert "uninitialised" not in run(program, "works", options=("--uninitialized", "note")).stderr


@needs_compiler
def test_notes_on_launches_are_said_once(program, tmp_path):
    """Of 92 launches of a kernel in which each part of a warp comes to a barrier of its own."""
    apart = (
        "st.global.u32 [%rd2], %r3;\n .reg .pred %p1; mov.u32 %r5, %tid.x; setp.lt.u32 %p1, %r5, 9; @%p1 bra LOW;\n"
        " bar.sync 0; bra END;\nLOW: bar.sync 0;\nEND:\n"
    )
    text = PTX.replace("st.global.u32 [%rd2], %r3;\n", apart, 1)
    (tmp_path / "k.fatbin").write_bytes(fatbin(entry(text.encode())))
    (tmp_path / "program").symlink_to(program / "program")
    result = run(tmp_path, "works")
    assert (result.stdout, result.returncode) == ("right\natexit\n", 42), result.stderr
    found = re.findall(
        r"gpuperf: note: program\[sm_80\]:(\d+):\d+: 'add': bar.sync executed by (lanes \d+-\d+) ",
        result.stderr,
    )
    lines = [number for number, line in enumerate(text.splitlines(), 1) if "bar.sync" in line]
    assert found == [(str(lines[0]), "lanes 9-31"), (str(lines[1]), "lanes 0-8")]
    assert result.stderr.count("[aligned-barrier]") == 2


@needs_compiler
def test_without_ptx_and_without_gpuperf(program):
    (program / "k.fatbin").rename(program / "kept")
    try:
        (program / "k.fatbin").write_bytes(fatbin(entry(b"\x7fELF", kind=2, architecture=90)))
        result = run(program, "works")
        assert result.returncode == 1
        assert (
            "program has no PTX that runs on a100-sxm-80gb: it has none, only machine code for sm_90"
            in result.stderr
        )
    finally:
        (program / "kept").rename(program / "k.fatbin")
    result = subprocess.run(
        [program / "program", program / "k.fatbin", "works"],
        env={"LD_LIBRARY_PATH": str(build_libraries())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 3
    assert "start the program with gpuperf run -- PROGRAM" in result.stderr


def linked(
    *needed: str, functions: tuple[str, ...] = (), symbols: tuple[str, ...] = (), fat: bool = True
) -> bytes:
    """A program with a dynamic section (tag 1: needed), offsets of names, and names of symbols."""
    names, rows = b"\0", b""
    for library in needed:
        rows += struct.pack("<QQ", 1, len(names))
        names += library.encode() + b"\0"
    names += b"".join(name.encode() + b"\0" for name in functions)
    sections = {".dynstr": names, ".dynamic": rows + bytes(16)}
    if symbols:
        sections[".strtab"] = b"\0" + b"".join(name.encode() + b"\0" for name in symbols)
    return elf({**sections, **({".nv_fatbin": fatbin(entry(PTX.encode()))} if fat else {})})


@pytest.mark.parametrize(
    "data, lines",
    [
        (
            linked(
                "libcudart.so.13",
                "libcublas.so.13",
                functions=("cublasSgemm_v2", "cublasCreate_v2", "cudaFree"),
            ),
            [
                "app needs libcublas.so.13, which the emulator does not have",
                "it calls cublasCreate_v2, cublasSgemm_v2\n",
            ],
        ),
        (
            linked("libc.so.6"),
            ["app contains the static CUDA runtime and was stripped", "nvcc -cudart shared"],
        ),
        (
            linked("libcudart.so.11.0"),
            ["app is linked to the runtime of CUDA 11", "programs of CUDA 12 and 13 can be run"],
        ),
        (
            linked("libc.so.6", symbols=("cudaMalloc", "__cudaRegisterTexture")),
            ["app is linked to the runtime of CUDA 11", "programs of CUDA 12 and 13 can be run"],
        ),
    ],
    ids=["library", "stripped", "version", "static version"],
)
def test_programs_that_cannot_be_run(tmp_path, data, lines):
    (tmp_path / "app").write_bytes(data)
    with pytest.raises(MachineError) as error:
        check_program(tmp_path / "app")
    for line in lines:
        assert line in str(error.value)


def test_programs_that_can_be_run(tmp_path):
    for data, has_cuda in (
        (linked("libcudart.so.12"), True),
        (linked("libcuda.so.1", "libnvrtc.so.13"), True),
        (linked("libc.so.6", symbols=("cudaMalloc",)), True),
        (linked("libc.so.6", fat=False), False),
        (b"#!/bin/sh\n", False),
    ):
        (tmp_path / "app").write_bytes(data)
        assert check_program(tmp_path / "app") == has_cuda


def test_a_program_that_ends_before_it_calls_cuda_is_not_asked_what_it_is(capsys):
    """It may have refused its arguments."""
    for has_cuda in (True, False):
        say_nothing_ran("./app", has_cuda)
        err = capsys.readouterr().err
        assert err.startswith("gpuperf: ./app called no CUDA function: nothing was run on the emulator\n")
        assert ("--triton" in err) is not has_cuda


@needs_compiler
def test_a_program_without_cuda(tmp_path, capfd, monkeypatch):
    """It is run, and the user told that the emulator had no part in it."""
    script = tmp_path / "script"
    script.write_text('#!/bin/sh\necho hello\necho "$GPUPERF_RUN_DEVICE"\nexit 3\n')
    script.chmod(0o755)
    assert main(["run", "--max-instructions", "5000", "--", str(script)]) == 3
    out, err = capfd.readouterr()
    hello, device = out.splitlines()
    assert hello == "hello" and json.loads(device) == {"races": "off", "max_instructions": 5000}
    assert f"{script} called no CUDA function: nothing was run on the emulator" in err
    assert "--triton" in err


@needs_compiler
def test_a_program_that_fails_is_told_of_races(tmp_path, capfd):
    """What its own check finds may be a race, which is not looked for unless asked."""
    script = tmp_path / "script"
    script.write_text('#!/bin/sh\n: > "$GPUPERF_RUN_USED"\nexit "$1"\n')
    script.chmod(0o755)
    told = "has ended with 3, and races were not checked; --races note checks them"
    for arguments, code, expected in (
        (["--"], 3, True),
        (["--"], 0, False),
        (["--races", "note", "--"], 3, False),
    ):
        assert main(["run", *arguments, str(script), str(code)]) == code
        assert (told in capfd.readouterr().err) is expected


@needs_compiler
def test_a_program_that_a_signal_ends(tmp_path, capfd):
    """Its exit code is 128 and the signal's number, as in a shell (POSIX, "Exit Status for Commands")."""
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nkill -TERM $$\n")
    script.chmod(0o755)
    assert main(["run", "--", str(script)]) == 128 + 15


def test_usage(capsys):
    for arguments, line in (
        (["run"], "give a program: gpuperf run -- PROGRAM ARGUMENTS"),
        (["run", "--max-instructions", "0", "--", "true"], "--max-instructions 0: at least 1"),
        (["run", "--", "./no/such"], "./no/such: no such program"),
        (["run", "--target", "h200-sx", "--", "true"], "--target 'h200-sx' is not known; did you mean"),
    ):
        assert main(arguments) == 2
        assert line in capsys.readouterr().err


@needs_compiler
def test_libraries_are_built_again_where_anything_of_their_making_differs(monkeypatch, tmp_path):
    built = []
    monkeypatch.setattr(build, "_folder", lambda: tmp_path)
    monkeypatch.setattr(
        build, "_compile", lambda sources, library, *rest: built.append((library.name, *rest))
    )
    folders = {build_libraries()}
    assert [name for name, *_ in built] == [*LIBRARIES, build.PRELOAD, build.UNVERSIONED]
    for name, value in (("_LIBC", dict.fromkeys(build._LIBC, "GLIBC_2.99")), ("_OPTIONS", ("-O0",))):
        with monkeypatch.context() as patched:
            patched.setattr(build, name, value)
            folders.add(build_libraries())
    assert len(folders) == 3


def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(MachineError, match="there is no C compiler to build the CUDA runtime with") as error:
        build_libraries()
    assert "apt-get install gcc libc6-dev" in str(error.value)


def test_functions_are_those_of_cuda():
    from gpuperf_engine.cudart import boot  # noqa: F401

    known = {name for library in LIBRARIES for name in names(library)}
    assert len(FUNCTIONS) > 150
    assert not {name.partition("@")[0] for name in FUNCTIONS} - known


def test_properties_lie_where_the_headers_have_them():
    """Offsets that a C compiler gives for ``cudaDeviceProp`` of ``driver_types.h``, CUDA 12.9 and 13.0."""
    for version, offsets in OFFSETS.items():
        layout = properties._layout(version)
        assert {name: getattr(layout, name).offset for name in offsets} == offsets


OFFSETS = {
    12: {
        "totalGlobalMem": 288,
        "warpSize": 308,
        "totalConstMem": 352,
        "major": 360,
        "multiProcessorCount": 388,
        "maxTexture1D": 408,
        "maxTexture2D": 420,
        "surfaceAlignment": 568,
        "memoryBusWidth": 612,
        "l2CacheSize": 616,
        "sharedMemPerMultiprocessor": 640,
        "managedMemory": 652,
        "pageableMemoryAccess": 672,
        "sharedMemPerBlockOptin": 696,
        "clusterLaunch": 772,
        "reserved": 780,
    },
    13: {
        "totalGlobalMem": 288,
        "warpSize": 308,
        "totalConstMem": 352,
        "major": 360,
        "multiProcessorCount": 384,
        "maxTexture1D": 396,
        "maxTexture2D": 404,
        "surfaceAlignment": 552,
        "memoryBusWidth": 592,
        "l2CacheSize": 596,
        "sharedMemPerMultiprocessor": 624,
        "managedMemory": 636,
        "pageableMemoryAccess": 652,
        "sharedMemPerBlockOptin": 672,
        "clusterLaunch": 748,
        "reserved": 784,
    },
}
