"""What the layers compute, in NumPy alone and in the type of the data: pass float64 for a reference.

Tensors are in NCHW order. Padding is with zeros for convolutions and with -inf for the largest of a window.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def patches(images: Array, size: int, stride: int, padding: int, fill: float = 0.0) -> Array:
    """A view of every window: images (N, C, H, W) to (N, C, P, Q, size, size)."""
    border = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    padded = np.pad(images, border, constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
    return windows[:, :, ::stride, ::stride]


def convolution(images: Array, filters: Array, stride: int = 1, padding: int = 0) -> Array:
    """Images (N, C, H, W), filters (K, C, size, size) to (N, K, P, Q): im2col and one matrix product."""
    windows = patches(images, filters.shape[-1], stride, padding)
    n, _, p, q, *_ = windows.shape
    columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * p * q, -1)
    return (columns @ filters.reshape(len(filters), -1).T).reshape(n, p, q, -1).transpose(0, 3, 1, 2)


def depthwise(images: Array, filters: Array, stride: int = 1) -> Array:
    """Images (N, C, H, W), filters (C, 3, 3) to (N, C, P, Q); padding 1."""
    return np.einsum("ncpqrs,crs->ncpq", patches(images, 3, stride, 1), filters)


def batch_norm(
    images: Array, gamma: Array, beta: Array, mean: Array, variance: Array, epsilon: float
) -> Array:
    """Normalisation with given statistics, one of each per channel."""
    scale = gamma / np.sqrt(variance + epsilon)
    return images * scale[:, None, None] + (beta - mean * scale)[:, None, None]


def relu6(values: Array) -> Array:
    return np.clip(values, 0, 6)


def silu(values: Array) -> Array:
    """x * sigmoid(x)."""
    return np.asarray(values / (1 + np.exp(-values)))


def max_pool(images: Array) -> Array:
    """The largest of 3 x 3, stride 2, padding 1."""
    return np.asarray(patches(images, 3, 2, 1, fill=-np.inf).max(axis=(4, 5)))


def average_pool(images: Array) -> Array:
    """The mean of every plane: (N, C, H, W) to (N, C)."""
    return np.asarray(images.mean(axis=(2, 3)))


def fully_connected(features: Array, weights: Array, bias: Array) -> Array:
    """Features (N, F), weights (O, F) to (N, O)."""
    return np.asarray(features @ weights.T + bias)


def softmax(scores: Array) -> Array:
    """Over the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
