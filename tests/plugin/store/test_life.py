"""The life of baselines: random sequences of edits, filters, failures, crashes and updates.

Whatever happens, no entry is lost whose test may still make it, none is written by a test that did not pass, and in the end there are
the bytes of one serial full run. ``GPUPERF_LIVES`` is the number of sequences.
"""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass, field

import pytest
import yaml

from tests.plugin.conftest import HERE, ptx
from tests.plugin.hooks.test_stale import CONFTEST

LIVES = int(os.environ.get("GPUPERF_LIVES", "2"))
STEPS = 6
MODULES = ("test_a", "test_b")

FATES = {
    "passes": "",
    "skips": "pytest.skip('not today')",
    "fails": "raise ValueError('no')",
    "xfails": "pytest.xfail('known')",
    "stops the run": "pytest.exit('enough')",
    "crashes": "import os; os._exit(1)",
}

WHOLE = [(), ("--gpuperf-only",), ("--gpuperf-no-prune",)]
"""Arguments under which every module is seen whole, as under ``-n2``."""

FILTERS = [
    ("-k", "test_1"),
    ("-k", "not test_0"),
    ("-m", "slow", "--gpuperf-min-cases=0"),
    ("test_a.py",),
    ("--ignore=test_b.py",),
    ("test_a.py::test_1",),
    ("test_b.py::test_0", "test_b.py::test_2"),
    ("--deselect", "test_a.py::test_0"),
    ("-x",),
    ("--maxfail=2",),
    ("--lf",),
]


@dataclass
class World:
    """Tests by module and name: how many instructions their kernel has more than the least, and what becomes of them."""

    project: object
    tests: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)

    def write(self) -> None:
        for module in MODULES:
            body = "import numpy as np\nimport pytest\n"
            for (where, name), (extra, fate) in sorted(self.tests.items()):
                if where == module:
                    mark = "@pytest.mark.slow\n" if name == "test_2" else ""
                    body += (
                        f"\n{mark}def {name}(gpuperf):\n    kernel = gpuperf.kernel({source(name, extra)!r}, name='k')\n"
                        f"    kernel[1, 32](gpuperf.zeros(4, np.float32), 1.0)\n    {FATES[fate]}\n"
                    )
            self.project.write(f"{module}.py", body)

    def expected(self) -> dict[tuple[str, str, str], int]:
        """(module, test, kernel) → thread instructions of every case that the tests would make."""
        return {
            (*test, kernel): 32 * (5 + int(path[1]))
            for test, (extra, _) in self.tests.items()
            for kernel, path in kernels(test[1], extra).items()
        }

    def stored(self) -> dict[tuple[str, str, str], int]:
        """(module, test, kernel) → thread instructions in the baselines."""
        found = {}
        for module in MODULES:
            path = self.project.path / "baselines" / f"{module}.yaml"
            for key, case in (yaml.safe_load(path.read_text())["cases"] if path.exists() else {}).items():
                test, _, kernel = key.partition("/")
                found[module, test, kernel] = case["counts"]["thread_instructions"]
        return found


def source(name: str, extra: int) -> str | dict[str, str]:
    """What a test launches: PTX, or variants of PTX that come and go with the edits."""
    if name != "test_1":
        return f"k{extra}.ptx"
    other = "h100-sxm" if extra % 2 else "a100-sxm-80gb"
    return {"sm_70": f"k{extra}.ptx", other: f"k{3 - extra}.ptx"}


def kernels(name: str, extra: int) -> dict[str, str]:
    """The kernels of the test's cases, with their PTX."""
    made = source(name, extra)
    return {"k": made} if isinstance(made, str) else {f"k@{key}": path for key, path in made.items()}


@pytest.fixture
def world(project, monkeypatch):
    pytest.importorskip("xdist")
    # Files are edited faster than the clock of compiled files ticks.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    project.write("conftest.py", CONFTEST.format(here=str(HERE)))
    project.write("pytest.ini", "[pytest]\nmarkers = slow\naddopts = --strict-markers\n")
    for extra in range(4):
        project.write(f"k{extra}.ptx", ptx("mov.f32 %f4, %f2;\n" * extra))
    made = World(project)
    made.tests = {(module, f"test_{n}"): (0, "passes") for module in MODULES for n in range(3)}
    return made


