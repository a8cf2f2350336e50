"""Kernels as tests see them: ``kernel[grid, block](*args)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from gpuperf_engine.errors import EngineError, LaunchError

if TYPE_CHECKING:
    import gpuperf_engine as engine
    from gpuperf_engine import Profile
    from gpuperf_engine.memory.arrays import DeviceArray

    from .fixture import Gpuperf
    from .record import CaseRecord

__all__ = ["Dim", "Kernel", "Launcher"]

Dim: TypeAlias = "int | tuple[int, ...]"


class Kernel:
    """One kernel of one test, from ``gpuperf.kernel(…)``.

    ``kernel[grid, block]`` or ``kernel[grid, block, shared_bytes]`` is a launcher; grid and block are ints or tuples of up to
    three, ``shared_bytes`` is the dynamic shared memory of a CTA.
    """

    def __init__(self, gpuperf: Gpuperf, cases: Sequence[tuple[CaseRecord, engine.Kernel]]) -> None:
        self._gpuperf = gpuperf
        self._cases = tuple(cases)
        self._case, self.function = self._cases[-1]

    def __repr__(self) -> str:
        return f"<kernel {self.name} of {self._case.source.path}>"

    @property
    def name(self) -> str:
        """The entry's name."""
        return self._case.entry

    def symbol(self, name: str) -> DeviceArray:
        """The array of a ``__device__`` or ``__constant__`` variable of the kernel's module, one for all its PTX variants.

        Raises ``UnknownName``, and ``LaunchError`` if the variants declare different variables under this name.
        """
        arrays = [self._gpuperf.device.symbol(function, name) for _, function in self._cases]
        if any(array != arrays[-1] for array in arrays):
            raise LaunchError(
                f"the variants of {self.name!r} declare {name!r} differently, so no single array stands for it",
                hint="declare it identically in all of them, or launch each variant in a test of its own",
            )
        return arrays[-1]

    def __call__(self, *args: object, **keywords: object) -> Profile | None:
        """Always raises ``LaunchError``: a launch needs a grid and a block."""
        __tracebackhide__ = True
        raise self._without_shape()

    def _without_shape(self) -> LaunchError:
        return LaunchError(
            f"kernel {self.name!r} needs a grid and a block",
            hint="write kernel[grid, block](…) or kernel[grid, block, shared_bytes](…)",
        )

    def __getitem__(self, shape: tuple[Dim, Dim] | tuple[Dim, Dim, int]) -> Launcher:
        __tracebackhide__ = True
        if not isinstance(shape, tuple) or len(shape) not in (2, 3):
            raise self._without_shape()
        return Launcher(self, shape[0], shape[1], shape[2] if len(shape) == 3 else 0)


@dataclass(frozen=True, slots=True)
class Launcher:
    """A kernel with its launch shape; calling it launches."""

    kernel: Kernel
    grid: Dim
    block: Dim
    shared_bytes: int = 0

    def __call__(
        self,
        *args: object,
        cluster: Dim | None = None,
        cooperative: bool = False,
        max_instructions: int | None = None,
    ) -> Profile:
        """Runs the kernel and returns what was counted, a ``gpuperf_engine.Profile`` (of PTX variants that of the last).

        ``cluster`` is the shape of clusters in CTAs, as ``grid``. Arguments are device arrays and views, ``None`` for a null pointer,
        NumPy scalars of the parameter's width, Python numbers in its range, structured scalars or bytes for structures. Raises
        ``EngineError`` for launches that are none and for kernels that do what no kernel may.
        """
        __tracebackhide__ = True
        try:
            return self.kernel._gpuperf._launch(
                self.kernel._cases,
                (self.grid, self.block, self.shared_bytes, cluster, cooperative),
                args,
                max_instructions,
            )
        except EngineError as error:
            # The frames of the emulator say nothing about the kernel; the message does.
            raise error.with_traceback(None) from None
