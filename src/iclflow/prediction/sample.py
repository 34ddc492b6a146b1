"""The loss landscape of the sample that a run was trained on, from the moments stored in the run."""

import numpy as np

from iclflow.config import Task
from iclflow.data.asymmetry import asymmetry
from iclflow.data.moments import Moments
from iclflow.data.own import OwnData
from iclflow.data.sampled import sampled_moments
from iclflow.data.sequences import TRAIN, Law, Sample, Sequences
from iclflow.errors import BadInput
from iclflow.models import Model
from iclflow.results.own_data import same_data
from iclflow.results.run import Run
from iclflow.theory.separate import SampleLandscape

__all__ = ["data_landscape", "sample_landscape", "sequences_of"]


def sample_landscape(run: Run) -> SampleLandscape:
    """The label-block moments of the sample of one seed, in the paper's units."""
    if run.experiment.population:
        raise BadInput("source: 'sample' needs a run on a finite sample")
    return in_paper_units(run.task, *kept_moments(run), asymmetry_of(run))


def data_landscape(own: OwnData, task: Task, model: Model) -> SampleLandscape:
    """The same of sequences that a user brings."""
    moments = sampled_moments(own.training, model.normalize(task), task.prefix_loss, "label")
    cross, left = np.asarray(moments.cross), np.asarray(moments.left)
    return in_paper_units(task, cross, left, float(moments.power), asymmetry(own.training))


def in_paper_units(
    task: Task, cross: np.ndarray, left: np.ndarray, power: float, asymmetry: float = 0.0
) -> SampleLandscape:
    """One output's share of label-block moments."""
    dim, outputs = task.dim, task.out_dim
    factor = 1 / task.context if task.normalize == "none" else 1.0
    cross = cross.reshape(outputs, outputs, dim, dim)
    left = left.reshape(outputs, dim, dim, outputs, dim, dim)
    return SampleLandscape(
        cross=factor * np.einsum("ooac->ac", cross) / outputs,
        quadratic=factor**2 * np.einsum("oacobd->acbd", left) / outputs,
        base=power / outputs,
        outputs=outputs,
        asymmetry=asymmetry,
    )


def asymmetry_of(run: Run) -> float:
    r"""The asymmetry of a run's tasks: about $P^{-1/2}$ where every sequence draws its own; 0 if vector blocks stay."""
    if run.training.freeze_vectors or not run.model.vectors(run.task):
        return 0.0
    if run.experiment.data is None:
        return float(run.training.samples) ** -0.5
    own = None if "task_asymmetry" in run.summary else same_data(run)
    return float(run.summary["task_asymmetry"]) if own is None else asymmetry(own.training)


def kept_moments(run: Run) -> tuple[np.ndarray, np.ndarray, float]:
    """The moments `cross`, `left` and `power` of the label blocks, recomputed if the run does not store them."""
    kept = run.arrays("moments")
    if kept is not None:
        return kept["cross"], kept["left"], float(kept["power"])
    moments = drawn_again(run)
    return np.asarray(moments.cross), np.asarray(moments.left), float(moments.power)


def sequences_of(run: Run) -> Sequences:
    """The sample that a run was trained on: drawn again, or the user's own."""
    task, training = run.task, run.training
    own = same_data(run)
    if own is not None:
        return own.training
    seed = run.seeds[0] if training.data_seed is None else training.data_seed
    return Sample(Law.of(task), int(training.samples), (seed, TRAIN), training.whiten)


def drawn_again(run: Run) -> Moments:
    """The moments of a run that stores none: it is from an earlier version, or has many seeds with large moments."""
    return sampled_moments(sequences_of(run), run.model.normalize(run.task), run.task.prefix_loss, "label")
