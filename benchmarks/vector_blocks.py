"""Vector blocks that start as large as all other weights: forecasts beside the flow.

    python -m benchmarks.vector_blocks --seed 1000 --out vector_blocks.jsonl     measure what is missing
    python -m benchmarks.vector_blocks --out vector_blocks.jsonl --write         fill docs/derivations/forecast.md

Three dimensions, four heads of rank one: law `random` with one output and law `public` with two, at 1e-3 and 1e-4 an
entry, forty seeds each from `--seed` on. The last two columns leave the vector blocks out of the forecast.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import iclflow as icl
from iclflow.comparison.comparing import compare_one

DOCS = Path(__file__).parents[1] / "docs" / "derivations" / "forecast.md"
START, END = "<!-- vector blocks -->", "<!-- /vector blocks -->"
TASKS = {"random": icl.Task(dim=3, context=31), "public, two outputs": icl.Task(dim=3, context=31, out_dim=2)}
MODEL = icl.Separate(heads=4)
COUNT = 40


def measure(name: str, entry: float, seed: int) -> dict[str, Any]:
    """One run: the errors of its drops, whether heads are right, and the errors without vector blocks."""
    task, law = TASKS[name], name.partition(",")[0]
    init = entry * (np.sqrt(MODEL.heads * (task.dim + task.out_dim)) if law == "public" else 1.0)
    how = {"init": float(init), "init_law": law, "seed": seed}
    times = icl.predict(task, MODEL, **how).drop_times
    run = icl.train(task, MODEL, time=1.1 * float(times[-1]), **how)
    drops = compare_one(run, None).drops
    weights, dim = {key: array.copy() for key, array in run.initial_weights.items()}, task.dim
    weights["value"][:, dim:, :dim] = weights["key"][:, :, dim:] = 0.0
    without = icl.predict(task, MODEL, weights=weights).drop_times
    return {
        "name": name, "entry": entry, "seed": seed,
        "errors": [drop.error for drop in drops],
        "heads": [drop.predicted_head == drop.observed_head for drop in drops],
        "without": [abs(t / d.observed_time - 1) for t, d in zip(without, drops, strict=False) if d.observed_time],
    }  # fmt: skip


def table(lines: list[dict[str, Any]]) -> str:
    """Errors by law and size."""
    names = (
        "law",
        "entry",
        "runs",
        "drops",
        "median error",
        "95 % below",
        "heads right",
        "without: median",
        "95 % below",
    )
    rows = ["| " + " | ".join(names) + " |", "| --- |" + " ---: |" * (len(names) - 1)]
    for name, entry in sorted({(line["name"], line["entry"]) for line in lines}):
        chosen = [line for line in lines if (line["name"], line["entry"]) == (name, entry)]
        every = lambda key, chosen=chosen: [value for line in chosen for value in line[key]]
        errors = [np.inf if error is None else error for error in every("errors")]
        spread = lambda values: f"{np.median(values):.2%} | {np.quantile(values, 0.95):.2%}"
        rows.append(
            f"| {name} | {entry:g} | {len(chosen)} | {len(errors)} | {np.median(errors):.4%} |"
            f" {np.quantile(errors, 0.95):.3%} | {np.mean(every('heads')):.1%} | {spread(every('without'))} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Measure what is missing and print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--write", action="store_true", help="write the table into the docs and stop")
    parser.add_argument("--out", type=Path, default=Path("vector_blocks.jsonl"))
    given = parser.parse_args()
    read = lambda: [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {(line["name"], line["entry"], line["seed"]) for line in read()}
    if not given.write:
        for seed in range(given.seed, given.seed + given.count):
            for name in TASKS:
                for entry in (1e-3, 1e-4):
                    if (name, entry, seed) not in done:
                        with given.out.open("a") as file:
                            print(json.dumps(measure(name, entry, seed)), file=file)
        print(table(read()))
        return
    head, _, rest = DOCS.read_text().partition(START)
    first = min(line["seed"] for line in read())
    made = f"Made by `python -m benchmarks.vector_blocks --seed {first}`."
    DOCS.write_text(f"{head}{START}\n{table(read())}\n\n{made}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
