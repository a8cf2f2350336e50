"""Linear programs with integer coefficients: the least cost, an optimal solution, and the range of the optimal solutions.

The primal simplex method on a dense tableau. A second right side breaks ties between rows, as if the first had an infinitesimal
perturbation (Charnes 1952). Floating point only selects the basis: an integer solution is checked against every row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["LinearProgram", "Solution"]

_ZERO = 1e-7
#: Tolerance of right sides, which are scaled to a maximum of one.
_EQUAL = 1e-11
_STEPS = 40
#: Rows with a smaller share of nonzeros are updated sparsely.
_SPARSE = 0.25


@dataclass(frozen=True, slots=True)
class Solution:
    """``values``: of each variable. ``least`` and ``greatest``: of the measure, over all solutions of least cost; ``values`` attains
    ``least``. ``fixed``: variables of the measure with the same value in all of these. ``whole``: whether the values are integers that
    satisfy every row; else they are rounded. ``cost``: the least cost, in floating point."""

    values: list[int]
    least: int
    greatest: int
    fixed: frozenset[int]
    whole: bool
    cost: float


class LinearProgram:
    """Non-negative variables, rows ``Σ coefficient · variable = right side``, and a cost of each variable."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.rows: list[Mapping[int, int]] = []
        self.right: list[int] = []
        self.first: list[int | None] = []
        #: The tableau of these rows after phase 1, which does not depend on costs.
        self.begun: _Tableau | None = None

    def variable(self, cost: float = 0.0) -> int:
        """Adds a variable."""
        self.begun = None
        self.costs.append(cost)
        return len(self.costs) - 1

    def free(self, variables: Iterable[int]) -> None:
        """Sets the cost of variables to zero."""
        for variable in variables:
            self.costs[variable] = 0.0

    def equal(self, row: Mapping[int, int], right: int, first: int | None = None) -> None:
        """Adds the row ``Σ coefficient · variable = right``. ``first``: a variable that only this row contains, with coefficient 1, if
        ``right`` ≥ 0."""
        self.begun = None
        sign = -1 if right < 0 else 1
        self.first.append(first)
        self.rows.append({variable: sign * value for variable, value in row.items()})
        self.right.append(sign * right)

    def solve(self, measure: Mapping[int, int]) -> Solution | None:
        """The solution of least cost that minimises the measure ``Σ coefficient · variable``.

        ``None`` if there is none, or if rounding errors prevent one.
        """
        if self.begun is None:
            first = _Tableau(self.rows, self.right, self.first, len(self.costs))
            if not first.feasible():
                return None
            self.begun = first
        tableau = self.begun.copy()
        face = tableau.minimise(np.array(self.costs))
        if face is None:
            return None
        cost = tableau.cost(self.costs) * max([*self.right, 1])
        weights = np.zeros(len(self.costs))
        for variable, value in measure.items():
            weights[variable] = value
        ends: list[tuple[list[int], bool]] = []
        for direction in (1.0, -1.0):
            if tableau.minimise(direction * weights, face) is None:
                return None
            values = self._values(tableau)
            if values is None:
                return None
            ends.append(values)
        (low, low_whole), (high, high_whole) = ends
        least, greatest = (sum(values[v] * c for v, c in measure.items()) for values in (low, high))
        fixed = tableau.fixed(face, measure)
        return Solution(low, least, max(least, greatest), fixed, low_whole and high_whole, cost)

    def allows(self, given: Mapping[int, int], cost: float) -> bool:
        """Whether a solution with these values of some variables has at most this cost."""
        scale = max([*self.right, 1])
        reduced = LinearProgram()
        reduced.costs = [0.0 if variable in given else value for variable, value in enumerate(self.costs)]
        for row, right in zip(self.rows, self.right):
            rest = {variable: value for variable, value in row.items() if variable not in given}
            right -= sum(value * given[variable] for variable, value in row.items() if variable in given)
            if rest:
                reduced.equal(rest, right)
            elif right:
                return False
        tableau = _Tableau(reduced.rows, reduced.right, reduced.first, len(self.costs))
        if not tableau.feasible() or tableau.minimise(np.array(reduced.costs)) is None:
            return False
        paid = sum(self.costs[variable] * value for variable, value in given.items())
        paid += tableau.cost(reduced.costs) * max([*reduced.right, 1])
        return paid <= cost + _ZERO * scale

    def _values(self, tableau: _Tableau) -> tuple[list[int], bool] | None:
        """The basic solution in integers, and whether it satisfies every row. Usually the rounded tableau does: nonbasic variables are
        zero, so that no other integers satisfy the rows."""
        scale = max([*self.right, 1])
        values = [0] * len(self.costs)
        for variable, value in zip(tableau.basis, tableau.body[:, -2].tolist()):
            if variable < len(values):
                values[variable] = round(value * scale)
        left = self._left(values)
        if any(left) and not self._refine(values, left, tableau.basis):
            return None
        whole = not any(left) and min(values, default=0) >= 0
        return [max(0, value) for value in values], whole

    def _left(self, values: Sequence[int]) -> list[int]:
        """The residual of each row."""
        return [
            right - sum(values[variable] * value for variable, value in row.items())
            for row, right in zip(self.rows, self.right)
        ]

    def _refine(self, values: list[int], left: list[int], basis: Sequence[int]) -> bool:
        """Improves values and residuals by iterative refinement; ``False`` if the basis is singular."""
        matrix = np.zeros((len(basis), len(basis)))
        place = {variable: column for column, variable in enumerate(basis)}
        for number, row in enumerate(self.rows):
            for variable, value in row.items():
                if variable in place:
                    matrix[number, place[variable]] = value
            artificial = place.get(len(self.costs) + number)
            if artificial is not None:
                matrix[number, artificial] = 1
        for _ in range(4):
            try:
                step = np.linalg.solve(matrix, np.array(left, float))
            except np.linalg.LinAlgError:
                return False
            for variable, column in place.items():
                if variable < len(values):
                    values[variable] += round(float(step[column]))
            left[:] = self._left(values)
            if not any(left):
                break
        return True


