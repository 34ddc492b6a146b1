r"""A plateau of separate attention: which directions are left to learn, how hard each drives, how soon it saturates.

The force on a plateau is known in closed form for a task with commuting covariances (`Directions`). For any
other population (`Landscape`) and for a finite sample (`SampleLandscape`) it is the residual force $G_m$ at
the best matrix of rank $m$; keys are seen in its left singular basis and queries in its right one
[`empirical-staircase`].
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from iclflow.config import Task
from iclflow.errors import BadInput
from iclflow.theory.landscape import Directions, Landscape, directions, landscape
from iclflow.theory.separate import SampleLandscape, rank_optimum

__all__ = ["DirectionStage", "ResidualStage", "Source", "Stage", "opening"]

Source = Task | Directions | Landscape | SampleLandscape
Matrix = Float[np.ndarray, "D D"]
Parts = Float[np.ndarray, "R D"]
Vector = Float[np.ndarray, " D"]


@dataclass(frozen=True)
class DirectionStage:
    """A plateau of a task with commuting covariances: every direction is learned or feels its full drive."""

    source: Directions
    left: Matrix
    right: Matrix
    learned: Bool[np.ndarray, " D"]

    @cached_property
    def drive(self) -> Vector:
        return np.where(self.learned, 0.0, self.source.drive)

    @property
    def curvature(self) -> Vector:
        return self.source.curvature

    def aligned(self, amplitude: Parts) -> "DirectionStage":
        """The same plateau, with directions of equal drive and curvature rotated to where a head has grown most."""
        left, right = self.left, self.right
        for group in self.ties:
            turn = np.linalg.svd(amplitude[:, group])[2].T
            left, right = left.copy(), right.copy()
            left[:, group], right[:, group] = left[:, group] @ turn, right[:, group] @ turn
        return replace(self, left=left, right=right) if left is not self.left else self

    @cached_property
    def ties(self) -> list[Int[np.ndarray, " n"]]:
        """Groups of free directions that only the initial weights distinguish."""
        free = np.flatnonzero(~self.learned)
        g, m = self.source.drive[free], self.source.curvature[free]

        def near(x):
            return np.abs(x[:, None] - x) <= 1e-9 * x

        same = near(g) & near(m)
        return [free[row] for n, row in enumerate(same) if row.sum() > 1 and not same[n, :n].any()]

    def label(self, j: int) -> int:
        return j

    def saved(self, j: int) -> float:
        return float(self.source.saved[j])

    def learn(self, j: int) -> "DirectionStage":
        return replace(self, learned=self.learned | (np.arange(len(self.learned)) == j))

    def exchange(self, old: int, new: int) -> "DirectionStage":
        after = self.learn(new)
        return replace(after, learned=after.learned & (np.arange(len(self.learned)) != old))


@dataclass(frozen=True)
class ResidualStage:
    """A plateau of any landscape: the best matrix of a rank and the singular pairs of the remaining force."""

    source: Landscape | SampleLandscape
    rank: int = 0

    @cached_property
    def matrix(self) -> Matrix:
        return rank_optimum(self.source, self.rank)

    @cached_property
    def pairs(self) -> tuple[Matrix, Vector, Matrix]:
        u, s, wt = np.linalg.svd(np.sqrt(self.source.outputs) * self.source.force(self.matrix))
        rounding = 1e-12 * np.linalg.norm(self.source.cross)  # what K tasks do not span has no drive
        return u, np.where((np.arange(len(s)) < len(s) - self.rank) & (s > rounding), s, 0.0), wt.T

    @property
    def left(self) -> Matrix:
        return self.pairs[0]

    @property
    def drive(self) -> Vector:
        return self.pairs[1]

    @property
    def right(self) -> Matrix:
        return self.pairs[2]

    @cached_property
    def curvature(self) -> Vector:
        def along(l, r):
            return np.sum(np.outer(l, r) * (self.source.cross - self.source.force(np.outer(l, r))))

        return np.array([along(l, r) for l, r in zip(self.left.T, self.right.T, strict=True)])

    def aligned(self, _: Parts) -> "ResidualStage":
        return self

    def label(self, _: int) -> int:
        return self.rank

    def saved(self, _: int) -> float:
        return float(self.source.loss(self.matrix) - self.source.loss(self.after.matrix))

    @cached_property
    def after(self) -> "ResidualStage":
        return ResidualStage(self.source, self.rank + 1)

    def learn(self, _: int) -> "ResidualStage":
        return self.after


Stage = DirectionStage | ResidualStage


def opening(source: Source) -> tuple[Stage, float]:
    """The first plateau, at zero, and its loss."""
    if isinstance(source, Task):
        source = d if (d := directions(source)).commuting else landscape(source)
    if not isinstance(source, Directions):
        return ResidualStage(source), float(source.base)
    if not source.commuting:
        raise BadInput(
            "source: directions of covariances that do not commute do not fix the dynamics; give the landscape instead"
        )
    unlearned = np.zeros(len(source.drive), dtype=bool)
    return DirectionStage(source, source.left, source.right, unlearned), float(source.base)
