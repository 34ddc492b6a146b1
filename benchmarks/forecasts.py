"""Are the intervals of forecasts right? Random configurations of every stratum, each forecast and then simulated.

    python -m benchmarks.forecasts --count 40 --stream 7 --out forecasts.jsonl
    python -m benchmarks.forecasts --out forecasts.jsonl --write                    fill docs/derivations/forecast.md

A stratum is a way to train: gradient flow from small or large weights, with vector blocks or two outputs, weight decay,
descent, momentum, Adam, minibatches, finite samples, a user's own data, few tasks, several layers, large models. Every
configuration is drawn from its stratum, its number and the stream, nothing else. One line of JSON is added per
configuration, so that the work can be stopped and continued; the table is printed from all lines.

A drop that the simulation does not reach within the forecast's last time and a fifth counts as outside its interval.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import iclflow as icl
from iclflow.errors import IclflowError
from iclflow.units import clock_of

DOCS = Path(__file__).parents[1] / "docs" / "derivations" / "forecast.md"
START, END = "<!-- forecasts -->", "<!-- /forecasts -->"
LONGER = 1.2  # times the last forecast drop
MOST_STEPS = 400_000
Rng = np.random.Generator
Setting = tuple[icl.Task, Any, dict[str, Any]]
STRATA: dict[str, Callable[[Rng], Setting]] = {}


def stratum(name: str) -> Callable[[Callable[[Rng], Setting]], Callable[[Rng], Setting]]:
    """Register how the configurations of a stratum are drawn."""
    return lambda draw: STRATA.setdefault(name, draw)


def spectrum(rng: Rng, dim: int) -> str:
    """A listed spectrum, close or far apart, or one of the named ones."""
    far, close = rng.uniform(0.05, 1, dim), 1 + 0.5 * rng.random(dim)
    listed = lambda values: ",".join(f"{value:.5f}" for value in np.sort(values)[::-1] / values.sum())
    return str(rng.choice(["linear", f"power:{rng.uniform(0.5, 2):.2f}", listed(far), listed(close)]))


def task(rng: Rng, most: int = 8, **fixed: Any) -> icl.Task:
    """A task of up to `most` dimensions, with or without label noise, prefixes and a covariance of its tasks."""
    dim = int(rng.integers(2, most + 1))
    noise, prefixes = float(rng.uniform(0, 1)) if rng.random() < 0.25 else 0.0, bool(rng.random() < 0.2)
    covariance = ",".join(f"{value:.4f}" for value in rng.uniform(0.5, 2, dim)) if rng.random() < 0.25 else None
    drawn = {
        "dim": dim, "context": int(rng.integers(8, 64)), "spectrum": spectrum(rng, dim), "label_noise": noise,
        "query_noise": prefixes and noise > 0, "prefix_loss": prefixes, "task_spectrum": covariance,
        "normalize": str(rng.choice(["tokens", "none"])) if rng.random() < 0.2 else None,
    }  # fmt: skip
    return icl.Task(**drawn | fixed)


def plain(rng: Rng, most: int = 6, **fixed: Any) -> icl.Task:
    """A task of few dimensions without any of these."""
    dim = int(rng.integers(2, most + 1))
    drawn = {"dim": dim, "context": int(rng.integers(8, 64)), "spectrum": spectrum(rng, dim)}
    return icl.Task(**drawn | fixed)


def heads(rng: Rng, task: icl.Task, ranks: int = 4) -> icl.Separate:
    """Enough heads, and up to two more."""
    rank = min(int(rng.integers(1, ranks + 1)), task.dim)
    return icl.Separate(heads=-(-task.dim // rank) + int(rng.integers(0, 3)), rank=rank)


def size(rng: Rng, low: float, high: float) -> dict[str, Any]:
    return {"init": float(10 ** rng.uniform(np.log10(low), np.log10(high))), "seed": int(rng.integers(10**6))}


def stable(rng: Rng, task: icl.Task, model: Any, low: float, high: float) -> float:
    """A learning rate between shares of the stable one of a single mode."""
    from iclflow.theory.landscape import landscape
    from iclflow.theory.separate import sample_modes

    [(drive, curvature)] = sample_modes(landscape(task), 1)
    power = 1 / 3 if model.one_by_one else 1 / 2
    edge = 2 / (3 * drive * (drive / curvature) ** power)
    training = icl.Training(optimizer="sgd")
    return float(rng.uniform(low, high)) * edge / clock_of(task, model, training).rate


@stratum("flow")
def flow(rng: Rng) -> Setting:
    one = task(rng, 10)
    return one, heads(rng, one), {**size(rng, 1e-4, 3e-2), "init_law": "entry"}


@stratum("large weights")
def large_weights(rng: Rng) -> Setting:
    one = task(rng, 6)
    return one, heads(rng, one, 2), size(rng, 3e-2, 1.0)


@stratum("vector blocks")
def vector_blocks(rng: Rng) -> Setting:
    one = task(rng, 4)
    return one, heads(rng, one, 2), {**size(rng, 1e-4, 3e-2), "init_law": "random"}


@stratum("two outputs")
def two_outputs(rng: Rng) -> Setting:
    one = task(rng, 5, out_dim=2)
    return one, heads(rng, one, 2), size(rng, 1e-3, 0.15)


@stratum("turned tasks")
def turned_tasks(rng: Rng) -> Setting:
    one, mix = plain(rng, 5), rng.standard_normal((8, 8))[:, :5]
    covariance = (mix.T @ mix / 8)[:5, :5]
    one = one.replace(basis="identity", task_spectrum=covariance[: one.dim, : one.dim] + 0.3 * np.eye(one.dim))
    return one, heads(rng, one, 2), size(rng, 1e-3, 2e-2)


@stratum("two outputs with vector blocks")
def two_outputs_with_vectors(rng: Rng) -> Setting:
    one = task(rng, 3, out_dim=2, prefix_loss=False, query_noise=False)
    return one, heads(rng, one, 1), {**size(rng, 1e-3, 3e-2), "init_law": "public"}


@stratum("weight decay")
def decay(rng: Rng) -> Setting:
    one = plain(rng)
    model, how = heads(rng, one, 2), size(rng, 1e-3, 3e-2)
    free = icl.predict(one, model, **how).drop_times
    rate = clock_of(one, model, icl.Training()).rate
    return one, model, {**how, "weight_decay": float(rng.uniform(0.1, 0.8) / free[0] * rate)}


@stratum("descent")
def descent(rng: Rng) -> Setting:
    one = plain(rng)
    model = heads(rng, one, 2)
    return one, model, {**size(rng, 3e-3, 3e-2), "lr": stable(rng, one, model, 0.1, 0.9)}


@stratum("descent with vector blocks")
def descent_with_vectors(rng: Rng) -> Setting:
    one, model, how = descent(rng)
    one = one.replace(dim=min(one.dim, 4), spectrum="linear")
    return one, heads(rng, one, 1), {**how, "init_law": "random", "lr": stable(rng, one, model, 0.05, 0.5)}


@stratum("descent and decay")
def descent_decay(rng: Rng) -> Setting:
    one, model, how = descent(rng)
    free = icl.predict(one, model, init=how["init"], seed=how["seed"]).drop_times
    rate = clock_of(one, model, icl.Training()).rate
    return one, model, {**how, "weight_decay": float(rng.uniform(0.1, 0.6) / free[0] * rate)}


@stratum("momentum")
def momentum(rng: Rng) -> Setting:
    one = plain(rng)
    model = heads(rng, one, 1)
    lr = stable(rng, one, model, 0.01, 0.2)
    rule = {"optimizer": "momentum", "beta": float(rng.uniform(0.5, 0.95))}
    return one, model, {**size(rng, 3e-3, 3e-2), "lr": lr, **rule}


@stratum("momentum and decay")
def momentum_decay(rng: Rng) -> Setting:
    one, model, how = momentum(rng)
    free = icl.predict(one, model, init=how["init"], seed=how["seed"]).drop_times
    rate = clock_of(one, model, icl.Training()).rate
    return one, model, {**how, "weight_decay": float(rng.uniform(0.1, 0.6) / free[0] * rate / (1 - how["beta"]))}


@stratum("minibatches")
def minibatches(rng: Rng) -> Setting:
    one = plain(rng, 4, label_noise=float(rng.choice([0.0, 0.5])))
    model = heads(rng, one, 1)
    lr, batch = stable(rng, one, model, 0.02, 0.1), int(rng.choice([64, 256]))
    return one, model, {**size(rng, 1e-2, 5e-2), "lr": lr, "batch": batch}


@stratum("merged flow")
def merged_flow(rng: Rng) -> Setting:
    one = task(rng, out_dim=2 if rng.random() < 0.25 else 1)
    law = "random" if one.out_dim == 1 and rng.random() < 0.25 else "entry"
    return one, icl.Merged(heads=int(rng.integers(1, 9))), {**size(rng, 1e-5, 3e-2), "init_law": law}


@stratum("merged decay")
def merged_decay(rng: Rng) -> Setting:
    one = plain(rng)
    drive = float(np.linalg.norm(icl.theory.landscape(one).cross))
    model = icl.Merged(heads=int(rng.integers(2, 9)))
    rate = clock_of(one, model, icl.Training()).rate
    return one, model, {**size(rng, 1e-4, 1e-2), "weight_decay": float(rng.uniform(0.05, 0.6) * drive * rate)}


@stratum("merged descent")
def merged_descent(rng: Rng) -> Setting:
    one, model = plain(rng), icl.Merged(heads=int(rng.integers(2, 9)))
    return one, model, {**size(rng, 1e-4, 1e-2), "lr": stable(rng, one, model, 0.1, 0.9)}


@stratum("merged momentum")
def merged_momentum(rng: Rng) -> Setting:
    one, model, how = merged_descent(rng)
    return one, model, {**how, "lr": 0.2 * how["lr"], "optimizer": "momentum", "beta": float(rng.uniform(0.5, 0.95))}


@stratum("merged minibatches")
def merged_minibatches(rng: Rng) -> Setting:
    one, model, how = merged_descent(rng)
    return one, model, {**how, "lr": 0.05 * how["lr"], "batch": int(rng.choice([64, 256]))}


@stratum("merged descent on samples")
def merged_samples(rng: Rng) -> Setting:
    one, model, how = merged_descent(rng)
    return one, model, {**how, "samples": int(10 ** rng.uniform(3, 5))}


@stratum("mixture")
def mixture(rng: Rng) -> Setting:
    one = plain(rng, 4, spectrum="white", icl_fraction=float(rng.uniform(0.2, 0.9)))
    return one, icl.Merged(heads=int(rng.integers(2, 9))), size(rng, 1e-4, 1e-2)


@stratum("samples")
def samples(rng: Rng) -> Setting:
    one = plain(rng, 4, spectrum="linear")
    return one, heads(rng, one, 1), {**size(rng, 1e-3, 2e-2), "samples": int(10 ** rng.uniform(3, 5))}


@stratum("samples of near-equal eigenvalues")
def white_samples(rng: Rng) -> Setting:
    dim = int(rng.integers(2, 5))
    near = ",".join(f"{value:.4f}" for value in 1 + 0.1 * rng.random(dim))
    one = plain(rng, dim=dim, spectrum=str(rng.choice(["white", near])))
    return one, heads(rng, one, 1), {**size(rng, 1e-3, 2e-2), "samples": int(10 ** rng.uniform(3, 5))}


@stratum("descent on samples")
def descent_on_samples(rng: Rng) -> Setting:
    one, model, how = samples(rng) if rng.random() < 0.5 else white_samples(rng)
    how["init"] = max(how["init"], 5e-3)
    return one, model, {**how, "lr": stable(rng, one, model, 0.05, 0.4)}


@stratum("own data")
def own_data(rng: Rng) -> Setting:
    one, model, how = samples(rng)
    data = icl.data.sequences.sample(one, samples=how.pop("samples"), seed=how["seed"])
    return icl.Task(dim=one.dim, context=one.context), model, {**how, "data": data}


@stratum("few tasks")
def few_tasks(rng: Rng) -> Setting:
    one = plain(rng, 5, tasks=int(rng.integers(2, 12)), mirror_tasks=True)
    return one, heads(rng, one, 1), size(rng, 1e-3, 1e-2)


@stratum("descent on few tasks")
def few_tasks_descent(rng: Rng) -> Setting:
    one, model, how = few_tasks(rng)
    how["init"] = max(how["init"], 3e-3)
    return one, model, {**how, "lr": stable(rng, one, model, 0.1, 0.6)}


@stratum("depth")
def depth(rng: Rng) -> Setting:
    one = plain(rng, 2)
    return one, icl.Separate(heads=one.dim + 1, layers=2), {**size(rng, 5e-3, 2e-2), "freeze_vectors": True}


@stratum("large models")
def large(rng: Rng) -> Setting:
    dim = int(rng.integers(17, 25))
    return icl.Task(dim=dim), icl.Separate(heads=dim + int(rng.integers(0, 30))), size(rng, 1e-3, 2e-2)


def measure(name: str, stream: int, number: int) -> dict[str, Any]:
    """One configuration: what was forecast and what came."""
    rng = np.random.default_rng([stream, list(STRATA).index(name), number])
    line: dict[str, Any] = {"stratum": name, "number": number, "stream": stream, "drops": []}
    try:
        one, model, how = STRATA[name](rng)
        begun = time.process_time()
        found = icl.predict(one, model, **how)
    except IclflowError as error:
        return line | {"why": str(error)}
    line |= {"forecast_seconds": time.process_time() - begun, "reliable": found.reliable, "task": repr(one)}
    line |= {"how": {name: value for name, value in how.items() if name != "data"}, "model": repr(model)}
    if not len(found.drop_times):
        return line
    end, begun = LONGER * float(found.drop_times[-1]), time.process_time()
    if "lr" in how:
        pace = clock_of(one, model, icl.Training(**{k: v for k, v in how.items() if k in icl.Training.model_fields}))
        steps = int(np.ceil(end / pace.time(how["lr"])))
        if steps > MOST_STEPS:
            return line | {"why": "too many steps"}
        run = icl.train(one, model, **how, steps=steps, progress=False)
    else:
        run = icl.train(one, model, **how, time=end, progress=False)
    line["run_seconds"] = time.process_time() - begun
    compared = icl.compare(run)
    line |= {"reliable": compared.prediction.reliable, "notes": list(compared.prediction.notes), "status": run.status}
    line["drops"] = [
        {"time": d.predicted_time, "low": d.low, "high": d.high, "observed": d.observed_time, "inside": bool(d.inside)}
        for d in compared.drops
    ]
    return line


def table(lines: list[dict[str, Any]]) -> str:
    """Coverage of reliable forecasts, half-widths and errors, by stratum."""
    names = ("stratum", "configurations", "reliable", "drops", "inside", "median half-width", "median error",
             "95 % of errors below", "all drops inside")  # fmt: skip
    rows = ["| " + " | ".join(names) + " |", "| --- |" + " ---: |" * (len(names) - 1)]
    for name in STRATA:
        chosen = [line for line in lines if line["stratum"] == name and line["drops"]]
        sure = [drop for line in chosen if line["reliable"] for drop in line["drops"]]
        every = [drop for line in chosen for drop in line["drops"]]
        if not every:
            continue
        seen = [drop for drop in sure if drop["observed"]] or [drop for drop in every if drop["observed"]]
        width = [(drop["high"] - drop["low"]) / 2 / drop["time"] for drop in sure or every]
        error = [abs(drop["time"] / drop["observed"] - 1) for drop in seen] or [np.nan]
        share = lambda drops: f"{np.mean([drop['inside'] for drop in drops]):.1%}" if drops else "-"
        rows.append(
            f"| {name} | {len(chosen)} | {np.mean([line['reliable'] for line in chosen]):.0%} | {len(sure)}"
            f" | {share(sure)}"
            f" | {np.median(width):.1e} | {np.median(error):.1e} | {np.quantile(error, 0.95):.1e} | {share(every)} |"
        )
    return "\n".join(rows)


def write(lines: list[dict[str, Any]]) -> None:
    """The table, with the command that made it, into the page on forecasts."""
    streams = " and ".join(str(stream) for stream in sorted({line["stream"] for line in lines}))
    head, _, rest = DOCS.read_text().partition(START)
    count = max(line["number"] for line in lines) + 1
    without = sum(not line["drops"] for line in lines)
    note = (
        f"Up to {count} configurations of every stratum, {len(lines)} in all, {without} of them without times, made by"
        f" `python -m benchmarks.forecasts --count {count} --stream {streams}`."
    )
    DOCS.write_text(f"{head}{START}\n{table(lines)}\n\n{note}\n{END}{rest.partition(END)[2]}")


def main() -> None:
    """Measure what is not measured yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--stream", type=int, default=7)
    parser.add_argument("--only", nargs="*", default=list(STRATA), choices=list(STRATA), help="these strata")
    parser.add_argument("--part", default="0/1", help="only numbers that leave this rest, as in 1/2")
    parser.add_argument("--write", action="store_true", help="write the table into the docs and stop")
    parser.add_argument("--out", type=Path, default=Path("forecasts.jsonl"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rest, parts = map(int, given.part.split("/"))
    known = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    if given.write:
        write(known)
        return
    done = {(line["stratum"], line["number"]) for line in known}
    for number in range(given.count):
        for name in given.only:
            if (name, number) not in done and number % parts == rest:
                with given.out.open("a") as file:
                    print(json.dumps(measure(name, given.stream, number)), file=file)
    print(table([json.loads(line) for line in given.out.read_text().splitlines()]))


if __name__ == "__main__":
    main()
