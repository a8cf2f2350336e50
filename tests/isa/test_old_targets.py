"""Targets before sm_20: f32 is flushed without ``.ftz``, ``mad.f32`` has no rounding, ``map_f64_to_f32`` may stand there."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import launch

TEXT = """.version {version}
.target {target}
.address_size 64
.entry k(.param .u64 p) {{
.reg .u64 l; .reg .f32 f<9>; .reg .f64 d; .reg .u32 r<9>; .reg .pred p0;
ld.param.u64 l, [p]; ld.global.f32 f1, [l]; ld.global.f32 f2, [l+4]; ld.global.f32 f3, [l+8];
{body}
st.global.f32 [l+12], f4;
exit; }}
"""
TINY, ONE = np.float32(2.0**-130), np.float32(1 + 2.0**-12)


def run(version: str, target: str, body: str, *values: np.float32, backend: str) -> np.float32:
    text = TEXT.format(version=version, target=target, body=body)
    (data,), _ = launch(backend, text, 1, 1, [np.array([*values, 0, 0, 0, 0][:4], np.float32)])
    return np.float32(data[3])


def test_flushing(backend: str) -> None:
    for body, kept in (
        ("add.f32 f4, f1, f1;", 2 * TINY),
        ("mul.f32 f4, f1, f2;", TINY * ONE),
        ("abs.f32 f4, f1;", TINY),
        ("neg.f32 f4, f1;", -TINY),
        ("setp.gt.f32 p0, f1, f3; selp.f32 f4, 1.0, 0.0, p0;", np.float32(1)),
        ("max.f32 f4, f1, f3;", TINY),
        ("cvt.f64.f32 d, f1; mul.f64 d, d, 0d4810000000000000; cvt.rn.f32.f64 f4, d;", np.float32(1)),
    ):
        assert run("2.0", "sm_20", body, TINY, ONE, np.float32(0), backend=backend) == kept, body
        assert run("1.4", "sm_13", body, TINY, ONE, np.float32(0), backend=backend) == 0, body
    moved = "mov.f32 f4, f1;", "cvt.rn.f32.u32 f4, 3; mov.b32 r1, f1; mov.b32 f4, r1;"
    for body in moved:
        assert run("1.4", "sm_13", body, TINY, backend=backend) == TINY


def test_mad_without_rounding(backend: str) -> None:
    """(1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 when it is rounded once, else 0."""
    for version, target in (("1.0", "sm_10"), ("1.4", "sm_13"), ("3.1", "sm_35"), ("8.0", "sm_10")):
        found = run(
            version, target, "mad.f32 f4, f1, f2, f3;", ONE, ONE, np.float32(-1 - 2.0**-11), backend=backend
        )
        assert found == 2.0**-24
    body = "mad.sat.f32 f4, f1, f2, f3;"
    assert run("3.1", "sm_35", body, ONE, ONE, np.float32(5), backend=backend) == 1
    body = "mad.f32 f4, f1, f2, f3;"
    assert run("3.1", "sm_35", body, TINY, ONE, np.float32(0), backend=backend) == TINY * ONE
    assert run("3.1", "sm_13", body, TINY, ONE, np.float32(0), backend=backend) == 0
    assert (
        run("3.1", "sm_35", body.replace(".f32", ".ftz.f32"), TINY, ONE, np.float32(0), backend=backend) == 0
    )


def test_what_is_refused() -> None:
    def parse(version: str, target: str, body: str) -> None:
        ge.parse(TEXT.format(version=version, target=target, body=body), path="old.ptx").function("k")

    with pytest.raises(
        ge.PtxError, match=r"(?s)mad\.f32 is not available on sm_20 .* 3\.2 on.*accepted: mad\.rnd"
    ) as found:
        parse("8.0", "sm_80", "mad.f32 f4, f1, f2, f3;")
    assert len(str(found.value).splitlines()) == 2
    parse("1.4", "sm_12, map_f64_to_f32", "")
    with pytest.raises(ge.PtxError, match="map_f64_to_f32 is for targets without double precision"):
        parse("1.4", "sm_13, map_f64_to_f32", "")
    with pytest.raises(ge.PtxError, match=r"mul\.f64 needs \.target sm_13"):
        parse("1.4", "map_f64_to_f32, sm_12", "mul.f64 d, d, d;")
