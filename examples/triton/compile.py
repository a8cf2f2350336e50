"""Compiles the Triton kernels to the committed PTX, one file per kernel and architecture. Needs no GPU.

    python3 -m venv /tmp/triton && /tmp/triton/bin/pip install triton==3.9.0
    make -C examples triton TRITON_PYTHON=/tmp/triton/bin/python

A program is launched as a block of 32 * num_warps threads. After the arguments that are not compile-time
constants the entry takes two more pointers, to scratch memory and to profiling memory; these kernels use
neither, and null will do.
"""

import os
import re
from pathlib import Path

import kernels
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = Path(__file__).resolve().parent
#: what only a debugger reads, a quarter of the files; names of functions are in ``.debug_str``
DWARF = re.compile(r"\t\.section\t\.debug_(?:abbrev|info|macinfo)\n?\t\{.*?\t\}\n?", re.DOTALL)
#: of a directive for positions, the comment that says it again
REPEATED = re.compile(r"(\t\.loc\t[^/\n]+?) +// .*")
PTX_VERSION = 87  # one that the ptxas of CUDA 12.9 and later accepts

# Kernel, types of its parameters, compile-time constants, and the integers that callers keep at multiples of
# 16. Triton's launcher specialises on such values when it sees them (and on pointers, which are always so):
# loads become vectors.
KERNELS = {
    "vector_add": (
        kernels.add_kernel,
        {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        {"BLOCK": 1024},
        ("n",),
    ),
    "softmax": (
        kernels.softmax_kernel,
        {"out_ptr": "*fp32", "in_ptr": "*fp32", "row_stride": "i32", "cols": "i32", "BLOCK": "constexpr"},
        {"BLOCK": 1024},
        (),
    ),
    "layernorm": (
        kernels.layernorm_kernel,
        {
            **{name: "*fp32" for name in ("in_ptr", "gamma_ptr", "beta_ptr", "out_ptr")},
            **{"row_stride": "i32", "cols": "i32", "epsilon": "fp32", "BLOCK": "constexpr"},
        },
        {"BLOCK": 512},
        ("row_stride",),
    ),
    "matmul": (
        kernels.matmul_kernel,
        {
            **{"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp32", "m": "i32", "n": "i32", "k": "i32"},
            **{name: "constexpr" for name in ("ROWS", "COLUMNS", "DEPTH", "GROUP")},
        },
        {"ROWS": 64, "COLUMNS": 64, "DEPTH": 32, "GROUP": 4},
        ("m", "n", "k"),
    ),
    "attention": (
        kernels.attention_kernel,
        {
            **{name: "*fp16" for name in ("q_ptr", "k_ptr", "v_ptr", "out_ptr")},
            **{"length": "i32", "scale": "fp32"},
            **{name: "constexpr" for name in ("QUERIES", "KEYS", "WIDTH", "CAUSAL")},
        },
        {"QUERIES": 64, "KEYS": 32, "WIDTH": 64, "CAUSAL": True},
        ("length",),
    ),
    "choose": (
        kernels.choose_kernel,
        {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "threshold": "fp32", "BLOCK": "constexpr"},
        {"BLOCK": 1024},
        (),
    ),
    "tiles": (
        kernels.tiles_kernel,
        {"x": "tensordesc<fp16[16,64]>", "out": "tensordesc<fp16[16,64]>", "ROWS": "constexpr"},
        {"ROWS": 16},
        (),
    ),
}


def main() -> None:
    """Write every kernel for every architecture beside this file."""
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # stated, since the default changes between Triton releases
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"  # a cached result would carry the folder it was compiled in
    for stem, (kernel, signature, constants, multiples) in KERNELS.items():
        aligned = {
            (i,): [["tt.divisibility", 16]]
            for i, (name, kind) in enumerate(signature.items())
            if kind.startswith("*") or name in multiples
        }
        # before sm_90 there are no tensor maps: Triton passes what a descriptor holds one by one
        for capability in (90,) if "tiles" in stem else (80, 90):
            compiled = triton.compile(
                ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned),
                target=GPUTarget("cuda", capability, 32),
                options={"num_warps": 4, "num_stages": 3, "ptx_version": PTX_VERSION},
            )
            text = re.sub(r'(\.file\s+\d+ )"[^"]*/', r'\1"', compiled.asm["ptx"])
            text = REPEATED.sub(r"\1", DWARF.sub("", text))
            path = HERE / f"{stem}.sm_{capability}.ptx"
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"{path.name}: {kernel.__name__}, block 128, shared_bytes {compiled.metadata.shared}")


if __name__ == "__main__":
    main()
