r"""The algorithms that a subject may run, and how far it is from each, snapshot by snapshot.

| label | prediction | |
| --- | --- | --- |
| zero | $0$ | |
| pcr-m shrunk | $\beta'\sum_{d\le m}\alpha_de_de_d'\,x_q$ | the fixed point $M_m$ |
| pcr-m | $\beta'\sum_{d\le m}\lambda_d^{-1}e_de_d'\,x_q$ | its limit for long contexts |
| least squares shrunk, least squares | the same with $m = D$ | $M_D$ and $\beta'\Lambda^{-1}x_q$ |
| ridge | $\beta'(\Lambda + pI)^{-1}x_q$ | best $p$ |
| gd 1 step | $\eta\,\beta'x_q$, preconditioned $\eta\,\beta'\Lambda^{-1}x_q$ | best $\eta$ |
| .. in context, gd k steps | $x_q'f(\hat\Lambda)\beta$ | best $p$, $\eta$ on a path |
| bayes | $x_q'(\hat\Lambda + \frac{\sigma^2}N\Omega^{-1})^{-1}\beta$ | the mean of $w$ given the context |
| in weight | $c'x_q$, or $\overline{y^2}\,c'x_q$ | best $c$; of the context nothing or only $\overline{y^2}$ is read |

Some coincide. For $\Omega = I$ and no noise
$\alpha_d = \frac N{N+1}\big(\lambda_d + \frac{\operatorname{tr}\Lambda}{N+1}\big)^{-1}$: $M_D$ is population ridge with
penalty $\operatorname{tr}\Lambda/(N+1)$, up to the factor $N/(N+1)$ [`ridge-tie`]. With white tokens it is one step of
descent as well.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from iclflow.data.spectrum import root
from iclflow.probing.components import Components, exact, sampled
from iclflow.probing.contexts import Contexts, Spectral
from iclflow.probing.outputs import Outputs
from iclflow.probing.scene import Scene, whitener

__all__ = ["Entry", "Sets", "in_weight_map", "measure", "ridge_tie"]

STEPS = (2, 4, 8)
STEP_PATH = np.geomspace(0.03, 1.9, 13)  # in units of the inverse largest eigenvalue
PENALTY_PATH = np.geomspace(1e-5, 1e3, 33)  # in units of the mean eigenvalue
FINER = 15  # values more between the neighbours of the best one of the last snapshot

Predictions = Float[np.ndarray, "P O"]
Rule = Callable[[Spectral, float], Predictions]


class Sets(NamedTuple):
    """Which components each snapshot has, judged at half strength."""

    shrunk: Bool[np.ndarray, "T D"]
    ideal: Bool[np.ndarray, "T D"]
    order: Int[np.ndarray, " D"]  # in which training learns them

    @property
    def size(self) -> int:
        return len(self.order)


@dataclass(frozen=True)
class Entry:
    """One candidate along training. Simpler ones, with less that is fitted, have lower `order`.

    `matrix(t)` or `predict(contexts, t)` is the candidate itself, with what was fitted to snapshot `t`.
    """

    family: str
    order: int
    distance: Float[np.ndarray, " T"]
    parameter: Float[np.ndarray, " T"] | None = None
    meaning: str = ""
    matrix: Callable[[int], Float[np.ndarray, "D D"]] | None = None
    predict: Callable[[Contexts, int], Predictions] | None = None
    path: tuple[np.ndarray, np.ndarray] | None = None  # values tried, and the last snapshot's distance at each


def ridge_tie(trace: float, context: int) -> tuple[float, float]:
    r"""Penalty and factor with which ridge is $M_D$ for $\Omega = I$, no noise [`ridge-tie`]."""
    return trace / (context + 1), context / (context + 1)


def measure(scene: Scene, found: Outputs, sets: Sets) -> dict[str, Entry]:
    """The distance of every snapshot to every candidate, in units of the zero predictor's loss."""
    return {
        **component_entries(scene, found, sets),
        **context_entries(scene, found),
        **in_weight_entries(scene, found),
    }


def form(scene: Scene, found: Outputs, left: np.ndarray, right: np.ndarray) -> Components:
    if scene.closed is not None and found.reduced:
        return exact(found, scene.closed, left, right)
    return sampled(found, scene.contexts, scene.base, left, right)


def component_entries(scene: Scene, found: Outputs, sets: Sets) -> dict[str, Entry]:
    """All that a matrix can express."""
    d, cov, dim = scene.directions, scene.covariances, len(scene.strength)
    own = Family(form(scene, found, d.left, d.right), d.left, d.right)
    eigen = own if d.commuting else Family(form(scene, found, cov.basis, cov.basis), cov.basis, cov.basis)
    inverse, ones = 1 / cov.eigenvalues, np.ones(dim)
    entries = {"zero": own.entry("zero", 0, 0 * ones)}
    for m in range(1, dim + 1):
        first, leading = np.isin(np.arange(dim), d.order[:m]), np.arange(dim) < m
        family = "least_squares" if m == dim else "pcr"
        name = "least squares" if m == dim else f"pcr-{m}"
        entries[f"{name} shrunk"] = own.entry(family, 1, first * scene.strength)
        entries[name] = eigen.entry(family, 2, leading * inverse)
    entries["pcr set shrunk"] = own.entry("pcr", 1, sets.shrunk * scene.strength)
    entries["pcr set"] = eigen.entry("pcr", 2, sets.ideal * inverse)
    for order, name, shape in ((5, "gd 1 step", ones), (6, "gd 1 step preconditioned", inverse)):
        step = eigen.form.best_multiple(shape)
        entries[name] = eigen.entry("gd", order, step[:, None] * shape, step, "step")
    penalty = eigen.form.best_penalty(cov.eigenvalues)
    ridge = eigen.entry("ridge", 7, 1 / (cov.eigenvalues + penalty[:, None]), penalty, "penalty")
    path, along = eigen.form.penalty_path(cov.eigenvalues)
    entries["ridge"] = replace(ridge, path=(path, along[:, -1]))
    return entries


