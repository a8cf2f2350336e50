"""mbarrier objects (manual: mbarrier.*). Their bits are those of ``isa.mbarriers``."""

from __future__ import annotations

from .. import effects
from ..mbarriers import COUNT_MAX
from ..model import Accepts
from ..primitives import Value
from ..table import Options, declare, instruction
from ..types import scalar_type

MBARRIER: Options = {
    "category": "barrier",
    "unit": "lsu",
    "effect": effects.MBARRIER,
    "since": (7, 0),
    "target": 80,
    "requires": {"shared::cta": ((7, 8), 80)},
}
OWN, ANY, REMOTE = "shared shared::cta", "shared shared::cta shared::cluster", "shared::cluster"
ORDER: Options = {"sem": "release relaxed", "scope": "cta cluster"}
HOPPER: Options = {
    **MBARRIER,
    "since": (8, 0),
    "target": 90,
    "requires": {},
}
_REQUIRES = {
    "shared::cta": ((7, 8), 80),
    "cta": ((8, 0), 80),
    "cluster": ((8, 0), 90),
    "relaxed": ((8, 6), 90),
    "release": ((8, 0), 80),
    "acquire": ((8, 0), 80),
}

RUBIN: Options = {**MBARRIER, "since": (9, 4), "only": "107f", "requires": {}}
_EVERYWHERE = ", in all blocks of the cluster whose bit in mask is set."
LAYOUTS: Options = {"layout": "layout::v0 layout::v1"}
_LAYOUT = {"layout::v0": ((9, 3), 90), "layout::v1": ((9, 3), 90)}

declare(
    "mbarrier.init{.layout}{.space}.b64 [a], count:u32",
    "Makes an mbarrier object in phase 0 that expects count arrivals in each phase; with .layout::v1 one that keeps a report.",
    space=OWN,
    **{**MBARRIER, **LAYOUTS, "requires": {**MBARRIER["requires"], **_LAYOUT}},
)
declare(
    "mbarrier.check_layout.layout{.space}.b64 p:pred, [a]",
    "Whether the object has that layout.",
    space=OWN,
    **{**MBARRIER, **LAYOUTS, "since": (9, 3), "target": 90, "requires": {}},
)
declare(
    "mbarrier.inval{.space}.b64 [a]", "The memory is not an mbarrier object any more.", space=OWN, **MBARRIER
)
for _name, _text in (
    ("expect_tx", "The current phase waits for count more bytes (or other transactions)."),
    ("complete_tx", "Count bytes that the current phase waits for have come."),
):
    declare(
        f"mbarrier.{_name}{{.sem.scope}}{{.space}}.b64 [a], count:u32",
        _text,
        space=ANY,
        sem="relaxed",
        scope="cta cluster",
        **HOPPER,
    )
    declare(
        f"mbarrier.{_name}{{.sem.scope}}{{.space}}.multicast::cluster::32b.b64 [a], count:u32, mask:u32",
        _text[:-1] + _EVERYWHERE,
        space=REMOTE,
        sem="relaxed",
        scope="cta cluster",
        **RUBIN,
    )

