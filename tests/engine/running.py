"""The engine as something that ``cases.execute`` can drive, and small kernels to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gpuperf_engine as ge
from tests.support import head

HEAD = head("8.0", "sm_90")
REGISTERS = """
    .reg .pred %p<10>;
    .reg .b16 %h<10>;
    .reg .b32 %r<20>;
    .reg .f32 %f<10>;
    .reg .b64 %rd<20>;
    .reg .f64 %fd<10>;
"""


@dataclass
class Engine:
    """Launches kernels of one PTX text on arrays in place, each launch on a device of its own."""

    text: str
    backend: str
    observe: tuple[str, ...] = ("memory",)
    profiles: list[ge.Profile] = field(default_factory=list)
    module: ge.Module = field(init=False)

    def __post_init__(self) -> None:
        self.module = ge.parse(self.text, path="kernel.ptx")

    def __call__(self, launch: Any, args: tuple[Any, ...]) -> None:
        device = ge.Device(self.observe, backend=self.backend, memory_bytes=1 << 26)
        arrays = {id(arg): arg for arg in args if isinstance(arg, np.ndarray)}
        on_device = {key: device.array(array) for key, array in arrays.items()}
        given = [on_device.get(id(arg), arg) for arg in args]
        self.profiles.append(
            device.launch(
                self.module[launch.entry], launch.grid, launch.block, given, shared_bytes=launch.shared_bytes
            )
        )
        for key, array in arrays.items():
            array[...] = on_device[key].numpy()


def module(body: str, parameters: str = "", before: str = "") -> str:
    """A module with the entry ``k``."""
    return f"{HEAD}{before}\n.visible .entry k({parameters})\n{{{REGISTERS}{body}\n}}\n"


def launch(
    backend: str,
    body: str,
    *,
    parameters: str = "",
    before: str = "",
    grid: Any = 1,
    block: Any = 32,
    args: Sequence[object] = (),
    device: ge.Device | None = None,
    **options: Any,
) -> ge.Profile:
    """Run a body as the kernel ``k``; arrays among ``args`` are made on ``device``."""
    device = device if device is not None else ge.Device(backend=backend, memory_bytes=1 << 24)
    kernel = ge.parse(module(body, parameters, before), path="k.ptx")["k"]
    return device.launch(kernel, grid, block, list(args), **options)


GLOBAL_THREAD = """
    mov.u32 %r16, %ctaid.x;
    mov.u32 %r17, %ntid.x;
    mov.u32 %r18, %tid.x;
    mad.lo.u32 %r19, %r16, %r17, %r18;
"""


def collect(
    backend: str,
    body: str,
    *,
    before: str = "",
    parameters: str = "",
    args: Sequence[object] = (),
    block: int = 32,
    grid: int = 1,
    device: ge.Device | None = None,
    **options: Any,
) -> tuple[NDArray[np.uint32], ge.Profile]:
    """Run a body that leaves a value in ``%r0`` of every thread; the values of the grid and the profile."""
    device = device if device is not None else ge.Device(backend=backend, memory_bytes=1 << 24)
    out = device.zeros(block * grid, np.uint32)
    epilogue = f"""
    {GLOBAL_THREAD}
    ld.param.u64 %rd18, [out];
    mul.wide.u32 %rd19, %r19, 4;
    add.u64 %rd18, %rd18, %rd19;
    st.global.u32 [%rd18], %r0;
    ret;"""
    comma = ", " if parameters else ""
    text = module(body + epilogue, f".param .u64 out{comma}{parameters}", before)
    kernel = ge.parse(text, path="k.ptx")["k"]
    profile = device.launch(kernel, grid, block, [out, *args], **options)
    return out.numpy(), profile
