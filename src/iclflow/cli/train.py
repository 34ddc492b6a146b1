"""`iclflow train`: train a model and save the run."""

import json as json_text
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from iclflow.cli.flags import Flags, given
from iclflow.cli.parameters import CONFIG, named, switch
from iclflow.errors import BadInput
from iclflow.results.inputs import inputs_from_flat
from iclflow.results.writing import add_picture, default_directory, refuse_no_run, write_run, writing
from iclflow.system.progress import Report, has_bar, plain_lines

if TYPE_CHECKING:
    import iclflow.comparison.summary
    import iclflow.results.run

__all__ = ["train"]

FAILED = ("unstable", "diverged", "failed")
Making = Callable[[], "iclflow.results.run.Run"]


def train(
    flags: Annotated[Flags, Parameter(name="*")] = Flags(),  # noqa: B008
    *,
    weights: Annotated[str | None, named("FILE", "initial weights, .safetensors or .npz, or FILE:PREFIX")] = None,
    config: Annotated[str | None, CONFIG] = None,
    out: Annotated[str | None, named("DIR", "directory of the run [default: runs/MODEL-HASH]")] = None,
    overwrite: Annotated[bool, switch("replace an existing run")] = False,
    save_weights: Annotated[bool, switch("keep the weights along training, not only first and last")] = False,
    resume: Annotated[str | None, named("DIR", "continue the run in DIR; give --steps or --time as well")] = None,
    figure: Annotated[bool, switch("draw the loss curve as well [default: yes]", off="--no-figure")] = True,
    json: Annotated[bool, switch("print the summary as JSON")] = False,
) -> int:
    """Train a model and save the run.

    Example: iclflow train --model separate --heads 5 --init 0.01 --out runs/staircase

    Without --samples the model is trained on the population; without --lr and --steps it follows gradient flow until
    the loss has settled.
    """
    settings = given(flags, None if config is None else Path(config))
    where, make = started(settings, weights, out) if resume is None else resumed(settings, resume, weights, out)
    with warnings.catch_warnings(), writing(where, overwrite or (resume is not None and out is None), "--overwrite"):
        warnings.simplefilter("ignore")
        run = make()
        write_run(run if save_weights or resume is not None else run.first_and_last(), where)
        from iclflow.comparison.summary import account

        outcome = account(run)
        drawn = add_picture(where, picture(run, outcome)) if figure else None
    report(run, where, outcome, json, drawn)
    return 1 if run.status in FAILED else 0


def started(settings: dict[str, Any], weights: str | None, out: str | None) -> tuple[Path, Making]:
    """The directory of a new run, and how to make it. What can be refused is refused before JAX is loaded."""
    inputs = inputs_from_flat(settings, weights)

    def make() -> "iclflow.results.run.Run":
        from iclflow.training.start import run_experiment

        return run_experiment(*inputs, progress=words_on_the_way())

    return default_directory(inputs.experiment) if out is None else Path(out), make


def words_on_the_way() -> Report | None:
    """A bar on a terminal; elsewhere a line every ten seconds, so that no run takes minutes without a word."""
    if has_bar():
        return None
    lines = plain_lines(at_the_end=False)
    return lambda share, words: lines(share, f"{share:.0%} of the time allowed: {words}")


def resumed(settings: dict[str, Any], source: str, weights: str | None, out: str | None) -> tuple[Path, Making]:
    """The directory of a run that is continued, which is the old one or `out`, and how to continue it."""
    more = {name: settings.pop(name) for name in ("steps", "time", "data") if name in settings}
    if ":" in str(settings.get("model")):  # a class of your own: it is imported by now, so that the run finds it
        settings.pop("model")
    if settings or weights is not None:
        extra = next(iter(settings), "weights")
        raise BadInput(f"{extra}: a resumed run keeps its settings; only steps, time and data can be given")
    for name, kind in (("steps", int), ("time", float)):
        if name in more:
            try:
                more[name] = kind(more[name])
            except ValueError:
                raise BadInput(f"{name}: {more[name]!r} must be a number") from None
            if not more[name] > 0:
                raise BadInput(f"{name}: {more[name]!r} must be greater than 0")
    refuse_no_run(Path(source))

    def make() -> "iclflow.results.run.Run":
        from iclflow.training import resume as resume_run

        return resume_run(source, **more)

    return Path(source if out is None else out), make


def picture(run: "iclflow.results.run.Run", outcome: "iclflow.comparison.summary.Account") -> bytes:
    """The loss curve with theory as PDF."""
    import io

    from iclflow.figures import loss_curve

    drawn = io.BytesIO()
    theory = outcome.comparisons[0].prediction if outcome.comparisons else False
    loss_curve(run, theory=theory).savefig(drawn, format="pdf")
    return drawn.getvalue()


def report(
    run: "iclflow.results.run.Run", where: Path, outcome: "iclflow.comparison.summary.Account", json: bool,
    figure: Path | None,
) -> None:  # fmt: skip
    """Print the outcome in one line, or as JSON; warnings go to standard error."""
    for note in run.summary["warnings"]:
        print(f"warning: {note}", file=sys.stderr)
    if json:
        file = {"figure": None if figure is None else str(figure)}
        print(json_text.dumps({"out": str(where), **run.summary, **file, **outcome.to_dict()}, indent=1))
        return
    first, last = run.arrays("curves")["loss"][..., 0].mean(), run.summary["final_loss"]
    ends = last if isinstance(last, list) else [last]
    numbers = ", ".join("nan" if x is None else f"{x:.4g}" for x in ends[:8]) + (", .." if len(ends) > 8 else "")
    why = next((r["why"] for r in run.summary["runs"] if r["status"] == run.status), "")
    status = run.status if run.status == "ok" else f"{run.status} ({why})"
    way = f"{way_of(run)}, {run.summary['seconds']:.2f} s"
    drawn = "" if figure is None else f"   (figure: {figure})"
    print(f"{where}: {status}; loss {first:.4g} -> {numbers} {outcome}; {way}{drawn}")


def way_of(run: "iclflow.results.run.Run") -> str:
    """The steps that were taken; of the flow those of its solver, of which only some are kept."""
    solver = [one["solver_steps"] for one in run.summary["runs"] if "solver_steps" in one]
    if solver:
        return f"{max(solver)} solver steps of the flow"
    return f"{run.summary['steps_done']} steps of {run.summary['engine']}"
