"""Which program made a result, and what to cite for it."""

import platform
from importlib import metadata

__all__ = ["cite", "versions"]

PACKAGES = ("iclflow", "jax", "jaxlib", "diffrax", "optax", "numpy", "scipy", "xarray", "zarr")


def versions() -> dict[str, str]:
    """Of this package and of those whose arithmetic it uses."""
    return {**{name: metadata.version(name) for name in PACKAGES}, "python": platform.python_version()}


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
  version = {{{metadata.version("iclflow")}}},
  year    = {{2026}}
}}"""
    print(text)
    return text
