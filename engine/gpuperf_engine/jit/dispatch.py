"""All CTAs of a launch: on several host threads if the program is order-free, otherwise on one.

Each thread has a context of its own, whose counters are added up; memory is shared. Of several errors that of the lowest CTA is
raised, whichever came first. A launch that is interrupted (Ctrl-C, the time limit of a test) ends on all threads before that is
raised: its memory may be given back then.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

from ..errors import Deadlock, EngineError
from ..simt.faults import name_cancelled
from .clusters import run_clusters
from .ir.abi import Context
from .launch import Launch
from .sweeps import run_sweeps
from .worker import Stopped, Worker

__all__ = ["run"]

#: seconds that one thread alone must be expected to need before others are started: eight times what starting them costs, so that
#: kernels which gain nothing from a second core, because they are bound by memory, lose no more than an eighth
WORTH_IT = 0.003
#: seconds by which an access of a warp takes longer where words that are looked at for races are locked; and the part of the time that
#: several threads may take at most then
LOCKED, MOST = 1e-6, 0.6
#: seconds between two looks whether threads have stopped
_SHORT = 0.001


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "gpuperf-cta")


if hasattr(os, "register_at_fork"):
    # threads do not survive a fork
    os.register_at_fork(after_in_child=_pool.cache_clear)


class _Queue:
    """Chunks of CTAs (or clusters), handed out in index order until one fails."""

    def __init__(self, count: int, first: int, chunk: int) -> None:
        self.count = count
        self.next = first
        self.chunk = chunk
        self.lock = threading.Lock()
        self.failed: list[tuple[int, EngineError]] = []
        #: threads of the pool that run chunks
        self.helping = 0

    def take(self) -> tuple[int, int] | None:
        """The next chunk, or ``None``."""
        with self.lock:
            first = self.next
            if self.failed or first >= self.count:
                return None
            self.next = min(first + self.chunk, self.count)
            return first, self.next

    def help(self, worker: Worker) -> None:
        """``work`` on a thread of the pool."""
        with self.lock:
            self.helping += 1
        try:
            self.work(worker)
        except Stopped:
            pass
        finally:
            with self.lock:
                self.helping -= 1

    def work(self, worker: Worker) -> None:
        """Run chunks until there are none left."""
        while (chunk := self.take()) is not None:
            try:
                _run_part(worker, *chunk)
            except EngineError as error:
                with self.lock:
                    self.failed.append((chunk[0], error))


def run(launch: Launch) -> None:
    """Run all CTAs: on several host threads if the program is order-free, else on the deterministic schedule. Raises the kernel's
    error."""
    try:
        _run(launch)
    except (EngineError, Stopped):
        if launch.failed is None:
            raise
    if launch.failed is not None:
        raise launch.failed


def _run(launch: Launch) -> None:
    worker = Worker(launch)
    if launch.plan.only_kept:
        for index in launch.plan.kept:
            _run_part(worker, index, index + 1)
    elif launch.program.order_free and launch.plan.threads > 1 and launch.units > 1:
        _run_parallel(launch, worker)
    else:
        _run_part(worker, 0, launch.units)


def _run_part(worker: Worker, first: int, last: int) -> None:
    """The clusters, or the CTAs that run by themselves, of these numbers."""
    try:
        (run_clusters if worker.launch.clustered else run_sweeps)(worker, first, last)
    except Deadlock as error:
        name_cancelled(error, worker.launch.plan.cluster_ctas * worker.get(Context.CANCELLED))
        raise


def _run_parallel(launch: Launch, worker: Worker) -> None:
    """Run the first CTAs or clusters here, and, if much is left, the rest on all threads of the plan."""
    count = launch.units
    some = max(1, count // 64)
    _run_part(worker, 0, some)
    # the first few touch memory and code for the first time; the time that other processes take does not count
    first = min(2 * some, count)
    start, batched = time.thread_time(), launch.races.batched
    _run_part(worker, some, first)
    more = (count - first) / max(1, first - some)
    expected = (time.thread_time() - start) * more
    locked = expected + (launch.races.batched - batched) * more * LOCKED
    threads = min(launch.plan.threads, count - first)
    if expected < WORTH_IT or threads < 2 or locked / threads > expected * MOST:
        _run_part(worker, first, count)
        return
    launch.lock_lines()
    queue = _Queue(launch.units, first, max(1, (count - first) // (threads * 8)))
    pool = _pool(launch.plan.threads)
    try:
        jobs: list[Future[None]] = [pool.submit(queue.help, Worker(launch)) for _ in range(threads - 1)]
        queue.work(worker)
        for job in jobs:
            job.result()
    except BaseException:
        _stop(launch, queue)
        raise
    if queue.failed:
        raise min(queue.failed, key=lambda item: item[0])[1]


def _stop(launch: Launch, queue: _Queue) -> None:
    """Have no thread run CTAs of a launch from now on. One that begins later notices by itself."""
    launch.stopped = True
    while queue.helping:
        try:
            time.sleep(_SHORT)
        except (
            BaseException
        ):  # who is impatient must wait too, and what interrupted first is about to be raised
            continue
