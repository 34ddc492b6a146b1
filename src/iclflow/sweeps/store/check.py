"""Finds the damaged and missing runs of a sweep, and computes only these again."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from iclflow.errors import BadInput, DamagedStore
from iclflow.sweeps.store.protocol import (
    ARRAYS,
    COPY,
    SWEEP,
    Store,
    grid_in,
    is_sweep,
    open_store,
    read_about,
    write_metadata,
)
from iclflow.sweeps.sweep import Tally, run_missing, writing
from iclflow.sweeps.workers.signals import stopped_by_signals
from iclflow.system.digest import file_digest
from iclflow.system.lock import only_writer
from iclflow.system.manifest import write_manifest

__all__ = ["Report", "check", "repair"]


@dataclass
class Report:
    """What is wrong with a sweep."""

    damaged: dict[int, str] = field(default_factory=dict)  # runs whose files have changed, with a description
    missing: list[int] = field(default_factory=list)  # runs without a manifest
    broken: list[str] = field(default_factory=list)  # files that describe the sweep
    count: int = 0

    @property
    def fine(self) -> bool:
        return not (self.damaged or self.missing or self.broken)

    def __str__(self) -> str:
        if self.fine:
            return f"all {self.count} runs are intact"
        parts = [
            f"{len(self.broken)} files that describe it are damaged" if self.broken else "",
            f"{len(self.damaged)} runs are damaged" if self.damaged else "",
            f"{len(self.missing)} of {self.count} runs are missing" if self.missing else "",
        ]
        return ", ".join(part for part in parts if part)


def check(path: Path) -> Report:
    """Read and compare every file of a sweep, without changing any."""
    refuse_other(path)
    report, abouts = Report(), []
    for name in (SWEEP, COPY):
        try:
            abouts.append(read_about(path / name))
        except DamagedStore as error:
            report.broken.append(str(error))
    if len(abouts) == 2 and abouts[0] != abouts[1]:
        report.broken.append(f"{path / COPY}: differs from {SWEEP}")
    if not abouts:
        raise DamagedStore(f"{path}: neither {SWEEP} nor its copy is intact; the grid of this sweep is unknown")
    about = abouts[0]
    for name, expected in about["metadata"].items():
        file = path / ARRAYS / name
        if not file.is_file() or file_digest(file) != expected:
            report.broken.append(f"{file}: is missing or damaged")
    store = Store(path, grid_in(about), about["digest"], about)
    report.count = store.grid.count
    if not (path / "runs").is_dir():
        report.broken.append(f"{path / 'runs'}: is missing")
        report.missing = list(range(report.count))
        return report
    report.missing = store.missing()
    for run in store.listed():
        wrong = store.damage(run)[1]
        if wrong is not None:
            report.damaged[run] = wrong
    return report


def refuse_other(path: Path) -> None:
    """Raise an error if a directory is not a sweep."""
    if not is_sweep(path):
        raise BadInput(f"dir: {str(path)!r} must be a sweep, a directory with a {SWEEP}")


def repair(
    path: Path, *, workers: int | None = None, scheduler: str | None = None, progress: bool | None = False
) -> tuple[Report, Tally]:
    """Restore the files that describe the sweep, remove damaged runs, and compute all missing runs."""
    refuse_other(path)
    with writing(path), stopped_by_signals(), only_writer(path):
        report = check(path)
        restore(path, report)
        store = open_store(path)
        for run in report.damaged:
            store.forget(run)
        return report, run_missing(store, workers=workers, scheduler=scheduler, progress=progress)


def restore(path: Path, report: Report) -> None:
    """Write the files that describe the sweep again, if any of them is damaged."""
    if not report.broken:
        return
    for name in (SWEEP, COPY):
        try:
            about = read_about(path / name)
            break
        except DamagedStore:
            continue
    for directory in (path / "runs", path / ARRAYS):
        if directory.exists() and not directory.is_dir():
            os.unlink(directory)
        directory.mkdir(exist_ok=True)
    for name in about["metadata"]:
        target = path / ARRAYS / name
        if target.is_dir():
            shutil.rmtree(target)
    metadata = write_metadata(path, grid_in(about))
    for name in (COPY, SWEEP):
        write_manifest(path / name, {**about, "metadata": metadata})
