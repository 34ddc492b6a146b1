"""The bytes that a run needs, and the seconds to draw its sequences: right within a factor of a few."""

import math

from iclflow.data.features import feature_count
from iclflow.data.sequences import CHUNK, KEEP_BYTES
from iclflow.data.spectrum import covariance_bytes
from iclflow.engines.choose import choose
from iclflow.experiment import Setup
from iclflow.system.memory import require

__all__ = ["draw_seconds", "held_bytes", "refuse_oversized", "token_bytes"]

# Seconds, measured on one core of an ordinary machine.
DRAW = 2.5e-8  # one normal number, drawn twice
WEIGHT_COPIES, LOSS_COPIES, LENGTH_COPIES, TASK_COPIES = 8, 5, 6, 3  # arrays of so many numbers that are made


def side(experiment: Setup) -> int:
    """Features whose moments a run needs."""
    dim, outputs = experiment.task.dim, experiment.task.out_dim
    stay = experiment.population and experiment.task.symmetric
    small = stay or not experiment.model.vectors(experiment.task)
    return feature_count(dim, outputs, "label" if small else "all")


def sequences(experiment: Setup) -> int | float:
    """Training and test sequences that are drawn."""
    training = experiment.training
    return 0.0 if experiment.population or experiment.data else training.samples + 2 * training.test_samples


def draw_seconds(experiment: Setup) -> float:
    """To draw the sequences of a run and to sum their moments."""
    task, positions = experiment.task, experiment.task.context if experiment.task.prefix_loss else 1
    features = 0 if choose(experiment).engine in ("tokens", "gram") else positions * side(experiment) ** 2 * 1e-10
    return float(sequences(experiment)) * ((task.context + 1) * task.dim * DRAW + features)


def weight_rows(experiment: Setup) -> int:
    """Heads, or whatever the first axis of the largest array counts."""
    return max(shape[0] for shape in experiment.model.shapes(experiment.task).values())


def refuse_oversized(experiment: Setup) -> None:
    """Raise `NoRoom` before anything of a run is made, naming what takes the most of its memory."""
    task, training, shapes = experiment.task, experiment.training, experiment.model.shapes(experiment.task)
    weights = sum(math.prod(shape) for shape in shapes.values())
    kept = min(training.records, training.steps or training.records) + WEIGHT_COPIES
    losses = (training.steps or 0) * (1 + 2 * (training.test_samples > 0)) * training.seeds
    parts = {
        f"dim {task.dim}, of which matrices are made,": covariance_bytes(task.dim),
        f"{weights} weights, which are kept {kept} times,": 8 * weights * kept,
        f"steps {training.steps}, after each of which a loss is kept,": 8 * LOSS_COPIES * losses,
        f"samples and tokens of the {choose(experiment).engine} engine": drawn_bytes(experiment),
        f"samples {training.samples}, whose task vectors are whitened,": 8 * TASK_COPIES * whitened(experiment),
        f"context {task.context}": 8 * LENGTH_COPIES * task.context,
        f"seeds {training.seeds}": 8 * training.seeds,
    }
    require(sum(parts.values()), max(parts, key=lambda name: parts[name]))


def whitened(experiment: Setup) -> int:
    """Numbers of the task vectors that are held together to be whitened."""
    training, task = experiment.training, experiment.task
    own = training.whiten and task.tasks is None and task.icl_fraction == 1
    largest = 0 if experiment.population or experiment.data else max(training.samples, training.test_samples)
    return int(largest) * task.out_dim * task.dim if own else 0


def drawn_bytes(experiment: Setup) -> int:
    """Sequences and Gram matrices that are held at once, and a step on them; moments are judged where they are made."""
    task, training, engine = experiment.task, experiment.training, choose(experiment).engine
    width = task.dim + task.out_dim
    if engine == "gram":
        drawn = 0 if sequences(experiment) else training.batch or training.gram_samples
        return int(16 * (sequences(experiment) + drawn) * width * (width + 1))
    if engine == "tokens":
        return token_bytes(experiment, int(sequences(experiment)) or training.batch or 0, 0)
    return int(4 * 8 * min(sequences(experiment), CHUNK) * (task.context + 1) * width)


def held_bytes(experiment: Setup) -> int:
    task = experiment.task
    if choose(experiment).engine in ("gram", "tokens"):
        return drawn_bytes(experiment)
    kept = min(8 * sequences(experiment) * (task.context + 1) * task.dim, KEEP_BYTES)
    return int(4 * 8 * side(experiment) ** 2 + drawn_bytes(experiment) + kept)


def token_bytes(experiment: Setup, count: int, tests: int) -> int:
    """Memory of the tokens engine: `count` training sequences held with the `tests`, and a step on a batch of them."""
    task = experiment.task
    width, positions = task.dim + task.out_dim, task.context if task.prefix_loss else 1
    held = (count + tests) * (task.context + 1) * width
    worked = (experiment.training.batch or count) * (task.context + 1) * positions * 4 * weight_rows(experiment)
    return 8 * (2 * held + worked)
