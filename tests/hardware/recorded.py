"""Makes ``ptx/kernels.jsonl`` of the hardware kit: launches recorded from the tests, each with its PTX, its arguments and what its
buffers hold before.

Runs the test files of ``FILES`` and keeps, of the launches that succeed, those that a GPU must answer alike: nothing that reads a
clock or asks where it runs, prints or allocates; nothing whose result hangs on what lies in memory elsewhere, which a second run
on another device, with other addresses, finds out; nothing that ptxas refuses, where there is one. Of every test function some
are kept.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.errors import EngineError
from gpuperf_engine.memory.arrays import DeviceArray
from gpuperf_engine.simt.launch import marshal
from tests.files.reader import every_file
from tests.hardware import collect
from tests.hardware.expected import recorded_buffers
from tests.isa.assembler import PTXAS

TESTS = Path(__file__).resolve().parents[1]
FILES = (
    *(f"isa/test_{name}.py" for name in (
        "mbarrier", "bulk", "tensor_copies", "warpgroup", "matrices", "sparse_matrices", "wmma", "narrow_arithmetic",
    )),
    *(f"simt/test_{name}.py" for name in ("clusters", "barriers", "warp_sync", "indirect_calls")),
    *(f"memory/test_{name}.py" for name in ("forms", "generic_shared", "spaces", "alloca")),
)  # fmt: skip
#: what a GPU answers otherwise, or only once
ELSEWHERE = re.compile(
    r"%(clock|globaltimer|smid|nsmid|warpid|nwarpid|gridid|envreg|pm\d|total_smem|aggr_smem|dynamic_smem|reserved_smem|current_graph)"
    r"|\b(vprintf|malloc|free|__assertfail|trap|brkpt|pmevent|nanosleep|multimem|tex|tld4|suld|sust|sured|griddepcontrol|discard)\b"
)
#: launches of one test function, and bytes of all that is kept of it
LAUNCHES, BYTES = 8, 100_000
#: launches of one test function that are looked at, and its parameter sets that are run
TRIES, SETS = 40, 10
#: threads of a launch
THREADS = 4096


class Recorder:
    """A plugin of pytest that writes down launches."""

    def __init__(self) -> None:
        self.test = ""
        self.found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.seen: set[str] = set()
        self.sizes: Counter[str] = Counter()
        self.tries: Counter[str] = Counter()
        self.failed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """One backend, and of the parameters of a test some, evenly spread."""
        groups: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            if "reference" not in item.name.partition("[")[2]:
                groups[item.nodeid.partition("[")[0]].append(item)
        items[:] = [item for some in groups.values() for item in some[:: -(-len(some) // SETS)]]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        path = Path(str(item.path)).relative_to(TESTS).with_suffix("")
        self.test = f"{path.name.removeprefix('test_')}.{getattr(item, 'originalname', item.name).removeprefix('test_')}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(self.test)

    def around(self, launch: Any) -> Any:
        """``Device.launch`` that records."""

        def recording(device: Any, kernel: Any, grid: Any, block: Any, args: Any = (), **options: Any) -> Any:
            room = len(self.found[self.test]) < LAUNCHES and self.tries[self.test] < TRIES
            self.tries[self.test] += 1
            before = _before(device, kernel, grid, block, args, options) if room else None
            profile = launch(device, kernel, grid, block, args, **options)
            if before is not None:
                with suppress(EngineError):  # of tests of what cannot be read afterwards
                    self.keep(*before)
            return profile

        return recording

    def keep(self, record: dict[str, Any], arrays: list[DeviceArray]) -> None:
        """A launch that has succeeded, if there is room for it and its results do not hang on addresses."""
        text = json.dumps(record, sort_keys=True)
        identity = hashlib.sha256(text.encode()).hexdigest()
        some = self.found[self.test]
        if identity in self.seen or len(some) >= LAUNCHES or self.sizes[self.test] + len(text) > BYTES:
            return
        self.seen.add(identity)
        after = [_bytes(array) for array in arrays]
        again = recorded_buffers(record, skew=3)
        if all(one.tobytes() == other.tobytes() for one, other in zip(after, again)) and accepted(
            record["ptx"]
        ):
            self.sizes[self.test] += len(text)
            some.append({**record, "ptx": for_more(record["ptx"])})


def _bytes(array: DeviceArray) -> Any:
    return np.frombuffer(np.ascontiguousarray(array.numpy()).tobytes(), np.uint8)


def _before(
    device: Any, kernel: Any, grid: Any, block: Any, args: Any, options: dict[str, Any]
) -> tuple[dict[str, Any], list[DeviceArray]] | None:
    """The record of a launch, and the arrays that it is given; ``None`` for one that is of no use."""
    allowed = {"shared_bytes", "cluster", "demand"}
    if (
        set(options) - allowed
        or options.get("demand", "values") != "values"
        or ELSEWHERE.search(kernel.module.text)
    ):
        return None
    shape = collect.three(grid), collect.three(block)
    if int(np.prod(shape[0])) * int(np.prod(shape[1])) > THREADS:
        return None
    whole = {id(array.allocation): array for array in device.arrays}
    arrays: dict[int, DeviceArray] = {}
    listed: list[Any] = []
    try:
        raw = marshal(kernel, args, device._address_of)
        for parameter, given in zip(kernel.params, args):
            array = given.array if isinstance(given, ge.TensorMap) else given
            if not isinstance(array, DeviceArray):
                if (
                    isinstance(given, (int, np.integer))
                    and int(given) >= device.memory.allocations[0].address
                ):
                    return None
                listed.append(raw[parameter.offset : parameter.offset + parameter.size].hex())
                continue
            place = id(array.allocation)
            arrays.setdefault(place, whole[place])
            index, start = list(arrays).index(place), array.allocation.address
            if isinstance(given, ge.TensorMap):
                if given.layout.mode > 1 or given.layout.swizzle > 3:
                    return None
                layout = {name: getattr(given.layout, name) for name in given.layout.__slots__}
                offset = layout.pop("address") - start
                listed.append({"buffer": index, "offset": offset, "layout": layout})
            else:
                listed.append([index, array.address - start])
        buffers = [collect.pack(_bytes(array)) for array in arrays.values()]
    except (EngineError, IndexError, KeyError, AttributeError, TypeError):
        return None
    cluster = options.get("cluster")
    record = {
        "ptx": kernel.module.text, "entry": kernel.name, "grid": shape[0], "block": shape[1],
        "shared_bytes": int(options.get("shared_bytes", 0)), "cluster": None if cluster is None else collect.three(cluster),
        "args": listed, "buffers": buffers,
    }  # fmt: skip
    return record, list(arrays.values())


def accepted(text: str) -> bool:
    """Whether ptxas takes the module; versions that it does not know, and all where it is not, are taken on trust."""
    if PTXAS is None:
        return True
    target = collect.written_target(text)
    command = [PTXAS, f"-arch={target}", "-O0", "-", "-o", "/dev/null"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return not done.returncode or "Unsupported .version" in done.stderr


def for_more(text: str) -> str:
    """The module for an earlier machine than the test names, where ptxas and the engine take it for that too."""
    written = collect.written_target(text)
    if int("".join(filter(str.isdigit, written))) > 90:
        for target in ("sm_80", "sm_89", "sm_90", "sm_90a"):
            changed = text.replace(f".target {written}", f".target {target}")
            try:
                module = ge.parse(changed, path="earlier.ptx")
                taken = all(module[name] for name in module.kernels)
            except EngineError:
                continue
            if taken and accepted(changed):
                return changed
    return text


def launches(tests: Sequence[str] = FILES) -> tuple[list[dict[str, Any]], list[str]]:
    """What the tests launch, and the tests that failed. ``tests``: files and node ids below ``tests``. They run in a process of
    their own, so that this may be called from a test."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "launches.json"
        command = [sys.executable, "-m", "tests.hardware.recorded", str(out), *tests]
        done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        found = json.loads(out.read_text(encoding="utf-8"))
    return found["launches"], found["failed"]


