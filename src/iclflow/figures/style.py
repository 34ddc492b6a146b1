"""One look for all figures: column width, readable type, colours that colour-blind readers tell apart."""

from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from cycler import cycler

__all__ = ["BLACK", "COLOURS", "GREY", "styled"]

BLACK, GREY = "#222222", "#888888"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
SETTINGS = {
    "figure.figsize": (5.0, 3.1),
    "figure.dpi": 160,
    "figure.constrained_layout.use": True,
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=COLOURS),
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "pdf.fonttype": 42,
    "savefig.bbox": "tight",
}


@contextmanager
def styled() -> Iterator[None]:
    """The look, for as long as the block lasts; the user's own settings are left alone."""
    with matplotlib.rc_context(SETTINGS):
        yield
