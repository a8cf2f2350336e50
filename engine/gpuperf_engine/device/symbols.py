"""Symbols of modules on a device: arrays of variables, addresses of functions, and bound images."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable

import numpy as np

from ..errors import LaunchError
from ..isa.spaces import WINDOWS
from ..memory.arena import Memory
from ..memory.arrays import ArrayOwner, DeviceArray, dtype_of_variable
from ..memory.images import ImageObject, SamplerObject, declared_sampler
from ..ptx.module import Function, Module
from ..ptx.syntax import Variable

__all__ = ["Symbols"]

#: addresses of functions for indirect calls begin here, outside every window
FUNCTION_BASE = 0x0000_7D00_0000_0000
FUNCTION_STEP = 16


class Symbols:
    """``variables``: the arrays of variables that are in memory; they belong to ``owner``. ``loaded`` is called with each, and whether
    it has initial contents."""

    def __init__(
        self, owner: ArrayOwner, memory: Memory, loaded: Callable[[DeviceArray, bool], object]
    ) -> None:
        # weak, so that an unreferenced device frees its memory immediately
        self._owner, self._loaded = weakref.ref(owner), weakref.WeakMethod(loaded)
        self._memory = memory
        self.variables: dict[Variable, DeviceArray] = {}
        #: handles of images
        self._bound: dict[Variable, int] = {}
        #: first function address of each module
        self._functions: dict[Module, int] = {}
        symbols = weakref.proxy(self)
        #: ``describe`` without a reference to the device, for profiles, which may outlive it
        self.description: Callable[[int], str] = lambda address: str(symbols.describe(address))

    def check_room(self, module: Module) -> None:
        """Raises ``LaunchError`` if the module's variables do not fit, used or not: a driver refuses to load it then
        (``cuModuleLoad``, CUDA_ERROR_OUT_OF_MEMORY)."""
        self._memory.require(
            item
            for item in module.variables.values()
            if item.space in ("global", "const") and item.linkage != "extern" and item not in self.variables
        )

    def share(self, modules: Iterable[Module]) -> None:
        """Let variables that the modules declare alike, by name, size and initial contents, be the same memory."""
        groups: dict[tuple[object, ...], list[Variable]] = {}
        for module in modules:
            for item in module.variables.values():
                if item.space in ("global", "const") and item.linkage != "extern" and not item.relocations:
                    alike = (item.name, item.space, item.type, item.vector, item.dims, item.initial)
                    groups.setdefault(alike, []).append(item)
        for same in groups.values():
            first = next((item for item in same if item in self.variables), same[0])
            for item in same if len(same) > 1 else ():
                self.variables.setdefault(item, self.variable(first))

    def variable(self, variable: Variable) -> DeviceArray:
        """The array of a variable, allocated and loaded with its initial contents on first use."""
        known = self.variables.get(variable)
        if known is not None:
            return known
        kind = "const" if variable.space == "const" else "global"
        allocation = self._memory.allocate(variable.size, variable.name, kind, variable.align)
        dims = tuple(int(size or 0) for size in variable.dims)
        dtype = dtype_of_variable(variable)
        shape = (*dims, variable.vector) if variable.vector > 1 else dims
        if math.prod(shape) * dtype.itemsize != variable.size:
            dtype, shape = np.dtype(np.uint8), (variable.size,)
        owner, loaded = self._owner(), self._loaded()
        assert owner is not None and loaded is not None
        array = self.variables[variable] = DeviceArray(owner, allocation, 0, shape, dtype).recorded()
        if variable.initial is None and not variable.relocations:
            self._memory.clear(allocation)
            loaded(array, False)
            return array
        image = bytearray(variable.initial or bytes(variable.size))
        for offset, width, target, addend, generic in variable.relocations:
            address = self.address(target) + addend
            if isinstance(target, Variable) and target.space == "const" and not generic:
                address -= WINDOWS["const"][0]
            image[offset : offset + width] = (address % (1 << 64)).to_bytes(8, "little")[:width]
        self._memory.write(allocation, 0, bytes(image))
        loaded(array, True)
        return array

    def bind(self, variable: Variable, image: ImageObject | SamplerObject) -> None:
        """Let a ``.texref``, ``.surfref`` or ``.samplerref`` variable mean an image or a sampler."""
        self._bound[variable] = image.handle

    def address(self, target: Variable | Function) -> int:
        """The address of a variable or function, or the handle of the image that a reference is bound to. Raises ``LaunchError``."""
        if isinstance(target, Variable) and target.space == "tex":
            sampler = ".samplerref" in target.attributes
            if target not in self._bound and sampler and target.members:
                self._bound[target] = self._memory.images.add(declared_sampler(target), None)
            if target not in self._bound:
                what = "sampler" if sampler else "image"
                made = "device.sampler()" if sampler else "device.texture(array)"
                raise LaunchError(
                    f"{target.name!r} is bound to no {what}",
                    span=target.span,
                    hint=f"bind one first: device.bind(kernel, {target.name!r}, {made})",
                )
            return self._bound[target]
        if isinstance(target, Variable):
            return self.variable(target).address
        module = target.module
        start = self._functions.get(module)
        if start is None:
            before = sum(len(other.functions) for other in self._functions)
            start = self._functions[module] = FUNCTION_BASE + FUNCTION_STEP * before
        return start + FUNCTION_STEP * list(module.functions).index(target.name)

    def function_at(self, address: int) -> Function | None:
        """The function whose address this is."""
        for module, start in self._functions.items():
            index, rest = divmod(address - start, FUNCTION_STEP)
            if rest == 0 and 0 <= index < len(module.functions):
                return list(module.functions.values())[index]
        return None

    def describe(self, address: int) -> str:
        """A description of an address for messages."""
        if address == 0:
            return "null"
        if (function := self.function_at(address)) is not None:
            return f"that of {function.name!r} of {function.module.path}"
        holder = self._memory.resolve(address)
        if holder is None:
            return "of nothing"
        return f"in {repr(holder.name) if holder.name else 'an array'} ({holder.kind} memory)"
