"""A small convolutional network as data: its tensors, its launches, and what every layer computes.

A MobileNet with the end of a ResNet, for images of 3 × 32 × 32 as in CIFAR-10: a 3 × 3 convolution, two depthwise separable ones,
max pooling, a wide 3 × 3 convolution, global average pooling, a fully connected layer and softmax; batch normalisation and an
activation follow each convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from . import reference

Array: TypeAlias = npt.NDArray[Any]
Dim: TypeAlias = int | tuple[int, ...]

SHAPE = np.dtype(
    [
        (name, np.int32)
        for name in (
            *("images", "channels", "height", "width"),
            *("filters", "out_height", "out_width", "stride", "padding"),
        )
    ]
)
"""The by-value argument of the convolutions: struct Shape of convolution.cu."""

EPSILON = np.float32(1e-5)


def ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b


@dataclass(frozen=True)
class Layer:
    """One launch. ``args`` are scalars, and names of tensors; ``out`` names the tensor it writes, of ``shape``.

    ``expected`` computes that tensor from the tensors named by ``inputs``, as they were before the launch.
    """

    name: str
    file: str
    entry: str
    grid: Dim
    block: Dim
    args: tuple[str | np.generic, ...]
    out: str
    shape: tuple[int, ...]
    inputs: tuple[str, ...]
    expected: Callable[..., Array]


@dataclass
class Network:
    """Layers in order, and the tensors that are given: the images and the weights, by name."""

    images: Array
    rng: np.random.Generator
    tensors: dict[str, Array] = field(init=False)
    layers: list[Layer] = field(default_factory=list, init=False)
    last: str = field(default="images", init=False)
    shape: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.tensors = {"images": self.images}
        self.shape = self.images.shape

    def _weights(self, name: str, *shape: int, fan_in: int = 1) -> str:
        scale = np.float32(np.sqrt(2 / fan_in))
        self.tensors[name] = scale * self.rng.standard_normal(shape, np.float32)
        return name

    def _add(
        self,
        name: str,
        file: str,
        entry: str,
        grid: Dim,
        block: Dim,
        args: tuple[str | np.generic, ...],
        shape: tuple[int, ...],
        weights: tuple[str, ...],
        expected: Callable[..., Array],
        in_place: bool = False,
    ) -> None:
        """``args`` without the output, which is the last argument of every kernel."""
        out = self.last if in_place else name
        layer = Layer(
            name, file, entry, grid, block, (*args, out), out, shape, (self.last, *weights), expected
        )
        self.layers.append(layer)
        self.last, self.shape = out, shape

    def convolution(self, name: str, filters: int, size: int) -> None:
        n, c, h, w = self.shape
        weights = self._weights(f"{name}.weights", filters, c, size, size, fan_in=c * size * size)
        shape = np.array([(n, c, h, w, filters, h, w, 1, size // 2)], SHAPE)[0]
        self._add(
            name,
            "convolution",
            f"convolution_{size}x{size}",
            (ceil_div(n * h * w, 64), ceil_div(filters, 64)),
            256,
            (shape, self.last, weights),
            (n, filters, h, w),
            (weights,),
            partial(reference.convolution, padding=size // 2),
        )

    def depthwise(self, name: str, stride: int = 1) -> None:
        n, c, h, w = self.shape
        out_h, out_w = ceil_div(h, stride), ceil_div(w, stride)
        weights = self._weights(f"{name}.weights", c, 3, 3, fan_in=9)
        self._add(
            name,
            "depthwise",
            "depthwise_3x3" if stride == 1 else "depthwise_3x3_stride_2",
            (ceil_div(out_w, 16), ceil_div(out_h, 16), n * c),
            (16, 4),
            (np.int32(c), np.int32(h), np.int32(w), self.last, weights),
            (n, c, out_h, out_w),
            (weights,),
            partial(reference.depthwise, stride=stride),
        )

    def batch_norm(self, name: str) -> None:
        n, c, h, w = self.shape
        statistics = tuple(f"{name}.{part}" for part in ("gamma", "beta", "mean", "variance"))
        for part in statistics:
            self._weights(part, c)
        self.tensors[statistics[0]] = 1 + self.tensors[statistics[0]] / 8
        self.tensors[statistics[3]] = 1 + self.tensors[statistics[3]] ** 2 / 8
        quads = h * w // 4
        self._add(
            name,
            "elementwise",
            "batch_norm",
            (ceil_div(quads, 64), n * c),
            64,
            (np.int32(c), np.int32(quads), EPSILON, self.last, *statistics),
            self.shape,
            statistics,
            partial(reference.batch_norm, epsilon=1e-5),
        )

    def activation(self, name: str, entry: str, expected: Callable[[Array], Array]) -> None:
        quads = int(np.prod(self.shape)) // 4
        self._add(
            name,
            "elementwise",
            entry,
            ceil_div(quads, 256),
            256,
            (np.int32(quads),),
            self.shape,
            (),
            expected,
            in_place=True,
        )

    def max_pool(self, name: str) -> None:
        n, c, h, w = self.shape
        out_h, out_w = ceil_div(h, 2), ceil_div(w, 2)
        self._add(
            name,
            "pooling",
            "max_pool_3x3",
            (ceil_div(out_w, 8), ceil_div(out_h, 8), n * c),
            (8, 8),
            (np.int32(h), np.int32(w), self.last),
            (n, c, out_h, out_w),
            (),
            reference.max_pool,
        )

    def average_pool(self, name: str) -> None:
        n, c, h, w = self.shape
        self._add(
            name,
            "pooling",
            "global_average_pool",
            ceil_div(n * c, 4),
            128,
            (np.int32(n * c), np.int32(h * w), self.last),
            (n, c),
            (),
            reference.average_pool,
        )

    def fully_connected(self, name: str, outputs: int) -> None:
        n, features = self.shape
        weights = self._weights(f"{name}.weights", outputs, features, fan_in=features)
        bias = self._weights(f"{name}.bias", outputs)
        self._add(
            name,
            "classifier",
            "fully_connected",
            (ceil_div(outputs, 4), n),
            128,
            (np.int32(features), np.int32(outputs), self.last, weights, bias),
            (n, outputs),
            (weights, bias),
            reference.fully_connected,
        )

    def softmax(self, name: str) -> None:
        rows, cols = self.shape
        args = (np.int32(rows), np.int32(cols))
        self._add(
            name,
            "classifier",
            "softmax",
            ceil_div(rows, 4),
            128,
            args,
            self.shape,
            (),
            reference.softmax,
            in_place=True,
        )


def small_network(batch: int = 2, side: int = 32) -> Network:
    """The network of this module for so many images of side × side (a multiple of 16), with random weights, equal in every process."""
    rng = np.random.default_rng(21)
    network = Network(rng.standard_normal((batch, 3, side, side), np.float32), rng)

    def normalise(name: str, activation: str = "relu6") -> None:
        network.batch_norm(f"{name}.norm")
        network.activation(f"{name}.{activation}", f"{activation}_activation", getattr(reference, activation))

    network.convolution("stem", 32, size=3)
    normalise("stem")
    for number, (filters, stride) in enumerate(((64, 1), (128, 2)), 1):
        network.depthwise(f"depthwise{number}", stride)
        normalise(f"depthwise{number}")
        network.convolution(f"pointwise{number}", filters, size=1)
        normalise(f"pointwise{number}")
    network.max_pool("max_pool")
    network.convolution("wide", 128, size=3)
    normalise("wide", "silu")
    network.average_pool("average_pool")
    network.fully_connected("scores", 10)
    network.softmax("softmax")
    return network
