"""The table of rules: what it lists is what the engine looks for."""

from __future__ import annotations

import re
from pathlib import Path

import gpuperf_engine
from gpuperf_engine.isa.rules import NOTED, RULES, render
from gpuperf_engine.simt.clusters import BROKEN


def test_rules_that_are_noted_are_those_that_work_on_todays_gpus() -> None:
    # ends of objects are looked at where an access was refused, not by compiled code
    assert {*NOTED, "object-end"} == {name for name, rule in RULES.items() if rule.works}
    # other messages than those about clusters have words of their own
    own = {"aligned-barrier", "shuffle-mask", "local-order", "invalid-again", "unseen-phase", "after-inval"}
    assert {*BROKEN, *own} >= {*NOTED}
    assert set(BROKEN) <= set(RULES)


def test_rules_say_where_they_stand() -> None:
    page = render()
    for name, rule in RULES.items():
        assert re.fullmatch(r"[a-z-]+", name)
        assert re.match(r"(PTX|CUDA): ", rule.section)
        row = f"| `{name}` | {rule.says} | {rule.section} | {'note' if rule.works else 'error'} |"
        assert row in page.splitlines()


def test_rules_named_in_messages_are_in_the_table() -> None:
    folder = Path(gpuperf_engine.__file__).parent
    quoted = {
        word
        for path in folder.rglob("*.py")
        for word in re.findall(r'"((?:peer|arrival)-[a-z-]+)"', path.read_text(encoding="utf-8"))
    }
    assert quoted and quoted <= set(RULES)
