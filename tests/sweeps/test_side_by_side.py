"""Two sweeps at once on one machine do not get into each other's way."""

import contextlib
import socket

import iclflow as icl

BASE = {"model": "merged", "heads": 2, "dim": 2, "context": 4, "lr": 0.05, "steps": 20, "samples": 40}


def test_a_sweep_asks_for_no_fixed_port(tmp_path):
    with socket.socket() as taken:  # the port that dask's dashboard likes best; dask warns where it is in use
        with contextlib.suppress(OSError):  # somebody has it already, which serves as well
            taken.bind(("127.0.0.1", 8787))
            taken.listen()
        assert icl.sweep({"seeds": 2, "base": BASE}, tmp_path / "s", workers=1).status == {"ok": 2}
