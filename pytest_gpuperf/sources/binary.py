"""PTX inside a program, library, object, cubin or fat binary."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import pytest

from gpuperf_engine.binaries import Image, is_binary, read_images
from gpuperf_engine.errors import BinaryError, EngineError, UnknownName, nearest

from ..core.fingerprint import kernel_digest
from ..core.mangling import matching
from .base import Alternatives, PtxSource, display
from .files import check_regular, find_file, named_path

__all__ = ["begins_as_binary", "images_of", "ptx_of_binary", "pytest_gpuperf_ptx_source"]


@pytest.hookimpl(trylast=True)
def pytest_gpuperf_ptx_source(
    source: object, entry: str | None, item: pytest.Item
) -> Alternatives | PtxSource | None:
    """A path to a binary. Raises ``EngineError`` for one that has no PTX of the kernel, or is damaged."""
    path = named_path(source)
    file = find_file(path, item) if path is not None else None
    if file is None or not begins_as_binary(file):
        return None
    return ptx_of_binary(file, display(file, item.config.rootpath), entry)


def begins_as_binary(file: Path) -> bool:
    """Whether a file is to be read as a binary. Raises ``OSError``, and ``EngineError`` for what is no regular file."""
    check_regular(file)
    with file.open("rb") as stream:
        return is_binary(stream.read(8))


def images_of(file: Path, shown: str) -> tuple[Image, ...]:
    """All that a binary has for GPUs, read once while it stays as it is. Raises ``BinaryError`` and ``OSError``."""
    status = file.stat()
    return _read(file, shown, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _read(file: Path, shown: str, modified: int, size: int) -> tuple[Image, ...]:
    with file.open("rb") as stream:
        # libraries of a gigabyte are common, their PTX is a small part
        return read_images(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), shown)


def ptx_of_binary(file: Path, shown: str, entry: str | None) -> Alternatives:
    """The PTX with a kernel, by ``.target``; of the only kernel if none is named. Raises ``EngineError``."""
    images = images_of(file, shown)
    readable = [image for image in images if image.kind == "PTX"]
    if not readable:
        raise _without_ptx(shown, images)
    kernels = tuple(dict.fromkeys(name for image in readable for name in image.kernels))
    name = _named(shown, entry, kernels)
    by_target: dict[str, list[Image]] = {}
    for image in readable:
        if name in image.kernels:
            by_target.setdefault(image.named_target, []).append(image)
    given = Alternatives(
        {
            target: PtxSource(_only(shown, name, target, found).text, f"{shown}[{target}]", name)
            for target, found in by_target.items()
        }
    )
    beside = {image.container for found in by_target.values() for image in found}
    given.code = frozenset(
        image.target for image in images if image.kind == "machine code" and image.container in beside
    )
    return given


def _named(shown: str, entry: str | None, kernels: Sequence[str]) -> str:
    """The kernel that is meant."""
    if entry is None:
        if len(kernels) != 1:
            raise EngineError(
                f"{shown} has {len(kernels)} kernels: name one with entry=",
                hint=nearest("", kernels, noun="kernel"),
            )
        return kernels[0]
    fitting = matching(entry, kernels)
    if len(fitting) != 1:
        what = f"{len(fitting)} kernels {entry!r}" if fitting else f"no kernel {entry!r}"
        raise UnknownName(
            f"{what} in the PTX of {shown}",
            hint=nearest(entry if not fitting else "", fitting or kernels, noun="kernel"),
        )
    return fitting[0]


def _only(shown: str, name: str, target: str, images: Sequence[Image]) -> Image:
    """The PTX that has the kernel; templates are in each object that uses them, and alike."""
    if len({kernel_digest(image.text, name) for image in images}) > 1:
        raise EngineError(
            f"{shown} has {len(images)} different kernels {name!r} for {target}",
            details=[f"one in {image.where.partition(': ')[2]}" for image in images[:3]],
            hint="name the object file that contains the intended kernel, not the linked file",
        )
    return images[0]


def _without_ptx(shown: str, images: Iterable[Image]) -> BinaryError:
    kinds: dict[str, list[str]] = {}
    for image in images:
        kinds.setdefault(image.kind, []).append(image.target)
    held = "; ".join(f"{kind} for {', '.join(_in_order(targets))}" for kind, targets in kinds.items())
    if "LTO-IR" in kinds:
        hint = "link-time optimisation generates the PTX at the end: compile without -dlto"
    else:
        newest = (_in_order(target for targets in kinds.values() for target in targets) or ["sm_80"])[-1]
        number = newest.removeprefix("sm_")
        hint = (
            f"compile with -gencode arch=compute_{number},code=[sm_{number},compute_{number}]; "
            "a cubin keeps its PTX if it is compiled with -lineinfo"
        )
    return BinaryError(f"{shown} holds no PTX", details=[f"it has {held}"], hint=hint)


def _in_order(targets: Iterable[str]) -> list[str]:
    def order(target: str) -> tuple[int, str]:
        number = re.search(r"\d+", target)
        return int(number[0]) if number else 0, target

    return sorted(set(targets), key=order)
