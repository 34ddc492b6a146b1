"""The verb: from a loss curve to what made it."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.comparison.curves import Curve, array_curve, from_run, read_curves
from iclflow.config.settings import named_optimizer
from iclflow.errors import BadInput
from iclflow.inference.finding import best_fit
from iclflow.inference.fitting import Fit, Setting
from iclflow.inference.merged import infer_drop
from iclflow.inference.observing import Observed, observe
from iclflow.inference.result import of_fit
from iclflow.inference.testing import judge
from iclflow.results.loading import is_run, load_run
from iclflow.results.run import Run

__all__ = ["infer"]

FEWEST = 8  # points

HIDDEN = (
    "A curve does not tell noise on the labels, the covariance of the tasks and the kurtosis of the tokens from other"
    " eigenvalues and another context length: these are for {noise}, task covariance I and Gaussian tokens. The tokens"
    " and labels themselves, or a second curve with another context length, would tell."
)


def infer(
    curve: Any,
    *,
    lr: float | None = None,
    time: Any = None,
    model: str = "separate",
    out_dim: int = 1,
    label_noise: float | None = None,
    **settings: Any,
) -> Any:  # an Inference, or the DropInference of `merged`
    """Infer eigenvalues, context length and initial sizes from a loss curve, and whether this theory made it.

    Args:
        curve: a `Run` of one seed, a run directory, a file (`.csv` with loss and time or step, text of the public
            code), or an array of losses.
        lr: the learning rate, which puts the steps of a file or array on the clock t/tau.
        time: t/tau of every loss of an array.
        model: `separate` (key and query, rank one) or `merged`.
        out_dim: number of labels.
        label_noise: variance of the noise on context labels, if it is known; else it is taken to be 0.
        settings: further settings on which the clock depends, by the names of `train`: `optimizer`, `beta`,
            `normalize`, `context`.

    Returns:
        An `Inference`: eigenvalues, context, initial sizes, levels and drop times with 95 % intervals, `fits` with its
        p-value, notes on what a curve cannot tell, and a task, model and weights to go on with. For `merged` a
        `DropInference`: drive, minimum and initial size.

    Raises:
        BadInput: if the curve cannot be read, has no clock, or a setting is out of range.

    >>> import iclflow as icl
    >>> run = icl.train(icl.Task(dim=2), icl.Separate(heads=2), init=1e-3)
    >>> icl.infer(run.loss.values, time=run.time.values).eigenvalues.round(3)
    array([0.667, 0.333])
    """
    if model not in ("separate", "merged"):
        raise BadInput(f"model: {model!r} must be separate or merged")
    if isinstance(out_dim, bool) or not isinstance(out_dim, int) or out_dim < 1:
        raise BadInput(f"out_dim: {out_dim!r} must be a whole number of at least 1")
    if label_noise is not None and not 0 <= label_noise < np.inf:
        raise BadInput(f"label_noise: {label_noise!r} must be a finite number of at least 0")
    read = curve_of(curve, time, {**({} if lr is None else {"lr": lr}), **settings}, out_dim)
    at, loss = read.axis("time"), np.asarray(read.loss, dtype=float)
    known = np.isfinite(at) & np.isfinite(loss)
    if known.sum() < FEWEST:
        raise BadInput(f"curve: {read.name!r} has {known.sum()} finite losses, must have at least {FEWEST}")
    at, loss = at[known].astype(float), loss[known]
    noise = "no noise on the labels" if label_noise is None else f"label noise {label_noise:g}"
    hidden = HIDDEN.format(noise=noise)
    seen, setting = observe(at, loss), Setting(out_dim, label_noise or 0.0)
    if model == "merged":
        return infer_drop(seen, setting, read.name)
    fit = best_fit(seen, setting) if seen.fall > 0 else None
    return of_fit(seen, fit, judge(seen, fit), read.name, setting, notes(seen, fit, hidden))


def curve_of(curve: Any, time: Any, settings: dict[str, Any], out_dim: int) -> Curve:
    """The one curve that was given, with its clock."""
    if isinstance(curve, str | Path) and is_run(curve):
        curve = load_run(curve)
    if isinstance(curve, Run):
        for name, value in {"time": time, **settings}.items():
            if value is not None:
                raise BadInput(f"{name}: a run brings its own")
        if len(curve.seeds) > 1:
            raise BadInput(f"curve: has {len(curve.seeds)} seeds, must be one; choose it with run.select(seed)")
        return from_run(curve.select(curve.seeds[0]) if "seed" in curve.curves.dims else curve, "the run")
    settings, _ = named_optimizer(settings)
    if out_dim > 1:
        settings["out_dim"] = out_dim
    if isinstance(curve, str | Path):
        if time is not None:
            raise BadInput("time: goes with an array of losses; a file has a column for it")
        return read_curves(str(curve), settings)[0]
    return array_curve(curve, time, settings, "the curve")


def notes(seen: Observed, fit: Fit | None, hidden: str) -> tuple[str, ...]:
    """What the curve leaves open, and what would decide it."""
    if fit is None:
        return ()
    numbers, found = fit.numbers, [hidden]
    if fit.free_rest and numbers.rest > 0:
        found.append(
            f"A trace of {numbers.rest:.3g} belongs to directions that have not dropped when the curve ends; how many"
            " they are, a longer curve would show."
        )
    if fit.doubt is not None:
        found.append("All directions are taken to have dropped; the intervals allow that some have not.")
    if seen.noisy:
        found.append("The curve scatters: neighbouring losses were averaged, and the intervals count their noise.")
    shares: Float[np.ndarray, " K"] = numbers.drops.saved / seen.fall
    if shares.min() < 0.005:
        found.append(f"The smallest drop is {shares.min():.1g} of the fall, and little is known about it.")
    return tuple(found)
