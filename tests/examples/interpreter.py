"""The one-thread-at-a-time interpreter as something that ``cases.execute`` can drive."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from cases import Arg, Launch

from tests.oracle.scalar import Buffer, Result, run


@dataclass
class Interpreter:
    """Launches kernels of one PTX text on arrays in place, and keeps the result of each launch."""

    text: str
    by_thread: bool = False
    results: list[Result] = field(default_factory=list)

    def __call__(self, launch: Launch, args: tuple[Arg, ...]) -> None:
        arrays = {id(arg): arg for arg in args if isinstance(arg, np.ndarray)}
        buffers = {key: Buffer(array) for key, array in arrays.items()}
        given = [buffers.get(id(arg), arg) for arg in args]
        self.results.append(
            run(
                self.text,
                launch.entry,
                launch.grid,
                launch.block,
                given,
                launch.shared_bytes,
                by_thread=self.by_thread,
            )
        )
        for key, array in arrays.items():
            array[...] = buffers[key].numpy()
