"""``clusterlaunchcontrol``: clusters that have not started are taken in launch order. The response is what is read here alone: a word
that says whether there was one, and the three indices of its first CTA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .copies import deliver
from .operands import Builder, Step
from .registry import semantics

if TYPE_CHECKING:
    from .threads import Thread

WORD = 32


@semantics("clusterlaunchcontrol")
def launch_control(b: Builder) -> Step:
    return request(b) if b.mods[0] == "try_cancel" else query(b)


def request(b: Builder) -> Step:
    to, barrier, everywhere = b.address(0), b.address(1), b.has("multicast")

    def step(t: Thread) -> None:
        machine, cluster = t.cta.machine, t.cta.cluster
        cluster.asked = True
        words = [0, 0, 0, 0]
        if machine.waiting:
            index = machine.waiting.popleft()
            words = [1, *(n * size for n, size in zip(index, machine.cluster, strict=True))]
        data = b"".join(word.to_bytes(4, "little") for word in words)
        t.check_alignment(to(t), 16)
        for rank in range(len(cluster.ctas)) if everywhere else (-1,):
            deliver(t, rank, to(t), barrier(t), data)

    return step


def query(b: Builder) -> Step:
    response = b.get(1, 4 * WORD)
    if b.has("is_canceled"):
        flag = b.put(0, 1)
        return lambda t: flag(t, response(t) & 1)
    if b.has("v4"):
        indices = b.put(0, 4 * WORD)
        return lambda t: indices(t, response(t) >> WORD)
    axis = "xyz".index(b.statement.opcode.split("get_first_ctaid::")[1][0])
    one = b.put(0, WORD)
    return lambda t: one(t, response(t) >> WORD * (1 + axis))
