"""The references of the network's layers, against their definitions element by element, and the network's shapes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from cnn import reference
from cnn.layers import small_network


def element(image, filters, stride, padding, row, col):
    """One pixel of a convolution of image (C, H, W) with a filter (C, size, size), by its definition."""
    total = 0.0
    channels, height, width = image.shape
    for c, r, s in product(range(channels), *map(range, filters.shape[1:])):
        y, x = row * stride - padding + r, col * stride - padding + s
        if 0 <= y < height and 0 <= x < width:
            total += image[c, y, x] * filters[c, r, s]
    return total


@pytest.mark.parametrize(("size", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (1, 1, 0), (3, 1, 0)])
def test_convolution(size, stride, padding):
    rng = np.random.default_rng(1)
    images, filters = rng.standard_normal((2, 3, 5, 6)), rng.standard_normal((4, 3, size, size))
    out = reference.convolution(images, filters, stride, padding)

    assert out.shape == (2, 4, (5 + 2 * padding - size) // stride + 1, (6 + 2 * padding - size) // stride + 1)
    for n, k, p, q in np.ndindex(out.shape):
        assert out[n, k, p, q] == pytest.approx(
            element(images[n], filters[k], stride, padding, p, q), abs=1e-12
        )


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise(stride):
    rng = np.random.default_rng(2)
    images, filters = rng.standard_normal((2, 3, 5, 6)), rng.standard_normal((3, 3, 3))
    out = reference.depthwise(images, filters, stride)

    assert out.shape == (2, 3, -(-5 // stride), -(-6 // stride))
    for n, c, p, q in np.ndindex(out.shape):
        one = element(images[n, c : c + 1], filters[c : c + 1], stride, 1, p, q)
        assert out[n, c, p, q] == pytest.approx(one, abs=1e-12)


def test_pooling_by_hand():
    image = np.array([[[[1, 5, 2], [0, 3, -1], [4, -7, -2], [-9, -8, -6]]]], np.float64)
    assert reference.max_pool(image).tolist() == [[[[5, 5], [4, 3]]]]
    assert reference.average_pool(image).tolist() == [[-1.5]]
    assert reference.max_pool(-np.ones((1, 1, 1, 1))).item() == -1  # what lies outside is not a zero


def test_activations_and_normalisation():
    x = np.array([-3.0, 0, 1, 6, 8])
    assert reference.relu6(x).tolist() == [0, 0, 1, 6, 6]
    np.testing.assert_allclose(reference.silu(x) - reference.silu(-x), x, atol=1e-14)  # x (s(x) + s(-x)) = x
    planes = np.random.default_rng(3).standard_normal((2, 3, 4, 5))
    mean, variance = planes.mean(axis=(0, 2, 3)), planes.var(axis=(0, 2, 3))
    normal = reference.batch_norm(planes, np.ones(3), np.full(3, 7.0), mean, variance, 0.0)
    np.testing.assert_allclose(normal.mean(axis=(0, 2, 3)), 7, rtol=1e-12)
    np.testing.assert_allclose(normal.var(axis=(0, 2, 3)), 1, rtol=1e-12)


def test_the_network_fits_together():
    network = small_network(batch=3)
    shapes = {name: value.shape for name, value in network.tensors.items()}
    for layer in network.layers:
        shapes.setdefault(layer.out, layer.shape)
        values = [np.ones(shapes[name]) for name in layer.inputs]
        assert layer.expected(*values).shape == layer.shape == shapes[layer.out]
        assert all(arg in shapes for arg in layer.args if isinstance(arg, str))
    assert len(network.layers) == 22
    assert layer.shape == (3, 10)
