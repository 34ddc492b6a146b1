"""(c) Time per step against the number P and the length N of the sequences: it must not grow.

Figure-1 model (merged, D 4, H 8), moments of the sample. Set-up is drawing the sample and taking its
moments (one call); total is a whole `icl.train` of 6001 steps (one call) in a process that has compiled
before. Steps: smallest of 9 times 4000, all sizes in turn, so that other work on the machine meets them
alike.
"""

from collections.abc import Sequence
from dataclasses import replace

import iclflow as icl
from benchmarks.settings import FIGURE_1, Published
from benchmarks.table import Row, say, seconds
from benchmarks.timing import first_call
from benchmarks.warm_step import Ready, experiment, prepare, seconds_per_step

__all__ = ["against_length", "against_samples"]

GROWTH = 1.3  # of the step time, from end to end, that noise may explain
STEPS, ROUNDS = 4000, 9


def against_samples(quick: bool) -> list[Row]:
    counts = [10**3, 10**4] if quick else [10**3, 10**4, 10**5, 10**6]
    return sweep("P", counts, [replace(FIGURE_1, samples=count) for count in counts])


def against_length(quick: bool) -> list[Row]:
    lengths = [8, 32] if quick else [8, 32, 128, 512]
    # scaled by the length, so that one learning rate suits all
    short = replace(FIGURE_1, samples=1000, normalize="context", lr=0.05)
    return sweep("N", lengths, [replace(short, context=length) for length in lengths])


def sweep(letter: str, values: Sequence[int], runs: Sequence[Published]) -> list[Row]:
    train(runs[0])  # compiles
    held: list[Ready] = []
    set_ups, totals = [], []
    for value, run in zip(values, runs, strict=True):
        say(f"set-up and a whole run at {letter} = {value}")
        set_ups.append(first_call(lambda run=run: held.append(prepare(experiment(run)))))
        totals.append(first_call(lambda run=run: train(run)))
    rounds = [[seconds_per_step(ready, STEPS, 1) for ready in held] for _ in range(ROUNDS)]
    steps = [min(times) for times in zip(*rounds, strict=True)]
    rows = [
        Row(f"{letter} = {v:,}", f"{seconds(s)} a step, set-up {seconds(u)}, total {seconds(t)}", s)
        for v, s, u, t in zip(values, steps, set_ups, totals, strict=True)
    ]
    growth = steps[-1] / steps[0]
    last = Row("last step time over first", f"{growth:.2f}x", growth, f"below {GROWTH}x", growth < GROWTH)
    return [*rows, last]


def train(run: Published) -> None:
    icl.train(run.task(), run.network(), progress=False, **run.settings())
