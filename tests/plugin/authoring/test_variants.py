"""PTX variants per target: each is a case of its own, launched from the same memory, through the whole life of a baseline."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

import gpuperf_engine
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.machines.targets import most_specific, stand_in
from tests.plugin.conftest import ptx

COUNT = """\
.version 8.0
.target {target}
.address_size 64
.visible .global .align 4 .u32 more = {more};
.visible .entry count(.param .u64 x)
{{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [x];
    ld.global.u32 %r1, [%rd1];
    mov.u32 %r2, 0;
LOOP:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p, %r2, %r1;
    @%p bra LOOP;
    add.u32 %r1, %r1, {step};
    st.global.u32 [%rd1], %r1;
    ld.global.u32 %r3, [more];
    add.u32 %r3, %r3, 1;
    st.global.u32 [more], %r3;
    ret;
}}
"""
TEST = """\
import numpy as np
import pytest

@pytest.mark.gpuperf(targets={targets})
def test_count(gpuperf):
    x = gpuperf.array(np.array([3], np.uint32))
    kernel = gpuperf.kernel({source})
    first = kernel[1, 1](x)
    kernel[1, 1](x)
    {check}
"""
BOTH = {"sm_80": "sm_80.ptx", "sm_90a": "sm_90a.ptx"}


@pytest.fixture
def real(project, monkeypatch):
    """A project on the real engine, with PTX that loops as often as memory says, adds 1 (on 9.0: 2) to that and counts its runs."""
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", gpuperf_engine.__name__)
    for target, step in {"sm_80": 1, "sm_90a": 2}.items():
        project.write(f"{target}.ptx", COUNT.format(target=target, step=step, more=5))
    return project


def declare(project, source=BOTH, targets=("a100-sxm-80gb", "h100-sxm"), check="pass"):
    project.write("test_k.py", TEST.format(source=source, targets=list(targets), check=check))


def cases(project):
    return yaml.safe_load(project.baseline())["cases"]


def test_each_variant_is_a_case_with_its_targets_and_runs_from_the_same_memory(real):
    """A launch that loops n times takes 9 + 3 n instructions; memory holds 3, then what the last variant made of it, 5."""
    seen = (
        "assert x.numpy().tolist() == [7] and kernel.symbol('more').numpy() == 7; assert first.target == 'sm_90a';"
        "assert [p.target for p in gpuperf.launches] == ['sm_80', 'sm_90a'] * 2"
    )
    declare(real, check=seen)
    assert real.update().ret == 0
    stored = cases(real)
    assert {key: sorted(case["targets"]) for key, case in stored.items()} == {
        "test_count/count@sm_80": ["a100-sxm-80gb"],
        "test_count/count@sm_90a": ["h100-sxm"],
    }
    assert {case["counts"]["thread_instructions"] for case in stored.values()} == {2 * 9 + 3 * (3 + 5)}
    assert {case["launches"] for case in stored.values()} == {2}
    assert real.run().ret == 0


def test_the_last_variant_is_the_one_whose_results_are_seen(real):
    declare(
        real, source={"sm_90a": "sm_90a.ptx", "sm_80": "sm_80.ptx"}, check="assert x.numpy().tolist() == [5]"
    )
    assert real.update().ret == 0
    declare(real, check="assert x.numpy().tolist() == [5]")
    assert real.run().ret == 1
    real.write("pytest.ini", "[pytest]\ngpuperf_functional = true\n")
    declare(real, check="assert x.numpy().tolist() == [7] and len(gpuperf.launches) == 2")
    real.plain().assert_outcomes(passed=1)


def test_without_targets_every_variant_is_counted(real):
    declare(real, targets=())
    assert real.update().ret == 0
    assert {key: case.get("targets") for key, case in cases(real).items()} == {
        "test_count/count@sm_80": None,
        "test_count/count@sm_90a": None,
    }


def test_a_machine_of_its_own_name_goes_first_and_check_takes_variants_too(real):
    source = {
        "sm_80": "sm_80.ptx",
        "rtx-4090": real.path.joinpath("sm_80.ptx").read_text().replace("sm_80", "sm_89"),
    }
    real.write(
        "test_k.py",
        "import numpy as np\n\ndef test_c(gpuperf):\n    gpuperf.check(\n"
        f"        {source!r}, name='c', grid=1, block=1, args=[np.array([3], np.uint32)],\n"
        "        targets=['h100-sxm', 'rtx-4090'],\n    )\n",
    )
    assert real.update().ret == 0
    assert {key: list(case["targets"]) for key, case in cases(real).items()} == {
        "test_c/c@sm_80": ["h100-sxm"],
        "test_c/c@rtx-4090": ["rtx-4090"],
    }


def test_findings_belong_to_the_variant_that_makes_them(real):
    """The variant for 8.0 stores what was there; that the other one writes the same memory is no matter. There are two calls."""
    real.write("sm_80.ptx", COUNT.format(target="sm_80", step=0, more=5))
    thresholds = "gpuperf_findings_bytes = 0\ngpuperf_findings_us = 0\n"
    real.write("pytest.ini", f"[pytest]\naddopts = -p no:cacheprovider\n{thresholds}")
    for order in (BOTH, dict(reversed(BOTH.items()))):
        declare(real, source=order)
        assert real.update().ret == 0
        found = {key: [f.split()[0] for f in case.get("findings", [])] for key, case in cases(real).items()}
        assert found == {"test_count/count@sm_80": ["redundant-values"] * 2, "test_count/count@sm_90a": []}


def test_a_variable_declared_differently_has_no_one_array(real):
    real.write("sm_80.ptx", COUNT.format(target="sm_80", step=1, more=6))
    declare(real, check="kernel.symbol('more')")
    real.run().stdout.fnmatch_lines(["*the variants of 'count' declare 'more' differently*"])


@pytest.mark.parametrize(
    "source, targets, message",
    [
        (
            {"sm_9O": "sm_90a.ptx"},
            [],
            "variant 'sm_9O' is PTX for sm_90a: its name must be that, or the id of a machine",
        ),
        ({"sm_90": "sm_90a.ptx"}, [], "*did you mean 'sm_90a'*"),
        ({"h100-smx": "sm_90a.ptx"}, [], "*did you mean 'h100-sxm'*"),
        (
            {90: "sm_90a.ptx"},
            [],
            "variant 90 is PTX for sm_90a: its name must be that, or the id of a machine",
        ),
        ({}, [], "no variants were given"),
        ({"l4": "sm_90a.ptx"}, [], "variant 'l4' is PTX for sm_90a, which cannot run on that machine"),
        (BOTH, ["t4"], "no variant of the kernel runs on t4, which is declared as a target"),
        (
            {"sm_90a": "sm_90a.ptx"},
            ["l4"],
            "no variant of the kernel runs on l4, which is declared as a target",
        ),
        ({"sm_80": "sm_8O.ptx"}, [], "no PTX file 'sm_8O.ptx'"),
        ({"sm_80": None}, [], "a kernel comes from a path or from PTX text, not from NoneType"),
    ],
    ids=str,
)
def test_variants_that_do_not_fit_are_named(real, source, targets, message):
    declare(real, source=source, targets=targets)
    result = real.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"E *{message}*".replace("**", "*")])


@pytest.mark.parametrize(
    "capability, best",
    [
        ((7, 5), None),
        ((8, 0), "sm_80"),
        ((8, 9), "sm_86"),
        ((9, 0), "sm_90a"),
        ((10, 0), "sm_100f"),
        ((10, 3), "sm_103a"),
        ((12, 0), "sm_100"),
    ],
)
def test_the_most_specific_of_several_runs(capability, best):
    """PTX manual, ``.target``: plain names from their capability on, ``a`` on it alone, ``f`` in its family."""
    order = ["sm_90a", "sm_103a", "sm_80", "sm_86", "sm_100", "sm_90", "sm_100f"]
    machine = replace(load_machine("h100-sxm"), compute_capability=capability)
    assert most_specific(order, machine) == best
    assert gpuperf_engine.best_target(reversed(order), machine) == best


@pytest.mark.parametrize(
    "capability, ptx, code, pair",
    [
        ((9, 0), ["sm_120"], ["sm_80", "sm_90", "sm_120f"], ("sm_90", "sm_120")),
        # the nearest higher architecture; of machine code the highest that runs
        ((8, 9), ["sm_120", "sm_100", "sm_90a"], ["sm_80", "sm_86"], ("sm_86", "sm_100")),
        # a cubin runs on higher minor versions of its major one alone, those of a and f as their PTX
        ((9, 0), ["sm_120"], ["sm_80"], None),
        ((8, 0), ["sm_120"], ["sm_86"], None),
        ((10, 3), ["sm_120"], ["sm_100f"], ("sm_100f", "sm_120")),
        ((10, 3), ["sm_120"], ["sm_100a"], None),
        # what was made for one architecture or family alone stands for no other
        ((9, 0), ["sm_100a", "sm_120f"], ["sm_90"], None),
        # PTX that runs is PTX that a driver could take
        ((9, 0), ["sm_120", "sm_80"], ["sm_90"], None),
        ((9, 0), ["sm_120"], [], None),
    ],
)
def test_ptx_that_stands_for_machine_code(capability, ptx, code, pair):
    """CUDA Programming Guide, "Binary Compatibility": a cubin for X.y runs on X.z with z ≥ y."""
    machine = replace(load_machine("h100-sxm"), compute_capability=capability)
    assert stand_in(ptx, code, machine) == stand_in(ptx[::-1], code[::-1], machine) == pair


def test_one_variant_moves_appears_moves_to_another_machine_and_goes(project):
    """On the fake engine: 5 instructions for each of 32 threads."""
    for target in ("sm_70", "sm_80"):
        project.write(f"{target}.ptx", ptx().replace("sm_70", target))
    body = (
        "import numpy as np\n\ndef test_v(gpuperf):\n    kernel = gpuperf.kernel({source}, targets=['a100-sxm-80gb', 'h100-sxm'])\n"
        "    kernel[1, 32](gpuperf.zeros(4, np.float32), 1.0)\n"
    )
    both = {"sm_70": "sm_70.ptx", "h100-sxm": "sm_80.ptx"}
    project.write("test_k.py", body.format(source=both))
    project.update()
    project.write("sm_80.ptx", ptx("ld.global.f32 %f3, [%rd1];").replace("sm_70", "sm_80"))
    document = project.report()
    assert {case["id"]: case["verdict"] for case in document["cases"]} == {
        "test_v/scale@h100-sxm": "regressed",
        "test_v/scale@sm_70": "ok",
    }
    project.result.stdout.fnmatch_lines(
        ["gpuperf: scale@h100-sxm is worse: *", "▲ test_v/scale@h100-sxm: worse"]
    )
    assert project.run("--gpuperf-targets=a100-sxm-80gb", "--gpuperf-update").ret == 0
    assert cases(project)["test_v/scale@h100-sxm"]["targets"].keys() == {"h100-sxm"}  # not judged, but kept

    project.write("test_k.py", body.format(source={**both, "sm_80": "sm_80.ptx"}))
    document = project.report("-m", "")
    assert {case["id"]: case["verdict"] for case in document["cases"]} == {
        "test_v/scale@h100-sxm": "ok",
        "test_v/scale@sm_70": "ok",
        "test_v/scale@sm_80": "new",
    }
    assert document["stale"] == ["baselines/test_k.yaml: test_v/scale@sm_70 → a100-sxm-80gb"]
    assert project.run("--gpuperf-update-new").ret == 1  # the target that moved away is unused still
    assert project.update().ret == 0
    assert {key: list(case.get("targets", {})) for key, case in cases(project).items()} == {
        "test_v/scale@h100-sxm": ["h100-sxm"],
        "test_v/scale@sm_70": [],
        "test_v/scale@sm_80": ["a100-sxm-80gb"],
    }

    project.write("test_k.py", body.format(source="'sm_70.ptx'"))
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["− stale: 3 baseline entries without a test"])
    assert project.update().ret == 0
    assert list(cases(project)) == ["test_v/scale"]
