"""Samplers apart from their texture (PTX manual, "Texture Sampler and Surface Types" and "Texturing Modes")."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.ptx.write import write

HEAD = ".version 8.6\n.target sm_80, texmode_independent\n.address_size 64\n"
BODY = """
.reg .b32 r<9>; .reg .b64 l<9>; .reg .f32 f<9>; .reg .pred p<4>;
ld.param.u64 l2, [out]; ld.param.u64 l3, [x]; mov.u32 r8, %tid.x; mul.wide.u32 l8, r8, 16; add.u64 l2, l2, l8;
mul.wide.u32 l8, r8, 4; add.u64 l3, l3, l8; ld.global.f32 f1, [l3];
"""
END = "\nst.global.v4.f32 [l2], {f2,f3,f4,f5};\nret; }\n"
TEXELS = np.array([3, 5, 9, 17], np.float32)
#: halves and quarters of texels: weights are exact
X = (np.arange(-24, 40, dtype=np.float32) / 4 + np.float32(1 / 8)).astype(np.float32)


def run(backend: str, before: str, parameters: str, body: str, bound: Any, x: np.ndarray = X) -> np.ndarray:
    """The four floats of each thread; ``bound`` gives the images and samplers by name, parameters in order."""
    text = f"{HEAD}{before}.visible .entry k(.param .u64 out, .param .u64 x{parameters}) {{{BODY}{body}{END}"
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    kernel = ge.parse(text, path="k.ptx")["k"]
    out, args = device.zeros((len(x), 4), np.float32), []
    for name, image in bound(device).items():
        if name[0] == "p":
            args.append(image)
        else:
            device.bind(kernel, name, image)
    device.launch(kernel, 1, len(x), [out, device.array(x), *args])
    return out.numpy()


def texel(i: int, mode: str) -> float:
    """The texel of an endless line that the address mode makes."""
    if mode == "wrap":
        return float(TEXELS[i % 4])
    if mode == "mirror":
        return float(TEXELS[min(i % 8, 7 - i % 8)])
    if mode == "border" and not 0 <= i < 4:
        return 0.0
    return float(TEXELS[min(max(i, 0), 3)])


def fetched(x: float, mode: str, linear: bool) -> float:
    """The value at a place in texels."""
    if not linear:
        return texel(math.floor(x), mode)
    corner = math.floor(x - 0.5)
    weight = x - 0.5 - corner
    return (1 - weight) * texel(corner, mode) + weight * texel(corner + 1, mode)


FETCH = "tex.1d.v4.f32.f32 {f2,f3,f4,f5}, [t, s, {f1}];"
GLOBALS = ".global .texref t;\n.global .samplerref s;\n"
MODES = ("clamp", "border", "wrap", "mirror")


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_the_sampler_decides(mode: str, linear: bool, backend: str) -> None:
    """Filter and address mode, whatever those of the texture are; the texture's coordinates are normalized."""

    def bound(device: ge.Device) -> dict[str, Any]:
        other = "mirror" if mode == "wrap" else "wrap"
        texture = device.texture(
            device.array(TEXELS), normalized=True, address=other, filter="nearest" if linear else "linear"
        )
        return {"t": texture, "s": device.sampler(address=mode, filter="linear" if linear else "nearest")}

    found = run(backend, GLOBALS, "", FETCH, bound, X / 4)
    assert found[:, 0].tolist() == [fetched(float(x), mode, linear) for x in X]


@pytest.mark.parametrize("force", [False, True])
def test_coordinates_that_the_sampler_forces(force: bool, backend: str) -> None:
    """Without it, the texture decides; such coordinates are clamped in the modes that repeat."""

    def bound(device: ge.Device) -> dict[str, Any]:
        sampler = device.sampler(address="wrap", force_unnormalized=force)
        return {"t": device.texture(device.array(TEXELS), normalized=True), "s": sampler}

    found = run(backend, GLOBALS, "", FETCH, bound)
    wanted = [fetched(float(x), "clamp", False) if force else fetched(4 * float(x), "wrap", False) for x in X]
    assert found[:, 0].tolist() == wanted


