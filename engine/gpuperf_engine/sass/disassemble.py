"""Disassembles kernels with ``nvdisasm``."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ..errors import MachineError
from ..isa.targets import sm_number
from ..jit import cache
from .assemble import Assembly
from .cubin import read_cubin
from .listing import Listing, read_listing
from .tools import Tool, find_tool, how_it_ended, run_tool, shortened

__all__ = ["disassemble"]

_OPTIONS = ("-g", "-c", "-hex")
#: The oldest architecture whose listings are read: instructions of older ones have 64 bits.
_VOLTA = 70


def disassemble(assembly: Assembly) -> Listing:
    """Disassembles what the kernel of an assembly reaches.

    Raises ``MachineError`` if ``nvdisasm`` is missing, too old for it, fails or times out.
    """
    return _whole(assembly).without({f".text.{other}" for other in assembly.others})


def _whole(assembly: Assembly) -> Listing:
    tool = find_tool("nvdisasm")
    name = cache.key("nvdisasm", tool.full_version, *_OPTIONS, assembly.cubin)
    known = cache.read(name)
    if known is not None:
        return read_listing(known.decode())
    text = _run(tool, assembly)
    try:
        listing = read_listing(text)
    except MachineError as error:
        raise _unreadable(tool, assembly, str(error).partition("\n")[0]) from None
    if not listing.instructions:
        raise _unreadable(tool, assembly, "it prints no machine code")
    _check(tool, assembly, listing)
    cache.write(name, text.encode())
    return listing


def _check(tool: Tool, assembly: Assembly, listing: Listing) -> None:
    """Raises ``MachineError`` unless the listing covers exactly the machine code of the file."""
    try:
        sections = read_cubin(assembly.cubin).sections
    except ValueError:
        return
    for name, body in sections.items():
        printed = listing.sections.get(name, b"")
        if not name.startswith(".text.") or printed == body:
            continue
        why = f"it prints {len(printed):,} of the {len(body):,} bytes of machine code in {shortened(name)}"
        if len(printed) == len(body):
            why = f"it prints another encoding of {shortened(name)} than the file has"
        raise _unreadable(tool, assembly, why)


def _run(tool: Tool, assembly: Assembly) -> str:
    with tempfile.TemporaryDirectory(prefix="gpuperf-") as folder:
        Path(folder, "module.cubin").write_bytes(assembly.cubin)
        done = run_tool("nvdisasm", [tool.path, *_OPTIONS, "module.cubin"], folder)
    if done.returncode or not done.stdout:
        said = next((line.strip() for line in done.stderr.splitlines() if line.strip()), how_it_ended(done))
        raise _unreadable(tool, assembly, shortened(said))
    return done.stdout


def _unreadable(tool: Tool, assembly: Assembly, why: str) -> MachineError:
    hint = "install an nvdisasm at least as new as ptxas: pip install 'pytest-gpuperf[nvcc]'"
    if sm_number(assembly.architecture) < _VOLTA:
        hint = f"machine code is read for Volta (sm_{_VOLTA}) and later"
    return MachineError(
        f"nvdisasm {tool.version} cannot read the output of ptxas {assembly.tool.version} for {assembly.kernel!r} "
        f"on {assembly.architecture}: {why}",
        details=[f"{tool.path} {tool.full_version}, {assembly.tool.path} {assembly.tool.full_version}"],
        hint=hint,
    )
