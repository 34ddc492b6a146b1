"""A sweep on disk: arrays with room for every run, and one manifest per run that is done.

    sweep.json            the grid, its hash, versions, digests of the arrays' metadata; sweep.copy.json is a copy
    arrays.zarr/          `curves` (run, column, point) and `summary` (run, quantity), one chunk per run
    runs/000042.json      the manifest of run 42: settings, status, versions, SHA-256 of its chunks and of itself
    .lock .work/          the writer's lock, and the temporary files of the running session

A run is committed by writing its chunks, forcing them to the disk, and then renaming its manifest into place. If this
is interrupted, the run is missing: a chunk without a manifest is never read. Committing a run twice is harmless,
because the same run has the same bytes.
"""

import errno
import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from iclflow.errors import BadInput, DamagedStore
from iclflow.sweeps.columns import CURVES, columns
from iclflow.sweeps.grid import Grid, difference
from iclflow.system.atomic import sync
from iclflow.system.digest import file_digest, json_digest
from iclflow.system.manifest import read_manifest, write_manifest

__all__ = ["Store", "is_sweep", "open_store", "prepare_store"]

SCHEMA = 1
SWEEP, COPY, ARRAYS, RUNS, WORK = "sweep.json", "sweep.copy.json", "arrays.zarr", "runs", ".work"
OURS = {SWEEP, COPY, ARRAYS, RUNS, WORK, ".lock"}
UNREADABLE = (errno.EIO, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)


def is_sweep(path: Path) -> bool:
    """Whether a directory is a store, even one that has lost its `sweep.json`; one that was never completed is not."""
    return (path / SWEEP).is_file() or ((path / COPY).is_file() and any((path / RUNS).glob("*.json")))


@dataclass
class Store:
    """An open directory of a sweep."""

    path: Path
    grid: Grid
    digest: str
    about: dict[str, Any]

    def __post_init__(self) -> None:
        self._arrays: dict[str, Any] = {}
        self._opening = threading.Lock()

    # --- paths and arrays ---------------------------------------------------------------------------------------------

    def manifest(self, run: int) -> Path:
        return self.path / RUNS / f"{run:06d}.json"

    @property
    def names(self) -> list[str]:
        return ["summary"] if self.grid.summary else ["summary", "curves"]

    def chunk(self, name: str, run: int) -> Path:
        return self.path / ARRAYS / name / ("c." + ".".join([str(run)] + ["0"] * (len(self.shape(name)) - 1)))

    def shape(self, name: str) -> tuple[int, ...]:
        return array_shapes(self.grid)[name]

    def array(self, name: str) -> Any:
        """The zarr array, opened on first use."""
        import zarr

        with self._opening:
            if name not in self._arrays:
                array = zarr.open_array(self.path / ARRAYS / name, mode="r+", zarr_format=3)
                self._arrays[name] = array.with_config({"write_empty_chunks": True})
        return self._arrays[name]

    # --- writing ------------------------------------------------------------------------------------------------------

    def commit(self, run: int, rows: dict[str, np.ndarray], record: dict[str, Any]) -> None:
        """Add a finished run to the store, completely or not at all."""
        for name in self.names:
            self.array(name)[run] = rows[name]
        for name in self.names:
            sync(self.chunk(name, run))
            sync(self.chunk(name, run).parent)
        write_manifest(self.manifest(run), {**record, "run": run, "sweep": self.digest, "chunks": self.digests(run)})

    def digests(self, run: int) -> dict[str, str]:
        return {name: file_digest(self.chunk(name, run)) for name in self.names}

    def commit_failure(
        self, run: int, why: str, versions: dict[str, str], seconds: float = 0.0, retry: bool = False
    ) -> dict[str, Any]:
        """Commit a run that could not be computed, with the reason; with `retry`, the next session tries it again."""
        rows = {name: np.full(self.shape(name)[1:], np.nan) for name in self.names}
        record = {
            "status": "failed",
            "why": why,
            "seconds": seconds,
            "retry": retry,
            "config": self.grid.experiment(run).flat(),
            "versions": versions,
        }
        self.commit(run, rows, record)
        return record

    def forget(self, run: int) -> None:
        """Remove a run from the store, its manifest first, so that no reader sees a manifest without chunks."""
        remove(self.manifest(run))
        sync(self.path / RUNS)
        for name in self.names:
            remove(self.chunk(name, run))

    # --- reading ------------------------------------------------------------------------------------------------------

    def record(self, run: int) -> dict[str, Any] | None:
        """The content of a run's manifest; `None` if there is none; an error if the file is damaged."""
        try:
            record = read_manifest(self.manifest(run))
        except FileNotFoundError:
            return None
        if record.get("run") != run or record.get("sweep") != self.digest:
            raise DamagedStore(f"{self.manifest(run)}: belongs to another run or sweep")
        return record

    def damage(self, run: int) -> tuple[dict[str, Any] | None, str | None]:
        """A run's manifest, and a description of damage to its files; both `None` if the run has not been committed."""
        try:
            record = self.record(run)
        except DamagedStore as error:
            return None, str(error)
        except OSError as error:
            if error.errno not in UNREADABLE:  # others, such as too many open files, are not due to the run
                raise
            return None, f"{self.manifest(run)}: cannot be read ({error.strerror})"
        for name in self.names if record is not None else ():
            path = self.chunk(name, run)
            try:
                digest = file_digest(path)
            except OSError:
                return record, f"{path}: is missing"
            if record is None or digest != record["chunks"].get(name):
                return record, f"{path}: is damaged"
        return record, None

    def listed(self) -> list[int]:
        """The runs that have a manifest, intact or not."""
        names = (path.name for path in (self.path / RUNS).glob("*.json"))
        runs = sorted(int(name[:-5]) for name in names if name[:-5].isdigit())
        return [run for run in runs if run < self.grid.count]

    def missing(self) -> list[int]:
        done = set(self.listed())
        return [run for run in range(self.grid.count) if run not in done]


