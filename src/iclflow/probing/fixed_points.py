r"""The distance of weights to each fixed point of theory, and the properties of the nearest one.

In function space separate attention rests at the $2^D$ matrices $A_S = \sum_{d\in S}\alpha_de_de_d'$, merged attention
only at $S = \emptyset$ and $S = $ all. The distance to $A_S$ is that between predictions [`component-distance`].
"""

from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from jaxtyping import Bool, Float

from iclflow.comparison.gains import paper_reduced
from iclflow.config import Task
from iclflow.errors import BadInput
from iclflow.models import Model, Weights
from iclflow.probing.components import Components
from iclflow.theory.landscape import Directions
from iclflow.theory.separate import conditions, escape_directions, hessian_spectrum

__all__ = ["FixedPoints", "fixed_points"]

ALL_UP_TO = 12  # dimensions up to which all 2^D fixed points are measured
LISTED = 64  # fixed points listed, the nearest first
ABSENT = 0.01  # heads below this fraction of the largest one count as zero
HOLD = 0.04  # a settled loss, 1e-4 from its end, leaves the matrix this far from its own


@dataclass(frozen=True)
class FixedPoints:
    """The nearest fixed point and its surroundings; `None` where theory makes no statement."""

    nearest: tuple[int, ...]  # eigenvectors, from 1
    distance: float
    distances: dict[str, float]  # set -> distance, nearest first
    of_this_model: bool  # whether the probed model has this fixed point
    conditions: dict[str, Any] | None  # C1, C2, C3 and whether they hold to `HOLD`
    index: int | None  # directions of negative curvature
    fastest_escape: float | None  # rate of the fastest, in 1/(t/tau)
    note: str = ""


def fixed_points(
    task: Task,
    model: Model | None,
    d: Directions,
    form: Components,
    strength: Float[np.ndarray, " D"],
    weights: Weights,
) -> FixedPoints:
    """The fixed points near the last snapshot; `form` measures distances in the coordinates of the directions."""
    masks = all_sets(len(strength), form.cross[-1] > np.diag(form.square) * strength / 2)
    s = masks * strength
    distance = form.power[-1] - 2 * s @ form.cross[-1] + np.einsum("sd,de,se->s", s, form.square, s)
    near = np.argsort(distance, kind="stable")
    learned = masks[near[0]]
    listed = {name_of(masks[i]): float(max(distance[i], 0)) for i in near[:LISTED]}
    index, fastest, note = curvature(task, model, d, learned, weights)
    of_this_model = model is not None and (model.one_by_one or bool(learned.all()) or not learned.any())
    checked = checked_conditions(task, model, d, learned, weights)
    nearest, least = tuple(int(i) + 1 for i in np.flatnonzero(learned)), float(max(distance[near[0]], 0))
    return FixedPoints(nearest, least, listed, of_this_model, checked, index, fastest, note)


def all_sets(dim: int, learned: Bool[np.ndarray, " D"]) -> Bool[np.ndarray, "S D"]:
    """Every set of directions; in many dimensions only the learned set and those that differ from it in one."""
    if dim <= ALL_UP_TO:
        return (np.arange(2**dim)[:, None] >> np.arange(dim)) % 2 == 1
    return np.concatenate([learned[None], learned[None] ^ np.eye(dim, dtype=bool)])


def name_of(learned: Bool[np.ndarray, " D"]) -> str:
    """The set in braces, counted from 1."""
    return "{" + ",".join(str(i + 1) for i in np.flatnonzero(learned)) + "}"


def checked_conditions(
    task: Task, model: Model | None, d: Directions, learned: Bool[np.ndarray, " D"], weights: Weights
) -> dict[str, Any] | None:
    """The relative violations of the paper's conditions C1 to C3, for separate key and query."""
    if not has_heads(model):
        return None
    values, _, key, query = paper_reduced(model, weights, task)[:4]
    if key is None or query is None:
        return None
    norms = np.stack([np.abs(values), np.linalg.norm(key, axis=(1, 2)), np.linalg.norm(query, axis=(1, 2))])
    # Heads that never grew are small but not zero, and the conditions are relative: leave such heads out.
    present = norms.max(axis=0) >= ABSENT * norms.max()
    active = present & (norms[0] >= ABSENT * norms[0].max())
    violation = conditions(d, learned, values * active, key * present[:, None, None], query * present[:, None, None])
    parts = {"C1": violation.matrix, "C2": float(violation.span.max()), "C3": float(violation.silent_span.max())}
    return {**parts, "silent_force": float(violation.silent.max()), "hold": violation.hold(HOLD)}


def has_heads(model: Model | None) -> TypeGuard[Model]:
    """Whether theory covers the heads of the model: it is linear and has a reduced form."""
    return model is not None and model.linear and model.offers("reduced")


def curvature(
    task: Task, model: Model | None, d: Directions, learned: Bool[np.ndarray, " D"], weights: Weights
) -> tuple[int | None, float | None, str]:
    """The index and the fastest escape rate of the nearest fixed point, and a note if theory has none."""
    if not has_heads(model):
        return None, None, "no theory of the curvature of this model"
    heads = model.reduced(weights, task)
    count, rank = len(heads.value), 0 if heads.key is None else heads.key.shape[1]
    if not model.one_by_one:
        if learned.all() or not learned.any():
            return (0 if learned.all() else count), None, ""
        return None, None, f"{model.kind} attention rests only at zero and at the minimum"
    try:
        index = escape_directions(d, learned)
        if rank > 1 or learned.sum() > count:
            return index, None, ""
        return index, float(hessian_spectrum(d, learned, count).max()), ""
    except BadInput as error:
        return None, None, str(error)
