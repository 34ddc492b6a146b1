"""Which program made a result, and what to cite for it."""

import platform
import re
from functools import cache
from importlib import metadata

__all__ = ["cite", "versions"]

PACKAGES = ("iclflow", "jax", "jaxlib", "optax", "numpy", "scipy", "xarray", "zarr")


def versions() -> dict[str, str]:
    """Of this package and of those whose arithmetic it uses."""
    return {**{name: version(name) for name in PACKAGES}, "python": platform.python_version()}


@cache
def version(package: str) -> str:
    """Of an installed package, read once; parsing all of its metadata would take ten times as long."""
    found = re.search(r"^Version: *(\S+)", metadata.distribution(package).read_text("METADATA") or "", re.MULTILINE)
    return found[1] if found else metadata.version(package)


def cite() -> str:
    """Print what to cite.

    Returns:
        BibTeX of the paper whose system this is, and of this program.
    """
    text = f"""\
@inproceedings{{zhang2025training,
  title     = {{Training Dynamics of In-Context Learning in Linear Attention}},
  author    = {{Zhang, Yedi and Singh, Aaditya K. and Latham, Peter E. and Saxe, Andrew}},
  booktitle = {{International Conference on Machine Learning}},
  year      = {{2025}},
  eprint    = {{2501.16265}},
  archivePrefix = {{arXiv}}
}}
@software{{iclflow,
  title   = {{iclflow: training dynamics of in-context learning, simulation and theory on one clock}},
  version = {{{version("iclflow")}}},
  year    = {{2026}}
}}"""
    print(text)
    return text
