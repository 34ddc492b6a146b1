"""The loss landscape of a sample: of the one that a training draws, of the user's own, of the one behind a run."""

from dataclasses import replace

import numpy as np

from iclflow.config import Task, Training
from iclflow.data.asymmetry import asymmetry
from iclflow.data.moments import Moments
from iclflow.data.sampled import sampled_moments
from iclflow.data.sequences import TRAIN, Given, Law, Sample, Sequences, over_chunks
from iclflow.errors import BadInput
from iclflow.models import Model
from iclflow.results.own_data import same_data
from iclflow.results.run import Run
from iclflow.theory.forecast import MOST_FEATURES
from iclflow.theory.minibatches import Draws
from iclflow.theory.separate import SampleLandscape

__all__ = ["landscape_of", "run_landscape", "sample_draws", "sample_landscape", "sequences_of", "training_sample"]


def sample_landscape(run: Run) -> SampleLandscape:
    """The label-block moments of the sample of one seed, in the paper's units."""
    if run.experiment.population:
        raise BadInput("source: 'sample' needs a run on a finite sample")
    return in_paper_units(run.task, *kept_moments(run))


def landscape_of(sequences: Sequences, task: Task, model: Model, training: Training) -> SampleLandscape:
    """The moments of sequences that a training sees: of all blocks that it trains, where they are not too many."""
    free = bool(model.vectors(task)) and not training.freeze_vectors
    whole = free and model.one_by_one and (task.dim + task.out_dim) ** 2 * task.dim <= MOST_FEATURES
    moments = sampled_moments(sequences, model.normalize(task), task.prefix_loss, "all" if whole else "label")
    label, factor = moments.label_part(), paper_factor(task)
    found = in_paper_units(task, np.asarray(label.cross), np.asarray(label.left), float(label.power))
    found = replace(found, asymmetry=tasks_asymmetry(sequences, training) if free else 0.0)
    if not whole:
        return found
    correlation = np.asarray(moments.unfold(np.asarray(moments.cross)))
    return replace(found, features=factor**2 * np.asarray(moments.left), correlation=factor * correlation)


def tasks_asymmetry(sequences: Sequences, training: Training) -> float:
    r"""How much the tasks push on vector blocks: about $P^{-1/2}$ where every sequence draws its own."""
    return asymmetry(sequences) if isinstance(sequences, Given) else float(training.samples) ** -0.5


def run_landscape(run: Run) -> SampleLandscape:
    """The moments of the sample of one seed that its forecast is made from; without its file those that it keeps."""
    try:
        sequences = sequences_of(run)
    except BadInput:
        if run.moments is None:
            raise
        return replace(sample_landscape(run), asymmetry=float(run.summary.get("task_asymmetry", 0.0)))
    return landscape_of(sequences, run.task, run.model, run.training.replace(seed=run.seeds[0]))


def paper_factor(task: Task) -> float:
    """What makes a readout one with the paper's normaliser."""
    return 1 / task.context if task.normalize == "none" else 1.0


def training_sample(task: Task, training: Training) -> Sample:
    """The sample that training draws."""
    seed = training.seed if training.data_seed is None else training.data_seed
    return Sample(Law.of(task), int(training.samples), (seed, TRAIN), training.whiten)


def sample_draws(sample: Sequences, tokens: bool) -> Draws:
    """The sequences of a sample, chunk by chunk; `tokens`: the query counts in the normaliser."""
    dim, scale = sample.dim, 1 / (sample.context + tokens)

    def part(index: int) -> tuple[np.ndarray, ...]:
        rows = np.array(sample.chunk(index))
        label = rows[:, -1, dim:].copy()
        rows[:, -1, dim:] = 0
        return scale * np.matmul(rows.transpose(0, 2, 1), rows), rows[:, -1, :dim].copy(), label

    sample.prepare()
    return Draws(*(np.concatenate(parts) for parts in zip(*over_chunks(part, sample), strict=True)))


def in_paper_units(task: Task, cross: np.ndarray, left: np.ndarray, power: float) -> SampleLandscape:
    """One output's share of label-block moments."""
    dim, outputs, factor = task.dim, task.out_dim, paper_factor(task)
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
    return training_sample(task, training.replace(seed=run.seeds[0]))


def drawn_again(run: Run) -> Moments:
    """The moments of a run that stores none: it is from an earlier version, or has many seeds with large moments."""
    return sampled_moments(sequences_of(run), run.model.normalize(run.task), run.task.prefix_loss, "label")
