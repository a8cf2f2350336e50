"""Programs and libraries as sources of PTX: in tests, and in the commands."""

from __future__ import annotations

import pytest
import yaml

import gpuperf_engine
from pytest_gpuperf.cli import main
from tests.binaries.build import elf, entry, fatbin, ptx

TEST = """\
import pytest

@pytest.mark.gpuperf(targets={targets})
def test_k(gpuperf):
    gpuperf.kernel("program"{entry})[1, 32]()
"""
TWICE = "{ .reg .b32 %r; mov.u32 %r, 1; }"


def program(*texts: str) -> bytes:
    return elf({".nv_fatbin": b"".join(fatbin(entry(text.encode())) for text in texts)})


@pytest.fixture
def real(project, monkeypatch):
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", gpuperf_engine.__name__)
    return project


def run(project, data, targets=("h100-sxm",), entry=""):
    """The result of pytest, and what baselines hold: (case, thread instructions)."""
    (project.path / "program").write_bytes(data)
    project.write("test_k.py", TEST.format(targets=list(targets), entry=entry))
    result = project.run("--gpuperf", "--gpuperf-update")
    file = project.path / "baselines" / "test_k.yaml"
    cases = yaml.safe_load(file.read_text())["cases"] if file.is_file() else {}
    return result, {key: case["counts"]["thread_instructions"] for key, case in cases.items()}


def test_each_machine_takes_the_highest_ptx_that_it_runs(real):
    data = program(ptx("sm_70"), ptx("sm_80", body=TWICE), ptx("sm_90a", body=TWICE * 2), ptx("sm_100"))
    assert run(real, data)[1] == {"test_k/k": 32 * 3}
    assert run(real, data, ["a100-sxm-80gb"])[1] == {"test_k/k": 32 * 2}
    assert run(real, data, ["a100-sxm-80gb", "h100-sxm"])[1] == {
        "test_k/k@sm_80": 32 * 2,
        "test_k/k@sm_90a": 32 * 3,
    }


def test_higher_ptx_stands_for_machine_code_of_the_same_fat_binary(real):
    code = [entry(b"\x7fELF", kind=2, architecture=number) for number in (80, 90)]
    higher = [
        entry(ptx(target, body=TWICE * 2).replace("8.0", "8.7").encode()) for target in ("sm_100a", "sm_120")
    ]
    data = elf({".nv_fatbin": fatbin(*code, *higher)})
    assert run(real, data)[1] == {"test_k/k": 32 * 3}
    assert run(real, data, ["a100-sxm-80gb", "h100-sxm", "rtx-5090"])[1] == {
        "test_k/k@sm_80": 32 * 3,
        "test_k/k@sm_90": 32 * 3,
        "test_k/k@sm_120": 32 * 3,
    }
    (real.path / "k.so").write_bytes(data)
    assert (
        main(["profile", str(real.path / "k.so"), "--grid", "1", "--block", "32", "--target", "h100-sxm"])
        == 0
    )
    # the machine code is of another object
    data = elf({".nv_fatbin": fatbin(*code) + fatbin(*higher)})
    assert "has no PTX that runs on h100-sxm" in run(real, data)[0].stdout.str()


def test_the_kernel_is_found_in_whichever_object_has_it(real):
    objects = ptx(kernels=("a",)), ptx(kernels=("_Z1kPf", "b"), body=TWICE)
    assert run(real, program(*objects), entry=", 'k'")[1] == {"test_k/_Z1kPf": 64}
    # a template is in each object that uses it
    assert run(real, program(*objects, objects[1]), entry=", 'b'")[1]["test_k/b"] == 64


@pytest.mark.parametrize(
    "data, entry, lines",
    [
        (
            program(ptx(kernels=("a", "b"))),
            "",
            ["program has 2 kernels: name one with entry=", "known kernels: a, b"],
        ),
        (
            program(ptx(kernels=("saxpy",))),
            ", 'sxpy'",
            ["no kernel 'sxpy' in the PTX of program", "did you mean 'saxpy'?"],
        ),
        (program(ptx(), ptx(body=TWICE)), "", ["program has 2 different kernels 'k' for sm_80"]),
        (program(ptx("sm_100")), "", ["program has no PTX that runs on h100-sxm", "it has PTX for sm_100"]),
        (
            elf({".nv_fatbin": fatbin(entry(b"x", kind=2))}),
            "",
            ["program holds no PTX", "it has machine code for sm_80"],
        ),
        (program(ptx())[:-1], "", ["program is a damaged ELF file"]),
    ],
    ids=["unnamed", "unknown", "ambiguous", "too new", "machine code", "damaged"],
)
def test_messages(real, data, entry, lines):
    result, cases = run(real, data, entry=entry)
    assert not cases
    for line in lines:
        result.stdout.fnmatch_lines([f"*{line}*".replace("[", "[[]")])


def test_commands(tmp_path, capsys):
    file = tmp_path / "program"
    texts = ptx("sm_80", ("a",)), ptx("sm_80", ("_Z1kPf",)), ptx("sm_90", ("_Z1kPf",), TWICE)
    file.write_bytes(program(*texts))
    assert main(["ls", str(file)]) == 0
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines()[2:5]] == [
        ["PTX", target, str(-(-len(text) // 8) * 8), "-", name]
        for target, name, text in zip(("sm_80", "sm_80", "sm_90"), ("a", "k", "k"), texts)
    ]
    counted = {}
    for target in ("a100-sxm-80gb", "h100-sxm"):
        launch = ["--entry", "k", "--grid", "1", "--block", "32", "--target", target]
        assert main(["profile", str(file), *launch]) == 0
        counted[target] = capsys.readouterr().out.splitlines()[2].split()
    assert counted == {
        "a100-sxm-80gb": ["thread_instructions", "32"],
        "h100-sxm": ["thread_instructions", "64"],
    }
    assert main(["inspect", str(file), "--entry", "a"]) == 0
    assert "PTX 8.0 for sm_80" in capsys.readouterr().out
    assert main(["inspect", str(file)]) == 3
    assert "has 2 kernels" in capsys.readouterr().err
