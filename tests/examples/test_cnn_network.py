"""The convolutional network by its control slice alone: the counts of the whole program for a small part of the work."""

from __future__ import annotations

import csv

import pytest
from cnn.layers import small_network
from cnn.network import main, profiles

from tests.examples import closed_forms

SLICE, EXECUTED, NETWORK = 0.10, 0.01, 22


@pytest.fixture(scope="module")
def counted():
    """The profiles of all layers under ``control``."""
    return profiles(small_network(), "control")


def test_every_count_is_that_of_the_whole_program(counted):
    for one, whole in zip(counted, profiles(small_network(), "values"), strict=True):
        assert (one.demand, whole.demand) == ("control", "values")
        assert one.branch_sites == whole.branch_sites
        assert one.blocks == whole.blocks
        assert one.opcodes == whole.opcodes and one.warp_opcodes == whole.warp_opcodes


def test_the_slice_is_a_small_part(counted):
    every = sum(profile.thread_instructions for profile in counted)
    sliced = sum(profile.slice_share * profile.thread_instructions for profile in counted)
    ran = sum(profile.share_executed * profile.thread_instructions for profile in counted)
    assert 0 < ran <= sliced <= SLICE * every
    assert all(profile.share_executed <= profile.slice_share < 1 for profile in counted)


def test_blocks_that_behave_alike_run_once():
    """64 images of 224 × 224, 10¹¹ instructions: as many as the formulas say."""
    network = small_network(batch=64, side=224)
    found = dict(zip((layer.name for layer in network.layers), profiles(network), strict=True))
    every = sum(profile.thread_instructions for profile in found.values())
    executed = sum(profile.share_executed * profile.thread_instructions for profile in found.values())
    assert executed <= EXECUTED * every
    assert (
        sum(profile.slice_share * profile.thread_instructions for profile in found.values()) <= SLICE * every
    )

    pixels = 64 * 224**2
    formulas = {
        "stem.relu6": closed_forms.relu6(32 * pixels, 256),
        "pointwise1": closed_forms.convolution_1x1(32, pixels, 64),
        "pointwise2": closed_forms.convolution_1x1(64, pixels // 4, 128),
    }
    for name, formula in formulas.items():
        assert found[name].thread_instructions == formula.thread_instructions
        assert found[name].warp_instructions == formula.warp_instructions
        assert found[name].branches.executed == formula.branches_executed
        assert {opcode: found[name].opcodes[opcode] for opcode in formula.opcodes} == formula.opcodes
    # multiply-adds of a convolution: those of all pixels, filters and weights, with whole tiles of 16 weights and 64 filters
    assert found["stem"].opcodes["fma.rn.f32"] == pixels * 64 * 32
    assert found["wide"].opcodes["fma.rn.f32"] == pixels // 16 * 128 * 128 * 9
    assert found["depthwise1"].opcodes["fma.rn.f32"] == pixels * 32 * 9


def test_the_script_writes_a_row_per_layer(tmp_path, capsys):
    main(["--batch", "1", "-o", str(tmp_path / "network.csv")])
    with open(tmp_path / "network.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == NETWORK
    assert [row["layer"] for row in rows] == [layer.name for layer in small_network(1).layers]
    assert rows[-1]["kernel"] == "softmax" and rows[-1]["file"] == "classifier.ptx"
    stem = rows[0]
    assert (stem["kernel"], stem["ctas"], stem["threads"]) == ("convolution_3x3", "16", "4096")
    assert float(stem["branch_efficiency"]) == 100 and int(stem["divergent_branches"]) == 0
    assert capsys.readouterr().out == ""
    main(["--batch", "1"])
    assert len(capsys.readouterr().out.splitlines()) == NETWORK + 1
