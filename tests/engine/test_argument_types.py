"""Each public function, given something of a wrong type for each of its arguments: an error that names the argument."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine._arguments import takes_annotated

WRONG: tuple[object, ...] = (
    None, object(), 3.5, -1, "no", b"b", [], {}, [object()], {"a": 1}, True, ["a"], float("nan"), 1 << 70,
)  # fmt: skip
SAXPY = Path(__file__).resolve().parents[2] / "examples" / "kernels" / "saxpy.ptx"


@pytest.fixture(scope="module")
def right() -> dict[str, Any]:
    """Arguments by their names, and ``device``."""
    module = ge.parse(SAXPY.read_text(encoding="utf-8"), path="saxpy.ptx")
    device = ge.Device(observe={"memory", "values"})
    x, y = device.array(np.ones(64, np.float32), name="x"), device.zeros(64, np.float32)
    profile = device.launch(module["saxpy"], 1, 64, [np.int32(64), np.float32(2), x, y])
    return {
        "device": device, "text": module.text, "path": "saxpy.ptx", "profile": profile, "profiles": [profile],
        "machine": "h100-sxm", "search": (), "program": device.program, "patterns": ge.PATTERNS, "running": False,
        "kernel": module["saxpy"], "module": module, "targets": ["sm_80"], "lines": 10, "further": None,
        "finding": ge.find_patterns(device.program)[0], "events": [], "name": "x", "array": x, "value": 0,
        "shape": 4, "values": [1.0], "dtype": np.float32, "pad": None, "channels": 1, "layered": False,
    }  # fmt: skip


def functions(device: ge.Device) -> Iterator[tuple[str, Any]]:
    for name in ge.__all__:
        if inspect.isfunction(getattr(ge, name)):
            yield name, getattr(ge, name)
    for name in (
        "array", "attributes", "empty", "load", "memset", "program_without", "surface", "symbol", "texture",
        "unload", "variable", "zeros",
    ):  # fmt: skip
        yield f"Device.{name}", getattr(device, name)


def test_a_wrong_type_is_an_error_that_names_the_argument(right: dict[str, Any]) -> None:
    unclear, asked = [], 0
    for name, function in functions(right["device"]):
        parameters = inspect.signature(function).parameters.values()
        given = {item.name: right[item.name] for item in parameters if item.name in right}
        named = [item for item in parameters if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)]
        assert all(item.name in given for item in named if item.default is item.empty), name
        if name == "saving_us":
            given["profiles"] = {}
        for argument in given:
            for wrong in WRONG:
                asked += 1
                try:
                    function(**{**given, argument: wrong})
                except ge.EngineError as error:
                    if not 1 <= len(str(error).splitlines()) <= 5:
                        unclear.append(f"{name} {argument}={wrong!r}: {error}")
                except Exception as error:
                    if argument not in str(error) or not isinstance(error, (TypeError, ValueError)):
                        unclear.append(f"{name} {argument}={wrong!r}: {type(error).__name__} {error}")
    assert asked > 500 and not unclear, "\n".join(unclear)


def test_what_the_error_says(right: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as caught:
        ge.estimate("a", "h100-sxm")  # type: ignore[arg-type]
    assert isinstance(caught.value, ge.ArgumentError)
    assert str(caught.value) == "profile='a' is a str\n  estimate takes as profile: Profile | TimingInput"
    with pytest.raises(
        ge.ArgumentError, match=r"^program=None is a NoneType\n  find_patterns takes as program: Program$"
    ):
        ge.find_patterns(None)  # type: ignore[arg-type]
    with pytest.raises(ge.ArgumentError, match=r"takes as targets: Iterable\[str\]$"):
        ge.best_target("sm_80", "h100-sxm")
    with pytest.raises(ge.ArgumentError, match=r"^resources=3 is an int\n"):
        ge.estimate(right["profile"], "h100-sxm", resources=3)


def test_every_public_name_is_there() -> None:
    for name in ge.__all__:
        assert getattr(ge, name) is not None


def test_annotations_are_followed() -> None:
    @takes_annotated
    def function(
        one: int, two: dict | str = "", *rest: int, three: Mapping[str, int] | None = None
    ) -> object:
        return one, two, rest, three

    assert function(np.int64(1), {}, "not looked at", three={"a": 1}) == (1, {}, ("not looked at",), {"a": 1})
    for wrong in (
        {"one": "1"},
        {"one": 1, "two": 2},
        {"one": 1, "three": {"a": "b"}},
        {"one": 1, "three": [1]},
    ):
        with pytest.raises(ge.ArgumentError):
            function(**wrong)
    with pytest.raises(TypeError, match="missing a required argument: 'one'"):
        function()
