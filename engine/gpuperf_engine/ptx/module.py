"""A PTX module and its functions; ``ptx.syntax`` has their contents.

The body of a function is read on first use.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import LaunchError, UnknownName, nearest
from ..isa.system import SYSTEM_FUNCTIONS, SystemFunction
from ..source import Span
from .syntax import Instruction, Register, Variable

__all__ = ["Body", "Function", "Kernel", "Module", "make_current", "text_digest"]


class CurrentDevice(Protocol):
    """Where ``Function.symbol`` finds variables."""

    def current_symbol(self, kernel: Function, name: str) -> Any: ...


@dataclass(slots=True)
class Body:
    """The contents of a function's braces; the fields are those of ``Function``."""

    registers: list[Register] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


#: held while a body is read, so that other threads do not see a partial one
_reading = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_reading.acquire, after_in_parent=_reading.release, after_in_child=_reading.release
    )


def text_digest(text: str) -> bytes:
    """16 bytes that identify a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _no_device() -> CurrentDevice | None:
    return None


_current: Callable[[], CurrentDevice | None] = _no_device


def make_current(device: CurrentDevice) -> None:
    """Make ``Function.symbol`` return arrays of this device, as long as it exists."""
    global _current
    _current = weakref.ref(device)


@dataclass(slots=True, eq=False, repr=False)
class Function:
    """An ``.entry`` or ``.func``. Without body (``.extern .func``) ``instructions`` is empty and ``defined`` false.

    The body is read on first use, and errors in it are raised then. Copies and pickles are those of its module.
    """

    name: str
    is_entry: bool
    params: tuple[Variable, ...]
    returns: tuple[Variable, ...]
    span: Span
    module: Module
    linkage: str = ""
    defined: bool = True
    #: whether the body has been read, which happens on the first access to one of the next four fields
    read: bool = field(default=False, init=False)
    registers: list[Register] = field(init=False)
    variables: list[Variable] = field(init=False)  # declared in the body, parameters of calls included
    instructions: list[Instruction] = field(init=False)
    labels: dict[str, int] = field(init=False)
    maxntid: tuple[int, ...] | None = None
    reqntid: tuple[int, ...] | None = None
    minnctapersm: int | None = None
    maxnreg: int | None = None
    cluster: tuple[int, ...] | None = None
    directives: tuple[str, ...] = ()  # further performance directives and pragmas, as written

    def __repr__(self) -> str:
        return f"<{'Kernel' if self.is_entry else 'Function'} {self.name!r} at {self.span}>"

    #: what analyses derived from the function, by their own keys; never compared or printed
    memo: dict[object, object] = field(default_factory=dict, repr=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # called only for unset slots: those of a body that has not been read
            if name not in Body.__slots__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.load()
            return getattr(self, name)

    def __reduce__(self) -> tuple[object, ...]:
        return Module.function, (self.module, self.name)

    def load(self) -> Function:
        """This function, with its body read. Raises the errors of reading it, each time."""
        if not self.read:
            self.module.load(self)
        return self

    @property
    def system(self) -> SystemFunction | None:
        """The effect of a system call, if this is a function without a body that is declared like the system function of that
        name."""
        function = None if self.defined else SYSTEM_FUNCTIONS.get(self.name)
        sizes = tuple(tuple(item.size for item in group) for group in (self.params, self.returns))
        return function if function is not None and sizes == (function.arguments, function.results) else None

    @property
    def param_bytes(self) -> int:
        """Size of the parameter buffer of an entry in bytes."""
        return self.params[-1].offset + self.params[-1].size if self.params else 0

    def symbol(self, name: str) -> Any:
        """The array of a ``__device__`` or ``__constant__`` variable of the kernel's module on the current device: the one that was
        created or launched on last. ``device.symbol(kernel, name)`` is the array on another.

        Raises ``UnknownName``, and ``LaunchError`` while there is no device.
        """
        self.module.variable(name)
        device = _current()
        if device is None:
            raise LaunchError(
                f"variable {name!r} is on no device yet", hint="make a device first: device = ge.Device()"
            )
        return device.current_symbol(self, name)


Kernel = Function


@dataclass(slots=True, eq=False, repr=False)
class Module:
    """One PTX module. ``module["name"]`` is a kernel (an ``.entry``); bodies are parsed on first use. A module is immutable: to
    change it, change the text and parse it again; copies and pickles are parsed from the text.

    ``version`` is ``(major, minor)``, ``target`` the ``sm_…`` name, ``target_options`` e.g. ``debug`` or ``texmode_unified``.
    ``compiled_for`` differs from ``target`` where the text stands for machine code (``retarget``).
    ``notes`` are remarks for people, e.g. a newer minor version than the table knows.
    """

    text: str
    path: str
    version: tuple[int, int]
    target: str
    target_options: tuple[str, ...] = ()
    compiled_for: str = ""
    address_size: int = 64
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    files: Mapping[int, str] = field(default_factory=dict)
    aliases: dict[str, Function] = field(default_factory=dict)
    pragmas: tuple[str, ...] = ()  # of the module as a whole
    notes: tuple[str, ...] = ()
    #: cached names of the functions whose address is taken (see ``pointers``)
    addressed: frozenset[str] | None = None
    #: number of the device on which ``Function.symbol`` was taken before the first launch there
    expected_on: int | None = None

    def __repr__(self) -> str:
        return f"<Module {self.path!r}: {len(self.functions)} functions, {len(self.variables)} variables>"

    @property
    def kernels(self) -> dict[str, Function]:
        """Entries by name, in the order of the text. The body of each is read on first use."""
        return {name: function for name, function in self.functions.items() if function.is_entry}

    @property
    def instruction_count(self) -> int:
        """Number of instructions of all functions, whether reachable or not."""
        return sum(len(function.instructions) for function in self.functions.values())

    def __getitem__(self, name: str) -> Function:
        function = self.functions.get(name)
        if function is None or not function.is_entry:
            raise UnknownName(
                f"no kernel {name!r} in {self.path}", hint=nearest(name, self.kernels, noun="kernel")
            )
        return function.load()

    def __iter__(self) -> Iterator[str]:
        return iter(self.kernels)

    def function(self, name: str) -> Function:
        """Any function, device functions included, with its body. Raises ``UnknownName``."""
        function = self.functions.get(name)
        if function is None:
            raise UnknownName(
                f"no function {name!r} in {self.path}", hint=nearest(name, self.functions, noun="function")
            )
        return function.load()

    def variable(self, name: str) -> Variable:
        """A module-scope variable. Raises ``UnknownName``."""
        variable = self.variables.get(name)
        if variable is None:
            raise UnknownName(
                f"no variable {name!r} in {self.path}", hint=nearest(name, self.variables, noun="variable")
            )
        return variable

    def load(self, function: Function) -> None:
        """Read a function's body unless that was done already. Raises the errors of reading it."""
        with _reading:
            if not function.read:
                body = self._body(function)
                for name in Body.__slots__:
                    setattr(function, name, getattr(body, name))
                function.read = True

    def _body(self, function: Function) -> Body:
        """The contents of a function's body."""
        return Body()

    def addressed_in_text(self) -> frozenset[str]:
        """The functions whose address may be taken in bodies, read or not."""
        return frozenset()

    @property
    def digest(self) -> bytes:
        """16 bytes that identify the text from which bodies are read."""
        return text_digest(self.text)
