"""How long matrix products take: the file is sound, and what ptxas makes of each row takes as long as the row."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from gpuperf_engine.errors import MachineError, PtxError
from gpuperf_engine.isa.table import Form, OperandSlot, check_available, rows
from gpuperf_engine.machines.machine import load_machine, machine_ids
from gpuperf_engine.machines.products import FACTORS, cost_of, load_products, product_of, rate_of
from gpuperf_engine.sass.listing import read_listing
from gpuperf_engine.sass.products import machine_cost, machine_product, product_registers
from tests.isa.assembler import forms, ptxas_version

#: Letters of registers, by type; all others by their bits.
_REGISTERS = {"f32": ("f", "f32"), "f64": ("d", "f64")}
_BITS = {16: ("h", "b16"), 32: ("r", "b32")}
#: Halves in fragments of Volta, which ptxas multiplies in single precision from 8.0 on.
_VOLTA = re.compile(r"mma\.sync\.aligned\.m8n8k4\.\w+\.\w+\.f(16|32)\.")


def kernel(number: int, form: Form) -> str:
    """A kernel that loads the factors of a product and stores its results."""
    used: Counter[str] = Counter()
    loads, stores, operands = list[str](), list[str](), list[str]()

    def registers(slot: OperandSlot) -> str:
        assert slot.type is not None
        letter, type = _REGISTERS.get(slot.type.name) or _BITS[slot.type.bits]
        names = []
        for _ in range(slot.vector):
            names.append(f"%{letter}{used[letter]}")
            used[letter] += 1
            offset = 4096 * used.total()
            if slot.role == "destination":
                stores.append(f"st.global.{type} [%p+{offset}], {names[-1]};")
            else:
                loads.append(f"ld.global.{type} {names[-1]}, [%p+{offset}];")
        return f"{{{', '.join(names)}}}" if slot.vector > 1 or slot.braces else names[0]

    operands = ["0" if slot.constant else registers(slot) for slot in form.operands]
    kinds = {letter: type for letter, type in (*_REGISTERS.values(), *_BITS.values())}
    declared = " ".join(f".reg .{kinds[letter]} %{letter}<{count}>;" for letter, count in used.items())
    return "\n".join(
        [
            f".visible .entry k{number}(.param .u64 p) {{ {declared} .reg .b64 %p, %o; .reg .b32 %t;",
            "ld.param.u64 %p, [p]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 8; add.u64 %p, %p, %o;",
            *loads, f"{form.opcode} {', '.join(operands)};", *stores, "ret; }\n",
        ]
    )  # fmt: skip


def on(target: str) -> list[Form]:
    """The products that a target has, of the newest PTX that ptxas reads."""
    found = []
    for row in rows():
        for form in forms(row) if row.name in ("mma", "wmma") and row.unit == "tensor" else ():
            if product_of(form.opcode) is not None:
                try:
                    check_available(
                        form, ptxas_version(), int(target.rstrip("af")), target.lstrip("0123456789")
                    )
                except PtxError:
                    continue
                found.append(form)
    return found


def widths(form: Form) -> tuple[int, ...]:
    """Registers of a, b, c and d."""
    d, *sources = (slot.vector * (slot.type.bits // 32 if slot.type else 0) for slot in form.operands[:4])
    return *sources, d


@pytest.mark.skipif(
    shutil.which("ptxas") is None or shutil.which("nvdisasm") is None, reason="no ptxas or nvdisasm"
)
@pytest.mark.parametrize("target", ["75", "80", "86", "89", "90", "100", "103", "120a"])
def test_machine_products_take_as_long_as_the_row(target: str, tmp_path: Path) -> None:
    known, architecture = on(target), int(target.rstrip("a"))
    version = ".".join(map(str, ptxas_version()))
    text = f".version {version}\n.target sm_{target}\n.address_size 64\n"
    (tmp_path / "k.ptx").write_text(text + "".join(kernel(*item) for item in enumerate(known)))
    command = ["ptxas", "-w", f"-arch=sm_{target}", "k.ptx", "-o", "k.cubin"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    shown = subprocess.run(
        ["nvdisasm", "-hex", "-c", "k.cubin"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    code = defaultdict(list)
    for item in read_listing(shown.stdout).instructions:
        code[item.section.removeprefix(".text.")].append(item)
    assert len(code) == len(known) > 20
    for number, form in enumerate(known):
        product, found = product_of(form.opcode), Counter[str]()
        assert product is not None
        for item in code[f"k{number}"]:
            if (one := machine_cost(item.opcode, architecture)) is not None:
                found[one.unit] += one.instructions
            elif architecture > 75 and _VOLTA.match(form.opcode) and item.base in ("FFMA", "FMUL"):
                found["fma"] += 1
        cost = cost_of(product, divmod(architecture, 10))
        assert found == {cost.unit: cost.instructions}, form.opcode
        alone = [item.opcode for item in code[f"k{number}"] if machine_product(item.opcode)]
        if form.row.name == "mma" and len(alone) == 1:
            made = machine_product(alone[0])
            assert made is not None
            if made.results == product.results:
                assert product_registers(alone[0]) == widths(form), form.opcode


def test_every_type_has_a_rate_on_every_machine() -> None:
    for name in machine_ids():
        for type in FACTORS:
            unit, done = rate_of(type, load_machine(name).compute_capability)
            assert unit in ("tensor", "fp64") and done >= 32


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{types: [f17], rate: 1, source: S}", "unknown type 'f17'"),
        ("{types: [f16], rate: 1, source: X}", "unknown source 'X'"),
        ("{types: [f16], rate: 1, source: assumed}", "an assumed rate without a note"),
        ("{types: [f16], source: S}", "expected one of rate, unit and as"),
        ("{types: [f16], rate: 1, as: f16, source: S}", "expected one of rate, unit and as"),
        ("{types: [f16], rate: 0, source: S}", "0 is too small"),
        ("{types: [f16], unit: fp65, source: S}", "unknown unit 'fp65'"),
        ("{types: [f16], as: f15, source: S}", "unknown type 'f15'"),
        ("{types: f16, rate: 1, source: S}", "expected a list"),
        ("{types: [f16], rate: 1, source: S, nite: x}", "unknown key 'nite'"),
    ],
)
def test_errors_name_the_position(tmp_path: Path, entry: str, message: str) -> None:
    path = tmp_path / "products.yaml"
    path.write_text(f"schema: 1\nsources: {{S: text}}\nproducts:\n  - {entry}\n")
    with pytest.raises(MachineError, match=message) as caught:
        load_products(path)
    assert "products.yaml:4:" in str(caught.value)