_STATE = "; d: the object as it was before."
for _name, _text_of_arrival in (
    ("arrive", "An arrival at the current phase, or count of them"),
    ("arrive_drop", "As arrive, and so many less are expected from the next phase on"),
):
    _order: Options = {
        **ORDER,
        **MBARRIER,
        "requires": _REQUIRES,
        "accepts": Accepts(constants={"count": (lambda count: count > 0, "more than 0")}),
    }
    declare(
        f"mbarrier.{_name}{{.sem.scope}}{{.space}}.b64 d:u64, [a]",
        _text_of_arrival + _STATE,
        space=OWN,
        **_order,
    )
    declare(
        f"mbarrier.{_name}{{.sem.scope}}{{.space}}.b64 d:u64, [a], count:u32",
        _text_of_arrival + _STATE,
        space=OWN,
        **{**_order, "since": (7, 8), "target": 90},
    )
    declare(
        f"mbarrier.{_name}{{.sem.scope}}{{.space}}.b64 _, [a]{{, count:u32}}",
        _text_of_arrival + ", in any block of the cluster.",
        space=REMOTE,
        **{**_order, "since": (8, 0), "target": 90},
    )
    declare(
        f"mbarrier.{_name}.expect_tx{{.sem.scope}}{{.space}}.b64 d:u64, [a], tx:u32",
        f"expect_tx, then {_name}{_STATE}",
        space=OWN,
        **{**_order, "since": (8, 0), "target": 90},
    )
    declare(
        f"mbarrier.{_name}.expect_tx{{.sem.scope}}{{.space}}.b64 _, [a], tx:u32",
        f"expect_tx, then {_name}, in any block of the cluster.",
        space=REMOTE,
        **{**_order, "since": (8, 0), "target": 90},
    )
    for _modifier, _operands, _before in (
        ("", "{, count:u32}", ""),
        (".expect_tx", ", tx:u32", "expect_tx, then "),
    ):
        declare(
            f"mbarrier.{_name}{_modifier}{{.sem.scope}}{{.space}}.multicast::cluster::32b.b64 _, [a]{_operands}, mask:u32",
            (f"{_before}{_name}" if _before else _text_of_arrival) + _EVERYWHERE,
            space=REMOTE,
            **{**_order, **RUBIN},
        )
    declare(
        f"mbarrier.{_name}.noComplete{{.sem.scope}}{{.space}}.b64 d:u64, [a], count:u32",
        f"{_text_of_arrival}, which must not complete it{_STATE}",
        space=OWN,
        **{**_order, "sem": "release", "scope": "cta"},
    )

for _name, _text, _options in (
    ("test_wait", "Whether a phase is complete", MBARRIER),
    (
        "try_wait",
        "As test_wait, after waiting for it for a time",
        {**MBARRIER, "since": (7, 8), "target": 90},
    ),
):
    _waits: Options = {
        **_options,
        "effect": effects.MBARRIER_WAIT,
        "space": OWN,
        "sem": "acquire relaxed",
        "scope": "cta cluster",
        "requires": _REQUIRES,
        "accepts": Accepts(constants={"parity": (lambda parity: parity in (0, 1), "0 and 1")}),
    }
    _hint = "{, hint:u32}" if _name == "try_wait" else ""
    _reports: Options = {**_waits, "since": (9, 3), "target": 90}
    for _parity, _phase, _phase_operand, _needs in (
        ("", "that of a state", "state:u64", {}),
        (
            ".parity",
            "the current or the last one, by its parity",
            "parity:u32",
            {"since": max(_options["since"], (7, 1))},
        ),
    ):
        _end = "{.sem.scope}{.space}.b64"
        _phases = "phase_type::primary" + (" phase_type::conditional" if _parity else "")
        declare(
            f"mbarrier.{_name}{_parity}{_end} p:pred, [a], {_phase_operand}{_hint}",
            f"{_text}: {_phase}.",
            **{**_waits, **_needs},
        )
        declare(
            f"mbarrier.{_name}{_parity}.phase_type{_end} p:pred, [a], {_phase_operand}{_hint}",
            f"{_text}: {_phase}; with .conditional, of the phases without a report.",
            phase_type=_phases,
            **_reports,
        )
        declare(
            f"mbarrier.{_name}{_parity}.phase_type{_end} p:pred|q:pred{{, result:b8}}, [a], {_phase_operand}{_hint}",
            f"{_text}: {_phase}. q: whether something was reported in it; result: the report.",
            phase_type="phase_type::primary",
            **_reports,
        )


@instruction(
    "mbarrier.pending_count{.layout}.b64 d:u32, state:u64",
    category="barrier",
    unit="alu",
    since=(7, 0),
    target=80,
    layout="layout::v0",
    requires=_LAYOUT,
)
def pending_count(state: Value) -> Value:
    """The pending arrivals that a state shows."""
    return (state & COUNT_MAX).convert(scalar_type("u32"))
