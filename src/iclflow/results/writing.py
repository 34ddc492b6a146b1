"""A run as a directory, which holds the old run or the new one, complete, at every instant.

    summary.json          status, config, versions, the SHA-256 of every other file, and one of itself
    arrays.safetensors    `curves/*`, `weights/*` along training, `moments/*` where training saw a sample, `optimizer/*`
    weights.safetensors   `weights.*` before the first step, `final_weights.*` after the last
    loss.pdf              the picture that `iclflow train` draws
    .lock                 the writer's lock, held from before training until all is written

New files are written under hidden names and forced to the disk, and so is a hidden summary that lists them. They then
get names that no file has (`arrays-1a2b3c4d.safetensors` where the usual one is taken), and the run is committed by
renaming the hidden summary over the old one. Files that only the old summary listed are removed after that; the new
one names them as `replaced`. A second commit of the same kind gives the new files the usual names.

Only files that a summary lists are ever replaced or removed: whatever else is in the directory stays. What a killed
writer leaves is hidden, listed in a hidden summary, or `replaced`; the next writer removes it and says so in one line.
Readers need no lock, because what the summary lists is there; if a file goes away while they read, they begin again.
"""

import contextlib
import glob
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from iclflow.errors import BadInput, DamagedStore
from iclflow.experiment import Experiment
from iclflow.results.labelled import to_tensors
from iclflow.results.tensors import write_tensors
from iclflow.system.atomic import room_or_complaint, scratch_of, scratches_of, sync, write_and_sync
from iclflow.system.digest import file_digest, json_digest
from iclflow.system.lock import NAME as LOCK
from iclflow.system.lock import only_writer
from iclflow.system.manifest import read_manifest, with_digest

__all__ = [
    "SCHEMA",
    "SUMMARY",
    "add_picture",
    "default_directory",
    "is_run",
    "read_summary",
    "refuse_existing",
    "refuse_no_run",
    "save_run",
    "write_run",
    "writing",
]

SCHEMA = 2
ARRAYS, WEIGHTS, PICTURE, SUMMARY = "arrays.safetensors", "weights.safetensors", "loss.pdf", "summary.json"


# --- what a directory holds -------------------------------------------------------------------------------------------


def is_run(path: str | Path) -> bool:
    """Whether a directory holds a run."""
    return (Path(path) / SUMMARY).is_file()


def refuse_no_run(path: Path) -> None:
    """Raise `BadInput` if a directory holds no run; one that an earlier version lost half-way is mentioned."""
    if not is_run(path):
        lost = "".join(f"; an interrupted command has left one in {str(found)!r}" for found in hidden_runs(path))
        raise BadInput(f"path: {str(path)!r} must be a run directory with a {SUMMARY}{lost}")


