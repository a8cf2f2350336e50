"""What all tests share: pytester, ``backend`` and ``--fast``."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

from tests.fast import LEFT_OUT
from tests.support import BACKENDS

pytest_plugins = ["pytester"]

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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out what tests/fast.py lists")


def pytest_sessionstart() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """Tests and modules live until the end: the cyclic collector need not walk them again and again. Nor what tests leave behind,
    which is little: most of it is freed as soon as nothing refers to it."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    gc.enable()


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
