"""mbarrier objects (manual: mbarrier.*). Their bits are those of ``isa.mbarriers``.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import Any

from ..mbarriers import COUNT_MAX
from ..table import declare, instruction
from ..types import scalar_type
from ..words import Value

MBARRIER: dict[str, Any] = {
    "category": "barrier",
    "unit": "lsu",
    "effect": "mbarrier",
    "since": (7, 0),
    "target": 80,
    "requires": {"shared::cta": ((7, 8), 80)},
}
OWN, ANY, REMOTE = "shared shared::cta", "shared shared::cta shared::cluster", "shared::cluster"
ORDER: dict[str, Any] = {"sem": "release relaxed", "scope": "cta cluster"}
HOPPER: dict[str, Any] = {
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

declare(
    "mbarrier.init{.space}.b64 [a], count:u32",
    "Makes an mbarrier object in phase 0 that expects count arrivals in each phase.",
    space=OWN,
    **MBARRIER,
)
declare("mbarrier.inval{.space}.b64 [a]", "The memory is no mbarrier object any more.", space=OWN, **MBARRIER)
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

_STATE = "; d: the object as it was before."
for _name, _what in (
    ("arrive", "An arrival at the current phase, or count of them"),
    ("arrive_drop", "As arrive, and so many less are expected from the next phase on"),
):
    _order: dict[str, Any] = {
        **ORDER,
        **MBARRIER,
        "requires": _REQUIRES,
        "constants": {"count": (lambda count: count > 0, "more than 0")},
    }
    declare(f"mbarrier.{_name}{{.sem.scope}}{{.space}}.b64 d:u64, [a]", _what + _STATE, space=OWN, **_order)
    declare(
        f"mbarrier.{_name}{{.sem.scope}}{{.space}}.b64 d:u64, [a], count:u32",
        _what + _STATE,
        space=OWN,
        **{**_order, "since": (7, 8), "target": 90},
    )
    declare(
        f"mbarrier.{_name}{{.sem.scope}}{{.space}}.b64 _, [a]{{, count:u32}}",
        _what + ", in any block of the cluster.",
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
    declare(
        f"mbarrier.{_name}.noComplete{{.sem.scope}}{{.space}}.b64 d:u64, [a], count:u32",
        f"{_what}, which must not complete it{_STATE}",
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
    _waits: dict[str, Any] = {
        **_options,
        "effect": "mbarrier_wait",
        "space": OWN,
        "sem": "acquire relaxed",
        "scope": "cta cluster",
        "requires": _REQUIRES,
        "constants": {"parity": (lambda parity: parity in (0, 1), "0 and 1")},
    }
    _hint = "{, hint:u32}" if _name == "try_wait" else ""
    declare(
        f"mbarrier.{_name}{{.sem.scope}}{{.space}}.b64 p:pred, [a], state:u64{_hint}",
        f"{_text}: that of a state.",
        **_waits,
    )
    declare(
        f"mbarrier.{_name}.parity{{.sem.scope}}{{.space}}.b64 p:pred, [a], parity:u32{_hint}",
        f"{_text}: the current or the last one, by its parity.",
        **{**_waits, "since": max(_options["since"], (7, 1))},
    )


@instruction(
    "mbarrier.pending_count.b64 d:u32, state:u64",
    category="barrier",
    unit="alu",
    since=(7, 0),
    target=80,
)
def pending_count(state: Value) -> Value:
    """The pending arrivals that a state shows."""
    return (state & COUNT_MAX).convert(scalar_type("u32"))
