"""Files that cannot be read, and disks without locks: a line or a damaged run, never a traceback."""

import errno
import fcntl
import os

import pytest

import iclflow as icl
from commands import call
from iclflow.sweeps.store.check import check
from iclflow.sweeps.store.protocol import open_store
from iclflow.system import manifest
from iclflow.system.lock import is_held, only_writer

GRID = {"base": {"model": "merged", "heads": 2, "dim": 2, "context": 5, "lr": 0.1, "steps": 5, "samples": 30}}


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused_in_a_line(tmp_path, monkeypatch, code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(icl.BadInput, match="is on a file system without locks"), only_writer(tmp_path):
        pass
    assert not is_held(tmp_path)


def test_a_manifest_that_is_a_directory_is_damaged_and_redone(tmp_path):
    icl.sweep({**GRID, "seeds": 2}, tmp_path / "s", workers=0)
    file = tmp_path / "s" / "runs" / "000001.json"
    file.unlink()
    file.mkdir()
    assert icl.load(tmp_path / "s").status == {"damaged": 1, "ok": 1}
    assert list(check(tmp_path / "s").damaged) == [1]
    assert icl.sweep({**GRID, "seeds": 2}, tmp_path / "s", workers=0, resume=True).status == {"ok": 2}


def test_a_manifest_that_the_disk_refuses_is_damaged_but_a_lack_of_handles_is_not(tmp_path, monkeypatch):
    store = open_store(icl.sweep(GRID, tmp_path / "s", workers=0).path)
    for code in (errno.EIO, errno.EACCES, errno.EMFILE):
        with monkeypatch.context() as patched:
            patched.setattr(manifest, "open_regular", failing(code))
            if code == errno.EMFILE:
                with pytest.raises(OSError, match="open files"):
                    store.damage(0)
            else:
                assert "cannot be read" in store.damage(0)[1]


def failing(code):
    def open_regular(_):
        raise OSError(code, os.strerror(code))

    return open_regular


FILES = ("sweep.json", "sweep.copy.json", ".lock", "runs/000001.json", "arrays.zarr/summary/c.1.0",
         "arrays.zarr/curves/c.1.0.0", "arrays.zarr/zarr.json", "arrays.zarr/curves/zarr.json")  # fmt: skip
COMMANDS = (
    ["status"],
    ["check"],
    ["check", "--repair", "--workers", "0"],
    ["export", "--csv", "{out}.csv"],
    ["figure", "--out", "{out}.png"],
)


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", FILES)
def test_pipes_and_devices_in_a_store_are_refused_at_once(tmp_path, capsys, name, kind):
    path = icl.sweep({**GRID, "seeds": 2}, tmp_path / "s", workers=0).path
    (path / name).unlink()
    if kind == "pipe":
        os.mkfifo(path / name)
    else:
        (path / name).symlink_to("/dev/zero")
    for command, *flags in COMMANDS:
        flags = [flag.format(out=tmp_path / "out") for flag in flags]
        code, _, err = call(capsys, "sweep", command, path, *flags)
        assert code in (0, 2, 3), err
        assert "Traceback" not in err
        if command == "check" and not flags and name != ".lock":
            assert code == 3
            assert name.rpartition("/")[2] in err