def edit(chance: random.Random, world: World, fates: list[str]) -> None:
    for key in [(module, f"test_{n}") for module in MODULES for n in range(4)]:
        what = chance.choice(["leave", "leave", "kernel", "fate", "remove", "heal"])
        if what == "remove":
            world.tests.pop(key, None)
        elif what != "leave":
            fate = chance.choice(fates) if what == "fate" else "passes"
            world.tests[key] = (chance.randrange(4), fate)
    world.write()


def whole(world: World, module: str, arguments: tuple[str, ...]) -> bool:
    """Whether these arguments leave out no test of the module, said independently of the plugin. A module of which node ids were asked
    for, and every module under ``--lf``, counts as not whole."""
    names = {name for where, name in world.tests if where == module}
    match arguments:
        case ("-k", "test_1"):
            return names <= {"test_1"}
        case ("-k", "not test_0"):
            return "test_0" not in names
        case ("-m", *_):
            return names <= {"test_2"}
        case ("test_a.py",) | ("--ignore=test_b.py",):
            return module == "test_a"
        case ("--deselect", _):
            return module == "test_b" or "test_0" not in names
        case ("--lf",) | ("test_a.py::test_1",):
            return False
        case ("test_b.py::test_0", "test_b.py::test_2"):
            return False
    return True


def check_step(world: World, before: dict, arguments: tuple[str, ...], mode: str) -> None:
    """Nothing lost, nothing written by a test that did not pass; and what was seen whole is up to date."""
    after, expected = world.stored(), world.expected()
    fates = {test: fate for test, (_, fate) in world.tests.items()}
    calm = not {"stops the run", "crashes"} & set(fates.values())
    for key in before:
        if key not in after:
            gone = key not in expected and fates.get(key[:2], "passes") == "passes"
            assert gone, f"{key} was lost by {mode} {arguments}"
            assert mode == "--gpuperf-update" and arguments != ("--gpuperf-no-prune",)
            assert whole(world, key[0], arguments), f"{key} was not proved unused by {arguments}"
    for key, value in after.items():
        if before.get(key) != value:
            assert mode and fates.get(key[:2]) == "passes" and value == expected[key], (
                f"{key} by {mode} {arguments}"
            )
            assert mode == "--gpuperf-update" or key not in before
    if mode == "--gpuperf-update" and calm and arguments in (*WHOLE, ("-n2",)):
        for key, value in expected.items():
            assert fates[key[:2]] != "passes" or after[key] == value
        if arguments != ("--gpuperf-no-prune",):
            # A module without any test left is an orphan, or nothing of it was run; of tests that did not pass all is kept.
            lived = {module for module, _ in world.tests}
            unused = [key for key in set(after) - set(expected) if key[0] in lived]
            assert not [key for key in unused if fates.get(key[:2], "passes") == "passes"]


@pytest.mark.parametrize("seed", range(LIVES))
def test_the_life_of_a_baseline(world, seed):
    chance = random.Random(seed)
    world.write()
    assert world.project.update().ret == 0
    for step in range(STEPS):
        # Workers are slow to start, so crashes, which need them, come in one step only.
        if step == 3:
            world.tests = {
                key: (extra, "passes" if fate == "crashes" else fate)
                for key, (extra, fate) in world.tests.items()
            }
        edit(chance, world, [fate for fate in FATES if fate != "crashes" or step == 2])
        before = world.stored()
        mode = chance.choice(["--gpuperf-update"] * 4 + ["--gpuperf-update-new", ""])
        arguments = chance.choice(WHOLE if step % 2 == 0 else FILTERS)
        fates = {fate for _, fate in world.tests.values()}
        if step == 2 or "crashes" in fates:  # this process must live on
            arguments = ("-n2",)
        restarts = ["--max-worker-restart=3"] if "-n2" in arguments else []
        world.project.run(*([mode] if mode else []), *arguments, *restarts, "-q")
        check_step(world, before, arguments, mode)
    world.tests = {key: (extra, "passes") for key, (extra, _) in world.tests.items()} or {
        ("test_a", "test_0"): (1, "passes")
    }
    world.write()
    assert world.project.update().ret == 0
    lived = files(world)
    for path in (world.project.path / "baselines").rglob("*.yaml"):
        path.unlink()
    world.project.update()
    made = {name: data for name, data in files(world).items() if b"test_" in data.split(b"cases:")[-1]}
    assert {name: data for name, data in lived.items() if name in made} == made


def files(world: World) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (world.project.path / "baselines").rglob("*.yaml")}
