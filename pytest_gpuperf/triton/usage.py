"""Memory usage as torch's caching allocator counts it, without a cache of freed memory.

Sizes are rounded up to 512 bytes, and blocks up to 1 MiB belong to the small pool (``kMinBlockSize`` and ``kSmallSize`` in
c10/cuda/CUDACachingAllocator.cpp).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

__all__ = ["BLOCK", "Usage"]

BLOCK = 512
"""The unit of allocations in bytes, and their alignment."""
_SMALL = 1 << 20
#: counters of allocations and of bytes; memory is reserved while it is allocated
_COUNTS = ("allocation", "segment", "active")
_BYTES = ("allocated_bytes", "reserved_bytes", "active_bytes")
_NEVER = ("inactive_split", "inactive_split_bytes")
_OVERSIZE = ("oversize_allocations", "oversize_segments")
_SINGLE = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free")


@dataclass
class _Counter:
    """What is in use, the most since a reset, and all that was allocated and freed since then."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def add(self, amount: int) -> None:
        self.current += amount
        self.peak = max(self.peak, self.current)
        self.allocated += amount

    def remove(self, amount: int) -> None:
        self.current -= amount
        self.freed += amount


@dataclass
class _Pool:
    """Counters of a pool: allocations, their bytes in blocks, and the requested bytes."""

    blocks: _Counter = field(default_factory=_Counter)
    bytes: _Counter = field(default_factory=_Counter)
    requested: _Counter = field(default_factory=_Counter)

    def counters(self) -> tuple[_Counter, _Counter, _Counter]:
        return self.blocks, self.bytes, self.requested


class Usage:
    """Counts allocations by their sizes in bytes."""

    def __init__(self) -> None:
        self._pools = {"all": _Pool(), "small_pool": _Pool(), "large_pool": _Pool()}

    def add(self, size: int) -> None:
        """Count an allocation."""
        for counter, amount in self._amounts(size):
            counter.add(amount)

    def remove(self, size: int) -> None:
        """Count the end of an allocation of this size."""
        for counter, amount in self._amounts(size):
            counter.remove(amount)

    def _amounts(self, size: int) -> list[tuple[_Counter, int]]:
        rounded = -(-size // BLOCK) * BLOCK
        pools = self._pools["all"], self._pools["small_pool" if size <= _SMALL else "large_pool"]
        return [pair for pool in pools for pair in zip(pool.counters(), (1, rounded, size))]

    def reset_peak(self) -> None:
        """Let peaks begin at what is in use."""
        for pool in self._pools.values():
            for counter in pool.counters():
                counter.peak = counter.current

    def reset_accumulated(self) -> None:
        """Let the sums of all that was allocated and freed begin at 0."""
        for pool in self._pools.values():
            for counter in pool.counters():
                counter.allocated = counter.freed = 0

    def statistics(self) -> dict[str, object]:
        """The result of ``torch.cuda.memory_stats_as_nested_dict``."""
        none = asdict(_Counter())
        pools = self._pools.items()
        return {
            **{name: {key: asdict(pool.blocks) for key, pool in pools} for name in _COUNTS},
            **{name: {key: asdict(pool.bytes) for key, pool in pools} for name in _BYTES},
            **{name: {key: none for key in self._pools} for name in _NEVER},
            "requested_bytes": {key: asdict(pool.requested) for key, pool in pools},
            **dict.fromkeys(_OVERSIZE, none),
            **dict.fromkeys(_SINGLE, 0),
            "max_split_size": -1,
        }
