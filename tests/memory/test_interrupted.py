"""A handler of a signal that raises while memory is allocated or freed: the device stays usable, and no address is given twice."""

from __future__ import annotations

import pytest

from gpuperf_engine.memory import arena
from gpuperf_engine.memory.arena import Memory
from gpuperf_engine.memory.holes import Holes


@pytest.mark.parametrize("function", ["insert", "delete"])
def test_the_table_is_that_of_the_allocations(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    memory = Memory(1 << 20)
    first, second, third = (memory.allocate(1024, name) for name in "abc")
    memory.table()
    memory.free(second, again=False)
    memory.table()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(arena.np, function, interrupted)
        with pytest.raises(KeyboardInterrupt):
            if function == "insert":
                memory.allocate(1024, "d", at=second.address)
            else:
                memory.free(first)
    last = memory.allocate(512, "e")
    there = [item for item in memory.allocations if item.kind == "global"]
    assert {id(third), id(last)} <= {*map(id, there)}
    assert memory.used == sum(item.size for item in there)
    assert memory.table()[:, :2].tolist() == [[item.address, item.end] for item in memory.allocations]
    assert all(memory.resolve(item.address, item.size) is item for item in there)


def test_a_piece_is_not_given_twice_or_from_a_stale_row() -> None:
    """Interrupted where pieces are joined or divided."""

    class Interrupted(dict[int, int]):
        def __delitem__(self, key: int) -> None:
            super().__delitem__(key)
            raise KeyboardInterrupt

    holes = Holes(16)
    for number in range(40):
        holes.put(64 * number, 64 * number + 32)
    holes._join()
    for number in range(40):
        holes.put(64 * number, 64 * number + 32)
    holes._ends, holes._joined = Interrupted(holes._ends), True
    with pytest.raises(KeyboardInterrupt):
        holes.take(16, 16)
    holes._ends = dict(holes._ends)
    assert holes.take_alike(32, 16) is None
    assert holes.take(32, 16) == 64
