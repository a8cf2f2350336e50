"""Builders of the catalogue's programs for the layers: as ``case_programs``, at sizes with partial tiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from case_programs import blank, blocks, floats
from case_types import Array, Launch, Program, close, exactly

from . import reference
from .layers import SHAPE


def _exact(function: Callable[..., Array], *values: Array, **keywords: int) -> Array:
    """The reference, in float64."""
    return function(*(value.astype(np.float64) for value in values), **keywords)


def convolution(
    size: int, stride: int, n: int, c: int, h: int, w: int, filters: int, rng: np.random.Generator
) -> Program:
    images, weights = floats(rng, n, c, h, w), floats(rng, filters, c, size, size)
    expected = _exact(reference.convolution, images, weights, stride=stride, padding=size // 2)
    shape = np.array([(n, c, h, w, *expected.shape[1:], stride, size // 2)], SHAPE)[0]
    out = blank(expected.shape)
    pixels = n * expected.shape[2] * expected.shape[3]
    grid = (blocks(pixels, 64), blocks(filters, 64))
    launch = Launch(f"convolution_{size}x{size}", grid, 256, (shape, images, weights, out))
    return Program((launch,), ((out, close(expected, 1e-5, 1e-5)),))


def depthwise(stride: int, n: int, c: int, h: int, w: int, rng: np.random.Generator) -> Program:
    images, filters = floats(rng, n, c, h, w), floats(rng, c, 3, 3)
    expected = _exact(reference.depthwise, images, filters, stride=stride)
    out = blank(expected.shape)
    grid = (blocks(expected.shape[3], 16), blocks(expected.shape[2], 16), n * c)
    args = (np.int32(c), np.int32(h), np.int32(w), images, filters, out)
    entry = "depthwise_3x3" if stride == 1 else "depthwise_3x3_stride_2"
    return Program((Launch(entry, grid, (16, 4), args),), ((out, close(expected, 1e-5, 1e-5)),))


def batch_norm(n: int, c: int, size: int, rng: np.random.Generator) -> Program:
    images, out, epsilon = 2 * floats(rng, n, c, size, 1) + 3, blank((n, c, size, 1)), np.float32(1e-5)
    gamma, beta, mean, variance = (floats(rng, c) for _ in range(4))
    variance = variance**2
    quads = size // 4
    args = (np.int32(c), np.int32(quads), epsilon, images, gamma, beta, mean, variance, out)
    expected = _exact(reference.batch_norm, images, gamma, beta, mean, variance, epsilon)
    launch = Launch("batch_norm", (blocks(quads, 32), n * c), 32, args)
    return Program((launch,), ((out, close(expected, 1e-5, 1e-4)),))


def activation(name: str, size: int, rng: np.random.Generator) -> Program:
    data = 5 * floats(rng, size)
    launch = Launch(f"{name}_activation", blocks(size // 4, 64), 64, (np.int32(size // 4), data))
    return Program((launch,), ((data, close(_exact(getattr(reference, name), data), 1e-6, 1e-6)),))


def max_pool(n: int, c: int, h: int, w: int, rng: np.random.Generator) -> Program:
    images = floats(rng, n, c, h, w)
    expected = reference.max_pool(images)
    out = blank(expected.shape)
    grid = (blocks(expected.shape[3], 8), blocks(expected.shape[2], 8), n * c)
    launch = Launch("max_pool_3x3", grid, (8, 8), (np.int32(h), np.int32(w), images, out))
    return Program((launch,), ((out, exactly(expected)),))


def average_pool(n: int, c: int, h: int, w: int, rng: np.random.Generator) -> Program:
    images, out = floats(rng, n, c, h, w), blank((n, c))
    launch = Launch(
        "global_average_pool", blocks(n * c, 4), 128, (np.int32(n * c), np.int32(h * w), images, out)
    )
    return Program((launch,), ((out, close(_exact(reference.average_pool, images), 1e-5, 1e-6)),))


def fully_connected(n: int, features: int, outputs: int, rng: np.random.Generator) -> Program:
    data, weights, bias = floats(rng, n, features), floats(rng, outputs, features), floats(rng, outputs)
    out = blank((n, outputs))
    args = (np.int32(features), np.int32(outputs), data, weights, bias, out)
    launch = Launch("fully_connected", (blocks(outputs, 4), n), 128, args)
    expected = _exact(reference.fully_connected, data, weights, bias)
    return Program((launch,), ((out, close(expected, 1e-5, 1e-5)),))


def softmax(rows: int, cols: int, rng: np.random.Generator) -> Program:
    scores = 4 * floats(rng, rows, cols)
    launch = Launch("softmax", blocks(rows, 4), 128, (np.int32(rows), np.int32(cols), scores))
    return Program((launch,), ((scores, close(_exact(reference.softmax, scores), 1e-5, 1e-9)),))
