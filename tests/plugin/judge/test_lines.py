"""Edits of the example kernels: the line that is named is the one that was edited, not the one that is hottest."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from pytest_gpuperf.config.declared import CaseSettings
from pytest_gpuperf.core.metrics import ANALYSIS
from pytest_gpuperf.judge.judgement import judgement
from pytest_gpuperf.judge.lines import decode, encode, line_groups
from pytest_gpuperf.judge.listing import Listing, add_lines
from pytest_gpuperf.judge.measure import measure
from pytest_gpuperf.judge.prediction import Prediction
from pytest_gpuperf.sources.base import PtxSource
from pytest_gpuperf.sources.paths import SourcePaths

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
POLICY = {"on_improvement": "fail", "on_unmodelled": "fail"}
RULES = CaseSettings(targets=(), skipped_targets=(), limits={}, tolerances=())


def saxpy(device: ge.Device, kernel: Any) -> ge.Profile:
    n = 1000
    arrays = [device.array(np.arange(n, dtype=np.float32)), device.zeros(8 * n, np.float32)]
    return device.launch(kernel, 4, 256, [n, 2.0, *arrays])


def histogram(device: ge.Device, kernel: Any) -> ge.Profile:
    data = device.array((np.arange(4000) % 7).astype(np.uint8))
    return device.launch(kernel, 4, 128, [4000, data, device.zeros(256, np.uint32)])


def transpose(device: ge.Device, kernel: Any) -> ge.Profile:
    data = device.array(np.arange(4096, dtype=np.float32))
    return device.launch(kernel, (2, 2), (32, 8), [64, 64, data, device.zeros(4096, np.float32)])


def spmv(device: ge.Device, kernel: Any) -> ge.Profile:
    rows = 96
    lengths = np.arange(rows) % 5 + 1
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = (np.arange(offsets[-1]) * 7 % rows).astype(np.int32)
    values = np.ones(offsets[-1], np.float32)
    arrays = [
        device.array(a)
        for a in (offsets, columns, values, np.ones(rows, np.float32), np.zeros(rows, np.float32))
    ]
    return device.launch(kernel, 1, 128, [rows, *arrays])


@dataclass(frozen=True)
class Edit:
    """An edit of a kernel: in ``entry`` of ``file`` the text ``old`` becomes ``new``. The line of PTX that must be named for
    ``metric`` is the one that holds ``named``, its source line ``source``."""

    file: str
    entry: str
    launch: Callable[[ge.Device, Any], ge.Profile]
    old: str
    new: str
    metric: str
    named: str
    source: int

    def parts(self) -> tuple[str, str, str]:
        """The text before the kernel, the kernel, the text after it."""
        text = (EXAMPLES / self.file).read_text(encoding="utf-8")
        start = text.index(f".visible .entry {self.entry}(")
        end = text.index("\n}\n", start) + 3
        return text[:start], text[start:end], text[end:]


EDITS = {
    "an instruction in a cold line": Edit(
        "kernels/histogram.ptx",
        "histogram_shared",
        histogram,
        "mul.wide.s32 \t%rd7, %r30, 4;",
        "mul.wide.s32 \t%rd7, %r30, 4;\n\tadd.s32 \t%r11, %r11, 0;",
        "thread_instructions",
        "%r11, %r11, 0;",
        26,
    ),
    "a branch that diverges": Edit(
        "kernels/saxpy.ptx",
        "saxpy",
        saxpy,
        "\tadd.s64 \t%rd7, %rd3, %rd5;",
        "\tadd.s64 \t%rd7, %rd3, %rd5;\n\tsetp.lt.f32 \t%p1, %f2, 0f41200000;\n\t@%p1 bra \t$L_small;\n\tmov.u32 \t%r3, 7;\n$L_small:",
        "branches.divergent",
        "$L_small;",
        8,
    ),
    "a store that is not coalesced": Edit(
        "kernels/saxpy.ptx",
        "saxpy",
        saxpy,
        "\tst.global.f32 \t[%rd7], %f4;",
        "\tshl.b64 \t%rd5, %rd5, 3;\n\tadd.s64 \t%rd7, %rd3, %rd5;\n\tst.global.f32 \t[%rd7], %f4;",
        "memory.global_store_sectors",
        "st.global.f32",
        8,
    ),
    "a load twice in a loop": Edit(
        "kernels/spmv.ptx",
        "spmv_scalar",
        spmv,
        "ld.global.nc.f32 \t%f13, [%rd41];",
        "ld.global.nc.f32 \t%f13, [%rd41];\n\tld.global.nc.f32 \t%f12, [%rd27+0];",
        "memory.global_load_sectors",
        "%rd27+0]",
        15,
    ),
    "a register that is spilled": Edit(
        "kernels/saxpy.ptx",
        "saxpy",
        saxpy,
        "\tadd.s64 \t%rd7, %rd3, %rd5;",
        "\tadd.s64 \t%rd7, %rd3, %rd5;\n\t{ .local .align 4 .b8 spill[4];\n\tst.local.f32 \t[spill], %f2;\n\t}",
        "memory.local_bytes",
        "[spill], ",
        8,
    ),
    "one more multiplication": Edit(
        "kernels/saxpy.ptx",
        "saxpy",
        saxpy,
        "\tst.global.f32 \t[%rd7], %f4;",
        "\tmul.f32 \t%f3, %f4, %f4;\n\tst.global.f32 \t[%rd7], %f4;",
        "flops.sp",
        "mul.f32",
        8,
    ),
    "one more conversion": Edit(
        "kernels/histogram.ptx",
        "histogram_shared",
        histogram,
        "mul.wide.s32 \t%rd7, %r30, 4;",
        "mul.wide.s32 \t%rd7, %r30, 4;\n\tcvt.s64.s32 \t%rd7, %r30;\n\tmul.wide.s32 \t%rd7, %r30, 4;",
        "counts.by_category.bit_convert",
        "%rd7, %r30;",
        26,
    ),
    "an atomic twice": Edit(
        "kernels/histogram.ptx",
        "histogram_global",
        histogram,
        "atom.global.add.u32 \t%r12, [%rd8], 1;",
        "atom.global.add.u32 \t%r12, [%rd8], 1;\n\tatom.global.add.u32 \t%r12, [%rd8], 0;",
        "memory.global_atomic_serializations",
        "[%rd8], 0;",
        9,
    ),
}


def renumbered(text: str) -> str:
    """The registers as another run of the compiler may number them: all of them shifted by seven."""
    text = re.sub(r"(%(?:p|f|r|rs|rd))(\d+)\b", lambda m: f"{m[1]}{int(m[2]) + 7}", text)
    return re.sub(r"(%(?:p|f|r|rs|rd))<(\d+)>", lambda m: f"{m[1]}<{int(m[2]) + 7}>", text)


def variant(edit: Edit, text: str, *, located: bool, shifted: bool) -> str:
    """The whole PTX with ``text`` as its kernel; without ``.loc``; ``shifted`` by lines above, registers renumbered."""
    before, _, after = edit.parts()
    if shifted:
        text = renumbered(text)
        before += "// one more line\n" * 40
    whole = before + text + after
    if shifted and located:
        whole = re.sub(r"(\.loc\s+1 )(\d+)", lambda m: f"{m[1]}{int(m[2]) + 3}", whole)
        whole = re.sub(r"(inlined_at 1 )(\d+)", lambda m: f"{m[1]}{int(m[2]) + 3}", whole)
    return whole if located else re.sub(r"^\t\.loc.*$", "", whole, flags=re.MULTILINE)


def case(
    root: Path, edit: Edit, text: str, entry: str = ""
) -> tuple[dict[str, Any], dict[str, Any], Listing]:
    """What is measured of a kernel: what a baseline holds, what a report shows beside it, and the text."""
    kernel = ge.parse(text, path="k/kernel.ptx")[entry or edit.entry]
    device = ge.Device(observe={"memory"})
    paths = SourcePaths([root / "k"], root)
    record = SimpleNamespace(
        launches=[SimpleNamespace(profile=edit.launch(device, kernel))],
        settings=RULES,
        digest="",
        inputs="",
        values="",
        source=PtxSource(text, "k/kernel.ptx"),
        module=kernel.module,
    )
    measured = measure(record, [], root, paths, Prediction({}))
    listing = add_lines(measured, kernel, record.source, paths)
    return measured.entry, measured.detail, listing


def judged(new: tuple[dict[str, Any], dict[str, Any], Listing], old: dict[str, Any]) -> dict[str, Any]:
    entry, detail, listing = new
    return judgement(
        entry,
        old,
        analysis=ANALYSIS,
        stored_analysis=ANALYSIS,
        failures={},
        policy=POLICY,
        case=RULES,
        unexplained=False,
        detail=detail,
        listing=listing,
    )


def write_source(root: Path, edit: Edit, *, shifted: bool) -> str:
    source = (EXAMPLES / edit.file).with_suffix(".cu")
    (root / "k").mkdir(exist_ok=True)
    text = source.read_text(encoding="utf-8")
    (root / "k" / source.name).write_text("// license\n" * (3 * shifted) + text, encoding="utf-8")
    return source.name


@pytest.mark.parametrize("shifted", [False, True], ids=["in place", "shifted"])
@pytest.mark.parametrize("located", [True, False], ids=["with .loc", "without .loc"])
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_the_line_that_was_edited_is_named(tmp_path: Path, edit: Edit, located: bool, shifted: bool) -> None:
    _, kernel, _ = edit.parts()
    assert kernel.count(edit.old) == 1
    name = write_source(tmp_path, edit, shifted=False)
    old, *_ = case(tmp_path, edit, variant(edit, kernel, located=located, shifted=False))
    edited = variant(edit, kernel.replace(edit.old, edit.new), located=located, shifted=shifted)
    write_source(tmp_path, edit, shifted=shifted)
    found = judged(case(tmp_path, edit, edited), old)
    named = renumbered(edit.named) if shifted else edit.named
    begin = edited.index(f".visible .entry {edit.entry}(")
    line = edited[: edited.index(named, begin)].count("\n") + 1
    (row,) = (row for row in found["rows"] if row["metric"] == edit.metric)
    assert row["verdict"] == ("regressed" if row["better"] == "lower" else "changed")
    assert re.match(rf"k/kernel\.ptx:{line}(?: |$)", row["where"]), row
    if located:
        place = f"k/{name}:{edit.source + 3 * shifted}"
        inlined = f":112 in atomicAdd, inlined at {place})" if "atom" in edit.old else f"({place})"
        assert row["where"].endswith(inlined), row
        path, _, number = place.rpartition(":")
        assert found["look_at"][0] == {"path": path, "line": int(number)}
    if row["fails"]:
        assert any(f"k/kernel.ptx:{line}" in sentence for sentence in found["because"]), found["because"]


@pytest.mark.parametrize("located", [True, False], ids=["with .loc", "without .loc"])
def test_a_lost_padding_is_blamed_on_the_load_that_conflicts(tmp_path: Path, located: bool) -> None:
    """The two kernels of the example differ by the padding alone; the store into the tile is as fast as it was."""
    edit = Edit("kernels/transpose.ptx", "transpose_padded", transpose, "", "", "", "", 0)
    write_source(tmp_path, edit, shifted=False)
    text = (EXAMPLES / edit.file).read_text(encoding="utf-8")
    if not located:
        text = re.sub(r"^\t\.loc.*$", "", text, flags=re.MULTILINE)
    old, *_ = case(tmp_path, edit, text)
    new = case(tmp_path, edit, text, entry="transpose_conflicts")
    found = judged(new, old)
    (row,) = (row for row in found["rows"] if row["metric"] == "memory.shared_conflicts")
    assert row["new"] == 4 * 8 * 4 * 31  # tiles, warps, loads of each, 31 passes too many
    assert found["position"] == row["where"]
    line = int(re.match(r"k/kernel\.ptx:(\d+)", row["where"])[1])
    assert "ld.shared.f32" in text.split("\n")[line - 1]
    if located:
        assert "(k/transpose.cu:25" in row["where"]
        assert found["look_at"][0] == {"path": "k/transpose.cu", "line": 25}


def test_a_baseline_without_lines_says_that_it_guesses(tmp_path: Path) -> None:
    edit = EDITS["a store that is not coalesced"]
    _, kernel, _ = edit.parts()
    write_source(tmp_path, edit, shifted=False)
    old, *_ = case(tmp_path, edit, variant(edit, kernel, located=True, shifted=False))
    del old["lines"]
    new = case(tmp_path, edit, variant(edit, kernel.replace(edit.old, edit.new), located=True, shifted=False))
    found = judged(new, old)
    assert found["position"].startswith("hottest line: k/kernel.ptx:")
    assert any("guess" in sentence for sentence in found["because"])
    assert not any("where" in row for row in found["rows"])


def test_the_opcode_of_an_untouched_hotter_line_does_not_draw_the_blame(tmp_path: Path) -> None:
    """The same opcode runs far more often in the loop over the data, which was not edited."""
    edit = EDITS["an instruction in a cold line"]
    _, kernel, _ = edit.parts()
    write_source(tmp_path, edit, shifted=False)
    old, *_ = case(tmp_path, edit, variant(edit, kernel, located=True, shifted=False))
    new = case(tmp_path, edit, variant(edit, kernel.replace(edit.old, edit.new), located=True, shifted=False))
    found = judged(new, old)
    assert old["counts"]["opcodes"]["add.s32"] > 4000
    assert "(k/histogram.cu:26)" in found["position"]
    assert found["because"][0].endswith(f"add.s32 at {found['position']}")


def test_more_work_of_the_same_kernel_is_where_it_is_done(tmp_path: Path) -> None:
    """Nothing was edited, but there is twice the data: the loop over it grew, and not the loops over the bins."""
    edit = EDITS["an instruction in a cold line"]
    _, kernel, _ = edit.parts()
    write_source(tmp_path, edit, shifted=False)
    text = variant(edit, kernel, located=True, shifted=False)
    old, *_ = case(tmp_path, edit, text)

    def twice(device: ge.Device, kernel: Any) -> ge.Profile:
        data = device.array((np.arange(8000) % 7).astype(np.uint8))
        return device.launch(kernel, 4, 128, [8000, data, device.zeros(256, np.uint32)])

    found = judged(case(tmp_path, replace(edit, launch=twice), text), old)
    (row,) = (row for row in found["rows"] if row["metric"] == "memory.global_load_sectors")
    line = int(re.match(r"k/kernel\.ptx:(\d+) ", row["where"])[1])
    assert "ld.global.nc.u8" in text.split("\n")[line - 1] and "(k/histogram.cu:21)" in row["where"]


def test_what_a_baseline_keeps_reads_back(tmp_path: Path) -> None:
    edit = EDITS["an atomic twice"]
    for name in ("histogram_global", "histogram_shared"):
        _, kernel, _ = edit.parts()
        write_source(tmp_path, edit, shifted=False)
        entry, detail, listing = case(
            tmp_path, edit, variant(edit, kernel, located=True, shifted=False), entry=name
        )
        groups = line_groups(detail, listing.text, listing.source)
        again = decode(entry["lines"])
        assert again is not None and encode(again) == entry["lines"] == encode(groups)
        assert [[line.counts for line in group.lines] for group in again] == [
            [line.counts for line in group.lines] for group in groups
        ]
        total = sum(line.counts["threads"] for group in again for line in group.lines)
        assert total == entry["counts"]["thread_instructions"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no bars",
        "a | threads=1 | A",
        "a | threads=1*99999999 | AA*9999999.",
        "a | threads=x | AA",
        "a | threads=1 load=1@5 | AA",
        "a | threads=1 load=1@0-99999 | AA",
        "a | load=1@0 | AA",
        "a | threads=1,1 | AA",
    ],
)
def test_damaged_lines_are_as_none(text: str) -> None:
    assert decode([text]) is None


def test_a_file_that_was_renamed_is_the_same_source(tmp_path: Path) -> None:
    edit = EDITS["an instruction in a cold line"]
    _, kernel, _ = edit.parts()
    write_source(tmp_path, edit, shifted=False)
    old, *_ = case(tmp_path, edit, variant(edit, kernel, located=True, shifted=False))
    (tmp_path / "k" / "histogram.cu").rename(tmp_path / "k" / "bins.cu")
    text = variant(edit, kernel.replace(edit.old, edit.new), located=True, shifted=False)
    found = judged(case(tmp_path, edit, text.replace('"histogram.cu"', '"bins.cu"')), old)
    assert "(k/bins.cu:26)" in found["position"]


def test_less_of_a_metric_is_where_it_was_saved(tmp_path: Path) -> None:
    """The padding is put in; and an instruction is taken out, of which only the text of its source line is left."""
    edit = Edit("kernels/transpose.ptx", "transpose_conflicts", transpose, "", "", "", "", 0)
    write_source(tmp_path, edit, shifted=False)
    text = (EXAMPLES / edit.file).read_text(encoding="utf-8")
    old, *_ = case(tmp_path, edit, text)
    found = judged(case(tmp_path, edit, text, entry="transpose_padded"), old)
    (row,) = (row for row in found["rows"] if row["metric"] == "memory.shared_conflicts")
    assert row["verdict"] == "improved" and "(k/transpose.cu:25" in row["where"]
    edit = EDITS["an instruction in a cold line"]
    _, kernel, _ = edit.parts()
    write_source(tmp_path, edit, shifted=False)
    old, *_ = case(
        tmp_path, edit, variant(edit, kernel.replace(edit.old, edit.new), located=True, shifted=False)
    )
    found = judged(case(tmp_path, edit, variant(edit, kernel, located=True, shifted=False)), old)
    (row,) = (row for row in found["rows"] if row["metric"] == "thread_instructions")
    assert row["verdict"] == "improved"
    assert row["where"] == "k/kernel.ptx (gone: histogram.cu: atomicAdd(&bins[bin], local_bins[bin]);)"
