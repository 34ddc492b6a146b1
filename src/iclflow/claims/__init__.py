"""Every claim of the paper, and ours beyond it, as a measurement with a bound that can fail.

There is one file per subject, which registers its claims when it is imported. `iclflow verify` measures them.
"""

from importlib import import_module

from iclflow.claims.registry import REGISTRY, Claim

__all__ = ["BEYOND", "PAPER", "SUBJECTS", "every_claim"]

PAPER = (
    "equivalence", "convolution", "merged", "fixed_points", "staircase",
    "ranks", "algorithm", "variants", "in_weight", "regimes",
)  # fmt: skip
BEYOND = ("tasks", "scaling", "optimisers", "minibatches", "depth", "forecasts")
SUBJECTS = (*PAPER, *BEYOND)


def every_claim() -> dict[str, Claim]:
    """All claims by their id, in the order of the subjects."""
    for subject in SUBJECTS:
        import_module(f"iclflow.claims.{subject}")
    return dict(REGISTRY)
