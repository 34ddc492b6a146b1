"""A probe as a notebook shows it."""

from typing import TYPE_CHECKING

from iclflow.probing.table import NEAREST, shown, unit
from iclflow.system.notebook import Line, card, chart, paragraph, table

if TYPE_CHECKING:
    from iclflow.probing.result import Probe

__all__ = ["probe_card"]


def probe_card(probe: "Probe") -> str:
    """The verdict, the gain of every component along training, the phases and the nearest candidates."""
    gains = probe.gains.gain
    lines = [Line(probe.clock, gains[:, d], f"component {d + 1}") for d in range(gains.shape[1])]
    phases = [
        (first, last, best.algorithm, shown(best.components), f"{best.distance:.1e}")
        for first, last, best in probe.phases()
    ]
    nearest = [(label, f"{distance:.1e}") for label, distance in list(probe.distances.items())[:NEAREST]]
    kind = "a function" if probe.model is None else probe.model.describe()
    return card(
        f"Probe of {probe.subject} ({kind}): {probe.algorithm}, components {shown(probe.components)}",
        paragraph(str(probe.last)),
        chart(lines, unit(probe), "gain"),
        table(phases, (f"from {unit(probe)}", "to", "algorithm", "components", "distance")),
        table(nearest, ("nearest candidates", "distance")),
    )
