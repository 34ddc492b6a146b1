"""A sweep as a notebook shows it."""

from typing import TYPE_CHECKING

from iclflow.system.notebook import MOST_LINES, Line, card, chart, shown, table
from iclflow.system.thinning import even_places

if TYPE_CHECKING:
    from iclflow.sweeps.results import Sweep

__all__ = ["sweep_card"]


def sweep_card(sweep: "Sweep") -> str:
    """Curves, axes and the final loss along each of them."""
    data = sweep.data
    curves = []
    if "loss" in data:
        losses, times = (data[name].values.reshape(-1, data.sizes["point"]) for name in ("loss", "curve_time"))
        places = even_places(len(losses), MOST_LINES)
        curves = [Line(times[i], losses[i], f"run {i}") for i in places]
    axes = [(name, ", ".join(shown(value) for value in data[name].values)) for name in sweep.grid.dimensions]
    status = ", ".join(f"{count} {name}" for name, count in sweep.status.items())
    parts = [chart(curves, "time t/tau"), table([("path", sweep.path), ("status", status), *axes])]
    for name in [d for d in sweep.grid.dimensions if d != "seed" and data.sizes[d] > 1]:
        mean = data["final_loss"].mean([d for d in data["final_loss"].dims if d != name])
        rows = zip(data[name].values.tolist(), mean.values.tolist(), strict=True)
        parts.append(table(rows, (name, "final loss, mean over all other axes")))
    return card(f"Sweep of {sweep.grid.count} runs", *parts)
