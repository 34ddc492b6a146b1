"""Are the intervals of forecasts right on finite samples? Descent on samples, each compared with its forecast.

    python -m benchmarks.sample_forecasts --first 200 --count 40

Every run is drawn from its number: 3,000 to 100,000 sequences, dimension 2 to 5, contexts of 10 to 60, initial weights
of 1e-2 to 3e-2 per entry, learning rate .05 or .2, all blocks trained. A drop that the run was too short for is left
out.
"""

import argparse

import numpy as np

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.errors import BadInput


def run_of(number: int, rng: np.random.Generator) -> icl.Run:
    """One training run."""
    samples, init, lr = 10 ** rng.uniform(3.5, 5), 10 ** rng.uniform(-2, -1.5), float(rng.choice([0.05, 0.2]))
    task = icl.Task(dim=int(rng.integers(2, 6)), context=int(rng.integers(10, 60)))
    how = {"samples": int(samples), "init": init, "lr": lr, "steps": int(8e3 / lr)}
    return icl.train(task, icl.Separate(heads=6), seed=number, progress=False, **how)


def main() -> None:
    """Train, compare, and print how many drops lie inside their intervals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=200)
    parser.add_argument("--count", type=int, default=40)
    given = parser.parse_args()
    rng = np.random.default_rng(given.first)
    drops, reliable = [], []
    for number in range(given.first, given.first + given.count):
        run = run_of(number, rng)
        try:
            comparison = compare_one(run, None)
        except BadInput as error:
            print(f"run {number}: {error}")
            continue
        seen = [d for d in comparison.drops if d.observed_time is not None or d.high < run.time.values[-1]]
        drops += seen
        reliable += [comparison.prediction.reliable] * len(seen)
    half = [(d.high - d.low) / 2 / d.predicted_time for d in drops]
    print(
        f"{len(drops)} drops, {np.mean([bool(d.inside) for d in drops]):.1%} inside, median half-width"
        f" {np.median(half):.1%}, {np.mean(reliable):.0%} called reliable"
    )


if __name__ == "__main__":
    main()
