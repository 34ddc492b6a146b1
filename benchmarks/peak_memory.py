"""(f) Peak memory of a training on a million sequences at D 8: largest resident set of a fresh process."""

from benchmarks.child import train_in_child
from benchmarks.settings import FIGURE_4
from benchmarks.table import Row, say, seconds

__all__ = ["million_sequences"]

LIMIT = 2 * 2**30


def million_sequences(quick: bool) -> list[Row]:
    run, samples = FIGURE_4[1], 20_000 if quick else 1_000_000
    say(f"training on {samples:,} sequences in a fresh process")
    task = {"dim": run.dim, "context": run.context, "normalize": run.normalize}
    outcome = train_in_child(task, run.model, run.shape, {**run.settings(), "samples": samples})
    return [
        Row(
            f"peak memory, P {samples:,}, D 8", f"{outcome.peak / 2**30:.2f} GiB", outcome.peak,
            "below 2 GiB", outcome.peak < LIMIT,
        ),
        Row(f"time to train, {run.steps} steps", seconds(outcome.training), outcome.training),
    ]  # fmt: skip
