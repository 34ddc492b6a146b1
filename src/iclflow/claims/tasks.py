"""A finite number of tasks, and drop times as a distribution over initial weights."""

from functools import cache
from itertools import pairwise, product

import numpy as np
from jaxtyping import Float

import iclflow as icl
from iclflow.claims.registry import claim, shifted
from iclflow.comparison.comparing import crossing
from iclflow.comparison.gains import paper_reduced
from iclflow.data.features import features
from iclflow.data.population import population_moments
from iclflow.data.sequences import Law, fresh
from iclflow.results.run import Run
from iclflow.theory import drop_time_distribution, plateau_losses
from iclflow.theory.laws.task_sets import task_set_levels

__all__: list[str] = []

MODEL = icl.Separate(heads=5)
COUNTS = (1, 2, 8, 64)
SMALL = 1e-3
RUNS, DRAWS = 200, 2000
FAR = 100_000  # seeds of predicted draws: none of them is trained
FEW_RUNS, FEW_DRAWS = 40, 400  # enough to show that it breaks


def few_tasks(count: int, offset: int) -> icl.Task:
    """K tasks, each with either sign."""
    return shifted(icl.Task(dim=3, tasks=count, mirror_tasks=True), offset)


@cache
def run_on(count: int, offset: int) -> Run:
    """The flow on K tasks, until half as long again as the last drop."""
    task = few_tasks(count, offset)
    return icl.train(task, MODEL, init=SMALL, seed=offset, time=1.5 * float(predicted_drops(task, offset)[-1]))


def predicted_drops(task: icl.Task, offset: int) -> Float[np.ndarray, " m"]:
    """The drop times that theory gives for the run's initial weights."""
    return drop_time_distribution(task, MODEL, init=SMALL, seeds=1, seed=offset).values[0]


@claim(
    "task-components",
    "K fixed tasks in D dimensions are learned in min(K, D) components.",
    source="beyond the paper",
    quantity="differences in rank of the learned matrix, summed over K = 1, 2, 8, 64 (D = 3)",
    bound=0,
    seeds="0",
)
def task_components(sabotage: bool = False, offset: int = 0) -> float:
    wrong = 0
    for count in COUNTS:
        heads = paper_reduced(MODEL, run_on(count, offset).final_weights, few_tasks(count, offset))
        strengths = np.linalg.svd(np.einsum("h,hde->de", heads.value, heads.key_query))[1]
        expected = 3 if sabotage else min(count, 3)  # sabotage: the number of tasks does not matter
        wrong += abs(int(np.sum(strengths > 1e-3 * strengths[0])) - expected)
    return float(wrong)


@claim(
    "task-first-drop",
    "The first drop of training on K tasks comes when the second moment of the tasks and the initial weights say.",
    source="beyond the paper",
    quantity="relative error, median over K = 1, 2, 8, 64 and three draws of tasks and weights",
    bound=1.3e-4,
    seeds="0-2",
)
def task_first_drop(sabotage: bool = False, offset: int = 0) -> float:
    errors = []
    for count, seed in product(COUNTS, range(offset, offset + (1 if sabotage else 3))):
        run = run_on(count, seed)
        task = run.task.new_tasks if sabotage else run.task  # sabotage: as many tasks as sequences
        predicted = predicted_drops(task, seed)[0]
        seen = crossing(run.time.values, run.loss.values, float(plateau_losses(run.task)[:2].mean()))
        errors.append(np.inf if seen is None else abs(float(predicted) / seen - 1))
    return float(np.median(errors))


