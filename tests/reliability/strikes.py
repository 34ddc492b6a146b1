"""Strike one commit, by a child of a server, at any of its system calls with strace.

A server makes a child for every line on its standard input. The child stops itself before it begins; a test attaches to
one of its threads, then lets it go on.
"""

import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reliability.harness import until

CALLS = (
    "openat", "write", "pwrite64", "writev", "close", "fsync", "fdatasync", "ftruncate", "fallocate", "flock", "rename",
    "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir",
)  # fmt: skip

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


def serve(commit: Callable[[Path], None]) -> None:
    """Commit in a fresh child for every line on standard input, and print its number and its exit code."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                commit(Path(line.strip()))
            except OSError as error:
                os._exit(error.errno or 1)
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


@contextlib.contextmanager
def server(script: str, *arguments: object) -> Iterator[subprocess.Popen]:
    """A process that serves commits."""
    command = [sys.executable, script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        yield process
        process.stdin.close()


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"


def traced(server: subprocess.Popen, path: Path, thread: int | None, *options: str) -> tuple[int, list[str]]:
    """One commit with strace on one of its threads (or on all): exit code, and what each thread did."""
    server.stdin.write(f"{path}\n")
    server.stdin.flush()
    pid = int(server.stdout.readline())
    assert until(lambda: stopped(pid), 10)
    threads = sorted(int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir())
    log = path.parent / "trace"
    watched = threads if thread is None else [threads[thread]]
    attach = [part for tid in watched for part in ("-p", str(tid))]
    command = ["strace", "-ff", "-qq", "-o", str(log), *attach, *options]
    if thread is not None:
        command.remove("-ff")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        status = Path(f"/proc/{pid}/task/{watched[-1]}/status")
        attached = until(lambda: "TracerPid:\t0" not in status.read_text(), 5, every=0.005)
        os.kill(pid, signal.SIGCONT)
        code = int(server.stdout.readline())
        tracer.wait(timeout=10)
        if not attached:
            pytest.skip(f"strace cannot attach here: {tracer.stderr.read().strip()[:100]}")
    traces = [Path(f"{log}.{tid}") for tid in threads] if thread is None else []
    return code, [trace.read_text() if trace.exists() else "" for trace in traces]


def calls_of_one(server: subprocess.Popen, path: Path) -> list[tuple[int, str, int]]:
    """Thread, name and number of every call of one commit."""
    code, traces = traced(server, path, None, "-e", f"trace={','.join(CALLS)}")
    assert code == 0
    points = []
    for thread, text in enumerate(traces):
        counts = collections.Counter(re.findall(r"^(\w+)\(", text, flags=re.MULTILINE))
        points += [(thread, name, number) for name, many in sorted(counts.items()) for number in range(1, many + 1)]
    return points
