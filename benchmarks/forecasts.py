"""Are the intervals of forecasts right? Random configurations, each forecast and then simulated by the flow.

    python -m benchmarks.forecasts --count 500 --stream 7 --out forecasts.jsonl
    python -m benchmarks.forecasts --out forecasts.jsonl --write                    fill docs/derivations/forecast.md

Every configuration is drawn from its number and the stream, nothing else: dimension 2 to 12, rank 1 to 4, spectra close
and far, covariances of tasks, label noise, prefixes, all normalisations and initial laws, initial weights of 1e-4 to
3e-2 per entry. The full blocks of law `random` and of two outputs are drawn at dimension 2 to 5, where they can be
simulated in seconds. Eight numbers in a row share dimension, rank and heads, so that the flow is compiled once for
them.

One line of JSON is added per configuration, so that the work can be stopped and continued; the table is printed from
all lines. A drop that the simulation does not reach within the forecast's last time and a tenth counts as outside its
interval. Where the forecast ends above the minimum, which vector blocks can bring about, the simulation goes on for
three times as long, and a further drop counts as a forecast that is outside its interval.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.errors import BadInput

LAWS = ("entry", "public", "norm", "aligned")  # under which vector blocks of one output start at zero
DOCS = Path(__file__).parents[1] / "docs" / "derivations" / "forecast.md"
START, END = "<!-- forecasts -->", "<!-- /forecasts -->"
IN_A_ROW = 8  # configurations of one shape


def configuration(stream: int, number: int) -> tuple[icl.Task, icl.Separate, dict[str, Any]]:
    """The task, the model and the initial weights of one configuration."""
    shape, rng = np.random.default_rng([stream, number // IN_A_ROW, 1]), np.random.default_rng([stream, number])
    kind = str(shape.choice(["label blocks", "random", "two outputs"], p=[0.7, 0.2, 0.1]))
    law = str(rng.choice(LAWS)) if kind == "label blocks" else {"random": "random", "two outputs": "public"}[kind]
    outputs = 2 if kind == "two outputs" else 1
    dim = int(shape.integers(2, 13 if kind == "label blocks" else 6))
    rank = min(int(shape.integers(1, 5)), dim)
    heads = -(-dim // rank) + int(shape.integers(0, 3))
    far, close = rng.uniform(0.05, 1, dim), 1 + 0.5 * rng.random(dim)
    listed = lambda values: ",".join(f"{value:.5f}" for value in np.sort(values)[::-1] / values.sum())
    spectrum = str(rng.choice(["linear", f"power:{rng.uniform(0.5, 2):.2f}", listed(far), listed(close)]))
    noise = float(rng.uniform(0, 1)) if rng.random() < 0.25 else 0.0
    prefixes = bool(rng.random() < 0.2)
    covariance = ",".join(f"{value:.4f}" for value in rng.uniform(0.5, 2, dim)) if rng.random() < 0.25 else None
    normalize = str(rng.choice(["tokens", "none"])) if rng.random() < 0.2 else None
    task = icl.Task(
        dim=dim, out_dim=outputs, context=int(rng.integers(8, 64)), spectrum=spectrum, label_noise=noise,
        query_noise=prefixes and noise > 0, prefix_loss=prefixes, task_spectrum=covariance, normalize=normalize,
    )  # fmt: skip
    entry = float(10 ** rng.uniform(-4, np.log10(3e-2)))  # standard deviation per entry, or norm, as the law has it
    model = icl.Separate(heads=heads, rank=rank)
    init = entry * (np.sqrt(heads * rank * (dim + outputs)) if law == "public" else 1.0)
    return task, model, {"init": float(init), "init_law": law, "seed": int(rng.integers(10**6)), "entry": entry}


def measure(stream: int, number: int) -> dict[str, Any]:
    """One configuration: what was forecast and what came."""
    task, model, how = configuration(stream, number)
    entry = how.pop("entry")
    line: dict[str, Any] = {
        "number": number, "stream": stream, "law": how["init_law"] + (" (2 outputs)" if task.out_dim > 1 else ""),
        "entry": entry, "dim": task.dim, "rank": model.rank,
    }  # fmt: skip
    begun = time.process_time()
    prediction = icl.predict(task, model, **how)
    line |= {"forecast_seconds": time.process_time() - begun, "reliable": prediction.reliable}
    if not len(prediction.drop_times):
        return line | {"drops": []}
    begun = time.process_time()
    lower = [level for level in icl.theory.plateau_losses(task) if level < prediction.levels[-1] - 1e-9]
    run = icl.train(task, model, time=(3.0 if lower else 1.1) * float(prediction.drop_times[-1]), **how)
    line["flow_seconds"] = time.process_time() - begun
    line["drops"] = [
        {"time": d.predicted_time, "low": d.low, "high": d.high, "observed": d.observed_time, "inside": bool(d.inside),
         "head": d.predicted_head == d.observed_head, "direction": d.direction == d.observed_direction,
         "share": float(prediction.head_shares[m])}
        for m, d in enumerate(compare_one(run, None).drops)
    ]  # fmt: skip
    line["missed"] = bool(lower) and bool((run.loss < (prediction.levels[-1] + lower[0]) / 2).any())
    return line


def table(lines: list[dict[str, Any]]) -> str:
    """Coverage, half-widths and errors, by law and by size of the initial weights."""
    names = (
        "", "configurations", "drops", "inside", "median half-width", "median error", "95 % of errors below",
        "heads right, share above 0.9", "heads right, others", "directions right",
    )  # fmt: skip
    rows = ["| " + " | ".join(names) + " |", "| --- |" + " ---: |" * (len(names) - 1)]
    groups = {"all": lambda line: True}
    groups |= {law: lambda line, law=law: line["law"] == law for law in sorted({line["law"] for line in lines})}
    for low, high in ((1e-4, 1e-3), (1e-3, 1e-2), (1e-2, 1e-1)):
        name = f"initial weights {low:g} to {high:g}"
        groups[name] = lambda line, low=low, high=high: low <= line["entry"] < high
    for name, holds in groups.items():
        chosen = [line for line in lines if holds(line)]
        drops = [drop for line in chosen for drop in line["drops"]]
        if not drops:
            continue
        missed = sum(line.get("missed", False) for line in chosen)
        seen = [drop for drop in drops if drop["observed"]]
        width = [(drop["high"] - drop["low"]) / 2 / drop["time"] for drop in drops]
        error = [abs(drop["time"] / drop["observed"] - 1) for drop in seen]
        right = lambda what, among: f"{np.mean([drop[what] for drop in among]):.1%}" if among else "-"
        sure, open_ = [drop for drop in seen if drop["share"] > 0.9], [drop for drop in seen if drop["share"] <= 0.9]
        rows.append(
            f"| {name} | {len(chosen)} | {len(drops) + missed}"
            f" | {sum(drop['inside'] for drop in drops) / (len(drops) + missed):.1%} | {np.median(width):.3%}"
            f" | {np.median(error):.3%} | {np.quantile(error, 0.95):.2%}"
            f" | {right('head', sure)} | {right('head', open_)} | {right('direction', seen)} |"
        )
    return "\n".join(rows)


def write(lines: list[dict[str, Any]]) -> None:
    """The table, with the command that made it, into the page on forecasts."""
    streams = sorted({line["stream"] for line in lines})
    if len(streams) != 1:
        raise SystemExit(f"the lines come from streams {streams}, must be one")
    head, _, rest = DOCS.read_text().partition(START)
    made = f"python -m benchmarks.forecasts --count {len(lines)} --stream {streams[0]}"
    refused = sum(not line["drops"] for line in lines)
    note = f"{len(lines)} configurations, {refused} of them without times, made by `{made}`."
    DOCS.write_text(f"{head}{START}\n{table(lines)}\n\n{note}\n{END}{rest.partition(END)[2]}")


def main() -> None:
    """Measure what is not measured yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--stream", type=int, default=7)
    parser.add_argument("--part", default="0/1", help="only numbers that leave this rest, as in 1/2")
    parser.add_argument("--write", action="store_true", help="write the table into the docs and stop")
    parser.add_argument("--out", type=Path, default=Path("forecasts.jsonl"))
    given = parser.parse_args()
    rest, parts = map(int, given.part.split("/"))
    known = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    if given.write:
        write(known)
        return
    done = {line["number"] for line in known}
    for number in range(given.count):
        if number in done or number % parts != rest:
            continue
        try:
            line = measure(given.stream, number)
        except BadInput as error:
            line = {"number": number, "stream": given.stream, "law": "refused", "entry": 0.0, "drops": []}
            line["why"] = str(error)
        with given.out.open("a") as file:
            print(json.dumps(line), file=file)
    print(table([json.loads(line) for line in given.out.read_text().splitlines()]))


if __name__ == "__main__":
    main()
