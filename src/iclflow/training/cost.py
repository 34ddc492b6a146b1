"""What a run costs in seconds and bytes: rough by nature, meant to be right within a factor of a few."""

import math

from iclflow.data.features import feature_count
from iclflow.engines.choose import choose
from iclflow.experiment import Experiment

__all__ = ["OVERHEAD", "draw_seconds", "held_bytes", "run_seconds", "token_bytes"]

# Seconds, measured on one core of an ordinary machine.
OVERHEAD = 0.12  # what every run costs besides its steps: sizes, recordings, quantities, commit
STEP, PER_ENTRY = 2e-6, 2e-10  # one step on moments, and what each entry of their matrix adds
FLOW_STEPS = 20_000  # solver steps until a run has settled, each about six evaluations
DRAW = 2.5e-8  # one normal number, drawn twice
TOKEN = 4e-9  # one multiply-add of attention
GRAM = 3e-9  # one multiply-add of a layer on Gram matrices


def side(experiment: Experiment) -> int:
    """Features whose moments a run needs."""
    dim, outputs = experiment.task.dim, experiment.task.out_dim
    stay = experiment.population and experiment.task.symmetric
    small = stay or not experiment.model.vectors(experiment.task)
    return feature_count(dim, outputs, "label" if small else "all")


def sequences(experiment: Experiment) -> int | float:
    """Training and test sequences that are drawn."""
    training = experiment.training
    return 0.0 if experiment.population or experiment.data else training.samples + 2 * training.test_samples


def draw_seconds(experiment: Experiment) -> float:
    """To draw the sequences of a run and to sum their moments."""
    task, positions = experiment.task, experiment.task.context if experiment.task.prefix_loss else 1
    features = 0 if choose(experiment).engine in ("tokens", "gram") else positions * side(experiment) ** 2 * 1e-10
    return float(sequences(experiment)) * ((task.context + 1) * task.dim * DRAW + features)


def run_seconds(experiment: Experiment, steps: int | float) -> float:
    """Of one run of so many steps; the flow takes as many as it needs."""
    task, training = experiment.task, experiment.training
    engine, _, flows = choose(experiment)
    if engine == "gram":
        return (6 * FLOW_STEPS if flows else steps) * (1e-5 + GRAM * matrices(experiment) * layer_work(experiment))
    factored = experiment.population and experiment.task.symmetric
    entries = side(experiment) if factored else side(experiment) ** 2
    step = STEP + PER_ENTRY * entries
    if engine == "flow":
        return 6 * FLOW_STEPS * step
    if engine == "moments":
        return steps * step
    rows = training.batch or sequences(experiment) or 5000
    tokens = rows * (task.context + 1) * (task.dim + task.out_dim) ** 2 * weight_rows(experiment)
    return steps * (1e-5 + TOKEN * tokens * (task.context if task.prefix_loss else 1))


def matrices(experiment: Experiment) -> int | float:
    """Gram matrices in a step."""
    return experiment.training.batch or sequences(experiment) or experiment.training.gram_samples


def layer_work(experiment: Experiment) -> int:
    """Multiplications that a Gram matrix costs on its way through all layers, there and back."""
    width = experiment.task.dim + experiment.task.out_dim
    sizes = [math.prod(shape) for shape in experiment.model.shapes(experiment.task).values()]
    return 3 * width * (sum(sizes) + 2 * width**2)


def weight_rows(experiment: Experiment) -> int:
    """Heads, or whatever the first axis of the largest array counts."""
    return max(shape[0] for shape in experiment.model.shapes(experiment.task).values())


def held_bytes(experiment: Experiment) -> int:
    task = experiment.task
    engine, width = choose(experiment).engine, task.dim + task.out_dim
    if engine == "gram":
        drawn = 0 if sequences(experiment) else experiment.training.gram_samples
        return int(16 * (sequences(experiment) + drawn) * width * (width + 1))
    if engine == "tokens":
        return int(16 * sequences(experiment) * (task.context + 1) * (task.dim + task.out_dim))
    chunk = 8 * min(sequences(experiment), 8192) * (task.context + 1) * (task.dim + task.out_dim)
    kept = min(8 * sequences(experiment) * (task.context + 1) * task.dim, 256 * 2**20)
    return int(4 * 8 * side(experiment) ** 2 + 4 * chunk + kept)


def token_bytes(experiment: Experiment, count: int, tests: int) -> int:
    """Memory of the tokens engine: `count` training sequences held with the `tests`, and a step on a batch of them."""
    task = experiment.task
    width, positions = task.dim + task.out_dim, task.context if task.prefix_loss else 1
    held = (count + tests) * (task.context + 1) * width
    worked = (experiment.training.batch or count) * (task.context + 1) * positions * 4 * weight_rows(experiment)
    return 8 * (2 * held + worked)
