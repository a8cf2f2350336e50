"""The PTX of the tests' CUDA sources, packed: nobody needs nvcc to run the tests.

``python -m tests.cuda.compiled`` compiles all of it again with nvcc 13.0 and packs what came out into ``compiled.json.xz``.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
BUILD = Path("/tmp/gpuperf-compiled")
PACKED = Path(__file__).with_name("compiled.json.xz")


@dataclass(frozen=True)
class Unit:
    """One PTX file: its source below ``tests``, the architecture and what else nvcc is told."""

    source: str
    architecture: str = "sm_80"
    flags: tuple[str, ...] = ()


_CUDA, _CLASSES = "cuda/kernels", "symbolic/kernels"
_LANGUAGE = ("-std=c++17",)
#: what is not compiled for sm_80: bfloat16, 8-bit floats, clusters and bulk copies have instructions of their own on sm_90, smaller
#: floats on sm_100a, pairs of single precision on sm_100
_NEWER = {
    **dict.fromkeys(("halves", "half_rest", "clusters", "bulk", "tensor"), "sm_90"),
    "narrow": "sm_100a",
    "math_rest": "sm_100",
}
#: PTX file without its suffix, below ``tests`` → how it is made
UNITS: dict[str, Unit] = {
    **{
        f"{folder}/{path.stem}": Unit(
            f"{folder}/{path.name}", _NEWER.get(path.stem, "sm_80") if folder == _CUDA else "sm_80", _LANGUAGE
        )
        for folder in (_CUDA, _CLASSES)
        for path in sorted((TESTS / folder).glob("*.cu"))
    },
    # with mbarrier.try_wait and bulk copies instead of test_wait and loops
    f"{_CUDA}/barriers_hopper": Unit(f"{_CUDA}/barriers.cu", "sm_90", _LANGUAGE),
    # without optimisation: generic addresses, local memory, a call for every function
    f"{_CUDA}/language_debug": Unit(f"{_CUDA}/language.cu", "sm_75", (*_LANGUAGE, "-G")),
    # narrow formats where there are no instructions for them
    f"{_CUDA}/narrow_software": Unit(f"{_CUDA}/narrow.cu", "sm_80", _LANGUAGE),
    "hardware/pairs": Unit("hardware/pairs.cu", "sm_80", ("-lineinfo",)),
    "ptx/data/calls.sm_80": Unit("ptx/data/calls.cu", "sm_80", ("-lineinfo",)),
    "ptx/data/calls.sm_90": Unit("ptx/data/calls.cu", "sm_90"),
    "ptx/data/misc.sm_90": Unit("ptx/data/misc.cu", "sm_90"),
}


def source_digest(unit: Unit) -> str:
    """Digest of all that is compiled, and of how."""
    source = TESTS / unit.source
    digest = hashlib.sha256(f"{unit}\0".encode())
    for path in [source, *sorted(source.parent.glob("*.h"))]:
        digest.update(f"{path.name}\0{path.read_text(encoding='utf-8')}\0".encode())
    return digest.hexdigest()[:16]


def compile_unit(name: str) -> str:
    """PTX by nvcc, run in a fixed folder: the path of the source, which is cut out, decides names too."""
    unit, folder = UNITS[name], BUILD / name.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    source = TESTS / unit.source
    for path in [source, *source.parent.glob("*.h")]:
        (folder / path.name).write_bytes(path.read_bytes())
    command = ["nvcc", *unit.flags, "-ptx", f"-arch={unit.architecture}", "-w", source.name, "-o", "out.ptx"]
    subprocess.run(command, cwd=folder, check=True)
    text = (folder / "out.ptx").read_text(encoding="utf-8").replace(f'"{folder}/', '"')
    text = re.sub(r'(\.file.*)"/[^"]*/include/', r'\1"cuda/include/', text)
    return text.replace(f'"{folder}"', '"."')


@cache
def packed() -> dict[str, dict[str, str]]:
    """Key of ``UNITS``: digest of its source, and PTX."""
    found: dict[str, dict[str, str]] = json.loads(lzma.decompress(PACKED.read_bytes()))
    return found


def ptx(name: str) -> str:
    """The text of ``tests/<name>.ptx``. Raises ``LookupError`` for one that is not packed."""
    try:
        return packed()[name]["ptx"]
    except KeyError:
        raise LookupError(
            f"{PACKED.name} has no {name}.ptx: python -m tests.cuda.compiled makes it"
        ) from None


def main() -> None:
    """Compile every unit and pack the results."""
    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(compile_unit, UNITS))
    table = {
        name: {"source": source_digest(unit), "ptx": text}
        for (name, unit), text in zip(UNITS.items(), texts, strict=True)
    }
    data = json.dumps(table, sort_keys=True, indent=0).encode()
    PACKED.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(table)} files of PTX, {PACKED.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
