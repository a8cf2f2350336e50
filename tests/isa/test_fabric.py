"""Instructions on logical endpoints: parsed, checked and counted."""

from __future__ import annotations

import pytest

import gpuperf_engine as ge
from gpuperf_engine.errors import PtxError, Unsupported

TEXT = """
.version 9.3
.target sm_100
.address_size 64
.visible .entry k()
{{
    .reg .b64 %rd<4>;
    .reg .b32 %r<5>;
    .shared .align 16 .b8 tile[64];
    .shared .align 8 .b64 bar;
    mov.u32 %r1, 0;
    mov.u64 %rd1, 0;
    {body}
    fabric.submit;
    fabric.submit.op_restrict::fetching;
    fabric.wait.sync_restrict::reads;
    ret;
}}
"""
GET = (
    "fabric.try_get.async.shared::cta.mbarrier::complete_tx::bytes.mbarrier::report::fabric.relaxed.sys.b128 "
    "[tile], [%r1, %rd1], 16, [bar];"
)


def test_there_are_no_endpoints(backend: str) -> None:
    """Where nothing was asked for, nothing is submitted; what would reach an endpoint ends the run with its name."""
    ge.Device(backend=backend, memory_bytes=1 << 16).launch(ge.parse(TEXT.format(body=""))["k"], 1, 32, [])
    with pytest.raises(Unsupported, match=r"fabric\.try_get\S* is known and counted"):
        ge.Device(backend=backend, memory_bytes=1 << 16).launch(
            ge.parse(TEXT.format(body=GET))["k"], 1, 32, []
        )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (".version 9.3", ".version 9.2", "needs .version 9.3"),
        ("sm_100", "sm_90", "sm_100"),
        ("[%r1, %rd1]", "[%rd1, %rd1]", "addresses of endpoints have 32 bits"),
        ("[%r1, %rd1]", "[%r1, %r1]", "offset"),
        ("[%r1, %rd1]", "[%r1]", "offset belongs inside the brackets"),
        (".relaxed", "", "does not combine"),
    ],
)
def test_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        ge.parse(TEXT.format(body=GET).replace(old, new, 1))["k"].instructions  # noqa: B018
