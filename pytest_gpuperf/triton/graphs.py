"""CUDA graphs of torch: operators of torch and launches of Triton are recorded while a graph is captured, and run when it is replayed.
Imports torch.

As on a GPU, a capture computes nothing: kernels are not launched, and what operators change in place is restored, so that the
first replay starts from the memory before the capture. New tensors of a capture are the graph's outputs; a replay writes them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from .device import TritonDevice
    from .placement import Places

__all__ = ["names"]

#: operators whose results have no contents that a replay would write
_WITHOUT_CONTENTS = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")

#: operators whose results the host reads, for which it would wait
_WAITS = ("_local_scalar_dense", "equal", "is_nonzero", "masked_select", "nonzero", "unique_dim", "_unique2")


class Capture(TorchDispatchMode):  # type: ignore[misc]
    """Records what is executed on the GPU while it is entered."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self._places = places
        self.steps: list[Callable[[], object]] = []

    def launch(self, run: Callable[[], object]) -> None:
        """Record the launch of a kernel."""
        self.steps.append(run)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = (
            *zip(args, func._schema.arguments),
            *((kwargs.get(each.name), each) for each in func._schema.arguments),
        )
        changed = [tensor for value, argument in given if _is_changed(argument) for tensor in _tensors(value)]
        with torch._C.DisableTorchFunction(), torch.no_grad():
            on_gpu = self._places.any_on_gpu(_tensors((args, kwargs)))
            name = func._schema.name.rpartition("::")[2]
            if on_gpu and name in _WAITS:
                raise RuntimeError(
                    f"CUDA error: operation not permitted when stream is capturing: the host waits for the result of aten::{name}"
                )
            before = [tensor.clone() for tensor in changed] if on_gpu else []
            result = func(*args, **kwargs)
            for tensor, contents in zip(changed, before):
                if tensor.shape == contents.shape:
                    tensor.copy_(contents)
            on_gpu = on_gpu or self._places.any_on_gpu(_tensors(result))
        only_changed = all(each.alias_info is not None for each in func._schema.returns)
        if on_gpu and (changed or not (only_changed or name in _WITHOUT_CONTENTS)):
            new = [] if only_changed else _tensors(result)
            self.steps.append(lambda: self._again(func, args, kwargs, new))
        return result

    def _again(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Iterable[torch.Tensor]
    ) -> None:
        result = self._places.call(True, func, args, kwargs)
        for output, now in zip(outputs, _tensors(result)):
            output.copy_(now)


def _tensors(result: object) -> list[torch.Tensor]:
    return [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]


def _is_changed(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def names(device: TritonDevice, places: Places) -> dict[str, object]:
    """Names of ``torch.cuda`` and of ``torch.cuda.graphs``."""
    pools = [0]

    def handle() -> tuple[int, int]:
        pools[0] += 1
        return 0, pools[0]

    class CUDAGraph:
        """``torch.cuda.CUDAGraph``. Not here: the handles of the graph, and its dump."""

        def __init__(self, keep_graph: bool = False) -> None:
            self._capture: Capture | None = None
            self._steps: list[Callable[[], object]] | None = None
            self._pool = (0, 0)

        def capture_begin(
            self, pool: tuple[int, int] | None = None, capture_error_mode: str = "global", **_: object
        ) -> None:
            """Record from now on. Other options are checks of newer versions of torch."""
            if device.capture is not None:
                raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
            if self._steps is not None:
                raise RuntimeError(
                    "This CUDAGraph instance already owns a captured graph: call reset() first"
                )
            self._pool = handle() if pool is None else pool
            self._capture = device.capture = Capture(places)
            self._capture.__enter__()

        def capture_end(self) -> None:
            """Record no more."""
            capture = self._capture
            if capture is None or device.capture is not capture:
                raise RuntimeError("capture_end() without capture_begin()")
            self._capture = device.capture = None
            capture.__exit__(None, None, None)
            self._steps = capture.steps

        def instantiate(self) -> None:
            """Done with the capture."""

        def replay(self) -> None:
            """Run what was recorded, in order."""
            if self._steps is None:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            with torch._C.DisableTorchFunction(), torch.no_grad():
                for step in self._steps:
                    step()

        def reset(self) -> None:
            """Forget what was recorded."""
            self._steps = None

        def pool(self) -> tuple[int, int]:
            """The name of the graph's memory, which has no effect here."""
            return self._pool

        def enable_debug_mode(self) -> None:
            """Nothing to keep."""

        def debug_dump(self, debug_path: str) -> None:
            raise RuntimeError("CUDAGraph.debug_dump is not supported by gpuperf: a graph is a list of calls")

        def raw_cuda_graph(self) -> int:
            raise RuntimeError(
                "CUDAGraph.raw_cuda_graph is not supported by gpuperf: there is no cudaGraph_t"
            )

        raw_cuda_graph_exec = raw_cuda_graph

    return {
        "CUDAGraph": CUDAGraph, "graph_pool_handle": handle,
        "is_current_stream_capturing": lambda: device.capture is not None,
    }  # fmt: skip
