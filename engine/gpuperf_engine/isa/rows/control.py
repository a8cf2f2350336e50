"""Control flow (manual: "Control Flow Instructions" and "Miscellaneous Instructions")."""

from __future__ import annotations

from ..table import declare

CONTROL = {"category": "control", "unit": "cbu"}

declare("bra{.uni} t:label", "Continues at the label.", effect="branch", **CONTROL)
declare(
    "brx.idx{.uni} a:u32, t:list", "Continues at the a-th label of the table.", effect="indirect_branch", since=(6, 0), target=30,
    **CONTROL,
)  # fmt: skip
declare("call{.uni} f:call", "Calls a function, directly or through a register.", effect="call", **CONTROL)
declare("ret{.uni}", "Returns from the function; in an entry, ends the thread.", effect="return", **CONTROL)
declare("exit", "Ends the thread.", effect="exit", **CONTROL)
declare("trap", "Aborts the launch with an error.", effect="trap", **CONTROL)
declare("brkpt", "Stops for a debugger.", effect="trap", target=11, **CONTROL)
