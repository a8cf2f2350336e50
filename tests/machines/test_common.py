"""Numbers of hardware that no machine description has: in one file, with their sources."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpuperf_engine.machines.common import common
from gpuperf_engine.machines.machine import machine_ids

ENGINE = Path(__file__).parents[2] / "engine" / "gpuperf_engine"


def test_each_common_number_has_a_source_and_is_used() -> None:
    stored = yaml.safe_load((ENGINE / "machines" / "common.yaml").read_text(encoding="utf-8"))
    code = "".join(path.read_text(encoding="utf-8") for path in sorted(ENGINE.rglob("*.py")))
    for group, entries in stored.items():
        for key, entry in entries.items():
            name = f"{group}.{key}"
            assert common(name) == entry["value"]
            assert entry["unit"] and entry["source"] and (entry["source"] != "assumed" or entry["note"])
            assert f'common("{name}")' in code, name
    assert not {"common", "expansion", "products"} & set(machine_ids())


def test_an_unknown_common_number_is_an_error() -> None:
    with pytest.raises(KeyError):
        common("l2.kept")
