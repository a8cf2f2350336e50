"""Finding and running ``ptxas`` and ``nvdisasm``, with shell scripts in their place."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass import tools
from gpuperf_engine.sass.assemble import assemble, assemble_all, instructions_of, numbered
from gpuperf_engine.sass.cubin import is_whole
from gpuperf_engine.sass.disassemble import disassemble
from gpuperf_engine.sass.resources import ptxas_resources
from tests.sass.listings import EMPTY_CUBIN
from tests.support import head, needs_assembler

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.skipif(os.name != "posix", reason="shell scripts stand in for the programs")

VERSION = 'case "$1" in --version) echo "Cuda compilation tools, release 12.9, V12.9.86"; exit 0;; esac\n'
REPORT = """cat >&2 <<'end'
ptxas info    : Compiling entry function 'k' for 'sm_89'
ptxas info    : Function properties for k
    24 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 512 bytes smem, 360 bytes cmem[0]
end
"""
#: its name and source line are those of an attacker
PTX = head("7.0", "sm_80") + (
    '.file 1 "$(touch hacked)\\n-o x.cu"\n'
    ".visible .entry k(.param .u64 p)\n{\n.reg .u64 %a; .reg .pred %p;\n"
    ".loc 1 7 3\nld.param.u64 %a, [p]; // .loc 1 8 0\n"
    ".loc 1 9 3, function_name $s, inlined_at 1 7 3\nsetp.ne.u64 %p, %a, 0; @%p st.global.u64 [%a], %a; L:  ret;\n}\n"
    ".section .debug_str\n{\n$s:\n.b8 102\n.b8 0\n}\n"
)


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Neither program is to be found, and nothing is cached."""
    for name in ("GPUPERF_PTXAS", "GPUPERF_PTXAS_OPTIONS", "GPUPERF_NVDISASM", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("GPUPERF_CACHE", "off")
    monkeypatch.setattr(tools.util, "find_spec", lambda name: None)
    return tmp_path


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{VERSION}{body}", encoding="utf-8")
    path.chmod(0o755)
    return path


def kernel() -> ge.Kernel:
    return ge.parse(PTX, path="k.ptx")["k"]


def ended(file: Path) -> bool:
    """Whether the process whose number is in a file has ended; a busy machine ends it a little later."""
    for _ in range(100):
        asked = ["/bin/ps", "-o", "stat=", "-p", file.read_text().strip()]
        state = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()[:1]
        if state in ("", "Z"):
            return True
        time.sleep(0.05)
    return False


def test_missing_programs_say_what_to_install(nothing: Path) -> None:
    with pytest.raises(ge.MachineError, match="there is no ptxas") as raised:
        ptxas_resources(kernel())
    assert "pip install 'pytest-gpuperf[nvcc]', or set CUDA_HOME, or GPUPERF_PTXAS" in str(raised.value)
    with pytest.raises(ge.MachineError, match="there is no nvdisasm"):
        tools.find_tool("nvdisasm")


@pytest.mark.parametrize("name", ["ptxas", "nvdisasm", "nvcc"])
@pytest.mark.parametrize(
    ("given", "problem"),
    [("none", "a file that does not exist"), ("", "a folder"), ("text", "a file that cannot be executed")],
)
def test_a_variable_that_names_no_program_is_said(
    nothing: Path, monkeypatch: pytest.MonkeyPatch, name: str, given: str, problem: str
) -> None:
    """Even if the program would be found elsewhere."""
    script(nothing / "path" / name, "")
    (nothing / "text").write_text("no program", encoding="utf-8")
    path, variable = str(nothing / given), f"GPUPERF_{name.upper()}"
    monkeypatch.setenv(variable, path)
    with pytest.raises(ge.MachineError) as raised:
        tools.find_tool(name)
    message, looked, hint = (line.strip() for line in str(raised.value).splitlines())
    assert message == f"{variable} names {problem}: {path}"
    assert looked.startswith(f"looked for {name} only there")
    assert hint.startswith(f"set {variable} to the path of {name} itself, or unset it")
    monkeypatch.delenv(variable)
    assert tools.find_tool(name).path == str(nothing / "path" / name)


def test_programs_are_found_in_the_order_of_the_page(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {"triton": nothing / "triton"}

    def found(name: str) -> SimpleNamespace | None:
        folder = packages.get(name)
        return SimpleNamespace(submodule_search_locations=[str(folder)]) if folder else None

    monkeypatch.setattr(tools.util, "find_spec", found)
    parts = ("triton/backends/nvidia/bin", "wheel/cu13/bin", "b/bin", "a/bin", "path", "named")
    places = [script(nothing / part / "ptxas", "") for part in parts]
    script(nothing / "wheel/cu13/bin/ptxas-old", "exit 1")
    chosen = []
    for step in (
        lambda: None,
        lambda: packages.update(nvidia=nothing / "wheel"),
        lambda: monkeypatch.setenv("CUDA_PATH", str(nothing / "b")),
        lambda: monkeypatch.setenv("CUDA_HOME", str(nothing / "a")),
        lambda: None,
        lambda: monkeypatch.setenv("GPUPERF_PTXAS", str(nothing / "named" / "ptxas")),
    ):
        step()
        hidden = places[4].with_name("hidden")
        if len(chosen) < 4:
            places[4].rename(hidden)
        chosen.append(Path(tools.find_tool("ptxas").path))
        if hidden.exists():
            hidden.rename(places[4])
    assert chosen == places
    tool = tools.find_tool("ptxas")
    assert (tool.version, tool.full_version) == ("12.9", "12.9.86")


@pytest.mark.parametrize(
    ("architecture", "name"),
    [("", "ptxas"), ("sm_90a", "ptxas"), ("sm_100a", "ptxas-blackwell"), ("sm_120", "ptxas-blackwell")],
)
def test_triton_has_another_assembler_for_blackwell(
    nothing: Path, monkeypatch: pytest.MonkeyPatch, architecture: str, name: str
) -> None:
    """As in ``get_ptxas`` of ``triton/backends/nvidia/compiler.py``; an earlier Triton has one assembler."""
    here = SimpleNamespace(submodule_search_locations=[str(nothing / "triton")])
    monkeypatch.setattr(tools.util, "find_spec", lambda name: here if name == "triton" else None)
    folder = nothing / "triton" / "backends" / "nvidia" / "bin"
    plain = script(folder / "ptxas", "")
    other = script(folder / "ptxas-blackwell", "")
    assert tools.find_tool("ptxas", architecture).path == str(folder / name)
    other.unlink()
    assert tools.find_tool("ptxas", architecture).path == str(plain)


@pytest.mark.parametrize(
    ("ptx", "place"),
    [((8, 8), "path"), ((9, 0), "triton/backends/nvidia/bin"), ((9, 4), "path")],
)
def test_the_first_assembler_that_reads_the_ptx(
    nothing: Path, monkeypatch: pytest.MonkeyPatch, ptx: tuple[int, int], place: str
) -> None:
    """CUDA 12.9, on the path, has PTX 8.8, and 13.3 has 9.3; none of them has 9.4."""
    here = SimpleNamespace(submodule_search_locations=[str(nothing / "triton")])
    monkeypatch.setattr(tools.util, "find_spec", lambda name: here if name == "triton" else None)
    script(nothing / "path" / "ptxas", "")
    later = script(nothing / "triton" / "backends" / "nvidia" / "bin" / "ptxas", "")
    later.write_text(later.read_text().replace("12.9", "13.3"))
    assert tools.find_tool("ptxas", "sm_90", ptx).path == str(nothing / place / "ptxas")
    monkeypatch.setenv("GPUPERF_PTXAS", str(nothing / "path" / "ptxas"))
    assert tools.find_tool("ptxas", "sm_90", ptx).path == str(nothing / "path" / "ptxas")


def test_options_of_the_user_are_given_to_the_assembler_and_named(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = nothing / "said"
    script(nothing / "path" / "ptxas", f'echo "$@" > {said}; exit 1\n')
    monkeypatch.setenv("GPUPERF_PTXAS_OPTIONS", "-c --maxrregcount=32 -O1")
    tool = tools.find_tool("ptxas")
    assert (tool.version, tool.full_version) == ("12.9", "12.9.86 -c --maxrregcount=32 -O1")
    with pytest.raises(ge.MachineError):
        assemble(kernel(), "sm_89")
    assert " -c --maxrregcount=32 -O1 module.ptx -o module.o" in said.read_text()


@pytest.mark.parametrize("option", ["-arch=sm_90", "--gpu-name=sm_90", "-o", "x.ptx", "-v", "--entry=k", "'"])
def test_options_that_are_set_for_each_kernel_are_refused(
    nothing: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    script(nothing / "path" / "ptxas", "")
    monkeypatch.setenv("GPUPERF_PTXAS_OPTIONS", f"-c {option}")
    with pytest.raises(ge.MachineError, match="GPUPERF_PTXAS_OPTIONS"):
        tools.find_tool("ptxas")


def test_an_option_that_the_assembler_does_not_know_is_named(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(nothing / "path" / "ptxas", "echo \"ptxas fatal   : Unknown option 'nonsense'\" >&2; exit 255\n")
    with pytest.raises(ge.MachineError, match="also refuses it alone"):
        assemble(kernel(), "sm_89")
    monkeypatch.setenv("GPUPERF_PTXAS_OPTIONS", "-nonsense '-x y'")
    with pytest.raises(ge.MachineError, match="GPUPERF_PTXAS_OPTIONS is -nonsense '-x y'"):
        assemble(kernel(), "sm_89")


@needs_assembler
def test_the_assembler_keeps_to_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 values that are live at once need more registers than 32, unless they are spilled."""
    body = "".join(f"ld.global.u32 %r{n}, [%a+{4 * n}];" for n in range(64))
    body += "bar.sync 0;" + "".join(f"st.global.u32 [%a+{4 * (n * 7 % 64)}], %r{n};" for n in range(64))
    text = head("7.0", "sm_80") + ".visible .entry k(.param .u64 p)\n{\n.reg .u64 %a; .reg .b32 %r<64>;\n"
    made = ge.parse(text + "ld.param.u64 %a, [p];" + body + "ret;\n}\n", path="k.ptx")["k"]
    assert ptxas_resources(made).registers > 32
    monkeypatch.setenv("GPUPERF_PTXAS_OPTIONS", "-maxrregcount=32")
    assert ptxas_resources(made).registers <= 32


@pytest.mark.skipif(shutil.which("nvlink") is None, reason="needs nvlink")
@needs_assembler
def test_relocatable_code_is_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    """ptxas 13.0 merges fewer loads of shared memory in it."""
    text = (EXAMPLES / "kernels" / "sgemm.ptx").read_text(encoding="utf-8")
    made = ge.parse(text, path="sgemm.ptx")["sgemm_tiled"]

    def loads() -> int:
        return sum(item.base == "LDS" for item in disassemble(assemble(made, "sm_80")).instructions)

    merged = loads()
    monkeypatch.setenv("GPUPERF_PTXAS_OPTIONS", "-c")
    assert loads() > merged > 0


def test_a_program_that_hangs_is_ended_with_what_it_started(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "SECONDS", 0.4)
    script(nothing / "path" / "ptxas", f"sleep 1000 & echo $! > {nothing}/child\nwait\n")
    with pytest.raises(ge.MachineError, match=r"ptxas did not end within 0\.4 s"):
        assemble(kernel(), "sm_89")
    assert ended(nothing / "child")


def test_a_program_that_hangs_twice_is_not_run_any_more(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel is not tried again either: a gate assembles it for each test."""
    monkeypatch.setattr(tools, "SECONDS", 0.2)
    script(nothing / "path" / "ptxas", f"echo run >> {nothing}/runs\nexec sleep 1000\n")
    first, second, third = kernel(), kernel(), kernel()
    said = []
    for one in (first, first, second, third):
        with pytest.raises(ge.MachineError) as raised:
            assemble(one, "sm_89")
        said.append(str(raised.value).partition("\n")[0])
    assert said[:3] == ["ptxas did not end within 0.2 s, and was ended"] * 3
    assert said[3] == "ptxas is no longer run: 2 times in a row it did not end within 0.2 s"
    assert (nothing / "runs").read_text().split() == ["run", "run"]


def test_a_program_whose_child_keeps_its_output_open_is_ended(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended itself, but its output does not."""
    monkeypatch.setattr(tools, "SECONDS", 0.4)
    script(nothing / "path" / "ptxas", f"sleep 1000 & echo $! > {nothing}/child\nexit 0\n")
    with pytest.raises(ge.MachineError, match=r"ptxas did not end within 0\.4 s"):
        assemble(kernel(), "sm_89")
    assert ended(nothing / "child")


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_a_program_that_prints_without_end_is_ended(
    nothing: Path, monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    """It filled the memory until it was ended, 60 s later."""
    monkeypatch.setattr(tools, "_LARGEST", 3 << 20)
    script(nothing / "path" / "ptxas", f"exec yes 'ptxas info'{stream}\n")
    with pytest.raises(ge.MachineError, match="ptxas printed more than 3 MiB, and was ended"):
        assemble(kernel(), "sm_89")


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (
            "ptxas fatal   : Value 'sm_121' is not defined for option 'gpu-name'",
            "cannot assemble 'k' for sm_121",
        ),
        (
            "ptxas module.ptx, line 2; fatal   : Unsupported .version 9.5; current version is '8.8'",
            r"k\.ptx:2",
        ),
        (
            "ptxas module.ptx, line 8; error   : Arguments mismatch",
            r"refuses 'k' for sm_121: k\.ptx:8; error",
        ),
        ("ptxas module.ptx, line 13; error   : Label expected", r"refuses 'k' for sm_121: k\.ptx:11; error"),
        ("ptxas module.ptx, line 14; error   : Label expected", r"refuses 'k' for sm_121: k\.ptx:12; error"),
        ("\x1b[31merror\x1b[0m \u202e", r"refuses 'k' for sm_121: \\x1b\[31merror\\x1b\[0m \\u202e"),
        ("", "refuses 'k' for sm_121: no message, exit code 255"),
        ("Illegal instruction", "refuses 'k' for sm_121: Illegal instruction"),
    ],
)
def test_what_it_refuses_is_said(nothing: Path, says: str, message: str) -> None:
    script(nothing / "path" / "ptxas", f"cat >&2 <<'end'\n{says}\nend\nexit 255\n")
    with pytest.raises(ge.MachineError, match=message) as raised:
        assemble(kernel(), "sm_121")
    assert str(raised.value).startswith("ptxas 12.9 ")


def test_a_toolkit_that_lacks_old_architectures(nothing: Path) -> None:
    says = "ptxas fatal   : Value 'sm_70' is not defined for option 'gpu-name'"
    script(nothing / "path" / "ptxas", f"cat >&2 <<'end'\n{says}\nend\nexit 255\n")
    with pytest.raises(ge.MachineError, match="cannot assemble 'k' for sm_70") as raised:
        assemble(kernel(), "sm_70")
    assert "CUDA 12 toolkit" in str(raised.value.hint) and "later" not in str(raised.value.hint)


def test_a_signal_that_ended_it_is_said(nothing: Path) -> None:
    script(nothing / "path" / "ptxas", "kill -SEGV $$\n")
    with pytest.raises(
        ge.MachineError, match="ended while it assembled 'k' for sm_121: no message, ended by SIGSEGV"
    ):
        assemble(kernel(), "sm_121")


@pytest.mark.parametrize(
    "writes",
    ["", ": > module.cubin", "echo text > module.cubin", f"{EMPTY_CUBIN}; truncate -s 63 module.cubin"],
)
def test_a_file_that_is_not_whole_is_said_and_not_kept(
    nothing: Path, monkeypatch: pytest.MonkeyPatch, writes: str
) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(nothing / "cache"))
    script(nothing / "path" / "ptxas", f"{writes}\n")
    with pytest.raises(ge.MachineError, match=r"ptxas 12\.9 writes no whole ELF file for 'k' on sm_89"):
        assemble(kernel(), "sm_89")
    script(nothing / "path" / "ptxas", f"{EMPTY_CUBIN}\n")
    assert len(assemble(kernel(), "sm_89").cubin) == 64


def test_a_section_behind_the_end_of_the_file_is_missing() -> None:
    """One section of eight bytes behind a header of 64 and a table of one entry."""
    header = b"\x7fELF\x02" + bytes(35) + (64).to_bytes(8, "little") + bytes(12)
    header += (1).to_bytes(2, "little") + bytes(2)
    section = bytes(4) + (1).to_bytes(4, "little") + bytes(16) + (128).to_bytes(8, "little")
    section += (8).to_bytes(8, "little") + bytes(24)
    whole = header + section + bytes(8)
    assert len(header) == len(section) == 64
    assert [is_whole(whole[:size]) for size in (136, 135, 128, 127, 64, 63, 0)] == [True] + [False] * 6


def test_a_long_message_is_cut(nothing: Path) -> None:
    script(nothing / "path" / "ptxas", "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1\n")
    with pytest.raises(ge.MachineError, match=r"x… \(100,000 characters\)") as raised:
        assemble(kernel(), "sm_89")
    assert len(str(raised.value)) < 1000


def test_programs_that_do_not_say_their_version_are_told_apart(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one wrote was taken from the cache as what another would."""
    found = []
    for name in ("a", "b"):
        path = nothing / name
        path.write_text(f"#!/bin/sh\necho garbage {name}\n", encoding="utf-8")
        path.chmod(0o755)
        monkeypatch.setenv("GPUPERF_PTXAS", str(path))
        found.append(tools.find_tool("ptxas"))
    assert [tool.version for tool in found] == ["unknown", "unknown"]
    assert found[0].full_version != found[1].full_version
    assert all(tool.full_version.startswith("unknown (") for tool in found)


def test_a_program_that_is_none(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (nothing / "text").write_text("not a program")
    (nothing / "text").chmod(0o755)
    monkeypatch.setenv("GPUPERF_PTXAS", str(nothing / "text"))
    with pytest.raises(ge.MachineError, match=r"cannot run .*text: Exec format error"):
        assemble(kernel(), "sm_89")


def test_a_batch_keeps_its_order_and_its_errors(nothing: Path) -> None:
    script(
        nothing / "path" / "ptxas",
        f'{REPORT}case "$*" in *sm_75*) echo error >&2; exit 1;; *) {EMPTY_CUBIN}; echo "$@" >> module.cubin;; esac\n',
    )
    first, second, third = assemble_all([(kernel(), "sm_80"), (kernel(), "sm_75"), (kernel(), "sm_89")])
    assert not isinstance(first, ge.MachineError) and b"-arch=sm_80 -e k " in first.cubin
    assert isinstance(second, ge.MachineError)
    assert not isinstance(third, ge.MachineError) and b"-arch=sm_89" in third.cubin


def test_resources_are_those_of_the_report(nothing: Path) -> None:
    script(nothing / "path" / "ptxas", f"{REPORT}{EMPTY_CUBIN}\n")
    resources = ptxas_resources(kernel(), dynamic_shared=100)
    assert (resources.registers, resources.shared_bytes, resources.local_bytes) == (40, 612, 24)
    assert (resources.spill_stores, resources.spill_loads, resources.source) == (8, 12, "ptxas 12.9")
    assert not (nothing / "hacked").exists()


def test_the_numbered_text_has_one_mark_per_instruction_each_on_a_line() -> None:
    module = kernel()
    text, instructions = numbered(module), instructions_of(module)
    assert [item.opcode for item in instructions] == ["ld.param.u64", "setp.ne.u64", "st.global.u64", "ret"]
    lines = text.split("\n")
    assert lines[8] == ".loc 1 1 0 ld.param.u64 %a, [p]; // .loc 1 8 0"
    # ptxas keeps one mark of a line
    marked = [
        ".loc 1 2 0 setp.ne.u64 %p, %a, 0; ",
        ".loc 1 3 0 @%p st.global.u64 [%a], %a; L:  ",
        ".loc 1 4 0 ret;",
    ]
    assert lines[10:13] == marked
    assert "hacked" not in text and ".section" not in text and text.count(".file") == 1
    assert len(lines) == len(PTX.split("\n")) + 2 + 2


def test_debug_information_is_kept_where_the_target_needs_it() -> None:
    """``ptxas`` refused code for ``.target …, debug``, which it does not optimise, once its information was removed."""
    debug = PTX.replace(".target sm_80", ".target sm_80, debug")
    text = numbered(ge.parse(debug, path="k.ptx")["k"])
    assert ".section .debug_str\n{\n$s:\n.b8 102\n.b8 0\n}\n" in text
    assert "hacked" not in text and text.count(".file") == 1 and ".loc 1 7 3" not in text
