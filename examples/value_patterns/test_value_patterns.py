"""Wasted values that ValueExpert found in published programs, rebuilt small, each beside its fix.

The studies are those of GVProf's documentation (docs/rodinia.md, docs/darknet.md and docs/castro.md of github.com/GVProf/GVProf); the
programs here are written anew and only waste what those do. ``fixed`` does not, and the finding is gone.
"""

import numpy as np
import pytest

import gpuperf_engine as ge

SIZE = 1 << 16
BLOCKS = SIZE // 256
TARGET = "h100-sxm"

studies = pytest.mark.parametrize("fixed", [False, True], ids=["wasteful", "fixed"])
gated = pytest.mark.gpuperf(targets=[TARGET])


def elementwise(name, parameters, body):
    """A kernel of one thread for each element, whose number is in %i and four times that in %at."""
    return f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry {name}({parameters})
{{
    .reg .u32 %i, %n<8>;
    .reg .s32 %s<8>;
    .reg .f32 %f<8>;
    .reg .u64 %at, %a<8>;
    .reg .pred %p;
    mov.u32 %n0, %ctaid.x;
    mov.u32 %n1, %tid.x;
    mad.lo.u32 %i, %n0, 256, %n1;
    mul.wide.u32 %at, %i, 4;
{body}
    ret;
}}
"""


FILL = elementwise(
    "fill",
    ".param .u64 out, .param .f32 value",
    """
    ld.param.u64 %a0, [out];
    ld.param.f32 %f0, [value];
    add.u64 %a0, %a0, %at;
    st.global.f32 [%a0], %f0;""",
)
SCALE = """
    ld.param.u64 %a0, [slopes];
    ld.param.u64 %a1, [factors];
    add.u64 %a0, %a0, %at;
    add.u64 %a1, %a1, %at;
    ld.global.f32 %f0, [%a1];
    ld.global.f32 %f1, [%a0];
    mul.f32 %f2, %f1, %f0;
    {test}st.global.f32 [%a0], %f2;"""
TEST = """setp.eq.f32 %p, %f2, %f1;
    @%p ret;
    """
WALL = """
    ld.param.u64 %a0, [wall];
    ld.param.u64 %a1, [costs];
    {address}
    add.u64 %a1, %a1, %at;
    ld.global.{type} %s0, [%a0];
    ld.global.s32 %s1, [%a1];
    add.s32 %s1, %s1, %s0;
    st.global.s32 [%a1], %s1;"""
NORTH = """
    ld.param.u64 %a0, [image];
    ld.param.u64 %a1, [out];
    {north}
    mul.wide.s32 %a2, %s0, 4;
    add.u64 %a2, %a0, %a2;
    add.u64 %a0, %a0, %at;
    add.u64 %a1, %a1, %at;
    ld.global.f32 %f0, [%a0];
    ld.global.f32 %f1, [%a2];
    sub.f32 %f0, %f1, %f0;
    st.global.f32 [%a1], %f0;"""


def found(gpuperf):
    """The findings of the program so far about objects, by rule and object."""
    findings = ge.find_patterns(gpuperf.device.program)
    return {(item.rule, item.object): item for item in findings if not item.instruction}


def random(size, dtype=np.float32):
    return np.random.default_rng(7).standard_normal(size).astype(dtype)


@gated
@studies
def test_darknet_fills_clean_arrays(gpuperf, fixed):
    """``fill_ongpu`` clears the output of each layer, which inference has left clean (upsampling_layer.c:91)."""
    output = gpuperf.zeros(SIZE, np.float32, name="output")
    fill = gpuperf.kernel(FILL)
    work = gpuperf.empty(SIZE, np.float32, name="work")
    fill[BLOCKS, 256](work, np.float32(1.5))
    if not fixed:
        fill[BLOCKS, 256](output, np.float32(0))
    assert not output.numpy().any() and (work.numpy() == 1.5).all()
    assert (("redundant-values", "output") in found(gpuperf)) is not fixed


@gated
@studies
def test_castro_multiplies_by_one(gpuperf, fixed):
    """Slopes are limited by factors that are mostly 1 (AMReX_Interp_2D_C.H:344): a test saves the store."""
    size = 1 << 20
    host = random(size)
    factors = np.where(np.arange(size) % 64 < 56, 1, random(size)).astype(np.float32)
    slopes, limits = gpuperf.array(host, name="slopes"), gpuperf.array(factors, name="factors")
    parameters = ".param .u64 slopes, .param .u64 factors"
    both = [elementwise("limit", parameters, SCALE.format(test=test)) for test in ("", TEST)]
    gpuperf.kernel(both[fixed])[size // 256, 256](slopes, limits)
    np.testing.assert_array_equal(slopes.numpy(), host * factors)
    finding = found(gpuperf).get(("redundant-values", "slopes"))
    assert (finding is None) is fixed
    if not fixed:
        assert finding.evidence["unchanged"] == 56 * size // 64
        (wasteful,) = gpuperf.launches
        kernel = ge.parse(both[True], path="fixed.ptx")["limit"]
        again = gpuperf.array(host)
        better = gpuperf.device.launch(kernel, size // 256, 256, [again, limits], keep=False)
        before, after = (ge.estimate(run, TARGET, model="kleimenov-popova") for run in (wasteful, better))
        saved = before.time_us - after.time_us
        profiles = {finding.steps[0]: wasteful}
        assert saved == pytest.approx(ge.saving_us(finding, profiles, TARGET), rel=0.1)


@gated
@studies
def test_pathfinder_keeps_small_costs_in_wide_integers(gpuperf, fixed):
    """The costs of ``gpuWall`` fit 8 bits (pathfinder.cu:144)."""
    host = np.random.default_rng(3).integers(0, 10, SIZE)
    wall = gpuperf.array(host.astype(np.uint8 if fixed else np.int32), name="wall")
    start = np.random.default_rng(4).integers(-(1 << 30), 1 << 30, SIZE, np.int32)
    costs = gpuperf.array(start, name="costs")
    narrow = "cvt.u64.u32 %a2, %i;\n    add.u64 %a0, %a0, %a2;"
    body = WALL.format(address=narrow if fixed else "add.u64 %a0, %a0, %at;", type="u8" if fixed else "s32")
    profile = gpuperf.kernel(elementwise("path", ".param .u64 wall, .param .u64 costs", body))[BLOCKS, 256](
        wall, costs
    )
    np.testing.assert_array_equal(costs.numpy(), start + host)
    finding = found(gpuperf).get(("heavy-type", "wall"))
    assert (finding is None) is fixed
    if not fixed:
        # a quarter of the bytes would do, for the copy and for the loads of the kernel
        assert finding.evidence["type"] == "int8" and finding.waste == 3 * SIZE
        (launch,) = (gone for gone in finding.traffic if gone.loads)
        assert launch.loads == 0.75 / 2  # the costs are loaded too
        assert ge.saving_us(finding, {launch.step: profile}, TARGET) > 0


@gated
@studies
def test_srad_loads_what_it_could_compute(gpuperf, fixed):
    """The rows of neighbours ``d_iN`` are an affine function of the index (srad_kernel.cu:38)."""
    image, out = gpuperf.array(random(SIZE), name="image"), gpuperf.empty(SIZE, np.float32, name="out")
    north = np.maximum(np.arange(SIZE) - 1, 0).astype(np.int32)
    if fixed:
        compute = "cvt.s32.u32 %s0, %i;\n    sub.s32 %s0, %s0, 1;\n    max.s32 %s0, %s0, 0;"
        kernel = gpuperf.kernel(
            elementwise("srad", ".param .u64 image, .param .u64 out", NORTH.format(north=compute))
        )
        kernel[BLOCKS, 256](image, out)
    else:
        load = "ld.param.u64 %a3, [north];\n    add.u64 %a3, %a3, %at;\n    ld.global.s32 %s0, [%a3];"
        parameters = ".param .u64 image, .param .u64 out, .param .u64 north"
        kernel = gpuperf.kernel(elementwise("srad", parameters, NORTH.format(north=load)))
        kernel[BLOCKS, 256](image, out, gpuperf.array(north, name="north"))
    host = random(SIZE)
    np.testing.assert_array_equal(out.numpy(), host[north] - host)
    assert (("structured-values", "north") in found(gpuperf)) is not fixed


@gated
@studies
def test_bfs_copies_zeros(gpuperf, fixed):
    """The masks that are copied to the device are all zeros (bfs.cu:107): a memset is faster."""
    host = np.zeros(SIZE, np.float32)
    mask = gpuperf.zeros(SIZE, np.float32, name="mask") if fixed else gpuperf.array(host, name="mask")
    gpuperf.kernel(FILL)[BLOCKS // 2, 256](mask, np.float32(0.5))
    assert mask.numpy().sum() == SIZE / 4
    assert (("single-zero", "mask") in found(gpuperf)) is not fixed


@gated
@studies
def test_streamcluster_copies_again_what_has_not_changed(gpuperf, fixed):
    """Tables go to the device in every iteration (streamcluster_cuda.cu:221)."""
    host, factors = random(SIZE), random(SIZE) + 3
    table, points = gpuperf.array(factors, name="table"), gpuperf.array(host, name="points")
    kernel = gpuperf.kernel(
        elementwise("gain", ".param .u64 slopes, .param .u64 factors", SCALE.format(test=""))
    )
    for _ in range(3):
        if not fixed:
            table.copy_from(factors)
        kernel[BLOCKS, 256](points, table)
    np.testing.assert_array_equal(points.numpy(), host * factors * factors * factors)
    finding = found(gpuperf).get(("redundant-values", "table"))
    assert (finding is None) is fixed
    assert fixed or (finding.calls, finding.waste) == (3, 3 * 4 * SIZE)
