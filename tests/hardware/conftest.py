"""The hardware kit, written once for all tests of a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import shared_folder

#: ``GPUPERF_KIT=all`` writes the kit whole, which takes minutes; else launches are recorded from these tests, one of each kind
ALL = os.environ.get("GPUPERF_KIT") == "all"
SOME = (
    "isa/test_tensor_copies.py::test_an_axis_may_have_no_stride",
    "isa/test_tensor_copies.py::test_im2col",
    "isa/test_warpgroup.py::test_signs_and_scale",
    "isa/test_sparse_matrices.py::test_what_is_not_stored_is_not_multiplied",
    "isa/test_mbarrier.py::test_other_block_of_the_cluster",
    "isa/test_matrices.py::test_movmatrix_transposes",
)


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make hardware-kit`` writes; workers of pytest-xdist share it."""
    from tests.hardware import kit, recorded

    with shared_folder(tmp_path_factory, "hardware-kit") as folder:
        if not (folder / "kit.json").is_file():
            assert kit.write(folder, recorded.FILES if ALL else SOME) == []
        return folder
