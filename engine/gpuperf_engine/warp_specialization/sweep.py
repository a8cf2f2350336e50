"""The best configurations of many products on many machines: in this process, a pool of processes, or an existing Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, Protocol

from ..errors import EngineError, Unsupported
from ..machines.machine import Machine
from .parameters import Derived, Parameters
from .predict import Prediction
from .problem import Problem, TileSpace
from .tiling import best_tiling

__all__ = ["Search", "connect", "sweep"]


@dataclass(frozen=True, slots=True)
class Search:
    """One search: ``parameters`` of ``None`` are derived from the machine description."""

    problem: Problem
    machine: Machine
    space: TileSpace = field(default_factory=TileSpace)
    goal: str = "time"
    solver: str = "exhaustive"
    parameters: Parameters | None = None

    def chosen(self) -> Parameters:
        return self.parameters or Derived(self.machine, self.problem.dtype)

    def run(self) -> Prediction | EngineError:
        """The best configuration, or why there is none."""
        try:
            return best_tiling(
                self.problem,
                self.machine,
                self.chosen(),
                space=self.space,
                goal=self.goal,
                solver=self.solver,
            )
        except EngineError as error:
            return error


class Cluster(Protocol):
    """The used part of ``distributed.Client``."""

    def map(self, function: Callable[[Any], Any], items: Sequence[Any], **options: Any) -> Any: ...
    def gather(self, futures: Any) -> Any: ...


def connect(address: str) -> Any:
    """A client of the Dask scheduler at this address (``tcp://HOST:PORT``), to be closed by the caller.

    Raises :class:`Unsupported` without Dask, and :class:`EngineError` where no scheduler answers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise Unsupported(
            "Dask is not installed", hint="pip install 'pytest-gpuperf[dask]', or search with --jobs"
        ) from None
    try:
        return Client(address, timeout=10, set_as_default=False)
    except (OSError, ValueError) as problem:
        raise EngineError(
            f"no Dask scheduler answers at {address}: {problem}", hint="write the address as tcp://HOST:PORT"
        ) from None


def sweep(
    searches: Iterable[Search], *, jobs: int = 1, cluster: Cluster | None = None
) -> list[Prediction | EngineError]:
    """Return the result of every search, in their order, independent of where it is computed."""
    given = list(searches)
    if cluster is not None:
        return list(cluster.gather(cluster.map(Search.run, given, pure=False)))
    if jobs > 1 and len(given) > 1:
        # spawn: a parent that has run kernels has threads, which must not be forked
        with ProcessPoolExecutor(min(jobs, len(given)), mp_context=get_context("spawn")) as pool:
            return list(pool.map(Search.run, given, chunksize=-(-len(given) // (4 * jobs))))
    return [search.run() for search in given]