class Family(NamedTuple):
    """Predictors with strengths along given directions."""

    form: Components
    left: Float[np.ndarray, "D D"]
    right: Float[np.ndarray, "D D"]

    def entry(self, family: str, order: int, strengths: np.ndarray, parameter=None, meaning: str = "") -> Entry:
        along = np.broadcast_to(strengths, self.form.cross.shape)
        matrix = lambda t: (self.left * along[t]) @ self.right.T
        return Entry(family, order, self.form.distance(along), parameter, meaning, matrix=matrix)


def context_entries(scene: Scene, found: Outputs) -> dict[str, Entry]:
    """What reads the covariance of its context: always measured on the sample."""
    cov, noise = scene.covariances, scene.reference.label_noise
    flat = found.predictions.reshape(len(found.predictions), -1)
    power = np.sum(flat**2, axis=1)[:, None]
    entries = {}

    def add(name: str, family: str, order: int, transform: np.ndarray | None, rule: Rule, path=None, meaning=""):
        gaps = apart(transform, rule, np.zeros(1) if path is None else path)
        if path is not None:
            at = int(np.clip(gaps[-1].argmin(), 1, len(path) - 2))
            near = np.geomspace(path[at - 1], path[at + 1], FINER + 2)[1:-1]
            path, gaps = np.append(path, near), np.concatenate([gaps, apart(transform, rule, near)], axis=1)
        distance = np.maximum(gaps.min(axis=1), 0) / flat.shape[1] / scene.base
        best = None if path is None else path[gaps.argmin(axis=1)]
        predict = lambda contexts, t: rule(contexts.spectral(transform), 0.0 if best is None else best[t])
        tried = None if path is None else (path, np.maximum(gaps[-1], 0) / flat.shape[1] / scene.base)
        entries[name] = Entry(family, order, distance, best, meaning, predict=predict, path=tried)

    def apart(transform: np.ndarray | None, rule: Rule, path: np.ndarray) -> Float[np.ndarray, "T K"]:
        stacked = np.stack([rule(cached(transform), p).ravel() for p in path])
        return power - 2 * flat @ stacked.T + np.sum(stacked**2, axis=1)

    known: dict[int, Spectral] = {}

    def cached(transform: np.ndarray | None) -> Spectral:
        if id(transform) not in known:
            known[id(transform)] = scene.contexts.spectral(transform)
        return known[id(transform)]

    for m in range(1, len(cov.eigenvalues)):
        add(f"pcr-{m} in context", "pcr", 3, None, lambda s, _, m=m: s.least_squares(m))
    add("least squares in context", "least_squares", 3, None, lambda s, _: s.least_squares())
    prior, white, posterior = root(cov.task), whitener(scene), noise / scene.contexts.length
    add("bayes", "ridge" if noise > 0 else "least_squares", 4, prior, lambda s, _: s.ridge(posterior))
    penalties = PENALTY_PATH * cov.eigenvalues.mean()
    add("ridge in context", "ridge", 8, None, lambda s, p: s.ridge(p), penalties, "penalty")
    for k in STEPS:
        rule = lambda s, step, k=k: s.descent(step, k)
        add(f"gd {k} steps", "gd", 9, None, rule, STEP_PATH / cov.eigenvalues[0], "step")
        add(f"gd {k} steps preconditioned", "gd", 9, white, rule, STEP_PATH, "step")
    return entries


def in_weight_entries(scene: Scene, found: Outputs) -> dict[str, Entry]:
    """Maps of the query alone, fitted to the subject."""
    entries = {}
    for name, order, read in (("in weight", 10, query_alone), ("in weight through label power", 11, query_by_power)):
        features = read(scene.contexts)
        maps = in_weight_map(found.predictions, features)
        rest = found.predictions - np.einsum("pod,tod->tpo", features, maps)
        predict = lambda contexts, t, read=read, maps=maps: np.einsum("pod,od->po", read(contexts), maps[t])
        entries[name] = Entry("in_weight", order, np.mean(rest**2, axis=(1, 2)) / scene.base, predict=predict)
    return entries


def query_alone(contexts: Contexts) -> Float[np.ndarray, "P O D"]:
    return np.repeat(contexts.query[:, None, :], contexts.target.shape[1], axis=1)


def query_by_power(contexts: Contexts) -> Float[np.ndarray, "P O D"]:
    return np.einsum("poo->po", contexts.labels)[:, :, None] * contexts.query[:, None, :]


def in_weight_map(
    predictions: Float[np.ndarray, "T P O"], features: Float[np.ndarray, "P O D"]
) -> Float[np.ndarray, "T O D"]:
    """The linear map of the features, one for every label, nearest to the predictions."""
    gram = np.einsum("pod,poe->ode", features, features)
    cross = np.einsum("tpo,pod->tod", predictions, features, optimize=True)
    return np.linalg.solve(gram[None], cross[..., None])[..., 0]
