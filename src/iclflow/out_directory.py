"""Where a run goes, and when an existing directory may be replaced."""

import hashlib
import json
import os
from pathlib import Path

from iclflow.config import Experiment
from iclflow.errors import BadInput

__all__ = ["default_directory", "refuse_existing"]


def default_directory(experiment: Experiment) -> Path:
    """`runs/<model>-<short hash of all settings>`."""
    settings = json.dumps(experiment.flat(), sort_keys=True)
    return Path("runs") / f"{experiment.model.kind}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Existing results are only replaced when asked, and only if they are a run; a place must be writable."""
    if not path.exists():
        ground = next(parent for parent in path.absolute().parents if parent.exists())
        if not ground.is_dir() or not os.access(ground, os.W_OK):
            raise BadInput(
                f"out: {str(path)!r} cannot be made: {str(ground)!r} must be a directory that you can write to"
            )
        return
    if not overwrite:
        raise BadInput(f"out: {str(path)!r} exists; choose another directory or give --overwrite")
    if not (path / "summary.json").is_file() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(f"out: {str(path)!r} is not a run; --overwrite only replaces runs")
