"""What a warp issues, derived afterwards from the paths of its threads.

The rule: a divergent branch sends its sides, one after the other, to the immediate post-dominator of its
block, where they join; sides are never merged with each other before that point. A stack of
``(where to go on, lanes, join point)`` carries it out. ``ret`` and ``exit`` lead to a virtual exit block,
lanes that went there never come back; a called function is a graph of its own and its lanes join after the
call. ``trap`` is not a control flow (compilers let the text run on behind it), so it moves no join point.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from .syntax import Function, Label, Statement, Symbol

EXIT = -1
GOTO, CALL, END = range(3)
Record = tuple[int, int, object]


class Stop(enum.Enum):
    RETURN = enum.auto()
    EXIT = enum.auto()


class Flow:
    """Basic blocks of a function with their immediate post-dominators and counters."""

    def __init__(self, function: Function) -> None:
        code = function.code
        starts = {0, len(code), *function.labels.values()}
        starts |= {s.index + 1 for s in code if s.base in ("bra", "brx", "call", "ret", "exit")}
        self.starts = sorted(starts)  # the last block is empty: falling into it returns
        self.block_at = {start: i for i, start in enumerate(self.starts)}
        self.last_block = len(self.starts) - 1
        self.blocks: list[list[Statement]] = []
        for i, start in enumerate(self.starts):
            end = self.starts[i + 1] if i < self.last_block else len(code)
            self.blocks.append(code[start:end])
            for statement in self.blocks[i]:
                statement.block, statement.ends_block = i, statement.index == end - 1
        self.successors = [self.follow(i) for i in range(len(self.blocks))]
        self.join = join_points(self.successors)
        self.warps = [0] * len(self.blocks)
        self.lanes = [0] * len(self.blocks)
        self.executed = [0] * len(self.blocks)
        self.divergent = [0] * len(self.blocks)

    def follow(self, block: int) -> list[int]:
        """Where control may go from a block."""
        if block == self.last_block:
            return [EXIT]
        statements = self.blocks[block]
        last = statements[-1]
        targets: list[int] = []
        if last.base == "bra":
            targets = [self.block_at[p] for p in positions(last.operands[0])]
        elif last.base == "brx":
            targets = [self.block_at[p] for p in positions(last.operands[1])]
        elif last.base in ("ret", "exit"):
            targets = [EXIT]
        if last.base not in ("bra", "brx", "ret", "exit") or last.guard is not None:
            targets.append(block + 1)
        return list(dict.fromkeys(targets))

    def is_branch(self, block: int) -> bool:
        """Whether the block ends in an instruction that the branch metrics are about."""
        last = self.blocks[block][-1] if self.blocks[block] else None
        if last is None:
            return False
        return last.base == "brx" or (last.base in ("bra", "ret", "exit") and last.guard is not None)


def positions(operand: object) -> list[int]:
    target = operand.target if isinstance(operand, Symbol) else None
    if isinstance(target, Label):
        return [target.position]
    return list(target) if isinstance(target, list) else []


def join_points(successors: list[list[int]]) -> list[int]:
    """The immediate post-dominator of every block; the exit where there is none.

    Plain iteration of the definition: a block is post-dominated by itself and by whatever post-dominates all
    of its successors. Sets are bit sets; bit ``len(successors)`` stands for the exit.
    """
    count = len(successors)
    everything = (1 << (count + 1)) - 1
    sets = [everything] * count + [1 << count]  # sets[EXIT] is the last
    changed = True
    while changed:
        changed = False
        for block in range(count - 1, -1, -1):
            common = everything
            for successor in successors[block]:
                common &= sets[successor]
            common |= 1 << block
            if common != sets[block]:
                sets[block], changed = common, True
    leaving = {EXIT}  # blocks from which there is a way to the exit
    while more := {b for b in range(count) if b not in leaving and leaving & set(successors[b])}:
        leaving |= more
    result = []
    for block in range(count):
        strict = sets[block] & ~(1 << block)
        if block not in leaving:  # an endless loop: nothing joins
            result.append(EXIT)
            continue
        # The nearest of the strict post-dominators is the one that all others post-dominate.
        nearest = max(members(strict), key=lambda b: sets[b if b < count else EXIT].bit_count())
        result.append(nearest if nearest < count else EXIT)
    return result


def members(bits: int) -> list[int]:
    return [i for i in range(bits.bit_length()) if bits >> i & 1]


class Replay:
    """Counts per block and branch over all warps of a launch."""

    def __init__(self, flows: dict[str, Flow]) -> None:
        self.flows = flows
        self.paths: Sequence[list[Record]] = ()
        self.cursors: list[int] = []

    def warp(self, entry: str, paths: Sequence[list[Record]]) -> None:
        self.paths, self.cursors = paths, [0] * len(paths)
        self.function(entry, frozenset(range(len(paths))))
        left = [lane for lane, path in enumerate(paths) if self.cursors[lane] != len(path)]
        assert not left, f"lanes {left} have blocks that the warp never issued"

    def take(self, lane: int, block: int) -> Record:
        record = self.paths[lane][self.cursors[lane]]
        self.cursors[lane] += 1
        assert record[0] == block, f"lane {lane} was in block {record[0]}, the warp in {block}"
        return record

    def function(self, name: str, lanes: frozenset[int]) -> frozenset[int]:
        """Run the lanes through one activation of the function; returns those that came back from it."""
        flow = self.flows[name]
        stack: list[tuple[int, frozenset[int], int | None]] = []
        returned: set[int] = set()
        gone: set[int] = set()  # returned or exited
        block: int = 0
        active, join = lanes, None
        while True:
            if not active or block == join:
                if not stack:
                    return frozenset(returned)
                block, active, join = stack.pop()
                active -= gone
                continue
            flow.warps[block] += 1
            flow.lanes[block] += len(active)
            sides: dict[tuple[int, object], list[int]] = {}
            for lane in sorted(active):
                _, kind, where = self.take(lane, block)
                sides.setdefault((kind, where), []).append(lane)
            if any(kind == CALL for kind, _ in sides):
                for (kind, where), members_ in sides.items():
                    if kind == CALL:
                        gone |= set(members_) - self.function(str(where), frozenset(members_))
                active, block = active - gone, block + 1
                continue
            if flow.is_branch(block):
                flow.executed[block] += 1
                flow.divergent[block] += len(sides) > 1
            if len(sides) > 1:
                point = flow.join[block]
                if join != point:
                    stack.append((point, active, join))
                join = point
            # One side runs while the others wait; which one goes first changes no count.
            pending: list[tuple[int, frozenset[int]]] = []
            for (kind, where), members_ in sides.items():
                if kind == END:
                    gone |= set(members_)
                    if where is Stop.RETURN:
                        returned |= set(members_)
                    continue
                assert isinstance(where, int)
                target = flow.block_at[where]
                if target != join or len(sides) == 1:
                    pending.append((target, frozenset(members_)))
            if not pending:
                active = frozenset()
                continue
            block, active = pending[0]
            stack += [(target, others, join) for target, others in reversed(pending[1:])]
