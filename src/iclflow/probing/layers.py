r"""Several layers: which layer holds which direction, what the tokens do on their way, and the steps that this makes.

With $\hat\Lambda$ and $\beta$ of a context, a layer with label part $A$ and token part $F$ does [`steps-by-layer`]

$$w \leftarrow w + T'A'T\,(\beta - \hat\Lambda w),\qquad T \leftarrow T - F(T\hat\Lambda T')\,T,$$

from $w = 0$, $T = I$: one step of gradient descent on the squared error of the context with the preconditioner
$T'A'T$, after which the tokens $Tx$ may have moved (GD++). A step of descent never goes uphill, so of $A$ the nearest
matrix with a symmetric part $\ge 0$ is kept, and of $F$ the part that is the same for every reflection of the principal
axes,

$$F(S)_{ab} = \gamma_{ab}S_{ab} + \delta_{ab}\sum_c\kappa_{ac}S_{cc} .$$

Whatever else the weights do is then part of the distance. Where fewer than two layers act there is no such candidate: a
single layer is a matrix, and the other candidates know those.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from iclflow.errors import BadInput
from iclflow.models import Weights
from iclflow.models.deep import Layered, layer_weights
from iclflow.probing.candidates import Entry
from iclflow.probing.contexts import Contexts, Predictions
from iclflow.probing.outputs import Outputs
from iclflow.probing.setting import Setting, unit
from iclflow.probing.subject import Subject
from iclflow.system.precision import double_precision
from iclflow.theory.depth import best_steps

__all__ = ["Layers", "Step", "by_layer_entries", "layers_of", "steps_of", "walk"]

ACTS = 0.05  # a layer acts if it holds this share of some direction's strength
HOLDS = 0.25  # and holds the directions of which it has this share
MOVES = 1e-3  # tokens that move by less stay as they are

Matrix = Float[np.ndarray, "D D"]
Tensor = Float[np.ndarray, "D D D D"]


@dataclass(frozen=True)
class Step:
    r"""One layer in the principal axes; the rest of what it does is left out [`steps-by-layer`]."""

    label: Matrix  # A
    entrywise: Matrix  # gamma
    by_power: Matrix  # kappa

    @property
    def moves(self) -> bool:
        """Whether the tokens change."""
        return bool(self.entrywise.any() or self.by_power.any())

    @property
    def of_labels(self) -> "Step":
        """The same step with tokens that stay as they are."""
        return Step(self.label, 0 * self.entrywise, 0 * self.by_power)


@dataclass(frozen=True)
class Layers:
    """One entry per layer, in the order in which a sequence goes through them; looped layers are listed every time."""

    share: Float[np.ndarray, "L D"]  # of the strength with which one layer alone would learn the direction
    holds: tuple[tuple[int, ...], ...]  # by layer: the directions, from 1
    mixing: Float[np.ndarray, " L"]  # norm of what the layer's label part has off the axes, relative to the whole
    token_power: Float[np.ndarray, "L D"]  # mean squared token along each axis behind the layer, relative to before all
    token_change: Float[np.ndarray, " L"]  # root mean square of what the layer takes off the tokens, relative to them
    acting: int  # number of layers that act
    gd_plus_plus: bool  # whether the tokens move between the steps

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return {name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in vars(self).items()}


def is_layered(subject: Subject) -> bool:
    """Whether the subject has weights of several layers."""
    return isinstance(subject.model, Layered) and subject.model.layers > 1


def blocks(subject: Subject, setting: Setting, weights: Weights, length: int) -> list[tuple[Matrix, Tensor]]:
    r"""Of every layer $N\nu A$ and the tensor of $F$, $F(S)_{ad} = \sum_{bc} F_{abcd}S_{bc}$, in the axes."""
    model, dim, outputs = subject.model, subject.task.dim, subject.task.out_dim
    assert isinstance(model, Layered)
    axes = np.eye(dim + outputs)
    axes[:dim, :dim] = setting.covariances.basis
    scale = unit(subject.normalize, length)
    units = np.eye(len(axes) ** 2).reshape(-1, *axes.shape)  # a layer is linear in S: ask it about every entry
    found = []
    with double_precision():
        for own in layer_weights(weights, model.layers):
            answers = np.asarray(compiled(model)(own, axes @ units @ axes.T))
            F = scale * (axes.T @ answers @ axes).reshape(len(axes), *axes.shape, len(axes)).transpose(2, 0, 1, 3)
            A = np.einsum("oocd->cd", F[dim:, dim:, :dim, :dim]) / outputs
            found.append((A, F[:dim, :dim, :dim, :dim]))
    found[-1] = (found[-1][0], 0 * found[-1][1])  # behind the last layer nobody reads the tokens
    return found


@cache
def compiled(model: Layered) -> Callable[[Weights, np.ndarray], Any]:
    """What one layer does for each of some Gram matrices."""
    import jax

    return jax.jit(jax.vmap(model.layer, in_axes=(None, 0)))


def steps_of(subject: Subject, setting: Setting, weights: Weights, length: int | None = None) -> list[Step]:
    """The layers of one snapshot as steps of descent on contexts of a length, by default that of the probe."""
    steps = []
    for A, F in blocks(subject, setting, weights, length or setting.contexts.length):
        entrywise, by_power = np.einsum("aadd->ad", F) + np.einsum("adad->ad", F), np.einsum("abba->ab", F)
        np.fill_diagonal(entrywise, np.einsum("aaaa->a", F))
        np.fill_diagonal(by_power, 0.0)
        steps.append(Step(downhill(A), entrywise, by_power))
    return steps


def downhill(A: Matrix) -> Matrix:
    """The nearest matrix with which no step goes uphill."""
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    return A - (vectors * np.minimum(values, 0.0)) @ vectors.T


def walk(
    steps: list[Step], setting: Setting, contexts: Contexts | None = None
) -> tuple[Predictions, list[Float[np.ndarray, "P D D"]]]:
    """The predictions of some steps of descent in context, and what the tokens are multiplied by behind each."""
    contexts, basis = contexts or setting.contexts, setting.covariances.basis
    dim = len(basis)
    gram, beta, query = basis.T @ contexts.gram @ basis, contexts.beta @ basis, contexts.query @ basis
    w, T, moved = np.zeros_like(beta), np.broadcast_to(np.eye(dim), gram.shape), []
    for step in steps:
        residual = beta - w @ gram
        w = w + residual @ T.transpose(0, 2, 1) @ step.label @ T
        if step.moves:
            S = T @ gram @ T.transpose(0, 2, 1)
            power = np.einsum("pcc->pc", S) @ step.by_power.T
            T = T - (step.entrywise * S + power[:, :, None] * np.eye(dim)) @ T
        moved.append(T)
    return np.einsum("pod,pd->po", w, query), moved


def strengths(setting: Setting) -> Float[np.ndarray, " D"]:
    """The strength with which one layer alone would learn each direction, in the order of the axes."""
    d, basis = setting.directions, setting.covariances.basis
    return np.abs(np.einsum("ia,id,d,jd,ja->a", basis, d.left, setting.strength, d.right, basis))


def layers_of(subject: Subject, setting: Setting) -> Layers | None:
    """The layers of the last snapshot, or `None` if there are not several."""
    if not is_layered(subject):
        return None
    weights, basis = subject.snapshots[-1], setting.covariances.basis
    matrices = [A for A, _ in blocks(subject, setting, weights, setting.contexts.length)]
    share = np.stack([np.diag(A) for A in matrices]) / strengths(setting)
    norms = np.array([np.linalg.norm(A) for A in matrices])
    off = np.array([np.linalg.norm(A - np.diag(np.diag(A))) for A in matrices])
    moved = walk(steps_of(subject, setting, weights), setting)[1]
    gram = basis.T @ setting.contexts.gram @ basis
    power = lambda T: np.einsum("pab,pbc,pac->a", T, gram, T, optimize=True) / np.einsum("paa->a", gram)
    before = [np.broadcast_to(np.eye(len(basis)), gram.shape), *moved[:-1]]
    total = np.einsum("paa->", gram)
    change = [np.einsum("pab,pbc,pac->", a - b, gram, a - b, optimize=True) for a, b in zip(moved, before, strict=True)]
    token_change = np.sqrt(np.array(change) / total)
    return Layers(
        share=share,
        holds=tuple(tuple(int(d) + 1 for d in np.flatnonzero(row > HOLDS)) for row in share),
        mixing=off / np.where(norms > 0, norms, 1.0),
        token_power=np.stack([power(T) for T in moved]),
        token_change=token_change,
        acting=int((share.max(axis=1) > ACTS).sum()),
        gd_plus_plus=bool(token_change.max() > MOVES),
    )


def by_layer_entries(subject: Subject, setting: Setting, outputs: Outputs) -> dict[str, Entry]:
    """The candidates of several layers: their own steps, with and without moving tokens, and the best possible."""
    if not is_layered(subject):
        return {}
    own, full = [steps_of(subject, setting, weights) for weights in subject.snapshots], strengths(setting)
    acts = np.array([sum((np.diag(step.label) / full).max() > ACTS for step in steps) for steps in own])
    moves = np.array([any(step.moves for step in steps) for steps in own])

    def entry(order: int, among: Bool[np.ndarray, " T"], kept: Callable[[Step], Step]) -> Entry:
        """The candidate of the snapshots among which it is; elsewhere its distance is not a number."""
        distance = np.full(len(own), np.nan)
        for t in np.flatnonzero(among):
            guess = walk([kept(step) for step in own[t]], setting)[0]
            distance[t] = np.mean((outputs.predictions[t] - guess) ** 2) / setting.base
        return Entry("gd", order, distance, predict=lambda contexts, t: predicted(contexts, t, kept))

    def predicted(contexts: Contexts, t: int, kept: Callable[[Step], Step]) -> Predictions:
        steps = steps_of(subject, setting, subject.snapshots[t], contexts.length)
        return walk([kept(step) for step in steps], setting, contexts)[0]

    entries = {}
    for count in sorted({int(k) for k in acts if k >= 2}):
        entries[f"gd {count} steps by layer"] = entry(12, acts == count, lambda step: step.of_labels)
        if (among := (acts == count) & moves).any():
            entries[f"gd++ {count} steps by layer"] = entry(13, among, lambda step: step)
    return entries | best_entry(subject, setting, outputs)


def best_entry(subject: Subject, setting: Setting, outputs: Outputs) -> dict[str, Entry]:
    """The steps with which so many layers have the lowest loss, where theory has them."""
    model, task, dim = subject.model, setting.reference, subject.task.dim
    assert isinstance(model, Layered)
    try:
        best = best_steps(task, model.layers, bool(getattr(model, "looped", False)), 512)[1]
    except BadInput:
        return {}
    nothing = np.zeros((dim, dim))

    def guess(contexts: Contexts, t: int) -> Predictions:
        longer = unit(subject.normalize, contexts.length) / unit(subject.normalize, setting.contexts.length)
        return walk([Step(longer * A, nothing, nothing) for A in best], setting, contexts)[0]

    gap = outputs.predictions - guess(setting.contexts, 0)
    return {f"gd {model.layers} steps best": Entry("gd", 4, np.mean(gap**2, axis=(1, 2)) / setting.base, predict=guess)}
