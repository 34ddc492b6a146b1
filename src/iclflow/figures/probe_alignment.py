"""Which head is aligned with which eigenvector, and how much of that component's gain it carries."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iclflow.errors import BadInput
from iclflow.figures.style import BLACK, styled
from iclflow.probing.result import Probe

__all__ = ["probe_alignment"]


def probe_alignment(probe: Probe, *, ax: Axes | None = None) -> Figure:
    """A map head by component: colour is alignment, numbers are shares of the gain."""
    if probe.heads is None:
        raise BadInput("figure: a function has no heads to draw")
    with styled():
        found = probe.heads
        count, dim = found.alignment.shape
        if ax is None:
            ax = Figure(figsize=(1.8 + 0.55 * dim, 1.3 + 0.36 * min(count, 20))).add_subplot()
        image = ax.imshow(found.alignment, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
        if count <= 20:
            for h, d in np.argwhere(np.abs(found.share) >= 0.005):
                dark = abs(found.alignment[h, d]) > 0.6
                ax.text(
                    d, h, f"{found.share[h, d]:.2f}", ha="center", va="center", fontsize=8, color="w" if dark else BLACK
                )
        ax.set(xlabel="component", ylabel="head", xticks=range(dim), title="alignment (share of gain)")
        ax.set_xticklabels([str(d + 1) for d in range(dim)])
        if count <= 20:
            ax.set_yticks(range(count))
        figure = ax.get_figure(root=True)
        assert figure is not None
        figure.colorbar(image, ax=ax, shrink=0.9)
        return figure
