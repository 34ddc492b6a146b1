"""(e) One softmax step on tokens, the query's output only, against all positions.

Figure-5 settings (D 4, N 31): merged with 8 heads, separate with 5 heads of rank 1, P 5000. The baseline is
float32, so the package's float32 is held against it; its default, float64, is shown too. Smallest of 9
single steps.
"""

from dataclasses import replace

from benchmarks.all_positions import baseline, baseline_rows
from benchmarks.settings import FIGURE_1, Published
from benchmarks.table import Row, say, seconds
from benchmarks.warm_step import experiment, prepare, seconds_per_step

__all__ = ["against_all_positions"]

MERGED = replace(FIGURE_1, name="softmax merged", shape={"heads": 8, "softmax": True})
SEPARATE = replace(MERGED, name="softmax separate", model="Separate", shape={"heads": 5, "rank": 1, "softmax": True})


def against_all_positions(quick: bool) -> list[Row]:
    runs = [replace(MERGED, samples=500)] if quick else [MERGED, SEPARATE]
    return [row for run in runs for row in compare(run, quick)]


def compare(run: Published, quick: bool) -> list[Row]:
    base = baseline(run, quick, softmax=True)
    say(f"{run.name}: the package's step")
    single, double = (seconds_per_step(prepare(experiment(run, dtype=dtype)), 1, 9) for dtype in ("float32", "float64"))
    ratio, optimised = base.seconds / single, base.optimised / single
    return [
        *baseline_rows(base),
        Row(f"{run.name}: iclflow, float32", seconds(single), single),
        Row(f"{run.name}: iclflow, float64 (default)", seconds(double), double),
        Row(
            f"{run.name}: against the baseline", f"{ratio:.1f}x", ratio,
            "at least 50x", ratio >= 50,
        ),
        Row(
            f"{run.name}: against the optimised baseline (blocks in cache)", f"{optimised:.1f}x", optimised,
        ),
    ]  # fmt: skip
