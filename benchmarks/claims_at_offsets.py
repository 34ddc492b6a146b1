"""Every claim at many offsets of its seeds: does it hold for any seeds, and does its bound mean something?

python -m benchmarks.claims_at_offsets [--offsets 100,200] [--only ID ..] [--seconds 600]     measure
python -m benchmarks.claims_at_offsets --write                                               fill docs/claims.md

One JSON line per claim and offset is appended to docs/claims_at_offsets.jsonl as soon as it is measured; what is there
is not measured again. Cheap claims come first. A line that a change of its claim has made stale is removed by hand.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

from iclflow.studies import SUBJECTS, every_claim
from iclflow.studies.measures import RUNS
from iclflow.studies.study import Study, check

DOCS = Path(__file__).parents[1] / "docs"
LINES, PAGE, COSTS = DOCS / "claims_at_offsets.jsonl", DOCS / "claims.md", DOCS / "claims.json"
OFFSETS = tuple(range(100, 2100, 100))
ROUNDING = 1e-9  # a median below this is rounding, not a result
START, END = "<!-- offsets -->", "<!-- /offsets -->"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims_at_offsets", description=__doc__)
    parser.add_argument("--offsets", metavar="A,B", help="default: 100, 200, .., 2000")
    parser.add_argument("--only", nargs="*", metavar="ID", help="claims, by the start of their ids")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no measurement after so many seconds")
    parser.add_argument("--write", action="store_true", help="write the table into docs/claims.md and stop")
    return parser.parse_args()


def measured() -> dict[tuple[str, int], float]:
    """What has been measured so far, by claim and offset."""
    rows = [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []
    return {(row["id"], row["offset"]): row["measured"] for row in rows}


def measure(claims: list[Study], offsets: list[int], seconds: float) -> None:
    """Measure what is missing, subject by subject, since the claims of a subject share their runs."""
    begun, known = time.perf_counter(), measured()
    cost = {row["id"]: row["seconds"] for row in json.loads(COSTS.read_text())["claims"]}
    subjects = [subject for chapter in SUBJECTS.values() for subject in chapter]
    by_subject = {s: [c for c in every_claim(s).values() if c in claims and c.seeds != "none"] for s in subjects}
    order = sorted(subjects, key=lambda subject: sum(cost.get(c.name, 1.0) for c in by_subject[subject]))
    for offset in offsets:
        for subject in order:
            for claim in by_subject[subject]:
                if (claim.name, offset) in known or time.perf_counter() - begun > seconds:
                    continue
                [outcome] = check([claim], offset)
                row = {"id": claim.name, "offset": offset, "measured": outcome["measured"]}
                with LINES.open("a") as file:
                    file.write(json.dumps({**row, "seconds": outcome["seconds"]}) + "\n")
                print(f"{offset:5d} {claim.name:32s} {outcome['measured']:10.3e} of {claim.bound:.3g}", flush=True)
            forget(by_subject[subject])


def forget(claims: list[Study]) -> None:
    """Drop the runs that claims of a subject have kept, and what was computed from them."""
    RUNS.things.clear()
    for claim in claims:
        for kept in claim.function.__globals__.values():
            if hasattr(kept, "cache_clear"):
                kept.cache_clear()


def table(claims: dict[str, Study]) -> str:
    """The distribution of every measured number against its bound."""
    known = measured()
    lines = [
        "| claim | offsets | smallest | median | largest | bound | bound / median | beyond the bound |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for claim in claims.values():
        numbers = np.array([value for (id, _), value in known.items() if id == claim.name])
        if claim.seeds == "none" or not len(numbers):
            why = "has no seeds" if claim.seeds == "none" else "not measured yet"
            lines.append(f"| `{claim.name}` | {why} | | | | {short(claim.bound)} | | |")
            continue
        middle = float(np.median(numbers))
        ratio = "counts" if claim.bound == int(claim.bound) and (numbers == numbers.round()).all() else ""
        ratio = ratio or ("rounding" if middle < ROUNDING else f"{claim.bound / middle:.1f}")
        spread = " | ".join(short(x) for x in (numbers.min(), middle, numbers.max(), claim.bound))
        lines.append(
            f"| `{claim.name}` | {len(numbers)} | {spread} | {ratio} | {int(np.sum(~(numbers <= claim.bound)))} |"
        )
    return "\n".join(lines)


def short(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}" if 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"


def write() -> None:
    head, _, rest = PAGE.read_text().partition(START)
    tail = rest.partition(END)[2]
    PAGE.write_text(f"{head}{START}\n{table(every_claim())}\n{END}{tail}")


def main() -> None:
    chosen, claims = arguments(), every_claim()
    if chosen.write:
        write()
        return
    warnings.simplefilter("ignore")
    wanted = [c for c in claims.values() if chosen.only is None or c.name.startswith(tuple(chosen.only))]
    offsets = list(OFFSETS) if chosen.offsets is None else [int(word) for word in chosen.offsets.split(",")]
    measure(wanted, offsets, chosen.seconds)


if __name__ == "__main__":
    main()
