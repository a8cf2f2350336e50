"""Messages of ``MemoryFault``: why an access to memory is invalid."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import MemoryFault
from ..isa.spaces import WINDOWS, space_of
from ..ptx.syntax import Instruction
from ..results.cxx_names import readable_name
from ..source import Span
from .arena import FAR, GAP, READ_ONLY, Memory
from .spaces import ANY, STRAYS, bit_of, piece_of, words

__all__ = ["Access", "memory_fault"]

#: bytes between an invalid address and the nearest array beyond which an error of an index is unlikely
_FARTHEST = 1 << 36


@dataclass(frozen=True, slots=True)
class Access:
    """One invalid access, for the message."""

    instruction: Instruction
    kernel: str
    kind: str  # load, store, atomic, reduction
    space: str  # state space that was accessed: global shared local const
    address: int  # generic, but for shared and local memory the operand of the instruction
    size: int  # bytes per lane
    thread: tuple[int, int, int]
    block: tuple[int, int, int]
    limit: int = 0  # size in bytes of the shared or local space
    of: str = ""  # the source of the access, if it is not the instruction itself
    packed: bool = False  # needs no alignment
    reaches: int = ANY  # bits of the kinds of memory that it may access (``spaces``)
    parameters: int = 0  # address of the kernel's parameters
    cluster: tuple[str, str] | None = None  # why an address in the cluster is not accessible, and a hint


def _where(access: Access) -> list[str]:
    x, y, z = access.thread
    bx, by, bz = access.block
    lines = [f"thread ({x}, {y}, {z}) of block ({bx}, {by}, {bz}) of kernel {readable_name(access.kernel)!r}"]
    location = access.instruction.location
    if location is not None:
        lines[0] += f", source line {location.described}"
    return lines


def memory_fault(memory: Memory, access: Access) -> MemoryFault:
    """The error of an invalid access, with the reason."""
    verb = {"load": "load from", "store": "store to", "atomic": "atomic on", "reduction": "reduction on"}[
        access.kind
    ]
    access_text = f"{access.of or access.instruction.opcode}: {access.size}-byte {verb}"
    if (misplaced := _misplaced(memory, access)) is not None:
        why, address_text, remedy = misplaced
        return _fault(access, f"{access_text} {address_text}: {why}", remedy)
    if access.space in ("shared", "local"):
        return _window_fault(access, access_text)
    return _arena_fault(memory, access, access_text)


def _fault(access: Access, message: str, hint: str | None, more: Sequence[str] = ()) -> MemoryFault:
    span: Span = access.instruction.span
    return MemoryFault(message, span=span, details=[*_where(access), *more], hint=hint)


def _misaligned(access: Access, access_text: str, address_text: str) -> MemoryFault:
    fault = _fault(
        access, f"misaligned {access_text} {address_text}", f"the address must be a multiple of {access.size}"
    )
    fault.misaligned = True
    return fault


def _window_fault(access: Access, access_text: str) -> MemoryFault:
    """The error of an access to shared or local memory."""
    if access.address >= FAR:
        return _fault(
            access,
            f"out-of-bounds {access_text} {access.space} address beyond 4 GiB",
            f"a global or generic address? cvta.to.{access.space} makes one of {access.space} memory of it",
        )
    address_text = f"{access.space} address {access.address:#x}"
    if access.cluster is not None:
        reason, remedy = access.cluster
        return _fault(access, f"{access_text} {address_text}: {reason}", remedy)
    if access.address % access.size and not access.packed:
        return _misaligned(access, access_text, address_text)
    if access.reaches & STRAYS and access.address + access.size <= access.limit:
        return _fault(
            access,
            f"{access_text} {address_text}: that is local memory [local-order]",
            "the address must be one of global or shared memory; other threads cannot access a local variable",
        )
    owner, hint = "of the thread's local memory", None
    if access.space == "shared":
        owner = "of the block's shared memory (static + dynamic)"
        hint = (
            "pass shared_bytes= at launch if the kernel uses dynamic shared memory (in CUDA C++ the third argument of "
            "<<<…>>>), or declare a larger array"
        )
    return _fault(
        access, f"out-of-bounds {access_text} {address_text}: beyond the {access.limit:,} bytes {owner}", hint
    )


def _arena_fault(memory: Memory, access: Access, access_text: str) -> MemoryFault:
    """The error of an access to device memory."""
    address = access.address
    within, named = _named(access)
    address_text = f"{named} address {within:#x}" if named else f"{address:#x}"
    if within < GAP:
        return _fault(
            access,
            f"{access_text} {address_text}: null pointer",
            "a pointer argument is None (in CUDA C++ a null pointer), or was computed from one",
        )
    holder = memory.resolve(address, access.size)
    if holder is not None and access.kind != "load" and holder.kind != "global":
        word = "constant" if holder.kind == "const" else "parameter"
        return _fault(access, f"{access_text} {address_text}: {holder.called} is {word} memory", None)
    freed = memory.heap.below(address) if memory.heap.holds(address) else None
    if freed is not None and not freed.live and address < freed.address + freed.size:
        block = f"in a block of {freed.size:,} bytes at {freed.address:#x} that was freed"
        return _fault(access, f"{access_text} {address_text}: use after free", None, [block])
    below = memory.below(address)
    if not access.packed and address % access.size and below is not None and address < below.end:
        return _misaligned(access, access_text, address_text)
    piece = piece_of(access.instruction)
    runs_past = (
        below is not None and below.pad is None and piece and address + access.size - piece < below.end
    )
    neighbour = _neighbour(memory, address, access.size, named) + (" [object-end]" if runs_past else "")
    hint = _converted(memory, within, named) or (None if named else _of_host(memory, address))
    return _fault(access, f"out-of-bounds {access_text} {address_text}", hint, [neighbour])


def _named(access: Access) -> tuple[int, str]:
    """The address operand of the instruction, and its state space, ``""`` if it is generic."""
    space = access.instruction.form.space or ""
    if space not in READ_ONLY:
        return access.address, ""
    return (access.address - WINDOWS[space][0]) % (1 << 64), space


def _converted(memory: Memory, within: int, named: str) -> str | None:
    """If the address belongs to another space, how to convert it."""
    if named:
        if memory.resolve(within) is None:
            return None
        return f"a global or generic address? cvta.to.{named} makes one of {READ_ONLY[named]} memory of it"
    for kind, word in READ_ONLY.items():
        if memory.resolve(WINDOWS[kind][0] + within) is not None:
            return f"an address of {word} memory? cvta.{kind} makes a generic one of it"
    return None


def _of_host(memory: Memory, address: int) -> str | None:
    """A hint if the address is so far from all memory of the device that it is probably a pointer of the host."""
    known = (*memory.allocations, *memory.former)
    if any(item.address - _FARTHEST <= address < item.end + _FARTHEST for item in known):
        return None
    return (
        "a pointer of the host? kernels access memory of the device, in CUDA C++ that of cudaMalloc, cudaMallocManaged, "
        "cudaHostAlloc or cudaHostRegister"
    )


def _misplaced(memory: Memory, access: Access) -> tuple[str, str, str] | None:
    """If the address is in memory that the instruction may not access: a description of that memory and of the address, and a hint."""
    address_text, hint = f"{access.address:#x}", f"the address must be one of {words(_meant(access))} memory"
    if access.space in ("shared", "local"):
        if access.reaches & bit_of(access.space):
            return None
        return f"that is {access.space} memory", f"{access.space} address {address_text}", hint
    within, named = _named(access)
    window, _ = space_of(access.address)
    if window in ("shared", "local") and not named:
        return f"that is the generic address of {window} memory", address_text, hint
    holder = memory.resolve(access.address, access.size)
    only_parameters = access.reaches == bit_of("param")
    if holder is None or (access.reaches & bit_of(holder.kind) and not only_parameters):
        if not only_parameters:
            return None
    elif not only_parameters:
        return f"{holder.called} is {words(bit_of(holder.kind))} memory", address_text, hint
    own = memory.resolve(access.parameters)
    if holder is not None and holder is own:
        return None
    if own is None:
        return f"kernel {access.kernel!r} has no parameters", address_text, hint
    address_text = f"{named} address {within:#x}"
    beyond = f"outside the {own.size:,} bytes of {own.name!r} at {own.address - WINDOWS['param'][0]:#x}"
    return beyond, address_text, "the address must lie inside the parameters of the kernel"


def _meant(access: Access) -> int:
    """The kinds of memory that the manual allows."""
    return access.reaches & ~bit_of("local") if access.reaches & STRAYS else access.reaches


def _neighbour(memory: Memory, address: int, size: int, named: str) -> str:
    """The address relative to the nearest allocation of its space; ``named``: the space in which addresses are printed."""
    if memory.heap.holds(address):
        below = memory.below(address)
        if below is None:
            return "in the heap, where malloc has not allocated anything"
        return f"{address + size - below.end:,} bytes past the end of {below.name} ({below.size:,} bytes at {below.address:#x})"
    window, _ = space_of(address)
    kinds = {window if window in READ_ONLY else "global"}
    if not named:  # device memory begins where the window of the parameters ends
        kinds.add("global")
    base = WINDOWS[named][0] if named else 0
    near = [item for item in memory.allocations if item.kind in kinds]
    index = bisect.bisect_right([item.address for item in near], address)
    below = near[index - 1] if index else None
    above = near[index] if index < len(near) else None
    former = (item for item in reversed(memory.former) if item.address <= address < item.end)
    for item in former:
        return f"inside {item.called} ({item.size:,} bytes at {item.address - base:#x}), which was freed"
    if below is not None and below.size and (above is None or address - below.end <= above.address - address):
        over = address + size - below.end
        return f"{over:,} bytes past the end of {below.called} ({below.size:,} bytes at {below.address - base:#x})"
    if above is not None:
        return f"{above.address - address:,} bytes before {above.called} ({above.size:,} bytes at {above.address - base:#x})"
    return "no allocation is nearby"
