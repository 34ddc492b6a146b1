"""How well does a curve tell what made it? Random curves of known origin, inferred from the loss alone.

    python -m benchmarks.inference --stream 2 --curves curves --out inference.json

A curve is drawn from its kind, its number and the stream, nothing else. What the intervals and the test are calibrated
on is stream 1, so measure on another. Curves are kept as `curves/KIND-STREAM.npz`, so that the work can be continued.

| kind | what makes the curves |
| --- | --- |
| population | flow on the population; D 2 to 6, ratios 1.15 to 3, context 5 to 200, init 3e-4 to 2e-2, H from D to 2D |
| batch | descent with fresh batches of 128 to 1,024; D 2 and 3, most runs long enough for all drops |
| foreign | softmax attention, power laws, two-layer linear networks, two-layer networks, unequal jumps |

A drop counts as seen when the loss has passed nine tenths of it (seven, with batches) and it is at least a thousandth
(a fiftieth) of the fall. An eigenvalue that is seen and not found counts as an error of 1, and as outside its interval.
"""

import argparse
import json
import time as clock
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import iclflow as icl
from iclflow.prediction.edges import stable_rates

Rng = np.random.Generator
Drawn = dict[str, Any]
COUNTS = {"population": 500, "batch": 200, "softmax": 40, "power": 40, "deep_linear": 40, "unequal": 40, "network": 40}
FOREIGN = tuple(COUNTS)[2:]


def rng_of(kind: str, stream: int, number: int) -> Rng:
    """The generator of one curve."""
    if kind in FOREIGN:
        return np.random.default_rng([33, stream, number, len(kind)])
    return np.random.default_rng([31 if kind == "population" else 32, stream, number])


def spectrum(rng: Rng, dim: int) -> np.ndarray:
    """Eigenvalues with random ratios, and a random trace."""
    falling = np.concatenate([[1.0], 1 / np.cumprod(rng.uniform(1.15, 3, dim - 1))])
    return falling / falling.sum() * np.exp(rng.uniform(np.log(0.5), np.log(2)))


def whole(rng: Rng, low: float, high: float) -> int:
    """A whole number, even in its logarithm."""
    return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def task_of(values: np.ndarray, context: int) -> icl.Task:
    return icl.Task(spectrum=tuple(values.tolist()), context=context, basis="identity")


def population(rng: Rng) -> Drawn:
    dim = int(rng.integers(2, 7))
    values, context = spectrum(rng, dim), whole(rng, 5, 200)
    init, heads = float(np.exp(rng.uniform(np.log(3e-4), np.log(2e-2)))), int(rng.integers(dim, 2 * dim + 1))
    seed = int(rng.integers(2**31))
    run = icl.train(task_of(values, context), icl.Separate(heads=heads), init=init, seed=seed)
    return {"time": run.time.values, "loss": run.loss.values, "values": values, "context": context}


def batch(rng: Rng) -> Drawn:
    dim = int(rng.integers(2, 4))
    values = spectrum(rng, dim)
    values /= values.sum()
    context, steps = whole(rng, 6, 30), int(rng.integers(800, 1800))
    heads, size = int(rng.integers(dim, 2 * dim + 1)), int(2 ** rng.uniform(7, 10))
    task, model = task_of(values, context), icl.Separate(heads=heads)
    stable = stable_rates(task, model)
    assert stable is not None
    lr, last = float(rng.uniform(0.03, 0.3) * np.min(stable)), dim if rng.random() < 0.75 else dim - 1
    init = float(np.clip(rng.uniform(1.2, 2.5) / (values[last - 1] ** 2 * 2 * lr * steps), 5e-3, 0.1))
    run = icl.train(task, model, init=init, seed=int(rng.integers(2**31)), batch=size, lr=lr, steps=steps)
    return {"time": run.time.values, "loss": run.loss.values, "values": values, "context": context}


