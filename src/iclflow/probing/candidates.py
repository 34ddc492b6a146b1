r"""The algorithms that a subject may run, and the distance of every snapshot to each of them.

| label | prediction | |
| --- | --- | --- |
| zero | $0$ | |
| pcr-m shrunk | $\beta'\sum_{d\le m}\alpha_de_de_d'\,x_q$ | the fixed point $M_m$ |
| pcr-m | $\beta'\sum_{d\le m}\lambda_d^{-1}e_de_d'\,x_q$ | its limit for long contexts |
| least squares shrunk, least squares | the same with $m = D$ | $M_D$ and $\beta'\Lambda^{-1}x_q$ |
| ridge | $\beta'(\Lambda + pI)^{-1}x_q$ | best $p$ |
| gd 1 step | $\eta\,\beta'x_q$, preconditioned $\eta\,\beta'\Lambda^{-1}x_q$ | best $\eta$ |
| .. in context, gd k steps | $x_q'f(\hat\Lambda)\beta$ | best $p$ or $\eta$ on a path |
| bayes | $x_q'(\hat\Lambda + \frac{\sigma^2}N\Omega^{-1})^{-1}\beta$ | the mean of $w$ given the context |
| dmmse | $\sum_kp_kw_k'x_q$ | the same for K fixed tasks (`probing.posterior`) |
| in weight | $c'x_q$, or $\overline{y^2}\,c'x_q$ | best $c$; reads nothing of the context, or only $\overline{y^2}$ |

Some coincide. For $\Omega = I$ and no noise
$\alpha_d = \frac N{N+1}\big(\lambda_d + \frac{\operatorname{tr}\Lambda}{N+1}\big)^{-1}$: $M_D$ is population ridge with
penalty $\operatorname{tr}\Lambda/(N+1)$, up to the factor $N/(N+1)$ [`ridge-tie`]. With white tokens it is one step of
descent as well.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from iclflow.data.spectrum import root, task_vectors
from iclflow.probing.components import Components, exact, sampled
from iclflow.probing.contexts import Contexts, Predictions, Spectral
from iclflow.probing.outputs import Outputs
from iclflow.probing.posterior import task_posterior_mean
from iclflow.probing.setting import Setting, whitener

__all__ = ["Entry", "Sets", "form", "in_weight_map", "measure", "ridge_tie"]

STEPS, MORE_STEPS = (2, 4, 8), (3, 5, 6, 7, 9, 10, 12, 16)  # the latter only where one of the former is nearest
STEP_PATH = np.geomspace(0.03, 1.9, 13)  # in units of the inverse largest eigenvalue
PENALTY_PATH = np.geomspace(1e-5, 1e3, 33)  # in units of the mean eigenvalue
FINER = 15  # further values between the neighbours of the best value for the last snapshot

Matrix = Float[np.ndarray, "D D"]
Features = Float[np.ndarray, "P O D"]
Strengths = Float[np.ndarray, "*snapshots D"]
Parameter = Float[np.ndarray, " T"]
Rule = Callable[[Spectral, float], Predictions]


class Sets(NamedTuple):
    """Which components each snapshot has learned to at least half their strength."""

    shrunk: Bool[np.ndarray, "T D"]
    ideal: Bool[np.ndarray, "T D"]
    order: Int[np.ndarray, " D"]  # the order in which training learns them

    @property
    def size(self) -> int:
        """The number of components."""
        return len(self.order)


@dataclass(frozen=True)
class Entry:
    """One candidate along training. Simpler candidates, with fewer fitted numbers, have a lower `order`.

    `matrix(t)` or `predict(contexts, t)` is the candidate itself, with the parameters fitted to snapshot `t`.
    """

    family: str
    order: int
    distance: Float[np.ndarray, " T"]
    parameter: Parameter | None = None
    meaning: str = ""
    matrix: Callable[[int], Matrix] | None = None
    predict: Callable[[Contexts, int], Predictions] | None = None
    path: tuple[np.ndarray, np.ndarray] | None = None  # values tried, and the distance of the last snapshot at each


def ridge_tie(trace: float, context: int) -> tuple[float, float]:
    r"""Penalty and factor with which ridge equals $M_D$ for $\Omega = I$ without noise [`ridge-tie`]."""
    return trace / (context + 1), context / (context + 1)


def measure(setting: Setting, outputs: Outputs, sets: Sets) -> dict[str, Entry]:
    """The distance of every snapshot to every candidate, relative to the loss of the zero predictor."""
    entries = {
        **component_entries(setting, outputs, sets),
        **context_entries(setting, outputs),
        **in_weight_entries(setting, outputs),
        **task_set_entries(setting, outputs),
    }
    nearest = min(entries, key=lambda label: entries[label].distance[-1])
    if nearest.startswith("gd") and "steps" in nearest:
        plain, white = family(setting, outputs, None), family(setting, outputs, whitener(setting))
        entries |= descents(plain, white, MORE_STEPS, setting)
    return entries


def form(setting: Setting, outputs: Outputs, left: Matrix, right: Matrix) -> Components:
    """Distances to strengths along given directions, exact if the predictions and the population allow it."""
    if setting.closed is not None and outputs.reduced:
        return exact(outputs, setting.closed, left, right)
    return sampled(outputs, setting.contexts, setting.base, left, right)


def component_entries(setting: Setting, outputs: Outputs, sets: Sets) -> dict[str, Entry]:
    """Candidates that are matrices: zero, regression on components, one step of descent, ridge."""
    d, cov, dim = setting.directions, setting.covariances, len(setting.strength)
    own = Family(form(setting, outputs, d.left, d.right), d.left, d.right)
    eigen = own if d.commuting else Family(form(setting, outputs, cov.basis, cov.basis), cov.basis, cov.basis)
    inverse, ones = 1 / cov.eigenvalues, np.ones(dim)
    entries = {"zero": own.entry("zero", 0, 0 * ones)}
    for m in range(1, dim + 1):
        first, leading = np.isin(np.arange(dim), d.order[:m]), np.arange(dim) < m
        family = "least_squares" if m == dim else "pcr"
        name = "least squares" if m == dim else f"pcr-{m}"
        entries[f"{name} shrunk"] = own.entry(family, 1, first * setting.strength)
        entries[name] = eigen.entry(family, 2, leading * inverse)
    entries["pcr set shrunk"] = own.entry("pcr", 1, sets.shrunk * setting.strength)
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
    left: Matrix
    right: Matrix

    def entry(
        self, family: str, order: int, strengths: Strengths, parameter: Parameter | None = None, meaning: str = ""
    ) -> Entry:
        """The candidate with these strengths, the same for all snapshots or one set for each."""
        along = np.broadcast_to(strengths, self.form.cross.shape)
        matrix = lambda t: (self.left * along[t]) @ self.right.T
        return Entry(family, order, self.form.distance(along), parameter, meaning, matrix=matrix)


def context_entries(setting: Setting, outputs: Outputs) -> dict[str, Entry]:
    """Candidates that read the covariance of their context; their distances are measured on the sample."""
    cov, noise = setting.covariances, setting.reference.label_noise
    plain, prior, white = (family(setting, outputs, t) for t in (None, root(cov.task), whitener(setting)))
    entries = {
        f"pcr-{m} in context": plain.entry("pcr", 3, partial(Spectral.least_squares, components=m))
        for m in range(1, len(cov.eigenvalues))
    }
    entries["least squares in context"] = plain.entry("least_squares", 3, Spectral.least_squares)
    posterior = partial(Spectral.ridge, penalty=noise / setting.contexts.length)
    entries["bayes"] = prior.entry("ridge" if noise > 0 else "least_squares", 4, posterior)
    penalties = PENALTY_PATH * cov.eigenvalues.mean()
    entries["ridge in context"] = plain.fitted("ridge", 8, Spectral.ridge, penalties, "penalty")
    return entries | descents(plain, white, STEPS, setting)


def family(setting: Setting, outputs: Outputs, transform: Matrix | None) -> "ContextFamily":
    """The predictors that filter the spectrum of contexts whose tokens are mapped by `transform`."""
    flat = outputs.predictions.reshape(len(outputs.predictions), -1)
    return ContextFamily(flat, setting.base, setting.contexts, transform)


def descents(
    plain: "ContextFamily", white: "ContextFamily", counts: tuple[int, ...], setting: Setting
) -> dict[str, Entry]:
    """So many steps of descent in context, on the tokens as they are and on whitened ones."""
    entries, path = {}, STEP_PATH / setting.covariances.eigenvalues[0]
    for k in counts:
        descent = partial(Spectral.descent, steps=k)
        entries[f"gd {k} steps"] = plain.fitted("gd", 9, descent, path, "step")
        entries[f"gd {k} steps preconditioned"] = white.fitted("gd", 9, descent, STEP_PATH, "step")
    return entries


@dataclass(frozen=True)
class ContextFamily:
    """Predictors that filter the spectrum of their context, whose tokens are first mapped by `transform`."""

    flat: Float[np.ndarray, "T points"]  # predictions of the subject
    base: float
    contexts: Contexts
    transform: Matrix | None

    @cached_property
    def spectral(self) -> Spectral:
        """The spectrum of every context of the sample."""
        return self.contexts.spectral(self.transform)

    @cached_property
    def power(self) -> Float[np.ndarray, "T 1"]:
        """The sum of squares of the predictions of every snapshot."""
        return np.sum(self.flat**2, axis=1)[:, None]

    def entry(self, family: str, order: int, rule: Callable[[Spectral], Predictions]) -> Entry:
        """A candidate without a fitted parameter."""
        distance = self.relative(self.gaps([rule(self.spectral)])[:, 0])
        return Entry(family, order, distance, predict=lambda contexts, t: rule(contexts.spectral(self.transform)))

    def fitted(self, family: str, order: int, rule: Rule, path: Float[np.ndarray, " K"], meaning: str) -> Entry:
        """A candidate with the best parameter on a path, which is refined around the last snapshot's best."""
        gaps = self.gaps([rule(self.spectral, value) for value in path])
        best = int(np.clip(gaps[-1].argmin(), 1, len(path) - 2))
        near = np.geomspace(path[best - 1], path[best + 1], FINER + 2)[1:-1]
        gaps = np.concatenate([gaps, self.gaps([rule(self.spectral, value) for value in near])], axis=1)
        tried = np.append(path, near)
        parameter = tried[gaps.argmin(axis=1)]
        predict = lambda contexts, t: rule(contexts.spectral(self.transform), parameter[t])
        distance, last = self.relative(gaps.min(axis=1)), self.relative(gaps[-1])
        return Entry(family, order, distance, parameter, meaning, predict=predict, path=(tried, last))

    def gaps(self, predictions: list[Predictions]) -> Float[np.ndarray, "T K"]:
        """The squared distance of every snapshot to each of some predictions."""
        stacked = np.stack([one.ravel() for one in predictions])
        return self.power - 2 * self.flat @ stacked.T + np.sum(stacked**2, axis=1)

    def relative(self, gaps: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
        """Mean squared distances relative to the loss of the zero predictor."""
        return np.maximum(gaps, 0) / self.flat.shape[1] / self.base


def task_set_entries(setting: Setting, outputs: Outputs) -> dict[str, Entry]:
    """The Bayes estimator of the K fixed tasks, where there are any."""
    task = setting.reference
    if task.tasks is None:
        return {}
    rule = partial(task_posterior_mean, tasks=task_vectors(task), noise=task.label_noise)
    gap = np.mean((outputs.predictions - rule(setting.contexts)) ** 2, axis=(1, 2)) / setting.base
    return {"dmmse": Entry("dmmse", 4, gap, predict=lambda contexts, t: rule(contexts))}


def in_weight_entries(setting: Setting, outputs: Outputs) -> dict[str, Entry]:
    """Linear maps of the query that ignore the context or read only the power of its labels."""
    entries = {}
    for name, order, read in (("in weight", 10, query_alone), ("in weight through label power", 11, query_by_power)):
        features = read(setting.contexts)
        maps = in_weight_map(outputs.predictions, features)
        rest = outputs.predictions - np.einsum("pod,tod->tpo", features, maps)
        predict = partial(in_weight_prediction, read, maps)
        entries[name] = Entry("in_weight", order, np.mean(rest**2, axis=(1, 2)) / setting.base, predict=predict)
    return entries


def in_weight_prediction(
    read: Callable[[Contexts], Features], maps: Float[np.ndarray, "T O D"], contexts: Contexts, t: int
) -> Predictions:
    """The predictions of the map fitted to snapshot `t`."""
    return np.einsum("pod,od->po", read(contexts), maps[t])


def query_alone(contexts: Contexts) -> Features:
    """The query, once per label."""
    return np.repeat(contexts.query[:, None, :], contexts.target.shape[1], axis=1)


def query_by_power(contexts: Contexts) -> Features:
    """The query times the mean square of each label in the context."""
    return np.einsum("poo->po", contexts.labels)[:, :, None] * contexts.query[:, None, :]


def in_weight_map(predictions: Float[np.ndarray, "T P O"], features: Features) -> Float[np.ndarray, "T O D"]:
    """The linear map of the features nearest to the predictions, for every snapshot and label."""
    gram = np.einsum("pod,poe->ode", features, features)
    cross = np.einsum("tpo,pod->tod", predictions, features, optimize=True)
    return np.linalg.solve(gram[None], cross[..., None])[..., 0]