def test_samplers_with_initial_values(backend: str) -> None:
    before = (
        ".global .texref t = { normalized_coords = 1, width = 4 };\n"
        ".global .samplerref s = { addr_mode_0 = mirror, filter_mode = linear };\n"
        ".global .samplerref u = { filter_mode = nearest, addr_mode_0 = clamp_to_border, force_unnormalized_coords = 1 };\n"
    )
    body = "tex.1d.v4.f32.f32 {f6,f3,f4,f5}, [t, s, {f1}]; tex.1d.v4.f32.f32 {f3,f4,f4,f5}, [t, u, {f1}]; mov.f32 f2, f6;"
    body += "txq.filter_mode.b32 r1, [s]; mov.b32 f4, r1; txq.addr_mode_0.b32 r1, [u]; mov.b32 f5, r1;"

    def bound(device: ge.Device) -> dict[str, Any]:
        return {"t": device.texture(device.array(TEXELS), normalized=True)}

    x = X / 4
    found = run(backend, before, "", body, bound, x)
    assert found[:, 0].tolist() == [fetched(float(4 * value), "mirror", True) for value in x]
    assert found[:, 1].tolist() == [fetched(float(value), "border", False) for value in x]
    # numbers of the manual: linear, clamp_to_border
    assert found[:, 2:].view(np.uint32).tolist() == [[1, 4]] * len(x)


def test_parameters(backend: str) -> None:
    kept: list[Any] = []

    def bound(device: ge.Device) -> dict[str, Any]:
        kept[:] = [device.zeros(len(X), np.float32)]
        texture = device.texture(device.array(TEXELS), address="border")
        return {"p1": texture, "p2": device.sampler(filter="linear"), "p3": device.surface(kept[0])}

    body = "tex.1d.v4.f32.f32 {f2,f3,f4,f5}, [t, s, {f1}]; shl.b32 r1, r8, 2; sust.b.1d.b32.trap [w, {r1}], {f2};"
    body += (
        "suq.width.b32 r1, [w]; mov.b32 f5, r1; txq.force_unnormalized_coords.b32 r1, [s]; mov.b32 f4, r1;"
    )
    found = run(backend, "", ", .param .texref t, .param .samplerref s, .param .surfref w", body, bound)
    wanted = [fetched(float(x), "clamp", True) for x in X]
    assert found[:, 0].tolist() == wanted
    assert kept[0].numpy().tolist() == wanted
    assert found[:, 2:].view(np.uint32).tolist() == [[0, len(X)]] * len(X)


def test_other_operands_beside_a_sampler(backend: str) -> None:
    """Offsets, depths and residency, and gathered texels."""
    plane = np.arange(32, dtype=np.float32).reshape(4, 8)
    mask = np.ones((4, 8), np.bool_)
    mask[2, 3] = False

    def bound(device: ge.Device) -> dict[str, Any]:
        texture = device.texture(device.array(plane), compare="less", resident=mask)
        return {"t": texture, "s": device.sampler(address="border")}

    body = "mov.f32 f6, 0f3F000000; tex.2d.v4.f32.f32 {f2,f3,f4,f5}|p1, [t, s, {f1,f6}], {1, 2}, f7; selp.f32 f3, 1.0, 0.0, p1;"
    body = "mov.f32 f7, 0f41980000;" + body  # 19
    x = np.arange(8, dtype=np.float32) + np.float32(0.5)
    found = run(backend, GLOBALS, "", body, bound, x)
    assert found[:, 0].tolist() == [0, 0, 0, 1, 1, 1, 1, 0]  # 20 to 23 are greater; 19 is not resident
    assert found[:, 1].tolist() == [1, 1, 0, 1, 1, 1, 1, 1]
    body = "mov.f32 f6, 0f3F800000; tld4.r.2d.v4.f32.f32 {f2,f3,f4,f5}, [t, s, {f1,f6}];"
    found = run(backend, GLOBALS, "", body, bound, x + np.float32(0.5))
    padded = np.pad(plane, ((0, 0), (0, 1)))
    wanted = [[padded[1, n], padded[1, n + 1], padded[0, n + 1], padded[0, n]] for n in range(8)]
    assert found.tolist() == wanted


