"""What ptxas makes of the micro kernels: what is measured stands between the two readings of the clock as often as it is counted."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuperf_engine.timing.calibration.calibrate import LATENCY_CASES, RATE_CASES
from tests.hardware import collect, micro

#: kernel → machine instruction of each operation. Not here are sequences of many instructions, and FP8 ``mma.sync``, which sm_90
#: does not have
MACHINE = {
    **{f"{kind}_{name}": opcode for kind in ("latency", "rate") for name, opcode in {
        "add_s32": "IMAD.IADD|IADD3|VIADD", "mad_lo_s32": "IMAD", "mul_hi_u32": "IMAD.HI", "lop3": "LOP3", "shf": "SHF",
        "prmt": "PRMT", "popc": "POPC", "clz": "FLO", "min_s32": "VIMNMX|IMNMX", "dp4a": "IDP", "add_f32": "FADD",
        "mul_f32": "FMUL", "fma_rn_f32": "FFMA", "add_f64": "DADD", "fma_rn_f64": "DFMA", "fma_rn_f16x2": "HFMA2",
        "fma_rn_bf16x2": "HFMA2", "ex2_approx_f32": "MUFU.EX2", "lg2_approx_f32": "MUFU.LG2", "sin_approx_f32": "MUFU.SIN",
        "rsqrt_approx_f32": "MUFU.RSQ", "rcp_approx_f32": "MUFU.RCP", "mad_lo_s64": "IMAD.WIDE", "cvt_f32_s32": "F2I",
        "cvt_f64_f32": "F2F.F64", "setp_selp": "SEL", "shfl_idx": "SHFL", "vote_ballot": "VOTE", "match_any": "MATCH",
        "redux_add": "REDUX", "mma_m16n8k8_f32_f16": "HMMA", "mma_m16n8k16_f32_f16": "HMMA", "mma_m16n8k16_f16_f16": "HMMA",
        "mma_m16n8k16_f32_bf16": "HMMA", "mma_m16n8k8_f32_tf32": "HMMA", "mma_m16n8k32_s32_s8": "IMMA", "mma_m8n8k4_f64": "DMMA",
    }.items()},
    "rate_fma_three": "FFMA", "rate_issue": "FFMA|LOP3", "busy_warps": "FFMA", "chase_ca": "LDG", "chase_cg": "LDG",
    "chase_shared": "LDS", "chase_cluster_away": "LD", "chase_cluster_here": "LD", "shared_load": "LDS", "shared_load_v2": "LDS.64",
    "shared_load_v4": "LDS.128", "global_load_ca": "LDG", "global_load_cg": "LDG", "barrier": "BAR.SYNC",
    "barrier_cluster": "UCGABAR_WAIT", "copy_async": "LDGSTS", "copy_async_4": "LDGSTS", "mbarrier_pass": "SYNCS.ARRIVE",
    **{f"atomic_{space}_{how}": f"ATOM{letter}" for space, letter in (("global", "G"), ("shared", "S"))
       for how in ("same", "lanes", "warps")},
    **{f"bulk_copy_{name}": "UBLKCP" for name in ("1024", "4096", "8192", "32768", "8x1024", "8x4096")},
    **{f"box_copy_{name}": "UTMALDG" for name in ("8x32", "32x32", "64x64", "8x32x32")},
    **{f"wgmma_{name}_{count}": "[HIQ]GMMA" for name in micro.WARPGROUP for count in (1, 4, 16)},
}  # fmt: skip
#: those that have no operation of their own that is counted, or that count another way
OTHERS = {
    "empty",
    "nothing",
    "mbarrier_wake",
    *(f"{kind}_dram" for kind in ("read", "write", "copy")),
    "read_l1",
    "read_l2",
}
SEQUENCES = re.compile(r"(latency|rate)_(div|rem|rcp_rn|sqrt_rn|fma_f32x2|mma_m16n8k32_f32_e4m3)")
_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
_BRANCH = re.compile(r"BRA\b")
#: the name of a kernel, and its machine code up to the next section
_SECTION = re.compile(r"^\.text\.(\w+):\n(.*?)(?=^\t\.section|\Z)", re.MULTILINE | re.DOTALL)


def test_every_micro_kernel_is_looked_at() -> None:
    kernels = {facts["entry"] for facts in micro.kernels()[1].values()}
    assert {name for name in kernels if not SEQUENCES.match(name)} - OTHERS <= set(MACHINE)


@pytest.mark.skipif(
    not (shutil.which("ptxas") and shutil.which("nvdisasm")), reason="ptxas and nvdisasm are not here"
)
def test_machine_code_holds_what_is_measured(kit: Path, tmp_path: Path) -> None:
    _, launches = micro.kernels()
    operations = {facts["entry"]: facts["operations"] for facts in launches.values()}
    calibrating = {*LATENCY_CASES.values(), *RATE_CASES.values()}
    chains = {name for name in MACHINE if name.startswith(("latency_", "rate_"))}
    sources: dict[str, list[Path]] = {"sm_90": [], "sm_90a": []}
    for name in sorted(name for name in MACHINE if name in operations and name not in chains - calibrating):
        source = kit / f"ptx/micro/{name}.ptx"
        written = collect.written_target(source.read_text(encoding="utf-8"))
        sources["sm_90a" if written[-1] == "a" else "sm_90"].append(source)

    def wrong(name: str, listing: str) -> str:
        lines = _LINE.findall(listing)
        clocks = [place for place, (_, rest) in enumerate(lines) if "SR_CLOCK" in rest]
        body = lines[clocks[0] + 1 : clocks[-1]]
        found = sum(bool(re.match(f"({MACHINE[name]})", opcode)) for opcode, _ in body)
        loops = sum(bool(_BRANCH.match(opcode)) for opcode, _ in body)
        wanted = operations[name] // micro.LOOPS
        near = range(wanted, wanted + 4)  # the turn of the loop may count with the same instruction
        return (
            ""
            if len(clocks) == 2 and loops and found in near
            else f"{name}: {found} of {wanted}, {loops} branches"
        )

    said = []
    for target, paths in sources.items():
        # in one file, as the start of nvdisasm alone takes half a second; ptxas compiles each source by itself all the same
        cubin = tmp_path / f"{target}.cubin"
        subprocess.run(["ptxas", f"-arch={target}", *paths, "-o", cubin], check=True)
        done = subprocess.run(["nvdisasm", "-c", cubin], check=True, capture_output=True, text=True)
        listings = dict(_SECTION.findall(done.stdout))
        assert set(listings) == {path.stem for path in paths}
        said += [wrong(name, listing) for name, listing in listings.items()]
    assert [text for text in said if text] == []
