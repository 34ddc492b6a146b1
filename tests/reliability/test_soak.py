"""A thousand runs in one process: memory is flat once the first hundred are done."""

import subprocess
import sys

from reliability import soak
from reliability.harness import count, tiny


def test_memory_is_flat(tmp_path, measured):
    seeds, every = count(250, 8), count(100, 8)
    file = tiny(tmp_path, seeds)
    command = [sys.executable, soak.__file__, str(file), str(tmp_path / "s"), str(every)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    held = [int(line) for line in done.stdout.split()]
    assert len(held) == 4 * seeds // every
    growth = held[-1] / held[0] - 1
    sizes = f"{held[0] / 1024:.0f} MiB after {every}, {held[-1] / 1024:.0f} MiB at the end"
    measured(f"{4 * seeds} runs: {sizes} ({growth:+.1%})")
    assert growth < count(5, 10) / 100
