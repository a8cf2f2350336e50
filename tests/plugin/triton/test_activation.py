"""How programs of ``gpuperf run --triton`` begin, with a stand-in for Triton's place in the imports."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gpuperf.cli import main
from pytest_gpuperf.programs.imports import after_import
from pytest_gpuperf.programs.processes import KINDS, MACHINE, SITE, handed_down

ROOT = Path(__file__).parents[3]


def test_a_program_starts_with_what_is_hidden_and_acts_after_the_import(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('hidden')\n")
    (tmp_path / "torch.py").write_text("print('torch')\n")
    (tmp_path / "program.py").write_text(
        "import pytest_gpuperf.triton.activation as activation, sys, types\n"
        "sys.modules['pytest_gpuperf.triton.torch_cuda'] = types.SimpleNamespace(\n"
        "    install=lambda device: setattr(sys.modules['torch.cuda'], 'machine', device.machine.id))\n"
        "device = lambda machine, search: types.SimpleNamespace(\n"
        "    machine=types.SimpleNamespace(id=machine), memory=types.SimpleNamespace(take_over=lambda: True))\n"
        "sys.modules['pytest_gpuperf.triton.device'] = types.SimpleNamespace(TritonDevice=device)\n"
        "sys.modules['torch.cuda'] = cuda = types.ModuleType('torch.cuda')\n"
        "import torch\n"
        "print(torch.cuda.machine, activation.current().machine.id)\n"
    )
    (tmp_path / "torch.py").write_text("import sys\ncuda = sys.modules['torch.cuda']\nprint('torch')\n")
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "engine")]),
    }
    own = handed_down(["triton"], "a100-sxm-80gb", [])
    variables |= {
        KINDS: own[KINDS],
        MACHINE: own[MACHINE],
        "PYTHONPATH": own["PYTHONPATH"].split(os.pathsep)[0] + os.pathsep + variables["PYTHONPATH"],
    }
    result = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout.split(), result.stderr) == (
        ["hidden", "torch", "a100-sxm-80gb", "a100-sxm-80gb"],
        "",
    )


def test_what_cannot_be_run(capsys) -> None:
    for arguments, message in (
        (["run", "--triton"], "give a program"),
        (["run", "--triton", "--target", "h10", "--", sys.executable], "--target 'h10' is not known"),
        (["run", "--triton", "--", "no-such-program"], "no-such-program: no such program"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def test_the_exit_code_is_that_of_the_program() -> None:
    assert main(["run", "--triton", "--", sys.executable, "-S", "-c", "raise SystemExit(7)"]) == 7


@pytest.mark.parametrize("needed", ["triton", "numba", ""])
def test_a_python_without_the_package(tmp_path: Path, needed: str) -> None:
    """It starts, and says what it lacks if it has Triton or Numba."""
    if needed:
        (tmp_path / f"{needed}.py").touch()
    result = subprocess.run(
        [sys.executable, "-S", os.path.join(SITE, "sitecustomize.py")],
        env={**os.environ, KINDS: "triton numba", MACHINE: "h100-sxm", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout, result.returncode) == ("", 0)
    assert result.stderr == (
        f"gpuperf: {sys.executable} has no pytest_gpuperf, so {needed.capitalize()} finds no GPU there: "
        f"run the program with a Python that has 'pytest-gpuperf[{needed}]'\n"
        if needed
        else ""
    )


def test_the_last_target_holds(tmp_path: Path) -> None:
    """A pytest that a test starts has targets of its own, whatever its environment says."""
    (tmp_path / "torch.py").touch()
    (tmp_path / "program.py").write_text(
        "import pytest_gpuperf.triton.activation as activation, sys, types\n"
        "activation._with_torch = lambda: print(activation._present().machine.id)\n"
        "activation.switch_on('h100-sxm')\n"
        "activation.switch_on('a100-sxm-80gb', [], races='off')\n"
        "import torch\n"
    )
    result = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "engine")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout, result.stderr) == ("a100-sxm-80gb\n", "")


def test_a_module_that_is_only_looked_for_is_acted_on_when_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch for CUDA looks whether there is Triton."""
    (tmp_path / "looked_for.py").write_text("imported = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    acts: list[str] = []
    after_import("looked_for", lambda: acts.append("acted"))
    spec = importlib.util.find_spec("looked_for")
    assert spec is not None and spec.loader is not None and spec.origin == str(tmp_path / "looked_for.py")
    assert spec.loader.get_data(spec.origin) == b"imported = True\n"  # type: ignore[attr-defined]
    assert importlib.util.find_spec("looked_for") is not None and not acts
    assert importlib.import_module("looked_for").imported
    assert acts == ["acted"]
    del sys.modules["looked_for"]
    importlib.import_module("looked_for")
    assert acts == ["acted"]


def test_a_triton_that_is_too_old_is_named(tmp_path: Path) -> None:
    (tmp_path / "triton.py").write_text("__version__ = '3.6.0+git'\n")
    (tmp_path / "test_old.py").write_text("import triton\n\n\ndef test(): pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--gpuperf-triton"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "engine")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "gpuperf runs kernels of Triton 3.7 and later, and this is 3.6.0+git" in done.stdout
