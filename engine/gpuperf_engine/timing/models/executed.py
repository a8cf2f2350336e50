"""Compares what a simulated launch executes with the exact counts of its PTX instructions.

The trace of a launch executes only the instructions that decide about control flow and addresses. If it decided wrongly, most of the
work would be missing, and the predicted time would be far too short.
"""

from __future__ import annotations

from ...isa.effects import ATOMIC, BARRIER, REDUCTION, STORE
from ...profile.build import LaunchRecord
from ...sass.assemble import instructions_of
from ...sass.counts import ptx_counts
from ...sass.sm.launch import NotRun, Timed

__all__ = ["check_executed"]

#: What an assembler makes of stores, atomics and barriers. In the examples CTAs execute as many as were
#: counted (within 2 %), or more, but for one with sampled CTAs, which executes two thirds.
_KEPT = frozenset(["STG", "ST", "RED", "REDG", "ATOM", "ATOMG", "BAR"])
#: The least part of their counted executions that has to be simulated. Sampled CTAs need not be average ones.
_LEAST = 1 / 4
#: The same for all instructions, if there are few of these: assemblers remove copies and repeated computations.
_LEAST_OF_ALL = 1 / 32


def check_executed(timed: Timed, record: LaunchRecord) -> None:
    """Raises ``NotRun`` if the CTAs that were simulated execute far less than the CTAs of the launch did on average. They may execute
    more, as those of the SM with the most work."""
    items = instructions_of(record.program.kernel)
    counts = ptx_counts([record.each], items).of
    kept = {
        number
        for number, item in enumerate(items, 1)
        if item.effect in (STORE, ATOMIC, REDUCTION, BARRIER) and item.form.space not in ("shared", "local")
    }
    counted = sum(count.warps for number, count in counts.items() if number in kept)
    executed = sum(item.issued for item in timed.instructions if item.ptx in kept and item.base in _KEPT)
    least = _LEAST
    if counted < record.plan.ctas:  # none, or fewer than one a CTA, which sampled ones need not execute
        counted, least = sum(count.warps for count in counts.values()), _LEAST_OF_ALL
        executed = sum(item.issued for item in timed.instructions)
    each, mean = executed / timed.simulated, counted / record.plan.ctas
    if each < least * mean:
        raise NotRun(
            f"a simulated CTA executes {each:,.1f} stores, atomics and barriers, and {mean:,.1f} were counted for each on average"
            if least == _LEAST
            else f"a simulated CTA executes {each:,.1f} instructions, and {mean:,.1f} of PTX were counted for each on average"
        )
