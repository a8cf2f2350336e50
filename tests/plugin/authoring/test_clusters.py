"""Clusters in the gate and on the command line."""

from __future__ import annotations

import json

import pytest

PTX = """\
.version 8.0
.target {target}
.address_size 64
.visible .entry around(.param .u64 out) {directive}
{{
    .reg .b32 %r<9>;
    .reg .b64 %rd<5>;
    .shared .align 4 .b8 word[4];
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %cluster_ctarank;
    mov.u32 %r2, %ctaid.x;
    st.shared.u32 [word], %r2;
    xor.b32 %r3, %r1, 1;
    mapa.shared::cluster.u32 %r4, word, %r3;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ld.shared::cluster.u32 %r5, [%r4];
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r5;
    ret;
}}
"""
TEST = """\
import numpy as np

def test_around(gpuperf):
    out = gpuperf.zeros(8, np.uint32)
    kernel = gpuperf.kernel("around.ptx", targets=["h100-sxm"])
    kernel[8, 32](out, cluster=2)
    assert out.numpy().tolist() == [1, 0, 3, 2, 5, 4, 7, 6]
"""


@pytest.fixture
def real(project, monkeypatch):
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", "gpuperf_engine")
    project.write("around.ptx", PTX.format(target="sm_90", directive=""))
    project.write("test_k.py", TEST)
    return project


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("cluster=2", "cluster=(2, 1, 1)", True),
        ("cluster=2", "cluster=np.int64(2)", True),
        ("cluster=2", "cluster=4", False),
        ("cluster=2", "cluster=(2, 1), cooperative=True", False),
    ],
)
def test_the_cluster_is_an_input(real, old, new, same):
    first = real.report()["cases"][0]
    assert first["detail"]["cluster"] == [2, 1, 1]
    real.write("test_k.py", TEST.replace(old, new, 1))
    assert (real.report()["cases"][0]["measured"]["inputs"] == first["measured"]["inputs"]) is same


def test_a_case_is_gated_and_its_time_predicted(real):
    assert real.update().ret == 0
    # 8 warps of 15 instructions
    assert "warp_instructions: 120" in real.baseline()
    assert "h100-sxm" in real.baseline()
    assert real.run().ret == 0
    real.write("test_k.py", TEST.replace(", cluster=2", ""))
    real.write("around.ptx", PTX.format(target="sm_90", directive=".reqnctapercluster 2"))
    assert real.run().ret == 0
    real.write("around.ptx", PTX.format(target="sm_90", directive=".explicitcluster"))
    result = real.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*kernel 'around' must be launched with a cluster*", "*cluster=2*"])


def test_check_takes_a_cluster(real):
    real.write(
        "test_k.py",
        "import numpy as np\ndef test_around(gpuperf):\n"
        "    profile = gpuperf.check('around.ptx', grid=8, block=32, args=[np.zeros(8, np.uint32)], cluster=4)\n"
        "    assert profile.cluster == (4, 1, 1)\n",
    )
    assert real.update().ret == 0


def test_the_command_line(tmp_path, capsys):
    from pytest_gpuperf.cli import main

    (tmp_path / "around.ptx").write_text(PTX.format(target="sm_90", directive=""))
    path = str(tmp_path / "around.ptx")
    options = [path, "--grid", "8", "--block", "32", "--arg", "u32[8]=zeros"]
    assert main(["profile", *options, "--cluster", "2", "--target", "h100-sxm"]) == 0
    out = capsys.readouterr().out
    assert "grid 8 × 1 × 1, block 32 × 1 × 1, cluster 2 × 1 × 1" in out
    assert "h100-sxm" in out
    (tmp_path / "program.yaml").write_text(
        f"arrays: {{out: 'u32[8]=zeros'}}\nlaunches:\n  - {{file: {path}, grid: 8, block: 32, args: [out], cluster: [4, 1]}}\n"
    )
    assert main(["profile", "--launches", str(tmp_path / "program.yaml"), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["launches"][0]["profile"]["cluster"] == [4, 1, 1]
    assert main(["profile", *options, "--cluster", "3"]) != 0
    assert "not a multiple of cluster (3, 1, 1)" in capsys.readouterr().err


#: the first block writes into the second, which may not have started
PEER = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry peer() .reqnctapercluster 2, 1, 1 {
.reg .b32 %r<3>; .reg .pred %p; .shared .b32 s;
mov.u32 %r0, %cluster_ctarank; setp.ne.u32 %p, %r0, 0; mapa.shared::cluster.u32 %r1, s, 1;
@!%p st.shared::cluster.u32 [%r1], %r0;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
ret;
}
"""


def test_breaches_of_rules_that_work_on_todays_gpus(project, monkeypatch):
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", "gpuperf_engine")
    body = "    gpuperf.kernel('peer.ptx')[2, 32]()\n    assert len(gpuperf.launches[0].notes) == {notes}\n"
    project.write("peer.ptx", PEER)
    project.write("test_k.py", f"def test_p(gpuperf):\n{body.format(notes=1)}")
    assert project.update().ret == 0
    project.run("--gpuperf-details").stdout.fnmatch_lines(
        ["*st.shared::cluster.u32 by thread*peer-not-started*"]
    )
    result = project.run("-o", "gpuperf_strict=error")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*MemoryFault: *peer.ptx:8:*may not have started [[]peer-not-started]*"])
    marked = "import pytest\n@pytest.mark.gpuperf(strict={!r})\ndef test_p(gpuperf):\n{}"
    project.write("test_k.py", marked.format("off", body.format(notes=0)))
    assert project.run("-o", "gpuperf_strict=error").ret == 0
    project.write("test_k.py", marked.format("error", body.format(notes=0)))
    assert project.run().ret == 1
