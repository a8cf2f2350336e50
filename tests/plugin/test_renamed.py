"""Names that have changed: the former ones work and a warning says the present one; where warnings are errors it is the only line."""

from __future__ import annotations

import pytest

from pytest_gpuperf.cli import main

BACKENDS = [("native", "llvm"), ("lanes", "reference")]


@pytest.mark.parametrize(("former", "present"), BACKENDS)
def test_a_former_backend_in_the_ini_file_warns(project, former, present):
    project.update()
    sentence = f"gpuperf_backend = {former} is now gpuperf_backend = {present}: write that"
    for way, code in (("default", 0), ("error", 4)):
        result = project.run("-o", f"gpuperf_backend={former}", "-W", f"{way}::DeprecationWarning")
        output = result.stdout.str() + result.stderr.str()
        assert result.ret == code and sentence in output and "Traceback" not in output


@pytest.mark.parametrize(("former", "present"), BACKENDS)
def test_a_former_backend_of_the_command_warns(tmp_path, capsys, former, present):
    path = tmp_path / "k.ptx"
    path.write_text(".version 8.0\n.target sm_70\n.address_size 64\n.entry k() { ret; }")
    assert main(["profile", str(path), "--grid", "1", "--block", "1", "--backend", former]) == 0
    told = capsys.readouterr()
    assert told.err == f"gpuperf profile: warning: --backend {former} is now --backend {present}\n"
    assert main(["profile", str(path), "--grid", "1", "--block", "1", "--backend", present]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == told.out.splitlines()[:3]
