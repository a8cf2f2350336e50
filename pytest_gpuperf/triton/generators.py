"""Generators of random numbers of the GPU. torch draws their numbers on the CPU, but their states have the form of those of CUDA: seed
and offset, 8 bytes each (``CUDAGeneratorImpl::get_state`` in ATen/cuda/CUDAGeneratorImpl.cpp), which programs pass to their own
kernels and advance. Imports torch."""

from __future__ import annotations

import struct
from collections import OrderedDict

import torch

from .placement import Places

__all__ = ["States"]

#: by how much the name of a later state grows; offsets are multiples of it
_STEP = 4
#: the most states that are kept for one generator
_MOST = 1000
_FORM = struct.Struct("<QQ")
#: an odd number near 2^64 divided by the golden ratio, so that seeds of different offsets differ
_SPREAD = 0x9E3779B97F4A7C15


class States:
    """Names the states of a generator of the CPU by seed and offset, and finds them again. Offsets that a program computes itself
    have a sequence of their own."""

    def __init__(self, generator: torch._C.Generator, places: Places) -> None:
        self._generator, self._places = generator, places
        self._known: OrderedDict[tuple[int, int], torch.Tensor] = OrderedDict()
        #: the state that was named last, and the seed that torch reports there
        self._last, self._seed = (0, 0), -1

    def get(self) -> torch.Tensor:
        """The state, on the host."""
        state, seed = self._state_of(self._generator), self._generator.initial_seed() % (1 << 64)
        name = self._last if seed == self._seed else (seed, 0)
        start = (seed, 0)
        if torch.equal(state, self._fresh(seed)) and not torch.equal(state, self._known.get(name, state)):
            name = start
        self._known.setdefault(start, self._fresh(seed))
        while not torch.equal(self._known.setdefault(name, state), state):
            name = name[0], name[1] + _STEP
        self._keep(name, seed)
        values = list(_FORM.pack(*name))
        return self._places.call(False, torch.tensor, (values,), {"dtype": torch.uint8})

    def set(self, state: torch.Tensor) -> None:
        """Continue from a state. Raises ``RuntimeError`` if it has not 16 bytes."""
        raw = bytes(state.flatten().tolist())
        if len(raw) != _FORM.size:
            raise RuntimeError(
                f"RNG state is wrong size: {len(raw)} bytes, and that of a CUDA generator has 16"
            )
        seed, offset = _FORM.unpack(raw)
        known = self._known.get((seed, offset))
        if known is None:
            known = self._fresh((seed + offset * _SPREAD) % (1 << 64))
            self._known[seed, offset] = known
        torch._C.Generator.set_state(self._generator, known)
        self._keep((seed, offset), self._generator.initial_seed() % (1 << 64))

    def _keep(self, name: tuple[int, int], seed: int) -> None:
        self._known.move_to_end(name)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        self._last, self._seed = name, seed

    def _fresh(self, seed: int) -> torch.Tensor:
        """The state after seeding."""
        return self._state_of(torch._C.Generator().manual_seed(seed))

    def _state_of(self, generator: torch._C.Generator) -> torch.Tensor:
        return self._places.call(False, torch._C.Generator.get_state, (generator,), {})
