"""Kernel arguments as text: ``s32=1048576``, ``f32[4,256]=arange``, ``f32[1024]=@x.npy``, ``ptr=null``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .common import UsageError

if TYPE_CHECKING:
    from gpuperf_engine import Device

__all__ = ["DTYPES", "make_argument"]

DTYPES = {
    **{f"s{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"b{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
}
_SPEC = re.compile(r"(\w+)(?:\[([\d, x]*)\])?=(.*)", re.DOTALL)
_LIMIT = 4 << 30
_FILLS = "arange, zeros, ones, empty, random, random:SEED, a number, or @FILE.npy"


def make_argument(spec: str, device: Device, where: str = "--arg", folder: Path | None = None) -> object:
    """Return one argument for a launch; arrays are allocated on the device, and read from files in ``folder``. Raises ``UsageError``,
    with ``where`` before the message."""
    try:
        return _argument(spec, device, folder or Path())
    except UsageError as error:
        raise UsageError(f"{where} {error}") from None


def _argument(spec: str, device: Device, folder: Path) -> object:
    match = _SPEC.fullmatch(spec.strip())
    if match is None:
        raise UsageError(
            f"{spec!r}: write TYPE=VALUE or TYPE[SHAPE]=CONTENTS, for example s32=100 or 'f32[100]=arange'"
        )
    name, shape_text, value = match[1], match[2], match[3].strip()
    if name == "ptr" and shape_text is None and value in ("null", "0"):
        return None
    if name not in DTYPES:
        raise UsageError(f"{spec!r}: type {name!r} is not one of {', '.join(DTYPES)} (or ptr=null)")
    dtype: np.dtype[Any] = np.dtype(DTYPES[name])
    if shape_text is None:
        return _number(spec, value, dtype)
    try:
        shape = tuple(int(part) for part in re.split("[,x]", shape_text))
    except ValueError:
        raise UsageError(f"{spec!r}: the shape must be whole numbers, for example f32[4,256]") from None
    count = 1
    for part in shape:
        count *= part
    if count * dtype.itemsize > _LIMIT:
        raise UsageError(f"{spec!r}: {count * dtype.itemsize:,} bytes are more than the device's {_LIMIT:,}")
    if value == "empty":
        return device.empty(shape, dtype)
    if value == "zeros":
        return device.zeros(shape, dtype)
    return device.array(_contents(spec, value, shape, count, dtype, folder))


def _number(spec: str, value: str, dtype: np.dtype[Any]) -> Any:
    try:
        if dtype.kind == "f":
            return dtype.type(float.fromhex(value) if "0x" in value.lower() else float(value))
        number = int(value, 0)
    except ValueError:
        raise UsageError(f"{spec!r}: {value!r} is not a number") from None
    info = np.iinfo(dtype)
    if not info.min <= number <= info.max:
        raise UsageError(f"{spec!r}: {number} is outside {info.min} … {info.max}")
    return dtype.type(number)


def _contents(
    spec: str, value: str, shape: tuple[int, ...], count: int, dtype: np.dtype[Any], folder: Path
) -> object:
    if value == "arange":
        return np.arange(count).astype(dtype).reshape(shape)
    if value == "ones":
        return np.ones(shape, dtype)
    if value.startswith("random"):
        seed = value.removeprefix("random").removeprefix(":")
        if seed and not seed.isdigit():
            raise UsageError(f"{spec!r}: the seed must be a whole number")
        generator = np.random.default_rng(int(seed or 0))
        if dtype.kind == "f":
            return generator.random(shape).astype(dtype)
        info = np.iinfo(dtype)
        return generator.integers(info.min, info.max, shape, dtype, endpoint=True)
    if value.startswith("@"):
        return _from_file(spec, folder / value[1:], shape, dtype)
    try:
        return np.full(shape, _number(spec, value, dtype), dtype)
    except UsageError:
        raise UsageError(f"{spec!r}: contents {value!r} are not one of {_FILLS}") from None


def _from_file(spec: str, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"{spec!r}: {error}") from None
    if not isinstance(loaded, np.ndarray) or loaded.dtype != dtype or loaded.shape != shape:
        raise UsageError(
            f"{spec!r}: {path} holds {getattr(loaded, 'dtype', '?')} {getattr(loaded, 'shape', '')}"
        )
    return loaded