def hidden_runs(path: Path) -> list[Path]:
    """Whole runs that version 0.1 or 0.2 moved aside, or had not yet moved into place, when it was killed."""
    aside = sorted(path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.*"))
    return [found for found in aside if found.suffix in (".old", ".partial") and is_run(found)]


def read_summary(file: Path) -> dict[str, Any]:
    """The content of a summary; an error if a bit has changed (versions 0.1 and 0.2 wrote no digest of it)."""
    try:
        content = json.loads(file.read_bytes())
        if content["schema"] != 1 or "sha256" in content:
            content = read_manifest(file)
        names, here = [*content["files"], *content.get("replaced", {})], file.parent.resolve()
        ours = all((here / name).resolve().is_relative_to(here) for name in names)
    except (ValueError, KeyError, AttributeError, TypeError, RuntimeError):  # the last of links that go in a circle
        raise DamagedStore(f"{file}: is damaged") from None
    if content["schema"] not in (1, SCHEMA) or not ours:
        what = f"has schema {content['schema']}, this version reads 1 and {SCHEMA}" if ours else "names foreign files"
        raise DamagedStore(f"{file}: {what}")
    return content


def described(file: Path) -> dict[str, Any]:
    """The content of a summary; nothing if there is none, or a damaged one."""
    try:
        return read_summary(file)
    except (DamagedStore, FileNotFoundError):
        return {"files": {}}


def leftovers(where: Path) -> list[Path]:
    """The files of a writer that was killed, in an order in which they can be removed one by one."""
    hidden = [file for name in (ARRAYS, WEIGHTS, PICTURE, SUMMARY) for file in scratches_of(where / name)]
    now = described(where / SUMMARY)
    unlisted = dict(now.get("replaced", {}))
    for summary in scratches_of(where / SUMMARY):
        unlisted |= described(summary)["files"]
    same = lambda name: (where / name).is_file() and file_digest(where / name) == unlisted[name]
    return [where / name for name in unlisted if name not in now["files"] and same(name)] + hidden


# --- writing ----------------------------------------------------------------------------------------------------------


def save_run(run: Any, path: Path, overwrite: bool) -> Path:
    """Write a `Run` to a directory."""
    with writing(path, overwrite):
        write_run(run, path)
    return path


@contextlib.contextmanager
def writing(path: Path, overwrite: bool, how: str = "overwrite=True") -> Iterator[None]:
    """Be the only writer of a run's directory during the block; if no run comes of it, what was made for it goes."""
    with room_or_complaint(path):
        refuse_existing(path, overwrite, how)
    made = [folder for folder in (path, *path.absolute().parents) if not folder.exists()]
    for lost in hidden_runs(path) if made else []:
        print(f"{path}: an interrupted command has left a run in {str(lost)!r}", file=sys.stderr)
    with contextlib.ExitStack() as lock:
        with room_or_complaint(path):
            path.mkdir(parents=True, exist_ok=True)
            lock.enter_context(only_writer(path))
        try:
            with room_or_complaint(path):
                refuse_existing(path, overwrite, how)  # another may have finished just now
                for folder in made:
                    sync(folder.absolute().parent)
                if clear(path):
                    print(f"{path}: removed what an interrupted command had left", file=sys.stderr)
            yield
        finally:
            if not is_run(path):
                (path / LOCK).unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # somebody has put something in
                    for folder in made:
                        folder.rmdir()


def write_run(run: Any, where: Path) -> None:
    """Replace the run in a directory, of which this is the only writer."""
    arrays, labels = to_tensors(run.groups)
    arrays |= {f"optimizer/{name}": array for name, array in run.optimizer_state.items()}
    weights = {f"weights.{name}": array for name, array in run.initial_weights.items()}
    weights |= {f"final_weights.{name}": array for name, array in run.final_weights.items()}
    new = {name: scratch_of(where / name) for name in (ARRAYS, WEIGHTS)}
    with cleared(where):
        write_tensors(new[ARRAYS], arrays, labels)
        write_tensors(new[WEIGHTS], weights, {"model": run.config["model"]})
        for file in new.values():
            sync(file)
        commit(where, {"schema": SCHEMA, **run.summary}, {}, new)
        clear(where)
        take_usual_names(where)


def add_picture(where: Path, picture: bytes) -> Path:
    """Add a picture to the run in a directory, of which this is the only writer; returns its file."""
    content, new = read_summary(where / SUMMARY), scratch_of(where / PICTURE)
    with cleared(where):
        write_and_sync(new, picture)
        return where / commit(where, content, content["files"], {PICTURE: new})[PICTURE]


@contextlib.contextmanager
def cleared(where: Path) -> Iterator[None]:
    """Leave nothing behind, however the block ends; errors of the disk become one line."""
    with room_or_complaint(where):
        try:
            yield
        finally:
            clear(where)


def commit(where: Path, content: dict[str, Any], kept: dict[str, str], new: dict[str, Path]) -> dict[str, str]:
    """Make the files that are kept, and hidden ones, those of the run at once; returns the names that these get."""
    digests = {usual: file_digest(hidden) for usual, hidden in new.items()}
    names = {usual: free_name(where / usual, digests[usual]) for usual in new}
    files = {**kept, **{names[usual]: digests[usual] for usual in new}}
    old = [name for name in described(where / SUMMARY)["files"] if name not in files and (where / name).is_file()]
    replaced = {name: file_digest(where / name) for name in old}
    summary = scratch_of(where / SUMMARY)
    write_and_sync(summary, with_digest({**content, "files": files, "replaced": replaced}))
    sync(where)
    for usual, hidden in new.items():
        hidden.rename(where / names[usual])
    sync(where)
    summary.rename(where / SUMMARY)
    sync(where)
    return names


def free_name(path: Path, digest: str) -> str:
    """The name of a file if no file has it, otherwise with as much of the digest as makes it a new one."""
    names = (path.name, *(f"{path.stem}-{digest[:length]}{path.suffix}" for length in range(8, 65)))
    return next(name for name in names if not os.path.lexists(path.with_name(name)))


def take_usual_names(where: Path) -> None:
    """Commit the same run with the usual names of its files where they are free by now, and links can be made."""
    content = read_summary(where / SUMMARY)
    usual = {name: re.sub(r"-[0-9a-f]{8,}(?=\.\w+$)", "", name) for name in content["files"]}
    moving = {name: scratch_of(where / usual[name]) for name in usual if not os.path.lexists(where / usual[name])}
    with contextlib.suppress(OSError):  # a file system without links
        for name, link in moving.items():
            os.link(where / name, link)
        kept = {name: digest for name, digest in content["files"].items() if name not in moving}
        if moving:
            commit(where, content, kept, {usual[name]: link for name, link in moving.items()})


def clear(where: Path) -> bool:
    """Remove what this writer, or one that was killed, has left behind; returns whether there was anything."""
    found = leftovers(where)
    for file in found:
        file.unlink(missing_ok=True)
    replaced = described(where / SUMMARY).get("replaced", {})
    folders = {folder for name in replaced for folder in (where / name).parents if where in folder.parents}
    for folder in sorted(folders, reverse=True):  # those of the Zarr stores of earlier versions
        with contextlib.suppress(OSError):
            folder.rmdir()
    return bool(found)


# --- where a run may go -----------------------------------------------------------------------------------------------


def default_directory(experiment: Experiment) -> Path:
    """`runs/<model>-<short hash of all settings>`."""
    name = experiment.model.kind.rpartition(":")[2]
    return Path("runs") / f"{name}-{json_digest(experiment.flat())[:8]}"


def refuse_existing(path: Path, overwrite: bool, how: str = "overwrite=True") -> None:
    """Raise `BadInput` if `path` cannot be written to, or holds anything that is not a run that may be overwritten."""
    if not path.exists():
        parent = next(folder for folder in path.absolute().parents if folder.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise BadInput(
                f"out: {str(path)!r} cannot be made: {str(parent)!r} must be a directory that you can write to"
            )
        return
    if path.is_dir() and not is_run(path) and not {*path.iterdir()} - {path / LOCK, *leftovers(path)}:
        return
    if not overwrite:
        raise BadInput(f"out: {str(path)!r} exists; choose another directory, or give {how}")
    if not is_run(path):
        raise BadInput(f"out: {str(path)!r} is not a run; only runs are overwritten")
    if not os.access(path, os.W_OK):
        raise BadInput(f"out: {str(path)!r} must be a directory that you can write to")
