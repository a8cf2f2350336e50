"""Copies from and to logical endpoints of other devices (manual: fabric.try_get, try_put, try_red, try_pullred, submit, wait).
There are no endpoints here: a launch that reaches such an instruction stops with an error.
"""

from __future__ import annotations

from .. import effects
from ..model import Accepts
from ..table import Options, declare

FABRIC: Options = {"category": "load_store", "unit": "lsu", "since": (9, 3), "target": 100}
_EVERY = {"membermask": (lambda mask: mask & 0xFFFFFFFF == 0xFFFFFFFF, "0xFFFFFFFF")}
_ORDER = "mbarrier::report::fabric.relaxed.sys"
_COUNTED = "mbarrier::report::fabric.counted::bytes.relaxed.sys"
_BYTES, _PIECES = "mbarrier::complete_tx::bytes", "mbarrier::complete_tx::16B"
_OWN = "shared::cta"
#: The manual lists 120a and 121a; ptxas accepts their family.
_FAMILIES = "100f 110f 120f"
_OPERATIONS = (
    ("and xor or", "b32 b64"),
    ("min max", "u32 s32 u64 s64 f16 bf16"),
    ("add", "u32 u64 f16 bf16 f32 f64"),
)

declare(
    f"fabric.try_get.async.{_OWN}.{_BYTES}.{_ORDER}.b128 [d]:shared, [handle:endpoint, offset:u64%], size:u32, [m]:shared",
    "Copies size bytes from a logical endpoint to shared memory, and signals the mbarrier at m.",
    **FABRIC,
)
for _order, _counter in ((_ORDER, ""), (_COUNTED, ", counter:u64%")):
    declare(
        f"fabric.try_put.async{{.multimem}}.{_OWN}.{_PIECES}.{_order}.b128 "
        f"[handle:endpoint, offset:u64%{_counter}], [a]:shared, size:u32, [m]:shared",
        "Copies size bytes from shared memory to a logical endpoint, and signals the mbarrier at m.",
        **FABRIC,
    )
    for _ops, _types in _OPERATIONS:
        declare(
            f"fabric.try_red.async{{.multimem}}.{_OWN}.{_PIECES}.{_order}.op.type "
            f"[handle:endpoint, offset:u64%{_counter}], [a]:shared, size:u32, [m]:shared",
            "Combines size bytes of a logical endpoint with those in shared memory, and signals the mbarrier at m.",
            op=_ops,
            type=_types,
            **FABRIC,
        )
declare(
    f"fabric.try_put.async{{.multimem}}.{_OWN}.{_PIECES}.mbarrier::report::fabric.cp_mask.relaxed.sys.b128 "
    "[handle:endpoint, offset:u64%], [a]:shared, size:u32, [m]:shared, bytes:u16",
    "Copies those of size bytes that a mask has, and signals the mbarrier at m.",
    **FABRIC,
)
for _ops, _types, _only in (
    ("and xor or", "b32 b64", ""),
    ("min max", "u32 s32 u64 s64 f16 bf16", ""),
    ("add", "u32 u64 f16 bf16 f32", ""),
    ("min max", "e4m3 e5m2", _FAMILIES),
    ("add.acc::f16", "e4m3 e5m2", _FAMILIES),
    ("add.acc::f32", "f16 bf16", _FAMILIES),
):
    _several = " " in _ops
    declare(
        f"fabric.try_pullred.async.multimem.{_OWN}.{_BYTES}.{_ORDER}.{'op' if _several else _ops}.type.sync "
        "[d]:shared, [handle:endpoint, offset:u64%], size:u32, [m]:shared, membermask:imm",
        "Combines size bytes of all members of a logical endpoint into shared memory, and signals the mbarrier at m.",
        type=_types,
        accepts=Accepts(constants=_EVERY),
        **({"op": _ops} if _several else {}),
        **({**FABRIC, "only": _only} if _only else FABRIC),
    )
declare(
    "fabric.submit{.op_restrict::fetching}",
    "Submits the operations of this thread on logical endpoints so far.",
    effect=effects.HINT,
    **FABRIC,
)
declare(
    "fabric.wait.sync_restrict::reads",
    "Waits until submitted operations have read shared memory.",
    effect=effects.HINT,
    **FABRIC,
)
