"""The loss landscape of the sample that a run was trained on, from the moments stored in the run."""

import numpy as np

from iclflow.config import Task
from iclflow.data.moments import Moments
from iclflow.data.own import OwnData
from iclflow.data.sampled import sampled_moments
from iclflow.data.sequences import TRAIN, Law, Sample, Sequences
from iclflow.errors import BadInput
from iclflow.models import Model
from iclflow.results.own_data import same_data
from iclflow.results.run import Run
from iclflow.theory.separate import SampleLandscape

__all__ = ["data_landscape", "sample_landscape"]


def sample_landscape(run: Run) -> SampleLandscape:
    """The label-block moments of the sample of one seed, in the paper's units."""
    if run.experiment.population:
        raise BadInput("source: 'sample' needs a run on a finite sample")
    return in_paper_units(run.task, *kept_moments(run))


def data_landscape(own: OwnData, task: Task, model: Model) -> SampleLandscape:
    """The same of sequences that a user brings."""
    moments = sampled_moments(own.training, model.normalize(task), task.prefix_loss, "label")
    return in_paper_units(task, np.asarray(moments.cross), np.asarray(moments.left), float(moments.power))


def in_paper_units(task: Task, cross: np.ndarray, left: np.ndarray, power: float) -> SampleLandscape:
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
    )


def kept_moments(run: Run) -> tuple[np.ndarray, np.ndarray, float]:
    """The moments `cross`, `left` and `power` of the label blocks, recomputed if the run does not store them."""
    if run.moments is not None:
        return run.moments["cross"].values, run.moments["left"].values, float(run.moments["power"])
    moments = drawn_again(run)
    return np.asarray(moments.cross), np.asarray(moments.left), float(moments.power)


def drawn_again(run: Run) -> Moments:
    """The moments of a run that stores none: it is from an earlier version, or has many seeds with large moments."""
    task, training = run.task, run.training
    own = same_data(run)
    seed = run.seeds[0] if training.data_seed is None else training.data_seed
    sample: Sequences = (
        Sample(Law.of(task), int(training.samples), (seed, TRAIN), training.whiten) if own is None else own.training
    )
    return sampled_moments(sample, run.model.normalize(task), task.prefix_loss, "label")
