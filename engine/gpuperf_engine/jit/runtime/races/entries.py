"""Entries of the race detector, as LLVM IR: functions of the object that every kernel needs, which call functions of the object of
the detector.

The calls go through a table. Until ``races_install`` has filled it, they do nothing and return 0, so launches without race detection
do not compile the detector.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.emitter import Emitter
from ...ir.operands import Ref

__all__ = ["INSTALL", "entry_functions"]

INSTALL = "races_install"


def entry_functions(parameters: Mapping[str, int]) -> str:
    """One function for each name, with the given number of parameters; ``races_install(n, address)`` sets entry n of the table."""
    count = len(parameters)
    nothing = ", ".join(["ptr @race_nothing"] * count)
    texts = [f"@race_table = internal global [{count} x ptr] [{nothing}]\n"]
    texts.append("define internal i64 @race_nothing() nounwind {\n  ret i64 0\n}\n")
    for number, (name, given) in enumerate(parameters.items()):
        to = Emitter()
        to.start("entry")
        code = to.load("ptr", to.place("@race_table", 8 * number))
        arguments = [f"i64 %a{place}" for place in range(given)]
        result = to.op(f"tail call i64 {code}({', '.join(arguments)})")
        to.do(f"ret i64 {result}")
        texts.append(to.function(f"i64 @{name}({', '.join(arguments)})"))
    to = Emitter()
    to.start("entry")
    to.store(to.pointer("%address"), to.place("@race_table", to.shl(Ref("i64", "%n"), 3)))
    to.do("ret i64 0")
    texts.append(to.function(f"i64 @{INSTALL}(i64 %n, i64 %address)"))
    return "\n".join(texts)
