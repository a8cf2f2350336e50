"""Control flow and the rest (manual: "Control Flow Instructions", "Miscellaneous Instructions")."""

from __future__ import annotations

from .. import effects
from ..availability import Available
from ..model import Accepts
from ..table import Options, declare

CONTROL: Options = {"category": "control", "unit": "cbu"}
MISC: Options = {"category": "misc", "unit": "alu", "effect": effects.HINT}

declare("bra{.uni} t:label", "Continues at the label.", effect=effects.BRANCH, **CONTROL)
declare(
    "brx.idx{.uni} a:u32, t:list",
    "Continues at the a-th label of the table.",
    effect=effects.INDIRECT_BRANCH,
    since=(6, 0),
    target=30,
    **CONTROL,
)
declare(
    "call{.uni} f:call", "Calls a function, directly or through a register.", effect=effects.CALL, **CONTROL
)
declare(
    "ret{.uni}", "Returns from the function; in an entry, ends the thread.", effect=effects.RETURN, **CONTROL
)
declare("exit", "Ends the thread.", effect=effects.THREAD_EXIT, **CONTROL)
declare("trap", "Aborts the launch with an error.", effect=effects.TRAP, **CONTROL)
declare("brkpt", "Stops for a debugger.", effect=effects.TRAP, target=11, **CONTROL)

declare("nanosleep.u32 t", "Sleeps for about t nanoseconds.", since=(6, 3), target=70, **MISC)
declare(
    "pmevent a:imm",
    "Triggers performance-monitor event a.",
    since=(1, 4),
    accepts=Accepts(constants={"a": (lambda event: 0 <= event <= 15, "the events 0 to 15")}),
    **MISC,
)
declare(
    "pmevent.mask a:imm",
    "Triggers the performance-monitor events of the mask.",
    accepts=Accepts(constants={"a": (lambda mask: 0 <= mask < 1 << 16, "a mask of 16 bits")}),
    since=(3, 0),
    target=20,
    **MISC,
)
declare(
    "griddepcontrol.action",
    "Lets dependent grids start, or waits for the grids that this one depends on.",
    action="launch_dependents wait",
    since=(7, 8),
    target=90,
    **MISC,
)
declare(
    "setmaxnreg.action.sync.aligned.u32 count:imm",
    "Changes the number of registers that the warp may use.",
    action="inc dec",
    leads="action",
    accepts=Accepts(
        constants={
            "count": (lambda count: 24 <= count <= 256 and count % 8 == 0, "a multiple of 8 from 24 to 256")
        }
    ),
    available=Available(since=(8, 0), target=90, variant="a"),
    **MISC,
)
