r"""The forecast of the staircase with its error: two settings of the same theory, and the interval between them.

The forecast (`theory.forecast`) leaves out what takes less than a share $x$ of a force. It is made twice, with a fine
and a coarse $x$; with $\delta_m$ the relative difference of the times of drop $m$ the interval is [`interval`]

$$t_m\,(1 \pm w_m),\qquad
  w_m = a\,\max_{j\le m}\delta_j\,\tfrac{t_j}{t_m} + b + c\,[\text{leading order}] + s\,r\,\tfrac{g_1}{g_m},$$

where $c$ is added if vector blocks start away from zero and are followed to leading order only, as on a finite sample,
and $r$ is the asymmetry of the tasks of a finite sample (`prediction.sample`), whose pushes matter more the weaker the
drive $g_m$ of a drop is.

The constants were calibrated on random configurations and confirmed on others (`benchmarks/forecasts.py`).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.models import Model, Weights
from iclflow.models.reduced import Reduced
from iclflow.prediction.result import Prediction
from iclflow.system.cores import one_blas_thread
from iclflow.theory.depth import Ladder
from iclflow.theory.forecast import Forecast, Unfinished, forecast
from iclflow.theory.landscape import Landscape, landscape
from iclflow.theory.separate import SampleLandscape, rank_optimum, sample_modes
from iclflow.theory.staircase import staircase
from iclflow.theory.two_channels import Layout, Parts

__all__ = [
    "DOUBTFUL",
    "Margin",
    "closed_prediction",
    "depth_widths",
    "drop_margin",
    "interval",
    "mixture_margin",
    "parts_of",
    "staircase_prediction",
]

FINE, COARSE = 1e-5, 1e-4
SPREAD = 2.0  # a
FLOOR = 3e-5  # b
VECTORS = 0.03  # c
SAMPLED = 2.0  # s
ASYMMETRIC = 0.1  # an asymmetry beyond which theory, which leaves the vector blocks at zero, is out of its range
MERGED, MERGED_FLOOR, MERGED_VECTORS = 1.0, 2e-4, 0.6
MIXTURE = 0.02
CLOSED = 0.05  # half-width of the closed theory, used beyond LARGE
LARGE = 1200  # numbers in all heads up to which the equations are followed through drops
DEPTH_SPREAD, DEPTH_FIRST, DEPTH_SECOND, DEPTH_TIED = 1.0, 0.03, 0.1, 0.15  # `benchmarks/depth_forecasts.py`
DOUBTFUL = 0.25  # a half-width beyond which a time is no forecast

NOT_SMALL = "The initial weights are not small against what is learned, so there is no plateau before the first drop."
TIED = "Two heads or directions nearly tie, so that small effects decide when later drops come."
VECTOR_BLOCKS = "Vector blocks that start non-zero are followed to leading order here: times are less accurate."
SWAPPED = (
    "Beyond one output and rank one, leading order does not say whether a head with vector blocks can learn further"
    " directions; train the model to see its drops."
)
HALFWAY = (
    "On its way a head rests for long with a direction that it holds in part, as vector blocks allow with several"
    " outputs; how long is not derived, and later drops depend on it."
)
TURNING = (
    "A grown head turns slowly to a direction that saves nearly as much while others wait, which is not followed; train"
    " the model to see its later drops."
)
LOST = "The equations could not be followed to the end; train the model to see its drops."
TOO_LARGE = "The model is too large to follow the equations through drops; times are those of small initial weights."
FEW_TASKS = (
    "The tasks of this data are few, or not as likely as their negatives: they train the vector blocks too, which"
    " theory leaves at zero; use freeze_vectors, or more tasks."
)
LATER_DROP = (
    "Without tasks of their own sequences have a later drop, which is not derived; the forecast ends before it."
)
SAMPLE = "On a finite sample the vector blocks drift away from zero, which theory leaves out."
FAR_OFF = "The closed theory does not hold for initial weights of this size; train the model to see its drops."


def parts_of(heads: Reduced) -> Parts:
    """The initial weights as the forecast takes them; vector blocks only where some are not zero."""
    key, query = heads.keys_and_queries
    rows, labels, blocks = heads.value_rows, heads.key_labels, heads.label_blocks
    if rows is None or labels is None or blocks is None or not (rows.any() or labels.any()):
        nothing = np.zeros((len(key), 0))
        return Parts(heads.value, key, query, nothing[:, :, None] * key[:, 0, None], key[:, :, :0], nothing)
    basis = Layout(key.shape[1], key.shape[2], blocks.shape[-1], 1.0).label_basis
    return Parts(heads.value, key, query, rows, labels, np.einsum("hop,mop->hm", blocks, basis[1:]))


def staircase_prediction(task: Task, model: Model, weights: Weights, sample: SampleLandscape | None) -> Prediction:
    """The prediction for separate key and query: one drop per direction, each with its interval [`interval`]."""
    parts = parts_of(model.reduced(weights, task))
    if sum(part.size for part in parts) > LARGE:
        return closed_prediction(task, model, weights, sample)
    source, asymmetry = (task, 0.0) if sample is None else (sample, sample.asymmetry)
    if asymmetry > ASYMMETRIC:
        return without_times(model, task, sample, FEW_TASKS)
    try:
        with one_blas_thread():  # matrices so small that threads would only wait for each other
            fine, coarse = (forecast(source, parts, share) for share in (FINE, COARSE))
    except (Unfinished, np.linalg.LinAlgError):
        return without_times(model, task, sample, LOST)
    times = fine.drop_times
    own = widths(fine, coarse)
    half = own + VECTORS * fine.leading_order + (0.0 if sample is None else sampled(sample, len(times)))
    unsettled = fine.leading_order and not parts.key.shape[1] == parts.value_rows.shape[1] == 1
    reasons = {
        NOT_SMALL: abs(fine.curve[0] - fine.levels[0]) > 0.01 * (fine.levels[0] - fine.levels[-1]),
        VECTOR_BLOCKS: fine.leading_order and not unsettled,
        SWAPPED: unsettled,
        HALFWAY: fine.halfway,
        TURNING: fine.turning,
        SAMPLE: asymmetry > 0.01,
        TIED: bool((own > DOUBTFUL / 5).any()),
    }
    return Prediction(
        levels=fine.levels,
        drop_times=times,
        heads=fine.heads,
        directions=fine.directions,
        loss=fine.loss,
        values=fine.values,
        reliable=bool((half <= DOUBTFUL).all()) and not (unsettled or fine.halfway or fine.turning),
        notes=tuple(note for note, holds in reasons.items() if holds),
        drop_intervals=interval(times, half),
        head_shares=shares(fine, coarse),
    )


def widths(fine: Forecast, coarse: Forecast) -> Float[np.ndarray, " m"]:
    """Relative half-widths of the intervals; a drop that only one of the two forecasts has is in doubt."""
    count = min(len(fine.drop_times), len(coarse.drop_times))
    apart = np.full(len(fine.drop_times), DOUBTFUL)
    apart[:count] = np.abs(fine.drop_times[:count] - coarse.drop_times[:count]) / fine.drop_times[:count]
    reach = np.maximum.accumulate(apart * fine.drop_times) / fine.drop_times
    return SPREAD * reach + FLOOR


def depth_widths(fine: Ladder, coarse: Ladder, dim: int) -> Float[np.ndarray, " m"]:
    """Relative half-widths for several layers: two numbers of contexts, a floor for either staircase, and near ties."""
    count = min(len(fine.rungs), len(coarse.rungs))
    apart = np.full(len(fine.rungs), DOUBTFUL)
    apart[:count] = np.abs(fine.drop_times[:count] / coarse.drop_times[:count] - 1)
    reach = np.maximum.accumulate(apart * fine.drop_times) / fine.drop_times
    floor = np.where(np.arange(len(apart)) < dim, DEPTH_FIRST, DEPTH_SECOND)
    return DEPTH_SPREAD * reach + floor + (DEPTH_TIED if fine.close else 0.0)


def sampled(L: SampleLandscape, count: int) -> Float[np.ndarray, " m"]:
    """What the vector blocks of a finite sample may do to each drop: more, the weaker its drive is."""
    drive = np.array([g for g, _ in sample_modes(L, count)])
    return SAMPLED * L.asymmetry * np.maximum.accumulate(drive[0] / drive) if count else drive


def shares(fine: Forecast, coarse: Forecast) -> Float[np.ndarray, " m"]:
    """How much of its direction the named head holds after the drop; 0 where the two forecasts name different heads."""
    count = min(len(fine.heads), len(coarse.heads))
    same = np.zeros(len(fine.heads), dtype=bool)
    same[:count] = (fine.heads[:count] == coarse.heads[:count]) & (fine.directions[:count] == coarse.directions[:count])
    return np.where(same, fine.held, 0.0)


def interval(times: Float[np.ndarray, " m"], half: Float[np.ndarray, " m"]) -> Float[np.ndarray, "m 2"]:
    """Times with a relative margin below and above."""
    return np.stack([times / (1 + half), times * (1 + half)], axis=1)


class Margin(NamedTuple):
    """The relative half-width of an interval, and what to say about it."""

    half: float
    notes: tuple[str, ...] = ()
    reliable: bool = True


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
    return Margin(float(half), tuple(note for note, holds in notes.items() if holds), asymmetry <= ASYMMETRIC)


def mixture_margin(task: Task) -> Margin:
    """The margin of the reduction to five numbers, which leaves out a later drop if no task is drawn anew."""
    if task.icl_fraction == 0:
        return Margin(MIXTURE, (LATER_DROP,), reliable=False)
    return Margin(MIXTURE)


def closed_prediction(task: Task, model: Model, weights: Weights, sample: SampleLandscape | None) -> Prediction:
    """The prediction in the limit of small weights, in closed form: quick, for sizes of any kind."""
    heads = model.reduced(weights, task)
    stairs = staircase(task if sample is None else sample, heads.value, *heads.keys_and_queries)
    times = stairs.drop_times
    if not (np.diff(times, prepend=0.0) > 0).all():
        return without_times(model, task, sample, FAR_OFF)
    return Prediction(
        stairs.levels, times, stairs.heads, stairs.directions, stairs.loss, stairs.values,
        notes=(TOO_LARGE,), drop_intervals=interval(times, np.full(len(times), CLOSED)),
    )  # fmt: skip


def without_times(model: Model, task: Task, sample: SampleLandscape | None, why: str) -> Prediction:
    """The levels alone, where no times can be given."""
    L, count = landscape(task) if sample is None else sample, model.components(task)
    levels = np.array([L.loss(rank_optimum(L, m)) for m in range(count + 1)])
    nothing, nobody = np.zeros(0), np.zeros(0, dtype=int)
    unknown = lambda time: np.full(len(time), np.nan)
    return Prediction(
        levels, nothing, nobody, nobody, unknown, lambda time: unknown(time)[:, None], reliable=False, notes=(why,)
    )
