"""Which failures are for good, and which the next session tries again."""

import errno

import numpy as np
import pytest

import iclflow as icl
from iclflow.errors import NoRoom
from iclflow.sweeps.store.protocol import open_store
from iclflow.sweeps.workers import tasks as work

GRID = {"base": {"model": "merged", "heads": 2, "dim": 2, "context": 5, "lr": 0.1, "steps": 5, "samples": 30}}
PASSING = [NoRoom("memory: too little"), MemoryError(), OSError(errno.ENOMEM, "no memory"), OSError(errno.EMFILE, "")]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: f"{type(error).__name__} {error}")
def test_a_run_that_the_machine_failed_is_redone_by_resume(tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(work, "compute", fail)
        assert icl.sweep(GRID, tmp_path / "s", workers=0).status == {"failed": 1}
    assert icl.sweep(GRID, tmp_path / "s", workers=0, resume=True).status == {"ok": 1}


def test_a_run_that_can_never_be_is_not_redone(tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError("no")

    with monkeypatch.context() as patched:
        patched.setattr(work, "compute", fail)
        icl.sweep(GRID, tmp_path / "s", workers=0)
    assert icl.sweep(GRID, tmp_path / "s", workers=0, resume=True).status == {"failed": 1}


@pytest.mark.parametrize("gone", [True, False])
def test_a_run_whose_data_changed_under_it_is_redone_once_they_are_back(tmp_path, gone):
    file, data = tmp_path / "d.npz", np.random.default_rng(0).standard_normal((40, 6, 3))
    np.savez(file, sequences=data)
    base = {"model": "merged", "heads": 2, "lr": 0.01, "steps": 5, "data": str(file)}
    path = icl.sweep({"base": base}, tmp_path / "s", workers=0).path
    store = open_store(path)
    store.forget(0)
    file.unlink() if gone else np.savez(file, sequences=data + 1)
    ended = work.do_run(str(path), store.digest, 0, "again")
    assert ended["status"] == "failed"
    assert ("must be an existing file" if gone else "has changed") in ended["why"]
    np.savez(file, sequences=data)
    assert icl.sweep({"base": base}, path, workers=0, resume=True).status == {"ok": 1}
