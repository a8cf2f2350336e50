"""All CTAs of a launch: on several host threads if the program is order-free, otherwise on one.

Each thread has its own context, and their counters are added; memory is shared. Of several errors, that of the lowest CTA is raised,
regardless of their order. An interrupted launch (Ctrl-C, the time limit of a test) ends on all threads before the exception is raised,
as its memory may be freed then.

The compiled code of a program is one function, whose frame grows with the program: LLVM keeps most values that a later block needs
there, of 32 lanes each. Large programs therefore run on threads with a stack of their own size.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

from ..errors import Deadlock, EngineError, LaunchError
from ..simt.faults import name_cancelled
from .clusters import run_clusters
from .compiled import Code
from .forms import is_often
from .ir.abi import Context
from .launch import Launch
from .sweeps import run_sweeps
from .worker import Stopped, Worker

__all__ = ["run"]

#: the predicted seconds on one thread from which others are started: eight times the cost of starting them, so that memory-bound
#: kernels, which gain nothing from a second core, lose at most an eighth
WORTH_IT = 0.003
#: additional seconds per access of a warp if words are locked for race detection; and the maximum share of the serial time that
#: several threads may take then
LOCKED, MOST = 1e-6, 0.6
#: seconds between two checks whether threads have stopped
_SHORT = 0.001
#: the share of ``WORTH_IT`` below which a launch is brief: the next one of this shape runs all CTAs in one call
_BRIEF = 1 / 4
#: bytes of a frame per instruction: two values of 64 bits in 32 lanes. A program of 114,000 instructions, 30 % of them accesses by
#: generic addresses, has a frame of 93 bytes per instruction
_FRAME = 512
#: the largest frame on the stack of a thread that this module did not start; Linux gives a thread 8 MiB by default
_MOST_FRAME = 4 << 20
#: bytes of a stack beside that frame
_BESIDE = 8 << 20
#: held while ``threading.stack_size``, which applies to all new threads, is changed
_SIZING = threading.Lock()


@cache
def _pool(threads: int, stack: int) -> ThreadPoolExecutor:
    """``stack``: bytes of the stack of each thread; 0 is the default."""
    return ThreadPoolExecutor(threads, "gpuperf-cta")


@contextmanager
def _new_threads_have(stack: int) -> Iterator[None]:
    """Threads started in the body have a stack of so many bytes; 0 is the default."""
    if not stack:
        yield
        return
    with _SIZING:
        usual = threading.stack_size(stack)
        try:
            yield
        finally:
            threading.stack_size(usual)


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
        #: number of pool threads that run chunks
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
    stack = _stack_of(launch)
    try:
        if stack:
            _run_apart(launch, stack)
        else:
            _run(launch)
    except (EngineError, Stopped):
        if launch.failed is None:
            raise
    if launch.failed is not None:
        raise launch.failed


def _stack_of(launch: Launch) -> int:
    """The bytes of stack that the threads of a launch need, a power of two, if its frame may exceed ``_MOST_FRAME``; else 0."""
    frame = _FRAME * launch.code.instructions
    return 0 if frame <= _MOST_FRAME else 1 << (frame + _BESIDE - 1).bit_length()


def _run_apart(launch: Launch, stack: int) -> None:
    """``_run`` on a new thread with so many bytes of stack. Raises as that, and ``LaunchError`` if there is no room for it."""
    ended: Future[None] = Future()

    def work() -> None:
        try:
            _run(launch)
        except BaseException as error:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    thread = threading.Thread(target=work, name="gpuperf-launch")
    try:
        with _new_threads_have(stack):
            thread.start()
    except RuntimeError as error:
        raise LaunchError(
            f"the host has no room for a stack of {stack:,} bytes ({error})",
            span=launch.program.kernel.span,
            hint=f"the kernel has {launch.code.instructions:,} instructions: raise the limit of address space (ulimit -v)",
        ) from None
    try:
        ended.result()
    except BaseException:
        launch.stopped = True
        while thread.is_alive():
            try:
                thread.join(_SHORT)
            except BaseException:  # as in ``_stop``
                continue
        raise


def _run(launch: Launch) -> None:
    worker = Worker(launch)
    if launch.plan.only_kept:
        for index in launch.plan.kept:
            _run_part(worker, index, index + 1)
    elif launch.program.order_free and launch.units > 1 and (launch.plan.threads > 1 or launch.direct):
        _run_parallel(launch, worker)
    else:
        _run_part(worker, 0, launch.units)


def _run_part(worker: Worker, first: int, last: int) -> None:
    """Run the clusters, or the CTAs without clusters, of these numbers."""
    try:
        (run_clusters if worker.launch.clustered else run_sweeps)(worker, first, last)
    except Deadlock as error:
        name_cancelled(error, worker.launch.plan.cluster_ctas * worker.get(Context.CANCELLED))
        raise


def _run_parallel(launch: Launch, worker: Worker) -> None:
    """Run the first CTAs or clusters here, and, if much is left, the rest on all threads of the plan."""
    count = launch.units
    shape = launch.plan.grid, launch.plan.block
    if launch.code.brief == shape:
        # the clock takes less time to read than CPU time, and shows no less: it is enough for a launch that is brief again
        since = time.perf_counter()
        _run_part(worker, 0, count)
        if time.perf_counter() - since > WORTH_IT * _BRIEF:
            launch.code.brief = None
        return
    began = time.thread_time()
    some = max(1, count // 64)
    _run_part(worker, 0, some)
    if launch.direct is not None:
        _replace_code(launch, worker, count / some)
    # the first few access memory and code for the first time; measures CPU time, which excludes other processes
    first = min(2 * some, count)
    start, batched = time.thread_time(), launch.races.batched
    _run_part(worker, some, first)
    more = (count - first) / max(1, first - some)
    expected = (time.thread_time() - start) * more
    locked = expected + (launch.races.batched - batched) * more * LOCKED
    threads = min(launch.plan.threads, count - first)
    if expected < WORTH_IT or threads < 2 or locked / threads > expected * MOST:
        _run_part(worker, first, count)
        if time.thread_time() - began < WORTH_IT * _BRIEF:
            launch.code.brief = shape
        return
    launch.lock_lines()
    queue = _Queue(launch.units, first, max(1, (count - first) // (threads * 8)))
    stack = _stack_of(launch)
    pool = _pool(launch.plan.threads, stack)
    try:
        with _new_threads_have(stack):
            jobs: list[Future[None]] = [pool.submit(queue.help, Worker(launch)) for _ in range(threads - 1)]
        queue.work(worker)
        for job in jobs:
            job.result()
    except BaseException:
        _stop(launch, queue)
        raise
    if queue.failed:
        raise min(queue.failed, key=lambda item: item[0])[1]


def _replace_code(launch: Launch, worker: Worker, times: float) -> None:
    """Continue with direct code if it pays off for so many times what the launch has executed."""
    program, direct = launch.program, launch.direct
    counters = launch.code.tables.layout.observation(worker.context.counters, False)
    if direct is None or not is_often(program, times * counters.warp_instructions(program)):
        return
    code = direct()
    if isinstance(code, Code):
        launch.replace_code(code)
        worker.groups.clear()


def _stop(launch: Launch, queue: _Queue) -> None:
    """Make all threads stop running CTAs of a launch. Threads that begin later check a flag."""
    launch.stopped = True
    while queue.helping:
        try:
            time.sleep(_SHORT)
        except BaseException:  # further interrupts are ignored, as the first one is about to be raised
            continue
