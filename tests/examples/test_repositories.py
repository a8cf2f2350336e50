"""The sample repositories, gated by the steps of their READMEs, with the wheel in an environment of its own.

Skipped where a compiler of theirs is missing. What the wheel depends on is that of the environment of the tests: nothing is fetched.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPOSITORIES = ROOT / "examples" / "repositories"


def lacking(*modules: str) -> list[str]:
    return [name for name in modules if importlib.util.find_spec(name) is None]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which ``python`` and ``gpuperf`` are those of a new environment that has the wheel."""
    if lacking("hatchling"):
        pytest.skip("needs hatchling to build the wheel")
    folder = tmp_path_factory.mktemp("environment")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([python, "-c", asked], text=True).strip())
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(packages)
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        # what stands for this checkout stays out
        if "gpuperf" not in path.name and not (packages / path.name).exists():
            (packages / path.name).symlink_to(path)
    command = folder / "venv" / "bin" / "gpuperf"
    command.write_text(f"#!{python}\nfrom pytest_gpuperf.cli import main\nraise SystemExit(main())\n")
    command.chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHON"))}
    return {**kept, "PATH": f"{python.parent}{os.pathsep}{kept['PATH']}", "TRITON_DEFAULT_FP_FUSION": "1"}


def run(folder: Path, environment: dict[str, str], line: str, code: int = 0) -> str:
    """What a line of a README prints."""
    line = (
        line.replace("pytest", "python -m pytest -p no:cacheprovider", 1)
        if line.startswith("pytest")
        else line
    )
    done = subprocess.run(
        line.split(), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def copied(name: str, folder: Path) -> Path:
    return Path(
        shutil.copytree(
            REPOSITORIES / name, folder / name, ignore=shutil.ignore_patterns("build", "__pycache__")
        )
    )


def change(path: Path, before: str, after: str) -> int:
    """Changes a line of a source; its number."""
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    return text[: text.index(before)].count("\n") + 1


def test_the_environment_has_the_wheel(environment, tmp_path):
    asked = [
        "python",
        "-c",
        "import pytest_gpuperf, gpuperf_engine; print(pytest_gpuperf.__file__, gpuperf_engine.__file__)",
    ]
    paths = subprocess.check_output(asked, cwd=tmp_path, env=environment, text=True).split()
    assert all("environment" in path and str(ROOT) not in path for path in paths)
    assert run(tmp_path, environment, "gpuperf --version").startswith("gpuperf ")


@pytest.mark.skipif(
    not all(map(shutil.which, ("nvcc", "cmake", "ctest", "c++"))),
    reason="needs nvcc, cmake, ctest and a C++ compiler",
)
def test_cuda_with_cmake(environment, tmp_path):
    folder = copied("cuda-cmake", tmp_path)
    for line in ("cmake -S . -B build", "cmake --build build"):
        run(folder, environment, line)
    ctest = "-- ctest --test-dir build"
    assert "100% tests passed" in run(folder, environment, f"gpuperf run --gate --update {ctest}")
    assert "3 kernels analysed: 3 equal" in run(folder, environment, f"gpuperf run --gate {ctest}")
    run(folder, environment, "pytest --gpuperf --gpuperf-update")
    # the left neighbour is read from global memory again
    line = change(folder / "src" / "diffusion.cu", "tile[j][i - 1]", "from[y * size + max(x - 1, 0)]")
    run(folder, environment, "cmake --build build")
    text = run(folder, environment, "pytest --gpuperf -k 32", code=1)
    assert "test_heat[32-4]/_Z4stepPKfPfif: worse" in text
    sources = (folder / "src" / "diffusion.cu").read_text().splitlines()
    launch = sources.index("        step<<<grid, block>>>(now, next, size, rate);") + 1
    assert f"(src/diffusion.cu:{line}), launched at src/diffusion.cu:{launch}\n" in text
    assert "squared_change" not in text.partition("If this is what you want")[0]


@pytest.mark.skipif(bool(lacking("triton", "torch")), reason="needs triton and torch")
def test_triton(environment, tmp_path):
    folder = copied("triton", tmp_path)
    environment = {**environment, "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    assert "5 passed" in run(folder, environment, "pytest")
    assert "5 new" in run(folder, environment, "pytest --gpuperf --gpuperf-update")
    # the row is read once more
    change(
        folder / "rowwise" / "softmax.py",
        "tl.sum(exponentials, 0)",
        "tl.sum(tl.exp(tl.load(x + row * stride + at, inside, other=-float('inf'), volatile=True) - tl.max(values, 0)), 0)",
    )
    text = run(folder, environment, "pytest --gpuperf", code=1)
    assert "test_softmax[4-256]/softmax_kernel: worse" in text and "softmax.py" in text
    assert "rms_norm_kernel" not in text


@pytest.mark.skipif(bool(lacking("numba_cuda")), reason="needs numba-cuda")
def test_numba(environment, tmp_path):
    folder = copied("numba", tmp_path)
    assert "5 passed" in run(folder, environment, "pytest")
    assert "7 new" in run(folder, environment, "pytest --gpuperf --gpuperf-update")
    # bytes are counted in global memory
    change(
        folder / "histograms" / "histogram.py",
        "cuda.atomic.add(own, values[i], 1)",
        "cuda.atomic.add(counts, values[i], 1)",
    )
    text = run(folder, environment, "pytest --gpuperf", code=1)
    assert "test_one_value/histogram_kernel: worse" in text and "global_atomic" in text
    assert "scan_kernel" not in text
