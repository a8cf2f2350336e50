"""What all tests share: pytester, ``backend`` and ``--fast``."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from tests.fast import LEFT_OUT
from tests.support import BACKENDS, refused

pytest_plugins = ["pytester"]

# how long an example takes is the load of the machine, and no result
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

ROOT = Path(__file__).resolve().parents[1]
_LEFT_OUT = {name for names in LEFT_OUT.values() for name in names}
_PATHS = frozenset(name for name in _LEFT_OUT if "::" not in name)
_TESTS = tuple(_LEFT_OUT - _PATHS)


# The tests start Python hundreds of times. Where a shell sets this, as those of containers do, each start would compile the engine
# anew, which takes four times as long as all else that it does: what they compile is kept beside what else is built.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / "build" / "pycache"))
    sys.dont_write_bytecode = False

# pytester gives each test a home of its own, and with it an empty cache: processes of such tests would compile the runtime and each
# kernel anew, and so would a worker all its life whose first kernel is one of such a test.
os.environ["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")

# Processes of the tests share few cores: threads that wait for products of matrices would take those of others.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out what tests/fast.py lists")


def pytest_sessionstart() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """Tests and modules live until the end: the cyclic collector need not walk them again and again."""
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """A kernel whose code LLVM refuses runs on the reference backend: then a test that compares both would compare one with itself."""
    refused.clear()
    yield
    assert not refused, refused


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """What the tests of a file leave behind is collected once, and what lives on, as reports and caches do, is not walked again. Else
    each collection, of which some tests ask for several, would walk all that is left of the whole run."""
    yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    listed = collection_path.is_relative_to(ROOT) and collection_path.relative_to(ROOT).as_posix() in _PATHS
    return True if listed and config.getoption("fast") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("fast"):
        slow = [item for item in items if item.nodeid.startswith(_TESTS)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.nodeid.startswith(_TESTS)]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs on both."""
    return str(request.param)