def softmax(rng: Rng) -> Drawn:
    dim = int(rng.integers(2, 4))
    values = np.concatenate([[1.0], 1 / np.cumprod(rng.uniform(1.3, 3, dim - 1))])
    values /= values.sum()
    context, init = int(rng.integers(8, 33)), float(np.exp(rng.uniform(np.log(3e-2), np.log(1e-1))))
    heads, lr = int(rng.integers(dim, 2 * dim + 1)), 0.3
    steps = int(min(4000, 2.0 / (init * values[-1] ** 2) / (2 * lr) + 200))
    model = icl.Separate(heads=heads, softmax=True)
    how = {"init": init, "samples": 1000, "lr": lr, "steps": steps, "seed": int(rng.integers(2**31))}
    run = icl.train(task_of(values, context), model, **how)
    return {"time": run.time.values, "loss": run.loss.values}


def power(rng: Rng) -> Drawn:
    time = np.concatenate([[0], np.geomspace(1, 1e4, 800)])
    exponent, begin, floor = rng.uniform(0.2, 1.5), np.exp(rng.uniform(0, 5)), rng.uniform(0, 0.5)
    return {"time": time, "loss": floor + (1 + time / begin) ** -exponent}


def deep_linear(rng: Rng) -> Drawn:
    """Two-layer linear networks from small weights: a sum of logistic jumps (arXiv:1312.6120)."""
    count = int(rng.integers(2, 6))
    s, start = np.sort(rng.uniform(0.3, 3, count))[::-1], np.exp(rng.uniform(-9, -3, count))
    time = np.concatenate([[0], np.geomspace(0.01, 1, 900)]) * 1.5 * np.max(np.log(s / start) / (2 * s))
    grown = s / (1 + (s / start - 1) * np.exp(-2 * s * time[:, None]))
    floor, unit = 0.5 * rng.uniform(0, 1), np.exp(rng.uniform(0, 5))
    return {"time": time * unit, "loss": ((s - grown) ** 2).sum(1) / (s**2).sum() + floor}


def unequal(rng: Rng) -> Drawn:
    """Two or three jumps of other shapes, heights and widths."""
    count, time = int(rng.integers(2, 4)), np.linspace(0, 1000, 2001)
    at, width = np.sort(rng.uniform(100, 900, count)), rng.uniform(3, 60, count)
    height, form = rng.dirichlet(np.ones(count) * 2) * rng.uniform(0.5, 0.95), int(rng.integers(3))
    z = (time[:, None] - at) / width
    shapes = ((1 + np.tanh(z)) / 2, 0.5 + np.arctan(2 * z) / np.pi, 1 - np.exp(-np.exp(np.minimum(z, 50))))
    return {"time": time, "loss": 1 - shapes[form] @ height}


def network(rng: Rng) -> Drawn:
    """A two-layer network of tanh or ReLU, taught by another one."""
    dim, width, samples, lr, steps = int(rng.integers(3, 8)), int(rng.integers(4, 20)), 300, 0.05, 4000
    relu = rng.random() < 0.5
    act: Callable[[np.ndarray], np.ndarray] = (lambda z: np.maximum(z, 0)) if relu else np.tanh
    slope: Callable[[np.ndarray], np.ndarray] = (lambda z: (z > 0) * 1.0) if relu else (lambda z: 1 - np.tanh(z) ** 2)
    X, taught = rng.standard_normal((samples, dim)), int(rng.integers(2, 4))
    W = rng.standard_normal((taught, dim)) * rng.uniform(0.3, 1.5, (taught, 1))
    y = act(X @ W.T) @ rng.standard_normal(taught)
    y, size = y / y.std(), np.exp(rng.uniform(np.log(1e-3), np.log(0.1)))
    W, a, losses = size * rng.standard_normal((width, dim)), size * rng.standard_normal(width), []
    for _ in range(steps):
        Z = X @ W.T
        hidden = act(Z)
        error = hidden @ a - y
        losses.append(np.mean(error**2))
        by_a, by_w = hidden.T @ error / samples, ((error[:, None] * a) * slope(Z)).T @ X / samples
        a, W = a - 2 * lr * by_a, W - 2 * lr * by_w
    return {"time": np.arange(steps) * 2 * lr, "loss": np.array(losses)}


MAKERS: dict[str, Callable[[Rng], Drawn]] = {
    "population": population, "batch": batch, "softmax": softmax, "power": power, "deep_linear": deep_linear,
    "unequal": unequal, "network": network,
}  # fmt: skip


