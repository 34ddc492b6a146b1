"""The published runs, and smaller stand-ins for a quick look."""

from dataclasses import dataclass, field, replace
from typing import Any

import iclflow as icl

__all__ = ["FIGURE_1", "FIGURE_4", "Published", "shrunk"]


@dataclass(frozen=True)
class Published:
    """One training, in the words of `icl.train`; attention has no scale, as in the public code."""

    name: str
    model: str  # Merged or Separate
    shape: dict[str, Any]
    dim: int
    samples: int
    steps: int
    lr: float
    init: float
    context: int = 31
    normalize: str = "none"
    extra: dict[str, Any] = field(default_factory=dict)  # further settings of `icl.train`

    def task(self) -> icl.Task:
        return icl.Task(dim=self.dim, context=self.context, normalize=self.normalize)

    def network(self) -> icl.Merged | icl.Separate:
        return getattr(icl, self.model)(**self.shape)

    def settings(self) -> dict[str, Any]:
        return {"samples": self.samples, "steps": self.steps, "lr": self.lr, "init": self.init, **self.extra}


FIGURE_1 = Published("figure 1", "Merged", {"heads": 8}, dim=4, samples=5000, steps=6001, lr=0.001, init=1e-6)
FIGURE_4 = {
    rank: Published(
        f"figure 4, rank {rank}", "Separate", {"heads": 9, "rank": rank},
        dim=8, samples=80_000, steps=20_001, lr=0.02, init=5e-3,
    )
    for rank in (1, 8)
}  # fmt: skip


def shrunk(run: Published, factor: int = 20) -> Published:
    """The same run with fewer sequences and steps."""
    return replace(run, samples=run.samples // factor, steps=run.steps // factor)