def test_levels_and_faces_through_a_sampler(backend: str) -> None:
    """Filters between levels, which PTX gives no sampler, are those of the texture."""
    levels = [np.array([[1, 3]], np.float32), np.array([[7]], np.float32)]

    def bound(device: ge.Device) -> dict[str, Any]:
        texture = device.texture(
            [device.array(level) for level in levels], normalized=True, level_filter="linear"
        )
        return {"t": texture, "s": device.sampler(filter="linear", address="wrap")}

    lod = np.float32([0, 0.5, 1])
    body = "mov.f32 f6, 0f3F000000; tex.level.2d.v4.f32.f32 {f2,f3,f4,f5}, [t, s, {f6,f6}], f1;"
    body += "mov.f32 f7, 0f3F800000; mul.f32 f8, f7, f6; tex.grad.2d.v4.f32.f32 {f3,f4,f4,f4}, [t, s, {f6,f6}], {f7,f8}, {f8,f8};"
    found = run(backend, GLOBALS, "", body, bound, lod)
    assert found[:, 0].tolist() == [2, 4.5, 7]
    assert found[:, 1].tolist() == [7] * 3  # over two texels in x: the second level
    faces = np.arange(6, dtype=np.float32).reshape(6, 1, 1)
    body = "mov.f32 f6, 0f00000000; tex.cube.v4.f32.f32 {f2,f3,f4,f5}, [t, s, {f6,f1,f6,f6}];"
    body += "tld4.r.cube.v4.f32.f32 {f3,f4,f5,f4}, [t, s, {f1,f6,f6,f6}];"
    found = run(
        backend, GLOBALS, "", body,
        lambda d: {"t": d.texture(d.array(faces), cube=True), "s": d.sampler()}, np.float32([2, -2]),
    )  # fmt: skip
    assert found[:, :2].tolist() == [[2, 0], [3, 1]]
    samples = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    body = "cvt.rni.s32.f32 r1, f1; tex.2dms.v4.f32.s32 {f2,f3,f4,f5}, [t, s, {r1,r1,0,0}];"
    found = run(
        backend, GLOBALS, "", body, lambda d: {"t": d.texture(d.array(samples), samples=2), "s": d.sampler()},
        np.float32([0, 1]),
    )  # fmt: skip
    assert found[:, 0].tolist() == [0, 3]


def test_the_mode_of_the_module_decides() -> None:
    plain = FETCH.replace("t, s,", "t,")
    for options, line, message in (
        ("", FETCH, "a sampler is named\n  this form names one with '.target …, texmode_independent' only"),
        (", texmode_unified", FETCH, "a sampler is named"),
        (", texmode_independent", plain, "a sampler is missing\n  in independent mode"),
    ):
        text = f"{HEAD}{GLOBALS}.visible .entry k(.param .u64 out, .param .u64 x) {{{BODY}{line}{END}"
        with pytest.raises(ge.PtxError) as caught:
            ge.parse(text.replace(", texmode_independent", options))["k"]
        assert f"tex.1d.v4.f32.f32: {message}" in str(caught.value)


def test_kinds_of_handles(backend: str) -> None:
    body = "mov.u64 l4, s; istypep.samplerref p1, l4; istypep.texref p2, l4; selp.f32 f2, 1.0, 0.0, p1; selp.f32 f3, 1.0, 0.0, p2;"
    body += "mov.u64 l4, t; istypep.samplerref p1, l4; selp.f32 f4, 1.0, 0.0, p1; mov.f32 f5, f4;"
    found = run(
        backend, GLOBALS, "", body, lambda d: {"t": d.texture(d.array(TEXELS)), "s": d.sampler()}, X[:1]
    )
    assert found.tolist() == [[1, 0, 0, 0]]


