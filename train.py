#!/usr/bin/env python3
"""The command line of the paper's public code, unchanged, on iclflow's engines: `python train.py --help`."""

import os
import sys
from pathlib import Path

try:
    from iclflow.cli.public import main
except ModuleNotFoundError as missing:
    python = Path(__file__).resolve().parent / ".venv" / "bin" / "python"
    if missing.name != "iclflow" or not python.exists():
        sys.exit("train.py: iclflow is not installed; run `make install` in its directory")
    os.execv(python, [str(python), __file__, *sys.argv[1:]])

if __name__ == "__main__":
    main()
