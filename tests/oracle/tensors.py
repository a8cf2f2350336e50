"""Tensor maps and the boxes that tensor copies move, element by element (manual, "Tensors", "Tensor-map")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from .memory import Buffer, OracleError

#: units of 16 bytes whose places change, by the name of a swizzling mode
SWIZZLES = {"none": 1, "32B": 2, "64B": 4, "128B": 8}
MAP_BYTES = 128


@dataclass(eq=False)
class TensorMap:
    """A packed array in device memory, its shape and boxes as in NumPy: the last axis is the innermost. The 128 bytes that a kernel
    is given are opaque; here they number the maps of this process."""

    buffer: Buffer
    box: Sequence[int]
    swizzle: str = "none"

    known: ClassVar[list[TensorMap]] = []

    def __post_init__(self) -> None:
        assert self.buffer.shape is not None and len(self.buffer.shape) == len(self.box)
        self.shape, self.size = self.buffer.shape, self.buffer.dtype.itemsize
        TensorMap.known.append(self)

    def encode(self) -> bytes:
        return (TensorMap.known.index(self) + 1).to_bytes(MAP_BYTES, "little")

    @classmethod
    def decode(cls, raw: bytes) -> TensorMap:
        number = int.from_bytes(raw, "little")
        if not 0 < number <= len(cls.known):
            raise OracleError("there is no tensor map here")
        return cls.known[number - 1]

    @property
    def box_bytes(self) -> int:
        total = self.size
        for count in self.box:
            total *= count
        return total

    def elements(self, start: Sequence[int]) -> Iterator[int | None]:
        """The places in the array of a box's elements, in the order of shared memory; ``None`` where there is none. ``start`` has
        the innermost coordinate first, like PTX."""
        first = tuple(reversed(start))
        for inner in product(*(range(count) for count in self.box)):
            at = 0
            for begin, step, extent in zip(first, inner, self.shape, strict=True):
                if not 0 <= begin + step < extent:
                    break
                at = at * extent + begin + step
            else:
                yield at * self.size
                continue
            yield None

    def shared_place(self, address: int) -> int:
        """Where an address of shared memory lies in the swizzled pattern."""
        return address ^ (address >> 7 & SWIZZLES[self.swizzle] - 1) << 4