def test_what_is_no_sampler(backend: str) -> None:
    def texture(device: ge.Device) -> Any:
        return device.texture(device.array(TEXELS))

    with pytest.raises(
        ge.LaunchError, match=r"'s' is bound to no sampler\n.*device.bind\(kernel, 's', device.sampler"
    ):
        run(backend, GLOBALS, "", FETCH, lambda d: {"t": texture(d)})
    with pytest.raises(ge.LaunchError, match=r"cannot bind <1d texture .*\n.*make a sampler"):
        run(backend, GLOBALS, "", FETCH, lambda d: {"s": texture(d)})
    with pytest.raises(ge.LaunchError, match=r"cannot bind <sampler .* to 't'"):
        run(backend, GLOBALS, "", FETCH, lambda d: {"t": d.sampler()})
    with pytest.raises(ge.LaunchError, match="on another device"):
        run(backend, GLOBALS, "", FETCH, lambda d: {"s": ge.Device(memory_bytes=1 << 16).sampler()})
    register = FETCH.replace("s, {", "l4, {")
    with pytest.raises(ge.TrapError, match=r"tex.1d.v4.f32.f32: b is not the handle of a sampler\n"):
        run(backend, GLOBALS, "", "mov.u64 l4, t;" + register, lambda d: {"t": texture(d)})
    with pytest.raises(ge.TrapError, match="is a sampler, not a texture"):
        run(
            backend,
            GLOBALS,
            "",
            "mov.u64 l4, s;" + FETCH.replace("[t,", "[l4,"),
            lambda d: {"s": d.sampler()},
        )
    with pytest.raises(ge.LaunchError, match="'s' has the address mode clamp_ogl"):
        before = ".global .texref t;\n.global .samplerref s = { addr_mode_1 = clamp_ogl };\n"
        run(backend, before, "", FETCH, lambda d: {"t": texture(d)})


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (".samplerref s = { filter = linear }", "a .samplerref has no member 'filter'"),
        (".samplerref s = { normalized_coords = 1 }", "a .samplerref has no member 'normalized_coords'"),
        (".samplerref s = { filter_mode = cubic }", "'filter_mode' of a .samplerref cannot have this value"),
        (".samplerref s = { filter_mode = 1 }", "accepted: nearest, linear"),
        (".texref s = { width = wide }", "accepted: a whole number"),
        (".texref s = { width = 1.5 }", "accepted: a whole number"),
        (".texref s = { width = 1, width = 2 }", "'width' is set twice"),
        (".surfref s = { 4 }", "a .surfref is initialised by member = value"),
        (".u32 s[2] = { a = 1 }", "an initial value is a constant"),
    ],
)
def test_initial_values_that_no_type_has(declared: str, message: str) -> None:
    with pytest.raises(ge.PtxError) as caught:
        ge.parse(f"{HEAD}.global {declared};\n")
    assert message in str(caught.value)


def test_members_are_no_operands() -> None:
    with pytest.raises(ge.PtxError, match="'a = 1' cannot be an operand here"):
        run("reference", "", "", "mov.b64 l4, {a = 1, r2};", lambda d: {})


def test_samplers_that_no_gpu_has() -> None:
    device = ge.Device(memory_bytes=1 << 16)
    with pytest.raises(ge.LaunchError, match="a sampler with filter='cubic'"):
        device.sampler(filter="cubic")
    with pytest.raises(ge.LaunchError, match="address='repeat'"):
        device.sampler(address="repeat")
    with pytest.raises(ge.ArgumentError):
        device.sampler(force_unnormalized="yes")  # type: ignore[arg-type]
    assert repr(device.sampler()).startswith("<sampler 0x")


def test_the_text_is_written_as_it_was_read() -> None:
    before = ".global .texref t = { width = 4 };\n.global .samplerref s = { addr_mode_0 = wrap, filter_mode = linear };\n"
    text = f"{HEAD}{before}.visible .entry k(.param .u64 out, .param .u64 x, .param .samplerref q) {{{BODY}{FETCH}{END}"
    module = ge.parse(text)
    module["k"]
    once = write(module)
    assert "{ addr_mode_0 = wrap, filter_mode = linear }" in once
    again = ge.parse(once)
    again["k"]
    assert write(again) == once
