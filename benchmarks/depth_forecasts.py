"""Are the intervals of the forecasts of several layers right? Random configurations, forecast and then trained.

    python -m benchmarks.depth_forecasts --count 20 --stream 1

Every configuration is drawn from its number and the stream: dimension 1 to 3, two or three layers of two to four heads,
looped or not, contexts of 16 to 64 tokens, spectra close and far, entries of 3e-3 to 2e-2. The label blocks are trained
by descent on Gram matrices of the population. Counted are the drops that are forecast to come before `LONGEST`; a drop
that has not come by then counts as outside. One line per configuration, then how many drops are inside.
"""

import argparse
from time import perf_counter

import numpy as np

import iclflow as icl

LONGEST, GRAMS = 5e3, 256


def configuration(stream: int, number: int) -> tuple[icl.Task, icl.Separate, float, int]:
    """Task, model, size and seed of the initial weights."""
    rng = np.random.default_rng([stream, number])
    dim, layers = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    values = np.sort(rng.uniform(0.2, 1, dim))[::-1]
    spectrum = ",".join(f"{value:.4f}" for value in values / values.sum()) if dim > 1 else "white"
    task = icl.Task(dim=dim, context=int(rng.integers(16, 65)), spectrum=spectrum)
    model = icl.Separate(heads=int(rng.integers(2, 5)), layers=layers, looped=bool(rng.random() < 0.25))
    return task, model, float(10 ** rng.uniform(-2.5, -1.7)), int(rng.integers(10**6))


def measure(stream: int, number: int) -> tuple[str, np.ndarray, np.ndarray, bool]:
    """What it is, the errors of all drops, the half-widths of their intervals, and whether the forecast is reliable."""
    task, model, init, seed = configuration(stream, number)
    settings = {"init": init, "seed": seed, "freeze_vectors": True}
    begun = perf_counter()
    forecast = icl.predict(task, model, **settings)
    asked, counted = perf_counter() - begun, forecast.drop_times < LONGEST
    name = f"D {task.dim} N {task.context:2d} {model.describe()}, {model.heads} heads, init {init:.3g}, {asked:.1f} s"
    if not counted.any():
        return name, np.zeros(0), np.zeros(0), forecast.reliable
    end, lr = min(1.25 * forecast.drop_times[counted][-1], 1.1 * LONGEST), step(task, model)
    begun = perf_counter()
    run = icl.train(
        task, model, **settings, gram_samples=GRAMS * task.dim**2, lr=lr, steps=int(end / (2 * lr)), records=2,
        progress=False,
    )  # fmt: skip
    loss, time, errors = run.loss.values, run.time.values, []
    for above, below, predicted in zip(forecast.levels[:-1], forecast.levels[1:], forecast.drop_times, strict=True):
        at = int(np.argmax(loss < (above + below) / 2))
        errors.append(time[at] / predicted - 1 if loss[at] < (above + below) / 2 else np.inf)
    half = forecast.drop_intervals[:, 1] / forecast.drop_times - 1
    name += f" (run {perf_counter() - begun:.1f} s)"
    return name, np.array(errors)[counted], half[counted], forecast.reliable


def step(task: icl.Task, model: icl.Separate) -> float:
    """A learning rate well below the edge of stability of the first direction."""
    return (0.25 if task.dim > 1 else 0.05) / (model.layers if model.looped else 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="intervals of the forecasts of several layers")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--stream", type=int, default=1)
    asked = parser.parse_args()
    inside: dict[bool, list[bool]] = {True: [], False: []}
    for number in range(asked.first, asked.first + asked.count):
        name, errors, half, reliable = measure(asked.stream, number)
        inside[reliable] += (np.abs(errors) <= half).tolist()
        drops = " ".join(f"{e:+.3f}/{w:.3f}" for e, w in zip(errors, half, strict=True))
        print(f"{number:3d} {'' if reliable else 'not reliable '}{name}: {drops}", flush=True)
    for reliable, found in inside.items():
        print(f"{'reliable' if reliable else 'not reliable'}: {sum(found)} of {len(found)} drops inside their interval")


if __name__ == "__main__":
    main()
