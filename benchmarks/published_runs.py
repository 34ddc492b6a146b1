"""(a) The published figure-1 run, (b) the published figure-4 runs: whole trainings against the baseline.

The package trains in a fresh process, sampling and compilation included (shortest of three processes);
import of the packages is reported beside it, and the ratio is given without and with it. The baseline's
time is its number of steps times its fastest warm step: neither its compilation, nor its sampling, nor its
import is counted. Further ratios say where the factor comes from: against the optimised baseline, against
the order of products that most code has, and against the package's own `tokens` engine, which also walks
through all sequences in float32 but computes the query's output only.
"""

from benchmarks.all_positions import Baseline, baseline, baseline_rows
from benchmarks.child import Outcome, train_in_child
from benchmarks.settings import FIGURE_1, FIGURE_4, Published, shrunk
from benchmarks.table import Row, say, seconds
from benchmarks.warm_step import experiment, prepare, seconds_per_step

__all__ = ["figure_1", "figure_4"]


def figure_1(quick: bool) -> list[Row]:
    return compare(FIGURE_1, target=1000, part=1, quick=quick)


def figure_4(quick: bool) -> list[Row]:
    runs = [FIGURE_4[1]] if quick else FIGURE_4.values()
    return [row for run in runs for row in compare(run, target=50_000, part=8, quick=quick)]


def compare(run: Published, target: float, part: int, quick: bool) -> list[Row]:
    """`part`: the baseline is timed on this fraction of the sequences, where memory asks for it."""
    run = shrunk(run) if quick else run
    base = baseline(run, quick, part)
    say(f"{run.name}: on tokens, the query only")
    queries_only = seconds_per_step(prepare(experiment(run, engine="tokens", dtype="float32")), 1, 3)
    ours = train_repeatedly(run, repeats=1 if quick else 3)
    return [*baseline_rows(base), *own_rows(run, ours), *ratio_rows(run, base, ours, queries_only, target)]


def train_repeatedly(run: Published, repeats: int) -> Outcome:
    """The shortest of a few trainings, each in its own process."""
    outcomes = []
    for i in range(repeats):
        task = {"dim": run.dim, "context": run.context, "normalize": run.normalize}
        outcomes.append(train_in_child(task, run.model, run.shape, run.settings()))
        say(f"{run.name}: fresh process {i + 1} of {repeats}, {seconds(outcomes[-1].training)} to train")
    return min(outcomes, key=lambda outcome: outcome.training)


def own_rows(run: Published, ours: Outcome) -> list[Row]:
    whole = f"{run.name}: iclflow, {run.steps} steps, sampling and compilation included"
    return [
        Row(whole, seconds(ours.training), ours.training),
        Row(f"{run.name}: import of the packages, once a process", seconds(ours.importing), ours.importing),
        Row(f"{run.name}: the whole process, start to exit", seconds(ours.process), ours.process),
        Row(f"{run.name}: final loss ({ours.status})", f"{ours.final_loss:.5g}", ours.final_loss),
    ]


def ratio_rows(run: Published, base: Baseline, ours: Outcome, queries_only: float, target: float) -> list[Row]:
    """Every ratio is (seconds a step of the other) x steps / (seconds of our whole training)."""

    def row(what: str, step: float, own: float = ours.training, target: float | None = None) -> Row:
        ratio = step * run.steps / own
        held = ("", None) if target is None else (f"at least {target:,.0f}x", ratio >= target)
        return Row(f"{run.name}: {what}", f"{ratio:,.0f}x", ratio, *held)

    whole = base.seconds * run.steps
    return [
        Row(f"{run.name}: baseline, {run.steps} steps", seconds(whole), whole),
        row("against the baseline", base.seconds, target=target),
        row("against the baseline, our import counted", base.seconds, ours.importing + ours.training),
        row("against the optimised baseline (blocks in cache)", base.optimised),
        row("against the usual order, values first", base.whole["values first"]),
        row(f"for information: on tokens, query only ({seconds(queries_only)} a step)", queries_only),
    ]
