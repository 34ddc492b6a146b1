"""Are the intervals of forecasts right for descent? Runs on the population or on samples, each beside its forecast.

    python -m benchmarks.descent_forecasts --on population --first 200 --count 40
    python -m benchmarks.descent_forecasts --on sample --first 200 --count 40

Every run is drawn from its number and the first one: dimension 2 to 5, contexts of 10 to 60. On the population: ranks 1
and 2, spectra close and far, initial weights of 3e-3 to 3e-2 per entry, steps of .05 to .6 of the largest stable one.
On a sample: 3,000 to 100,000 sequences, rank one, 1e-2 to 3e-2 per entry, learning rate .05 or .2, all blocks trained.
A drop that the run was too short for is left out.
"""

import argparse

import numpy as np

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.errors import BadInput
from iclflow.prediction.edges import stable_rates

MOST_STEPS = 400_000


def on_sample(number: int, rng: np.random.Generator) -> icl.Run:
    """A training run on a sample."""
    samples, init, lr = 10 ** rng.uniform(3.5, 5), 10 ** rng.uniform(-2, -1.5), float(rng.choice([0.05, 0.2]))
    task = icl.Task(dim=int(rng.integers(2, 6)), context=int(rng.integers(10, 60)))
    how = {"samples": int(samples), "init": init, "lr": lr, "steps": int(8e3 / lr)}
    return icl.train(task, icl.Separate(heads=6), seed=number, progress=False, **how)


def on_population(number: int, rng: np.random.Generator) -> icl.Run:
    """A training run on the population, which ends soon after its last drop."""
    dim, rank = int(rng.integers(2, 6)), int(rng.integers(1, 3))
    values = rng.uniform(0.1, 1, dim) if rng.random() < 0.5 else 1 + rng.random(dim)
    spectrum = ",".join(f"{value:.4f}" for value in np.sort(values)[::-1] / values.sum())
    task = icl.Task(dim=dim, context=int(rng.integers(10, 60)), spectrum=spectrum)
    model = icl.Separate(heads=-(-dim // rank) + int(rng.integers(0, 3)), rank=rank)
    init, share = 10 ** rng.uniform(-2.5, -1.5), rng.uniform(0.05, 0.6)
    stable = stable_rates(task, icl.Separate(heads=dim))
    assert stable is not None
    lr = float(share * stable.min())
    last = icl.predict(task, model, init=init, seed=number).drop_times[-1]
    steps = int(min(1.5 * last / (2 * lr), MOST_STEPS))
    how = {"init": init, "lr": lr, "steps": steps, "engine": "moments", "freeze_vectors": True}
    return icl.train(task, model, seed=number, progress=False, **how)


RUNS = {"population": on_population, "sample": on_sample}


def main() -> None:
    """Train, compare, and print how many drops lie inside their intervals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=list(RUNS), default="population")
    parser.add_argument("--first", type=int, default=200)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--all", action="store_true", help="print every drop")
    given = parser.parse_args()
    rng = np.random.default_rng(given.first)
    drops, reliable = [], []
    for number in range(given.first, given.first + given.count):
        run = RUNS[given.on](number, rng)
        try:
            comparison = compare_one(run, None)
        except BadInput as error:
            print(f"run {number}: {error}")
            continue
        seen = [d for d in comparison.drops if d.observed_time is not None or d.high < run.time.values[-1]]
        drops += seen
        reliable += [comparison.prediction.reliable] * len(seen)
        if given.all:
            pairs = " ".join(f"{d.error or np.inf:.5f}/{d.high / d.predicted_time - 1:.5f}" for d in seen)
            print(f"{number} {'' if comparison.prediction.reliable else 'not reliable '}{pairs}", flush=True)
    half = [(d.high - d.low) / 2 / d.predicted_time for d in drops]
    errors = [d.error for d in drops if d.error is not None]
    print(
        f"{len(drops)} drops, {np.mean([bool(d.inside) for d in drops]):.1%} inside, median half-width"
        f" {np.median(half):.2%}, median error {np.median(errors):.3%}, {np.mean(reliable):.0%} called reliable"
    )


if __name__ == "__main__":
    main()
