"""Value patterns of single instructions in the gate: sought if asked for, kept in the baseline, red where they are new."""

from __future__ import annotations

from .test_end_to_end import real

__all__ = ["real"]

SCALE = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 y)
{
    .reg .b32 %r<2>; .reg .b64 %rd<6>; .reg .f32 %f<3>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    mul.f32 %f2, %f1, %f1;
    st.global.f32 [%rd5], %f2;
    ret;
}
"""
TEST = """\
import numpy as np

def test_scale(gpuperf):
    x, y = gpuperf.array(VALUES), gpuperf.zeros(256, np.float32)
    gpuperf.kernel("scale.ptx")[1, 256](x, y)
"""
NOISE = "np.random.default_rng(1).normal(size=512).astype(np.float32)"
#: the kernel loads the first half, which is the index
HALF = f"np.append(np.arange(256, dtype=np.float32), {NOISE}[256:])"
ASKED = "-o", "gpuperf_values=accesses"


def test_a_new_pattern_of_an_instruction_is_red_if_asked_for(real):
    real.write("scale.ptx", SCALE)
    real.write("test_k.py", TEST.replace("VALUES", NOISE))
    assert real.run("--gpuperf-update", *ASKED).ret == 0
    assert real.run(*ASKED).ret == 0
    real.write("test_k.py", TEST.replace("VALUES", HALF))
    worse = real.run(*ASKED)
    assert worse.ret == 1
    worse.stdout.fnmatch_lines(["*structured-values*scale ld.global.f32 #1*"])
    assert real.run().ret == 0


def test_a_new_pattern_that_is_proven_is_red_if_asked_for(real):
    """Three quarters of an array are set to 2 by a store of its own: no pattern of the object, and no access is recorded."""
    proven = "-o", "gpuperf_values=proven"
    both = "setp.lt.u32 %p1, %r1, 384;\n    @%p1 st.global.f32 [%rd5], %f2;\n    @!%p1 st.global"
    kernel = SCALE.replace("st.global", both).replace(".reg .b32", ".reg .pred %p<2>; .reg .b32")
    real.write("scale.ptx", kernel)
    real.write("test_k.py", TEST.replace("VALUES", NOISE).replace("256", "512"))
    assert real.run("--gpuperf-update", *proven).ret == 0
    assert real.run(*proven).ret == 0
    real.write("scale.ptx", kernel.replace("%f2;\n    @!", "0f40000000;\n    @!"))
    worse = real.run(*proven)
    assert worse.ret == 1
    worse.stdout.fnmatch_lines(["*single-value*scale st.global.f32 #1*"])
    assert real.run().ret == 0


def test_a_choice_that_is_none_is_refused(real):
    real.write("scale.ptx", SCALE)
    real.write("test_k.py", TEST.replace("VALUES", NOISE))
    result = real.run("-o", "gpuperf_values=instructions")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*gpuperf_values = 'instructions'*"])