def curves(kind: str, stream: int, count: int, folder: Path) -> list[Drawn]:
    """The curves of a kind, those that are there and new ones."""
    kept = folder / f"{kind}-{stream}.npz"
    arrays = dict(np.load(kept)) if kept.exists() else {}
    names = sorted({name.split(".")[1] for name in arrays})
    drawn = [{name: arrays[f"{i}.{name}"] for name in names} for i in range(len(arrays) // max(len(names), 1))]
    for number in range(len(drawn), count):
        drawn.append(MAKERS[kind](rng_of(kind, stream, number)))
        if number % 20 == 19 or number == count - 1:
            np.savez(kept, **{f"{i}.{name}": value for i, one in enumerate(drawn) for name, value in one.items()})
    return drawn[:count]


def of_known_origin(kind: str, drawn: list[Drawn]) -> dict[str, Any]:
    """Errors, coverage and verdicts on curves that the theory made."""
    passed, least = (0.1, 1e-3) if kind == "population" else (0.3, 0.02)
    eigenvalues, contexts, inside, context_inside, fits, seconds, counts = [], [], [], [], [], [], []
    for one in drawn:
        begun = clock.process_time()
        found = icl.infer(one["loss"], time=one["time"])
        seconds.append(clock.process_time() - begun)
        fits.append(found.fits)
        values, context = one["values"], int(one["context"])
        levels = icl.theory.plateau_losses(task_of(values, context))
        last = 1 if kind == "population" else len(one["loss"]) // 50
        saved, end = -np.diff(levels), float(np.mean(one["loss"][-last:]))
        fall = levels[0] - end
        seen = int(np.sum((end < levels[1:] + passed * saved + 2e-4 * fall) & (saved > least * fall)))
        if seen == 0:
            continue
        counts.append(len(found.eigenvalues) - seen)
        spans = found.intervals["eigenvalues"]
        for d in range(seen):
            known = d < len(found.eigenvalues)
            eigenvalues.append(abs(found.eigenvalues[d] / values[d] - 1) if known else 1.0)
            inside.append(bool(known and spans[d, 0] <= values[d] <= spans[d, 1]))
        contexts.append(abs(found.context / context - 1) if np.isfinite(found.context) else np.inf)
        low, high = found.intervals["context"]
        context_inside.append(bool(low <= context <= high))
    return {
        "curves": len(drawn),
        "eigenvalues": len(eigenvalues),
        "eigenvalue_median": float(np.median(eigenvalues)),
        "eigenvalue_p95": float(np.quantile(eigenvalues, 0.95)),
        "context_median": float(np.median(contexts)),
        "inside_eigenvalues": float(np.mean(inside)),
        "inside_context": float(np.mean(context_inside)),
        "inside": float(np.mean([*inside, *context_inside])),
        "right_count": float(np.mean(np.array(counts) == 0)),
        "fits": float(np.mean([f is True for f in fits])),
        "refused": float(np.mean([f is False for f in fits])),
        "seconds_median": float(np.median(seconds)),
        "seconds_largest": float(np.max(seconds)),
    }


def of_something_else(drawn: list[Drawn]) -> dict[str, Any]:
    """How many foreign curves are claimed."""
    fits = [icl.infer(one["loss"], time=one["time"]).fits for one in drawn]
    return {"curves": len(fits), "claimed": sum(f is True for f in fits), "cannot_tell": sum(f is None for f in fits)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference", description=__doc__)
    parser.add_argument("--stream", type=int, default=2)
    parser.add_argument("--curves", type=Path, default=Path("curves"), help="folder that keeps the curves")
    parser.add_argument("--only", help=f"kinds, of {', '.join(COUNTS)}")
    parser.add_argument("--count", type=int, help="curves a kind")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    chosen.curves.mkdir(exist_ok=True, parents=True)
    found: dict[str, Any] = {}
    for kind in COUNTS if chosen.only is None else chosen.only.split(","):
        drawn = curves(kind, chosen.stream, chosen.count or COUNTS[kind], chosen.curves)
        found[kind] = of_something_else(drawn) if kind in FOREIGN else of_known_origin(kind, drawn)
        print(kind, json.dumps(found[kind], indent=1), flush=True)
        if chosen.out is not None:
            chosen.out.write_text(json.dumps({"stream": chosen.stream, "kinds": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
