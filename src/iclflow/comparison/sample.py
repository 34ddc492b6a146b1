"""The loss landscape of the sample that a run was trained on, from the moments stored in the run."""

import numpy as np

from iclflow.data.moments import Moments
from iclflow.data.sampled import sampled_moments
from iclflow.data.sequences import TRAIN, Law, Sample, Sequences
from iclflow.errors import BadInput
from iclflow.results.own_data import same_data
from iclflow.results.run import Run
from iclflow.theory.separate import SampleLandscape

__all__ = ["sample_landscape"]


def sample_landscape(run: Run) -> SampleLandscape:
    """The label-block moments of the sample of one seed, in the paper's units."""
    if run.experiment.population:
        raise BadInput("source: 'sample' needs a run on a finite sample")
    cross, left, power = kept_moments(run)
    dim, outputs = run.task.dim, run.task.out_dim
    factor = 1 / run.task.context if run.task.normalize == "none" else 1.0
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
