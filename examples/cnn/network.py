"""Counts every layer of the network without computing it, and writes a row for each: the experiment of HyPA in small.

python -m examples.cnn.network -o network.csv
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np

import gpuperf_engine as ge

from .layers import Network, small_network

HERE = Path(__file__).resolve().parent


def profiles(network: Network, demand: str = "control") -> list[ge.Profile]:
    """Run the layers in order and count. With the demand ``control`` no layer is computed: only what decides where threads go."""
    needed = sum(4 * math.prod(layer.shape) for layer in network.layers)
    needed += sum(value.nbytes for value in network.tensors.values())
    device = ge.Device(observe=(), memory_bytes=needed + (1 << 24))
    tensors = {name: device.array(value, name=name) for name, value in network.tensors.items()}
    modules: dict[str, ge.Module] = {}
    found = []
    for layer in network.layers:
        if layer.file not in modules:
            path = HERE / f"{layer.file}.ptx"
            modules[layer.file] = ge.parse(path.read_text(encoding="utf-8"), path=path.name)
        if layer.out not in tensors:
            tensors[layer.out] = device.empty(layer.shape, np.float32, name=layer.out)
        args = [tensors[arg] if isinstance(arg, str) else arg for arg in layer.args]
        kernel = modules[layer.file][layer.entry]
        found.append(device.launch(kernel, layer.grid, layer.block, args, demand=demand))
    return found


def main(arguments: list[str]) -> None:
    """Write the table of ``gpuperf profile --format csv``, with the name of each layer and the share of its slice behind it."""
    parser = argparse.ArgumentParser(description="count the layers of a small convolutional network")
    parser.add_argument("--batch", type=int, default=2, help="images (default: 2)")
    parser.add_argument(
        "--side", type=int, default=32, help="their height and width, a multiple of 16 (default: 32)"
    )
    parser.add_argument("--demand", choices=("control", "addresses", "values"), default="control")
    parser.add_argument("-o", "--output", default="-", help="file to write (default: standard output)")
    given = parser.parse_args(arguments)
    network = small_network(given.batch, given.side)
    found = profiles(network, given.demand)
    further = {
        "layer": [layer.name for layer in network.layers],
        "slice_percent": [100 * profile.slice_share for profile in found],
    }
    table = ge.csv_text(found, further)
    if given.output == "-":
        sys.stdout.write(table)
    else:
        Path(given.output).write_text(table, encoding="utf-8", newline="")


if __name__ == "__main__":
    main(sys.argv[1:])
