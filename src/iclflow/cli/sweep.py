"""`iclflow sweep`: run a grid, check it, and export its results."""

import contextlib
import json as json_text
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import App, Parameter

from iclflow.cli.parameters import named, switch
from iclflow.errors import BadInput, IclflowError
from iclflow.models.base import import_model
from iclflow.sweeps.workers.signals import Stopped

__all__ = ["app"]

app = App(name="sweep", result_action="return_value", suppress_keyboard_interrupt=False)

Folder = Annotated[str, Parameter(help="directory of a sweep")]
Workers = Annotated[str | None, named("INT", "processes on this machine (default: one per core); 0: only this one")]
Scheduler = Annotated[str | None, named("ADDRESS", "address or scheduler file of a dask cluster that computes instead")]


@app.default
def run(
    file: Annotated[str, Parameter(help="the grid, FILE.toml")],
    /,
    *,
    out: Annotated[str, named("DIR", "directory for the results")],
    workers: Workers = None,
    scheduler: Scheduler = None,
    part: Annotated[str | None, named("I/N", "only the I-th of N parts, beside any others: for arrays of jobs")] = None,
    resume: Annotated[bool, switch("continue the sweep in --out")] = False,
    summary: Annotated[bool, switch("keep drop times, plateaus and so on, but no curves")] = False,
    dry_run: Annotated[bool, switch("print what would be run, and stop")] = False,
) -> int:
    """Run a grid of experiments that survives crashes.

    Example: iclflow sweep ranks.toml --out sweeps/ranks --workers 4

    FILE is TOML: base settings, axes with lists or ranges, zipped axes that vary together, seeds; docs/how-to/sweep.md
    shows one. A sweep that was stopped or killed is continued with --resume; finished runs are not repeated. Parts of a
    sweep are begun and continued with --part alone.
    """
    flags = f"{' --summary' if summary else ''}{' --resume' if part is None else f' --part {quote(part)}'}"
    with with_resume_hint(f"iclflow sweep {quote(file)} --out {quote(out)}{flags}"):
        from iclflow.sweeps.estimate import estimate
        from iclflow.sweeps.parts import part_of
        from iclflow.sweeps.store.protocol import open_store
        from iclflow.sweeps.sweep import grid_of, run_grid
        from iclflow.system.cores import cores

        count, grid = worker_count(workers), grid_of(file, summary)
        announce = lambda needs: print(f"{file}: {needs}", flush=True)
        if dry_run:
            announce(estimate(grid, cores() if count is None else count))
            return 0
        tally = run_grid(
            grid, Path(out), workers=count, scheduler=scheduler, part=part, resume=resume, progress=None,
            announce=announce,
        )  # fmt: skip
    print(f"{out}: {'' if part is None else f'{part_of(part)}: '}{tally}")
    if part is not None:
        left = len(open_store(Path(out)).missing())
        print(f"{out}: {f'{left} of {grid.count} runs are missing' if left else f'all {grid.count} runs are there'}")
    return 1 if tally.failed else 0


def worker_count(text: str | None) -> int | None:
    """The number of processes; None for the default."""
    if text is None:
        return None
    if not text.isdecimal() or int(text) > 4096:
        raise BadInput(f"workers: {text!r} must be a whole number from 0 to 4096")
    return int(text)


@contextlib.contextmanager
def with_resume_hint(again: str) -> Iterator[None]:
    """Add the command that continues to the message of whatever ends a sweep early, such as a signal."""
    try:
        yield
    except BadInput:
        raise
    except IclflowError as error:
        raise type(error)(f"{error}; go on with: {again}") from None
    except KeyboardInterrupt:
        raise Stopped(f"stopped; go on with: {again}") from None


