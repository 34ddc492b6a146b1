"""(h) What a whole command costs, in CPU seconds of its process as multiples of `python -c "import jax.numpy"`.

Every command runs in a fresh interpreter and an empty directory, and all of them take turns with the import, which is
the unit. Of a few rounds the smallest time of each counts. CPU seconds are used because other work on the machine
changes them less than the wall clock. The package has its bytecode, as after an installation.
"""

import compileall
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import iclflow
from benchmarks.table import Row, say, seconds

__all__ = ["commands_in_imports"]

UNIT = ["-c", "import jax.numpy"]
PUBLIC = ["--model", "attnM", "--head_num", "8", "--init", "1e-6"]  # the other flags of figure 1 are the defaults
FIGURE_1_FLAGS = [
    *("--model", "merged", "--heads", "8", "--normalize", "none", "--init", "1e-6", "--init-law", "public"),
    *("--samples", "5000", "--lr", "0.001", "--steps", "6000"),
]
ICLFLOW = ["-m", "iclflow"]
COMMANDS = {
    "iclflow --help": ([*ICLFLOW, "--help"], 0.5),
    "iclflow theory": ([*ICLFLOW, "theory"], 1.1),
    "iclflow theory --init 1e-3": ([*ICLFLOW, "theory", "--init", "1e-3"], None),
    "python train.py, figure 1": ([str(Path(__file__).parents[1] / "train.py"), *PUBLIC], 2.2),
    "iclflow train, figure 1, with its figure": ([*ICLFLOW, "train", *FIGURE_1_FLAGS], 3.8),
    "iclflow train, the default flow": ([*ICLFLOW, "train"], 5.0),
}


def commands_in_imports(quick: bool) -> list[Row]:
    compileall.compile_dir(Path(str(iclflow.__file__)).parent, quiet=1)
    spent: dict[str, list[float]] = {name: [] for name in ("import jax.numpy", *COMMANDS)}
    for number in range(1 if quick else 6):
        say(f"whole commands, round {number + 1}")
        spent["import jax.numpy"].append(cpu_seconds(UNIT))
        for name, (arguments, _) in COMMANDS.items():
            spent[name].append(cpu_seconds(arguments))
    unit, *rest = (min(times) for times in spent.values())
    rows = [Row("python -c 'import jax.numpy'", seconds(unit), unit, "<- unit")]
    for (name, (_, most)), taken in zip(COMMANDS.items(), rest, strict=True):
        held = ("", None) if most is None else (f"at most {most:g}", taken / unit <= most)
        rows.append(Row(name, f"{taken / unit:.2f} imports", taken / unit, *held))
    return rows


def cpu_seconds(arguments: list[str]) -> float:
    """Of one command, and of all processes that it starts."""
    with tempfile.TemporaryDirectory() as empty:
        before = spent_by_children()
        done = subprocess.run([sys.executable, *arguments], cwd=empty, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)} failed: {done.stderr.strip().splitlines()[-1]}")
        return spent_by_children() - before


def spent_by_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