def remove(path: Path) -> None:
    """Remove a file or a directory, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def array_shapes(grid: Grid) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays, with the run as first axis."""
    shapes: dict[str, tuple[int, ...]] = {"summary": (grid.count, len(columns(grid.drop_slots)))}
    if not grid.summary:
        shapes["curves"] = (grid.count, len(CURVES) if grid.has_tests else 3, grid.curve_length)
    return shapes


# --- opening and making -----------------------------------------------------------------------------------------------


def open_store(path: Path) -> Store:
    """An existing store, finished or not; the files that describe it must be intact."""
    about = read_about(path / SWEEP)
    for name, expected in about["metadata"].items():
        file = path / ARRAYS / name
        if not file.is_file() or file_digest(file) != expected:
            raise DamagedStore(f"{file}: is missing or damaged; `iclflow sweep check {path} --repair` restores it")
    return Store(path, grid_in(about), about["digest"], about)


def grid_in(about: dict[str, Any]) -> Grid:
    return Grid.from_json(about["grid"], about.get("sizes"))  # stores of earlier versions have no sizes


def read_about(file: Path) -> dict[str, Any]:
    """The description of a sweep, from `sweep.json` or its copy."""
    try:
        about = read_manifest(file)
        if about["schema"] != SCHEMA:
            raise DamagedStore(f"{file}: has schema {about['schema']}, this version reads {SCHEMA}")
        if json_digest(about["grid"]) != about["digest"]:
            raise DamagedStore(f"{file}: is damaged")
    except FileNotFoundError:
        raise DamagedStore(f"{file}: is missing") from None
    except OSError as error:
        raise DamagedStore(f"{file}: cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, AttributeError):
        raise DamagedStore(f"{file}: is damaged") from None
    return about


def prepare_store(path: Path, grid: Grid, resume: bool) -> Store:
    """Make the store, or open the one to be resumed; the caller holds its lock."""
    if not is_sweep(path):
        return make_store(path, grid)
    if not resume:
        raise BadInput(f"out: {str(path)!r} is a sweep already; give --resume to continue it, or another directory")
    store = open_store(path)
    changed = difference(store.about["grid"], grid.to_json())
    if changed is not None:
        raise BadInput(f"{changed}; {str(path)!r} holds another sweep; choose another directory or undo the change")
    return store


def make_store(path: Path, grid: Grid) -> Store:
    """Make the store of a grid, without any run, in an existing directory."""
    from datetime import UTC, datetime

    from iclflow.versions import versions

    (path / RUNS).mkdir(exist_ok=True)
    about = {
        "schema": SCHEMA,
        "digest": grid.digest,
        "grid": grid.to_json(),
        "sizes": grid.sizes,
        "runs": grid.count,
        "metadata": write_metadata(path, grid),
        "versions": versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    for name in (COPY, SWEEP):  # the directory becomes a store with the second
        write_manifest(path / name, about)
    sync(path.parent)
    return open_store(path)


def write_metadata(path: Path, grid: Grid) -> dict[str, str]:
    """Make arrays with room for every run, without chunks, and return the digests of the files that describe them."""
    import zarr

    fresh = path / WORK / f"arrays-{secrets.token_hex(4)}"
    names = {"summary": ("run", "quantity"), "curves": ("run", "column", "point")}
    labels = {"summary": columns(grid.drop_slots), "curves": list(CURVES)}
    zarr.create_group(fresh, zarr_format=3)
    for name, shape in array_shapes(grid).items():
        zarr.create_array(
            fresh / name, shape=shape, chunks=(1, *shape[1:]), dtype="float64", fill_value=np.nan, compressors=None,
            chunk_key_encoding={"name": "default", "separator": "."}, dimension_names=names[name],
            attributes={"labels": labels[name][: shape[1]]},
        )  # fmt: skip
    digests = {}
    for file in sorted(f for f in fresh.rglob("*") if f.is_file()):
        name = str(file.relative_to(fresh))
        target = path / ARRAYS / name
        target.parent.mkdir(parents=True, exist_ok=True)
        digests[name] = file_digest(file)
        sync(file)
        os.replace(file, target)
        sync(target.parent)
    shutil.rmtree(fresh)
    return digests


def leftovers(path: Path) -> Iterator[Path]:
    """The incomplete files of a session that was killed."""
    return (file for file in path.rglob("*.partial") if file.is_file())
