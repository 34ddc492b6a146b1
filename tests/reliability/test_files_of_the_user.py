"""Every file that a user can name is refused in one line and with exit code 2 if it is not what it must be."""

import os
import socket

import numpy as np
import pytest

from commands import call

READERS = {
    "config": ("toml", ["train", "--config", "{}", "--out", "x"]),
    "file": ("toml", ["sweep", "{}", "--out", "x"]),
    "data": ("npz", ["train", "--data", "{}", "--out", "x"]),
    "weights": ("npz", ["train", "--weights", "{}", "--out", "x"]),
    "tensors": ("safetensors", ["probe", "{}"]),
    "spectrum": ("npy", ["train", "--spectrum", "{}", "--out", "x"]),
    "table": ("csv", ["compare", "{}", "--out", "c.pdf"]),
    "curve": ("txt", ["compare", "{}", "--out", "c.pdf"]),
}


def refused(capsys, *arguments):
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, ""), (arguments, err)
    assert err.startswith("iclflow: ")
    assert err.count("\n") == 1, err
    return err


@pytest.mark.parametrize("reader", READERS)
def test_pipes_devices_sockets_and_links_to_nothing_are_not_opened(reader, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    suffix, command = READERS[reader]
    os.mkfifo(f"pipe.{suffix}")
    os.symlink("/dev/zero", f"a device.{suffix}")
    os.symlink("nowhere", f"existing.{suffix}")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"socket.{suffix}")
    for name in ("pipe", "a device", "existing", "socket"):
        assert name in refused(capsys, *(part.format(f"{name}.{suffix}") for part in command))
    assert not os.path.exists("x")


@pytest.mark.parametrize("reader", READERS)
def test_noise_is_not_read_as_anything(reader, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    suffix, command = READERS[reader]
    for content in (b"", b"\xff\xfe\x00", b"[" * 5000, b"\0" * 300, b"PK\x03\x04", b"\x93NUMPY\x01\x00\xff\xff"):
        with open(f"noise.{suffix}", "wb") as file:
            file.write(content)
        if content or suffix != "toml":  # an empty file of settings is one
            refused(capsys, *(part.format(f"noise.{suffix}") for part in command))


def test_what_is_nested_too_far_is_refused(capsys, tmp_path):
    for depth in (60, 5000):
        (tmp_path / "n.toml").write_text("dim = " + "[" * depth + "]" * depth)
        refused(capsys, "train", "--config", tmp_path / "n.toml")
        refused(capsys, "sweep", tmp_path / "n.toml", "--out", tmp_path / "s")


def test_numbers_whose_squares_are_none_are_refused(capsys, tmp_path):
    np.savez(tmp_path / "d.npz", sequences=np.full((10, 4, 3), 1e200))
    assert "1e+40" in refused(capsys, "train", "--data", tmp_path / "d.npz")
    (tmp_path / "c.csv").write_text("time,loss\n0,1e200\n1,1\n")
    assert "1e+200" in refused(capsys, "compare", tmp_path / "c.csv", "--out", tmp_path / "c.pdf")
    (tmp_path / "c.csv").write_text("time,loss\n0,1\ninf,1\n")
    assert "finite" in refused(capsys, "compare", tmp_path / "c.csv", "--out", tmp_path / "c.pdf")
    for spectrum in ("power:-700", "power:700", "1e200,1", "1e-200,1e-201"):
        assert "spectrum" in refused(capsys, "train", "--spectrum", spectrum)
    np.save(tmp_path / "s.npy", np.array([1 + 2j, 1]))
    assert "real" in refused(capsys, "train", "--spectrum", tmp_path / "s.npy")


def test_a_name_with_a_newline_leaves_the_complaint_one_line(capsys, tmp_path):
    (tmp_path / "n.toml").write_text('"a\\nb" = 3')
    refused(capsys, "train", "--config", tmp_path / "n.toml")
    for command in (["train", "--a\nb"], ["compare", "a\nb"], ["probe", "a\nb"], ["train", "--model", "a\nb"]):
        refused(capsys, *command)
