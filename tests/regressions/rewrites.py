"""Rewrites of PTX that leave a kernel what it was. Each is a function from text to text; ``REWRITES`` pairs it with an example."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["REWRITES"]

_BODY_LINE = re.compile(r"^\t(?=[a-z@])", re.M)


def _renamed(text: str, prefix: str, new: str) -> str:
    """Registers ``%<prefix>N`` under another prefix, their declarations included."""
    return re.sub(rf"%{prefix}(?=\d|<)", f"%{new}", text)


def _hexadecimal(text: str) -> str:
    return re.sub(r"(?<=, )(\d{2,})(?=;)", lambda match: hex(int(match[1])), text)


def _one_operand_a_line(text: str) -> str:
    return re.sub(r"^(\t(?:add|mad|mul|fma)\S*\s+[^,;]+,) ", r"\1\n\t\t", text, flags=re.M)


def _padded_declarations(text: str) -> str:
    return text.replace("\t.reg .pred", "\t.reg .b64 \t%spare<3>;\n\t.reg .pred", 1)


def _shifted_locations(text: str) -> str:
    return re.sub(r"(\.loc\t\d+ )(\d+)", lambda match: match[1] + str(int(match[2]) + 10), text)


def _unused_function(text: str) -> str:
    function = ".func (.param .b32 result) spare(.param .b32 value)\n{\n\tret;\n}\n\n"
    return (
        text.replace("\t// .globl", function + "\t// .globl", 1)
        if "\t// .globl" in text
        else text.replace(".visible .entry", function + ".visible .entry", 1)
    )


REWRITES: dict[str, tuple[str, str, Callable[[str], str]]] = {
    "comments-removed": ("kernels/saxpy", "saxpy-1000", lambda text: re.sub(r"//.*", "", text)),
    "comments-added": (
        "kernels/reduce",
        "reduce_shared-1000",
        lambda text: _BODY_LINE.sub("\t/* a remark */ ", text),
    ),
    "carriage-returns": ("kernels/scan", "scan-1000", lambda text: text.replace("\n", "\r\n")),
    "blank-lines": ("kernels/sgemm", "sgemm_tiled-16x32x16", lambda text: _BODY_LINE.sub("\n\t", text)),
    "spaces-for-tabs": (
        "kernels/transpose",
        "transpose_padded-32x64",
        lambda text: text.replace("\t", "    "),
    ),
    "locations-removed": (
        "kernels/histogram",
        "histogram_shared-1500",
        lambda text: re.sub(r"^\t\.loc.*\n", "", text, flags=re.M),
    ),
    "locations-shifted": ("kernels/stencil", "heat_step-32x16", _shifted_locations),
    "registers-renamed": (
        "kernels/spmv",
        "spmv_scalar-200x150",
        lambda text: _renamed(_renamed(text, "r", "word"), "f", "value"),
    ),
    "labels-renamed": ("kernels/softmax", "softmax-3x200", lambda text: text.replace("$L__BB", "$Block_")),
    "parameters-renamed": (
        "kernels/mandelbrot",
        "mandelbrot-35x20x40",
        lambda text: text.replace("mandelbrot_param_", "argument_"),
    ),
    "newer-version": (
        "kernels/collatz",
        "collatz-300",
        lambda text: re.sub(r"\.version \d\.\d", ".version 9.1", text),
    ),
    "file-renamed": (
        "kernels/mandelbrot",
        "mandelbrot-35x20x40",
        lambda text: text.replace('"mandelbrot.cu"', '"src/fractals/mandelbrot.cu"'),
    ),
    "hexadecimal": ("kernels/bitonic", "bitonic-2048", _hexadecimal),
    "unused-function": ("kernels/bfs", "bfs-300x450", _unused_function),
    "unused-registers": ("kernels/haxpy", "haxpy-1001", _padded_declarations),
    "final-zero": ("kernels/carrier", "carrier-300", lambda text: text + "\0"),
    "broken-lines": ("kernels/fft512", "fft512-1", _one_operand_a_line),
    "other-kernels-removed": (
        "kernels/reduce",
        "reduce_shuffle-2000",
        lambda text: (
            text[: text.index("\t// .globl\treduce_shared")]
            + text[text.index("\t// .globl\treduce_shuffle") :]
        ),
    ),
}
