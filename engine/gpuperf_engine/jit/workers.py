"""CTAs of one launch on several host threads, for programs in which no CTA can tell the order.

Each thread has counters of its own, which are added up; memory is shared. Of several errors the one of the lowest CTA is raised,
whatever ran first.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

from ..errors import EngineError

if TYPE_CHECKING:
    from .launch import Launch, Worker

__all__ = ["run_parallel"]

#: what one thread alone must be expected to need, in seconds, before others are asked to help: ten times what asking costs, so that
#: kernels which gain nothing from a second core, because memory is what they wait for, lose no more than a tenth
WORTH_IT = 0.004


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "gpuperf-cta")


if hasattr(os, "register_at_fork"):
    # threads do not survive a fork
    os.register_at_fork(after_in_child=_pool.cache_clear)


class _Queue:
    """Chunks of CTAs (or clusters), handed out in index order until one fails."""

    def __init__(self, launch: Launch, first: int, chunk: int) -> None:
        self.launch = launch
        self.next = first
        self.chunk = chunk
        self.lock = threading.Lock()
        self.failed: list[tuple[int, EngineError]] = []

    def take(self) -> tuple[int, int] | None:
        """The next chunk, or ``None``."""
        with self.lock:
            first = self.next
            if self.failed or first >= self.launch.units:
                return None
            self.next = min(first + self.chunk, self.launch.units)
            return first, self.next

    def work(self, worker: Worker) -> None:
        """Run chunks until there are none left."""
        while (part := self.take()) is not None:
            try:
                self.launch.run_part(worker, *part)
            except EngineError as error:
                with self.lock:
                    self.failed.append((part[0], error))


def run_parallel(launch: Launch) -> None:
    """Run all CTAs or clusters: the first few here, and, if much is left, the rest on all threads of the plan."""
    worker, count = launch.worker(), launch.units
    some = max(1, count // 64)
    launch.run_part(worker, 0, some)
    # the first few touch memory and code for the first time; what others do on this machine meanwhile does not count
    first = min(2 * some, count)
    start = time.thread_time()
    launch.run_part(worker, some, first)
    expected = (time.thread_time() - start) * (count - first) / max(1, first - some)
    threads = min(launch.plan.threads, count - first)
    if expected < WORTH_IT or threads < 2:
        launch.run_part(worker, first, count)
        return
    launch.lock_lines()
    queue = _Queue(launch, first, max(1, (count - first) // (threads * 8)))
    pool = _pool(launch.plan.threads)
    jobs: list[Future[None]] = [pool.submit(queue.work, launch.worker()) for _ in range(threads - 1)]
    queue.work(worker)
    for job in jobs:
        job.result()
    if queue.failed:
        raise min(queue.failed, key=lambda item: item[0])[1]
