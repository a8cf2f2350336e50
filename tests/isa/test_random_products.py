"""``mma`` on any bits, infinities and NaN among them: both backends and the interpreter, which has its own fragments and sums.

``GPUPERF_RANDOM_KERNELS=N`` runs N draws of a form and its operands (default 8; ``GPUPERF_RANDOM_FIRST`` is the first).
"""

from __future__ import annotations

import os
import random
from functools import cache

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.model import Form
from gpuperf_engine.isa.table import rows
from tests.isa.assembler import forms, target_of
from tests.isa.test_lanes_agree import pattern
from tests.oracle import scalar

MORE = int(os.environ.get("GPUPERF_RANDOM_KERNELS", "8"))
FIRST = int(os.environ.get("GPUPERF_RANDOM_FIRST", "0"))


def known(opcode: str) -> bool:
    """Dense products; those of m8n8k4 in half precision have fragments of their own, which the interpreter does not know."""
    return (
        opcode.startswith("mma.sync")
        and "block_scale" not in opcode
        and not (".m8n8k4." in opcode and "f16" in opcode)
    )


@cache
def products() -> tuple[Form, ...]:
    dense = (row for row in rows() if row.name == "mma" and "mma.sync" in row.syntax)
    return tuple(item for row in dense for item in forms(row, 60) if known(item.opcode))


def kernel(form: Form) -> tuple[str, list[object], int]:
    """The entry ``k``, which loads a row of registers for each lane; their types, and the number of results."""
    declared, written, loads, stores = [], [], [], []
    kinds: list[object] = []
    for place, slot in enumerate(form.operands):
        assert slot.type is not None
        kind = slot.type.name if slot.type.name in ("f32", "f64") else f"b{slot.type.bits}"
        names = [f"x{place}_{i}" for i in range(slot.vector)]
        declared.append(f".reg .{kind} {', '.join(names)};")
        written.append("{" + ", ".join(names) + "}")
        for name in names:
            if place == 0:
                stores.append(f"st.global.{kind} [to+{8 * len(stores)}], {name};")
            else:
                loads.append(f"ld.global.{kind} {name}, [from+{8 * len(loads)}];")
                kinds.append(slot.type)
    lines = [
        f".version 9.4\n.target {target_of(form.row)}\n.address_size 64",
        ".visible .entry k(.param .u64 a, .param .u64 b)\n{",
        *declared,
        ".reg .b64 from, to; .reg .b32 lane; mov.u32 lane, %tid.x; ld.param.u64 from, [a]; ld.param.u64 to, [b];",
        f"mad.wide.u32 from, lane, {8 * len(loads)}, from; mad.wide.u32 to, lane, {8 * len(stores)}, to;",
        *loads,
        f"{form.opcode} {', '.join(written)};",
        *stores,
        "ret;\n}\n",
    ]
    return "\n".join(lines), kinds, len(stores)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + MORE))
def test_products(seed: int) -> None:
    generator = random.Random(seed)
    form = generator.choice(products())
    text, kinds, results = kernel(form)
    # either anything in all bits, or numbers that do not run over in every sum
    given = [
        [pattern(kind, generator) & (-1 if seed % 2 else ~0x4000_4000) for kind in kinds] for _ in range(32)
    ]  # type: ignore[arg-type]
    data = np.array(given, np.uint64)
    blank = np.zeros((32, results), np.uint64)
    expected = scalar.run(text, "k", 1, 32, [scalar.Buffer(data), scalar.Buffer(blank)]).memory[1]
    for backend in ("reference", "llvm"):
        device = ge.Device(backend=backend, memory_bytes=1 << 20)
        out = device.array(blank)
        device.launch(ge.parse(text, path="k.ptx")["k"], 1, 32, [device.array(data), out])
        np.testing.assert_array_equal(out.numpy(), expected, err_msg=f"{backend}: {form.opcode}")