def file_launches() -> Iterator[dict[str, Any]]:
    """The launches of ``tests/files`` that succeed, in the same form."""
    for test in every_file():
        if test.errors or "ptxas" in test.without or ELSEWHERE.search(test.text):
            continue
        buffers: list[str] = []
        listed: list[Any] = []
        for value in test.arguments():
            if isinstance(value, np.ndarray):
                listed.append([len(buffers), 0])
                buffers.append(collect.pack(value.view(np.uint8)))
            else:
                listed.append(value.tobytes().hex())
        shape = test.shape
        yield {
            "name": f"files/{test.name}", "ptx": test.text, "entry": test.entry, "grid": collect.three(shape["grid"]),
            "block": collect.three(shape["block"]), "shared_bytes": shape["shared"],
            "cluster": shape["cluster"] and collect.three(shape["cluster"]), "args": listed, "buffers": buffers,
        }  # fmt: skip


def record(tests: Sequence[str]) -> dict[str, Any]:
    """``launches`` in this process."""
    recorder = Recorder()
    original = ge.Device.launch
    ge.Device.launch = recorder.around(original)  # type: ignore[method-assign]
    try:
        files = [str(TESTS / name) for name in tests]
        pytest.main([*files, "-q", "-p", "no:cacheprovider", "-p", "no:xdist"], plugins=[recorder])
    finally:
        ge.Device.launch = original  # type: ignore[method-assign]
    kept = [
        {"name": f"{test}/{number}", **record}
        for test, records in sorted(recorder.found.items())
        if test not in recorder.failed
        for number, record in enumerate(records)
    ]
    return {"launches": kept, "failed": sorted(recorder.failed)}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(record(sys.argv[2:])), encoding="utf-8")
