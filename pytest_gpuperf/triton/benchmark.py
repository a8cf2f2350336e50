"""Benchmarks by predicted time: for Triton's autotuner and ``triton.testing.do_bench``, one run of a function is predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from .device import TritonDevice

__all__ = ["LEAST_US", "bencher", "replace_in_triton"]

LEAST_US = 1e-3
"""The shortest time in microseconds: programs divide by times, and what torch computes takes none."""


def bencher(device: TritonDevice, *, gated: bool = True) -> Callable[..., float | list[float]]:
    """A replacement for ``do_bench(fn, …)``: the predicted time of one run in milliseconds, which is the same for every quantile and
    kind of summary. ``gated``: whether its launches count as launches of the program; those of an autotuner do not, and compute no
    values."""

    def do_bench(
        fn: Callable[[], object],
        *_: object,
        grad_to_none: Iterable[torch.Tensor] | None = None,
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
        **__: object,
    ) -> float | list[float]:
        for tensor in grad_to_none or ():
            tensor.grad = None
        before, timing = device.elapsed_us, device.timing
        device.timing = True
        try:
            with nullcontext() if gated else device.trying_out(results=False):
                fn()
        finally:
            device.timing = timing
        milliseconds = max(device.elapsed_us - before, LEAST_US) / 1000
        if quantiles is not None:
            return [milliseconds] * len(quantiles)
        return [milliseconds] if return_mode == "all" else milliseconds

    return do_bench


def replace_in_triton(device: TritonDevice) -> None:
    """Replace the benchmark functions of ``triton.testing`` by predictions."""
    import triton.testing

    do_bench = bencher(device)
    for name in ("do_bench", "do_bench_cudagraph", "do_bench_proton", "do_bench_cudagraph_proton"):
        if hasattr(triton.testing, name):
            setattr(triton.testing, name, do_bench)