@claim(
    "task-levels",
    "Theory knows the loss on the K tasks and on new tasks, on every long plateau and at the end.",
    source="beyond the paper",
    quantity="losses, for K = 1, 2, 8, 64, that are more than a part in a thousand off",
    bound=0,
    seeds="0",
)
def task_levels(sabotage: bool = False, offset: int = 0) -> float:
    gaps = []
    for count in COUNTS:
        run = run_on(count, offset)
        levels = task_set_levels(run.task)
        drops = predicted_drops(run.task, offset)
        times, long = run.time.values, 1.5  # a plateau is long if its end is this many times its beginning
        places = [
            (m + 1, int(np.searchsorted(times, (begin + end) / 2)))
            for m, (begin, end) in enumerate(pairwise(drops))
            if end > long * begin
        ]
        test = levels.train if sabotage else levels.test  # sabotage: new tasks are like the old ones
        for m, place in [*places, (len(drops), len(times) - 1)]:
            gaps += [run.loss.values[place] / levels.train[m] - 1, run.loss_icl.values[place] / test[m] - 1]
    return float(np.sum(np.abs(gaps) > 1e-3))


@claim(
    "task-moments",
    "Exact moments of all weight blocks for K tasks are those of drawn sequences.",
    source="beyond the paper",
    quantity="largest distance of a loss at random coefficients, in standard errors (20 of them, 100,000 sequences)",
    bound=5,
    seeds="0",
    quick=True,
)
def task_moments(sabotage: bool = False, offset: int = 0) -> float:
    task = shifted(icl.Task(dim=3, context=8, tasks=4, label_noise=0.2), offset)
    exact = population_moments(task.replace(mirror_tasks=sabotage), "context", "all")  # sabotage: no odd moments
    rng = np.random.default_rng([7, offset])
    theta = rng.standard_normal((20, exact.left.shape[0]))
    sums, squares, count, batches = np.zeros(20), np.zeros(20), 10_000, 10
    for index in range(batches):
        data = fresh(Law.of(task), (offset, 7), index, count)
        psi = features(data[:, :-1], data[:, -1, :3], "all") / task.context
        errors = (data[:, -1, 3:] - psi @ theta.T) ** 2
        sums, squares = sums + errors.sum(axis=0), squares + (errors**2).sum(axis=0)
    mean = sums / (batches * count)
    error = np.sqrt((squares / (batches * count) - mean**2) / (batches * count))
    expected = float(exact.power) - 2 * theta @ exact.cross[0] + np.einsum("ni,ij,nj->n", theta, exact.left, theta)
    return float(np.abs((mean - expected) / error).max())


@claim(
    "drop-distribution",
    "Over initial weights the first drop has the distribution that theory predicts for other draws.",
    source="beyond the paper",
    quantity="Kolmogorov-Smirnov distance of 200 runs and 2000 predictions over its .01 % critical value",
    bound=1,
    seeds="0 to 199, 100000 to 101999",
)
def drop_distribution(sabotage: bool = False, offset: int = 0) -> float:
    task = shifted(icl.Task(dim=2), offset)
    model = icl.Separate(heads=9 if sabotage else 3)  # sabotage: three times as many heads take part in the race
    runs, draws = (FEW_RUNS, FEW_DRAWS) if sabotage else (RUNS, DRAWS)
    predicted = drop_time_distribution(task, model, init=0.01, seeds=draws, seed=FAR + offset).sel(drop_number=1).values
    share = lambda sample, x: np.searchsorted(np.sort(sample), x, side="right") / len(sample)
    seen = first_drops(task, offset, runs)
    both = np.concatenate([seen, predicted])
    critical = np.sqrt(-np.log(1e-4 / 2) / 2 * (1 / runs + 1 / draws))  # Kolmogorov-Smirnov at .01 %
    return float(np.abs(share(seen, both) - share(predicted, both)).max() / critical)


def first_drops(task: icl.Task, offset: int, seeds: int) -> Float[np.ndarray, " runs"]:
    """The first drops of the trained runs."""
    model, middle = icl.Separate(heads=3), float(plateau_losses(task)[:2].mean())
    end = 2 * float(drop_time_distribution(task, model, init=0.01, seeds=seeds, seed=offset).sel(drop_number=1).max())
    run = icl.train(task, model, init=0.01, seed=offset, seeds=seeds, time=end, records=2)
    runs = [run.select(seed) for seed in run.seeds]
    return np.array([crossing(one.time.values, one.loss.values, middle) for one in runs], dtype=float)
