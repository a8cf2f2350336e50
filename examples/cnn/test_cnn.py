"""A convolutional network as one program of 22 launches; every layer is checked against NumPy."""

import numpy as np
import pytest

from examples.cnn.layers import small_network


@pytest.mark.gpuperf(targets=["h100-sxm"])
def test_network(gpuperf):
    network = small_network(batch=1)
    files = {layer.entry: f"{layer.file}.ptx" for layer in network.layers}
    kernels = {entry: gpuperf.kernel(file, entry=entry) for entry, file in files.items()}
    values = dict(network.tensors)
    tensors = {name: gpuperf.array(value, name=name) for name, value in values.items()}

    for layer in network.layers:
        if layer.out not in tensors:
            tensors[layer.out] = gpuperf.empty(layer.shape, np.float32, name=layer.out)
        args = [tensors[arg] if isinstance(arg, str) else arg for arg in layer.args]
        kernels[layer.entry][layer.grid, layer.block](*args)

        expected = layer.expected(*(values[name].astype(np.float64) for name in layer.inputs))
        values[layer.out] = tensors[layer.out].numpy()
        np.testing.assert_allclose(values[layer.out], expected, rtol=1e-4, atol=1e-4, err_msg=layer.name)

    np.testing.assert_allclose(values[network.layers[-1].out].sum(axis=1), 1, rtol=1e-6)
