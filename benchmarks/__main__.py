"""`python -m benchmarks [--only a,b] [--quick] [--json FILE]`: measure, and print one table a claim."""

import argparse
import json
import os
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import (
    depth,
    matrix_vector,
    peak_memory,
    plateaus,
    population_flow,
    published_runs,
    scaling,
    softmax,
    start_up,
)
from benchmarks.table import as_json, print_rows, say, seconds
from iclflow.system.precision import double_precision
from iclflow.versions import versions

PARTS = {
    "a": ("(a) published figure-1 run", published_runs.figure_1),
    "b": ("(b) published figure-4 runs", published_runs.figure_4),
    "c": ("(c) time per step against P, at N 31", scaling.against_samples),
    "c2": ("(c) time per step against N, at P 1000", scaling.against_length),
    "d": ("(d) one step against the bare matrix-vector product", matrix_vector.against_product),
    "e": ("(e) softmax step against all positions", softmax.against_all_positions),
    "f": ("(f) peak memory", peak_memory.million_sequences),
    "g": ("(g) population flow at D 32", population_flow.thirty_two_drops),
    "h": ("(h) whole commands, CPU time in imports of jax.numpy", start_up.commands_in_imports),
    "i": ("(i) flow over long plateaus", plateaus.long_plateaus),
    "j": ("(j) two layers on Gram matrices at D 8", depth.on_gram_matrices),
    "k": ("(k) flow over long plateaus at D 32", plateaus.many_directions),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="A,B", help=f"parts to run, of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it all runs")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the numbers here")
    chosen = parser.parse_args()
    chosen.parts = list(PARTS) if chosen.only is None else chosen.only.split(",")
    for part in chosen.parts:
        if part not in PARTS:
            parser.error(f"--only: {part!r} must be among {', '.join(PARTS)}")
    return chosen


def machine() -> dict[str, Any]:
    """What the numbers depend on besides the code."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "jax": jax.__version__,
        "iclflow": versions()["iclflow"],
    }


def main() -> None:
    chosen, begun = arguments(), time.perf_counter()
    about = machine()
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    print("times are the smallest of a few repeats unless said otherwise; ratios are of times from this run")
    if chosen.quick:
        print("quick: sizes are too small for the targets to mean anything")
    results = {}
    for part in chosen.parts:
        title, measure = PARTS[part]
        with double_precision():
            rows = measure(chosen.quick)
        if chosen.quick:
            rows = [replace(row, met=None) for row in rows]
        print_rows(title, rows)
        results[part] = {"title": title, "rows": as_json(rows)}
        if chosen.json is not None:  # after every part: what is measured is not lost
            whole = {"machine": about, "quick": chosen.quick, "parts": results}
            chosen.json.write_text(json.dumps(whole, indent=1) + "\n")
    say(f"done in {seconds(time.perf_counter() - begun)}")


if __name__ == "__main__":
    main()