class _Tableau:
    """The rows solved for a basis, which initially consists of the first variable of each row, or an artificial one."""

    def __init__(
        self,
        rows: Sequence[Mapping[int, int]],
        right: Sequence[int],
        first: Sequence[int | None],
        variables: int,
    ) -> None:
        self.variables = variables
        self.body = np.zeros((len(rows), variables + 2))
        for number, row in enumerate(rows):
            for variable, value in row.items():
                self.body[number, variable] = value
        scale = max([*right, 1])
        self.body[:, -2] = [value / scale for value in right]
        self.body[:, -1] = np.random.default_rng(0).uniform(0.5, 1.0, len(rows))
        self.reduced = np.zeros(variables)
        self.basis = [variables + number if v is None else v for number, v in enumerate(first)]

    def copy(self) -> _Tableau:
        """The same state."""
        other = copy(self)
        other.body, other.reduced, other.basis = self.body.copy(), self.reduced.copy(), [*self.basis]
        return other

    def feasible(self) -> bool:
        """Phase 1: makes the artificial variables nonbasic. Those of redundant rows stay at zero."""
        costs = np.zeros(self.variables + len(self.basis))
        costs[self.variables :] = 1.0
        if self.minimise(costs) is None:
            return False
        left = [row for row, variable in enumerate(self.basis) if variable >= self.variables]
        if any(self.body[row, -2] > _EQUAL for row in left):
            return False
        for row in left:
            columns = np.abs(self.body[row, :-2])
            if columns.size and columns.max() > _ZERO:
                self._pivot(row, int(columns.argmax()))
        return True

    def minimise(
        self, costs: NDArray[np.float64], allowed: NDArray[np.bool_] | None = None
    ) -> NDArray[np.bool_] | None:
        """Pivots to a basis of least cost; only ``allowed`` variables enter. Returns the variables that may be basic in an optimal
        solution; ``None`` if the program is unbounded or the limit of steps is reached."""
        self.reduced = self._reduced(costs)
        for _ in range(_STEPS * (len(self.basis) + 10)):
            usable = self.reduced if allowed is None else np.where(allowed, self.reduced, 0.0)
            entering = int(usable.argmin()) if usable.size else 0
            if not usable.size or usable[entering] > -_ZERO:
                free = self.reduced < _ZERO
                return free if allowed is None else free & allowed
            row = self._leaving(entering)
            if row is None:
                return None
            self._pivot(row, entering)
        return None

    def fixed(self, face: NDArray[np.bool_], asked: Iterable[int]) -> frozenset[int]:
        """The ``asked`` variables that have only one value on ``face``: no free variable changes them, or their minimum is their
        maximum."""
        growing = face.copy()
        growing[[variable for variable in self.basis if variable < self.variables]] = False
        moved = np.abs(self.body[:, :-2][:, growing]).max(axis=1, initial=0.0) > _ZERO
        open_ones = {variable for variable, moves in zip(self.basis, moved) if moves}
        open_ones.update(np.flatnonzero(growing).tolist())
        wanted, first = frozenset(asked), self._point()
        varying: set[int] = set()
        for variable in sorted(wanted & open_ones):
            if variable not in varying and not self._has_one_value(variable, face, first, varying):
                varying.add(variable)
        return wanted - varying

    def _has_one_value(
        self, variable: int, face: NDArray[np.bool_], first: NDArray[np.float64], varying: set[int]
    ) -> bool:
        """Adds to ``varying`` the variables that differ clearly from the ``first`` solution."""
        costs = np.zeros(self.variables)
        values = []
        for direction in (1.0, -1.0):
            costs[variable] = direction
            if self.minimise(costs, face) is None:
                return False
            point = self._point()
            values.append(float(point[variable]))
            varying.update(np.flatnonzero(np.abs(point - first) > _ZERO).tolist())
            if variable in varying:
                return False
        return abs(values[0] - values[1]) <= _EQUAL

    def _point(self) -> NDArray[np.float64]:
        """The basic solution, scaled by the largest right side."""
        point = np.zeros(self.variables + len(self.basis))
        point[self.basis] = self.body[:, -2]
        return point[: self.variables]

    def _leaving(self, entering: int) -> int | None:
        column = self.body[:, entering]
        rows = (column > _ZERO).nonzero()[0]
        if not rows.size:
            return None
        ratios = np.maximum(self.body[rows, -2], 0.0) / column[rows]
        rows = rows[ratios <= ratios.min() + _EQUAL]
        return int(rows[(self.body[rows, -1] / column[rows]).argmin()])

    def cost(self, costs: Sequence[float]) -> float:
        """The cost of the basic solution, scaled by the largest right side."""
        return sum(
            costs[variable] * float(value)
            for variable, value in zip(self.basis, self.body[:, -2])
            if variable < self.variables
        )

    def _reduced(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        padded = np.zeros(self.variables + len(self.basis))
        padded[: len(costs)] = costs
        paid = padded[self.basis]
        rows = np.flatnonzero(paid)
        result: NDArray[np.float64] = padded[: self.variables] - paid[rows] @ self.body[rows, :-2]
        return result

    def _pivot(self, row: int, column: int) -> None:
        line = self.body[row] / self.body[row, column]
        factors = self.body[:, column].copy()
        factors[row] = 0.0
        touched, places = factors.nonzero()[0], line.nonzero()[0]
        if places.size < _SPARSE * line.size:
            self.body[touched[:, None], places] -= factors[touched, None] * line[places]
        else:
            self.body[touched] -= factors[touched, None] * line
        self.body[row] = line
        self.reduced -= self.reduced[column] * line[:-2]
        self.basis[row] = column