@app.command
def status(dir: Folder, /, *, json: Annotated[bool, switch("print as JSON")] = False) -> int:
    """Print how far a sweep is, also while it is running.

    Example: iclflow sweep status sweeps/ranks
    """
    from iclflow.sweeps.parts import parts_at_work
    from iclflow.sweeps.results import survey
    from iclflow.sweeps.store.check import refuse_other
    from iclflow.sweeps.store.protocol import open_store
    from iclflow.system.lock import holder, is_held

    path = Path(dir)
    refuse_other(path)
    store = open_store(path)
    _, ends, why, _ = survey(store)
    counts = {name: ends.count(name) for name in sorted(set(ends))}
    writer = holder(path) if is_held(path) else "; ".join(parts_at_work(path)) or None
    if json:
        print(json_text.dumps({"runs": store.grid.count, "status": counts, "writer": writer}))
        return 0
    axes = " x ".join(f"{n} {d}" for d, n in zip(store.grid.dimensions, store.grid.shape, strict=True))
    print(f"{dir}: {store.grid.count} runs ({axes}): " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    print(f"at work: {writer}" if writer else "nobody is at work on it")
    for name in ("failed", "diverged", "unstable", "damaged"):
        for run in [i for i, end in enumerate(ends) if end == name][:5]:
            print(f"  run {run} {name}: {why[run]}")
    return 0


@app.command
def check(
    dir: Folder,
    /,
    *,
    repair: Annotated[bool, switch("run again what is damaged or missing")] = False,
    workers: Workers = None,
    scheduler: Scheduler = None,
) -> int:
    """Read every byte of a sweep and name what is damaged or missing (exit code 3).

    Example: iclflow sweep check sweeps/ranks --repair
    """
    from iclflow.sweeps.store import check as checking

    count, path = worker_count(workers), Path(dir)
    report = checking.check(path)
    for line in [*report.broken, *report.damaged.values()][:20]:
        print(line, file=sys.stderr)
    print(f"{dir}: {report}")
    if report.fine or not repair:
        return 0 if report.fine else 3
    with with_resume_hint(f"iclflow sweep check {quote(dir)} --repair"):
        _, tally = checking.repair(path, workers=count, scheduler=scheduler, progress=None)
    print(f"{dir}: repaired; {tally}")
    return 1 if tally.failed else 0


@app.command
def export(
    dir: Folder,
    /,
    *,
    csv: Annotated[str | None, named("FILE.csv", "one row per run, without curves")] = None,
    netcdf: Annotated[str | None, named("FILE.nc", "everything, with named dimensions")] = None,
) -> int:
    """Write the results as a table or as netCDF.

    Example: iclflow sweep export sweeps/ranks --csv ranks.csv
    """
    if csv is None and netcdf is None:
        raise BadInput("csv: give --csv FILE or --netcdf FILE")
    from iclflow.sweeps.results import gather
    from iclflow.sweeps.store.check import refuse_other

    refuse_other(Path(dir))
    sweep = gather(dir)
    for path, write in ((csv, sweep.to_csv), (netcdf, sweep.to_netcdf)):
        if path is not None:
            save(path, write)
            print(f"{path}: {sweep.grid.count} runs, {', '.join(f'{n} {s}' for s, n in sweep.status.items())}")
    return 0


@app.command
def figure(
    dir: Folder,
    /,
    *,
    out: Annotated[str, named("FILE", "file of the figure: .png, .pdf or .svg")],
    along: Annotated[str | None, named("AXIS", "draw a quantity along this axis, instead of curves")] = None,
    quantity: Annotated[
        str, named("NAME", "final_loss, components, drops, drop_times:K, plateau_losses:K, ..")
    ] = "final_loss",
    where: Annotated[list[str] | None, named("AXIS=VALUE", "keeps only these runs")] = None,
    theory: Annotated[bool, switch("draw theory over it [default: yes]", off="--no-theory")] = True,
    model: Annotated[str | None, named("MODULE:CLASS", "your own model, whose theory is drawn if it has one")] = None,
) -> int:
    """Draw loss curves with bands over the seeds, or one quantity along an axis.

    Example: iclflow sweep figure sweeps/ranks --along init --quantity drop_times:1 --out drops.png
    """
    from iclflow.sweeps.store.check import refuse_other

    if Path(out).suffix not in (".png", ".pdf", ".svg"):
        raise BadInput(f"out: {out!r} must end in .png, .pdf or .svg")
    refuse_other(Path(dir))
    if model is not None:
        import_model(model)
    from iclflow.figures.along_axis import along_axis
    from iclflow.figures.seed_bands import seed_bands
    from iclflow.sweeps.results import gather

    sweep = gather(dir)
    chosen = dict(pair(text) for text in where or [])
    if along is None:
        drawn = seed_bands(sweep, where=chosen, theory=theory)
    else:
        drawn = along_axis(sweep, along, quantity, where=chosen, theory=theory)
    save(out, drawn.savefig)
    print(out)
    return 0


def pair(text: str) -> tuple[str, str]:
    """The axis and the value in AXIS=VALUE."""
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"where: {text!r} must be AXIS=VALUE")
    return name, value


def save(path: str, write: Callable[[str], object]) -> None:
    """Write a file, and refuse a path that cannot be written."""
    try:
        write(path)
    except OSError as error:
        raise BadInput(f"out: cannot write {path!r} ({error.strerror})") from None
