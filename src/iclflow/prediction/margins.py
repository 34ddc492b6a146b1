r"""The interval of every drop time: what each term stands for, and the stratum on which its coverage was measured.

The forecast of a staircase is made twice, with a fine and a coarse accuracy; with $\delta_m$ the relative difference of
the times of drop $m$ the interval is [`interval`]

$$t_m\,(1 \pm w_m),\qquad
 w_m = a\max_{j\le m}\delta_j\tfrac{t_j}{t_m} + b + c\,[\text{leading order}] + \tfrac{h}{t_m} + s\,r\tfrac{g_1}{g_m},$$

where $h$ is a step of descent, $c$ is added where vector blocks are followed to leading order only, and $r$ is the
asymmetry of the tasks of a sample too wide for all its blocks to be followed (`prediction.sample`).

Strata are those of `benchmarks/forecasts.py`, which draws them anew for every stream. A combination of settings that it
does not draw is not called reliable (`Regime.measured`).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.models.reduced import Reduced
from iclflow.prediction.problem import Problem
from iclflow.prediction.result import Prediction
from iclflow.theory.depth import Ladder
from iclflow.theory.forecast import Forecast, crossing
from iclflow.theory.landscape import Landscape
from iclflow.theory.race import Accuracy
from iclflow.theory.separate import SampleLandscape, rank_optimum, sample_modes

__all__ = [
    "DOUBTFUL",
    "TOGETHER",
    "WIDE",
    "Margin",
    "depth_margin",
    "drop_margin",
    "head_shares",
    "interval",
    "mixture_margin",
    "sampled",
    "staircase_margin",
    "takes_steps",
    "widths",
    "with_adam_margin",
]

FINE = Accuracy(rest=1e-3, tie=1e-3, neutral=1e-5, explicit=1e-4, implicit=1e-5)
COARSE = Accuracy(rest=5e-3, tie=1e-2, neutral=1e-3, explicit=1e-3, implicit=1e-4, fast=0.03)
TOGETHER = (
    replace(FINE, together=True),
    replace(COARSE, together=True),
)
WIDE = 2e-2  # a half-width from which heads do not leave
SPREAD, SPREAD_TOGETHER = 3.0, 2.0  # a; 382 drops of `flow`, stream 501
FLOOR = 2e-4  # b; the same
VECTORS = 0.03  # c; never called reliable beyond one output and rank one
STEPPED = 0.25  # of the lag of steps at the edge of stability, how much is in doubt
TAKEN = 0.1  # of stability: a share from which steps are taken one by one through drops
LARGE_WEIGHTS = 1e-3  # where initial weights are not small; `large weights`
MIXING = 0.5  # times the share of label blocks beside their trace; `two outputs`
SAMPLED = 2.0  # s; `merged descent on samples`
ASYMMETRIC = 0.1  # an asymmetry beyond which theory, which leaves the vector blocks at zero, is out of its range
MERGED, MERGED_FLOOR, MERGED_VECTORS = 1.0, 2e-4, 0.6  # `merged flow`
MIXTURE = 0.04  # 24 settings of the stratum `mixture` on stream 777 are off by up to .023
ADAM = 0.06  # as wide as what the claim on tiny weights allows
DEPTH_SPREAD, DEPTH_FLOOR = 2.5, 0.01  # label blocks, D <= 3, up to 3 layers, 256 D^2 Gram matrices or more
DOUBTFUL = 0.25  # a half-width beyond which a time is no forecast

NOT_SMALL = "The initial weights are not small against what is learned, so there is no plateau before the first drop."
TIED = "Two heads or directions nearly tie, so that small effects decide when later drops come."
VECTOR_BLOCKS = "Vector blocks that start non-zero are followed to leading order here: times are less accurate."
SWAPPED = (
    "Beyond one output and rank one, leading order does not say whether a head with vector blocks can learn further"
    " directions; train the model to see its drops."
)
HALFWAY = "The heads end above the last level: a head holds a direction only in part."
LOST = "The equations could not be followed to the end; train the model to see its drops."
BEYOND_EDGE = "Steps of this size diverge at a drop; take a smaller lr."
LABEL_BLOCKS = (
    "The theory of depth is for the label blocks (freeze_vectors); with all blocks trained the token stream learns"
    " too, and the later drops come at other times and end lower."
)
DRAWN = "The wait for a drop depends on small differences between contexts, so that its interval is wide."
FEW_TASKS = (
    "The tasks of this data are few, or not as likely as their negatives: they train the vector blocks too, which"
    " theory leaves at zero; use freeze_vectors, or more tasks."
)
LATER_DROP = (
    "Without tasks of their own sequences have a later drop, which is not derived; the forecast ends before it."
)
LABEL_LEVELS = (
    "The tasks of this data are few, or not as likely as their negatives: they train the vector blocks too, and the"
    " loss can rest between the levels, which are those of the label blocks."
)
SAMPLE = "On a finite sample the vector blocks drift away from zero, which theory leaves out."


class Margin(NamedTuple):
    """The relative half-width of every interval, and what to say about them."""

    half: Float[np.ndarray, " m"]
    notes: tuple[str, ...] = ()
    reliable: bool = True


def staircase_margin(problem: Problem, fine: Forecast, coarse: Forecast) -> Margin:
    """What every term adds to the margins of a staircase, and whether they were measured [`interval`]."""
    parts, times, L = problem.parts, fine.drop_times, problem.landscape
    own, asymmetry = widths(fine, coarse), problem.asymmetry
    edge = 0.0 if takes_steps(problem) else edge_share(problem)
    large = len(times) > 0 and abs(fine.curve[0] - fine.levels[0]) > 0.01 * (fine.levels[0] - fine.levels[-1])
    half = own + VECTORS * fine.leading_order + LARGE_WEIGHTS * large + MIXING * mixing(problem)
    if isinstance(L, SampleLandscape) and not problem.drifting:
        half = half + sampled(L, len(times))
    if edge > 0 and len(times):
        half = half + STEPPED * edge * problem.lag_step * np.log1p(top_rate(problem) * times) / times
    if problem.pace is not None and len(times):
        half = half + problem.pace.time / times  # a drop is seen to a step
    unsettled = fine.leading_order and not parts.key.shape[1] == parts.value_rows.shape[1] == 1
    left_out = asymmetry > 0 and not problem.drifting  # blocks of a wide sample, whose drift no stratum measures
    reasons = {
        NOT_SMALL: large,
        VECTOR_BLOCKS: fine.leading_order and not unsettled,
        SWAPPED: unsettled,
        HALFWAY: fine.halfway,
        SAMPLE: left_out,
        LABEL_LEVELS: asymmetry > ASYMMETRIC,
        TIED: bool((own > DOUBTFUL / 5).any()),
    }
    outside = unsettled or left_out or fine.halfway or asymmetry > ASYMMETRIC
    reliable = bool((half <= DOUBTFUL).all()) and not outside
    return Margin(half, tuple(note for note, holds in reasons.items() if holds), reliable)


def top_rate(problem: Problem) -> float:
    """$gc$, the rate at which the first direction is learned."""
    [(drive, curvature)] = sample_modes(problem.landscape, 1)
    return drive * float(np.cbrt(drive / curvature))


def edge_share(problem: Problem) -> float:
    """The step in shares of the edge of stability of a single mode, $3hgc/2 = 1$; that of momentum by its lag."""
    return 1.5 * problem.lag_step * top_rate(problem) if problem.lag_step > 0 else 0.0


def takes_steps(problem: Problem) -> bool:
    """Whether steps are so large that they are taken one by one, instead of the flow of their field."""
    return edge_share(problem) > TAKEN


def mixing(problem: Problem) -> float:
    """The part of label blocks beside their trace, which is left out, relative to what heads learn."""
    blocks, (drive, curvature) = problem.heads.label_blocks, sample_modes(problem.landscape, 1)[0]
    if blocks is None or problem.task.out_dim == 1 or problem.parts.value_rows.shape[1]:
        return 0.0
    traceless = np.sum(blocks**2, axis=(1, 2)) - problem.heads.value**2
    return float(traceless.max() / np.cbrt(drive / curvature) ** 2)


def widths(fine: Forecast, coarse: Forecast) -> Float[np.ndarray, " m"]:
    """Relative half-widths of the intervals; a drop that only one of the two forecasts has is in doubt."""
    count = min(len(fine.drop_times), len(coarse.drop_times))
    apart = np.full(len(fine.drop_times), DOUBTFUL)
    apart[:count] = np.abs(fine.drop_times[:count] - coarse.drop_times[:count]) / fine.drop_times[:count]
    reach = np.maximum.accumulate(apart * fine.drop_times) / fine.drop_times
    return (SPREAD_TOGETHER if fine.together else SPREAD) * reach + FLOOR


def depth_margin(problem: Problem, fine: Ladder, drawn: list[Ladder]) -> Margin:
    """How far drops come apart on contexts that are drawn, as those of a run are [`interval`]."""
    apart, model = np.zeros(len(fine.drop_times)), problem.model.model_dump()
    for other in drawn:
        when = [crossing(other.time, other.curve, other.slope, middle) for middle in fine.middles]
        share = [DOUBTFUL if at is None else abs(at / t - 1) for at, t in zip(when, fine.drop_times, strict=True)]
        apart = np.maximum(apart, share)
    half = DEPTH_SPREAD * np.maximum.accumulate(apart * fine.drop_times) / fine.drop_times + DEPTH_FLOOR
    doubtful, frozen = bool((half > DOUBTFUL).any()), problem.training.freeze_vectors
    reasons = {LABEL_BLOCKS: not frozen, DRAWN: doubtful, LOST: not fine.finished}
    measured = problem.task.dim <= 3 and model["layers"] <= 3
    reliable = measured and not any(reasons.values())
    return Margin(half, tuple(note for note, holds in reasons.items() if holds), reliable)


def sampled(L: SampleLandscape, count: int) -> Float[np.ndarray, " m"]:
    """What the vector blocks of a finite sample may do to each drop: more, the weaker its drive is."""
    drive = np.array([g for g, _ in sample_modes(L, count)])
    return SAMPLED * L.asymmetry * np.maximum.accumulate(drive[0] / drive) if count else drive


def head_shares(fine: Forecast, coarse: Forecast) -> Float[np.ndarray, " m"]:
    """How much of its direction the named head holds after the drop; 0 where the two forecasts name different heads."""
    count = min(len(fine.heads), len(coarse.heads))
    same = np.zeros(len(fine.heads), dtype=bool)
    same[:count] = (fine.heads[:count] == coarse.heads[:count]) & (fine.directions[:count] == coarse.directions[:count])
    return np.where(same, fine.held, 0.0)


def interval(times: Float[np.ndarray, " m"], half: Float[np.ndarray, " m"]) -> Float[np.ndarray, "m 2"]:
    """Times with a relative margin below and above."""
    return np.stack([times / (1 + half), times * (1 + half)], axis=1)


def drop_margin(
    L: Landscape | SampleLandscape, heads: Reduced, alpha: float, vectors: bool, half_time: float
) -> Margin:
    r"""The margin of the single drop of merged attention [`interval`].

    Theory keeps the growing mode and drops the rest of the initial weights, which shifts the drop by about their size
    relative to what is learned, in units of the escape time $1/\sqrt O\|C_1\|_F$. Vector blocks that start non-zero
    grow at the rate of the leading singular value $\sigma_1$ of $C_1$, nearly as fast; by the time of the drop they
    have reached the power $1 - \sigma_1/\|C_1\|_F$ of their initial size.
    """
    rate = np.linalg.norm(L.cross)
    learned = np.sqrt(L.outputs) * np.linalg.norm(rank_optimum(L, len(L.cross)))
    size = float(np.sqrt((np.sum(heads.value**2) + np.sum(heads.key_query**2)) / learned))
    shift = MERGED * size
    if vectors:
        shift += MERGED_VECTORS * float(np.sqrt(alpha / learned) ** (1 - np.linalg.norm(L.cross, 2) / rate))
    asymmetry = L.asymmetry if isinstance(L, SampleLandscape) else 0.0
    half = shift / (np.sqrt(L.outputs) * rate * half_time) + MERGED_FLOOR + SAMPLED * asymmetry
    notes = {VECTOR_BLOCKS: vectors, FEW_TASKS: asymmetry > ASYMMETRIC, SAMPLE: 0.01 < asymmetry <= ASYMMETRIC}
    return Margin(np.array([half]), tuple(note for note, holds in notes.items() if holds), asymmetry <= ASYMMETRIC)


def with_adam_margin(found: Prediction) -> Prediction:
    """Adam below eps: its clock is that of vanishing gradients, which no coverage was measured for."""
    half = ADAM
    return replace(
        found, drop_intervals=interval(found.drop_times, np.full(len(found.drop_times), half)), reliable=False
    )


def mixture_margin(task: Task) -> Margin:
    """The margin of the reduction to five numbers, which leaves out a later drop if no task is drawn anew."""
    if task.icl_fraction == 0:
        return Margin(np.array([MIXTURE]), (LATER_DROP,), reliable=False)
    return Margin(np.array([MIXTURE]))
