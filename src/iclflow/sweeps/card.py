"""A sweep as a card."""

from typing import TYPE_CHECKING

from iclflow.results.card import Card, Chart, Line, Part, Table
from iclflow.system.thinning import even_places

if TYPE_CHECKING:
    from iclflow.sweeps.results import Sweep

__all__ = ["sweep_card"]

MOST_DRAWN = 24  # curves


def sweep_card(sweep: "Sweep") -> Card:
    """Curves, axes and the final loss along each of them."""
    data = sweep.data
    axes = [(name, ", ".join(map(str, data[name].values))) for name in sweep.grid.dimensions]
    status = ", ".join(f"{count} {name}" for name, count in sweep.status.items())
    parts: list[Part] = [
        Chart(lambda: curves(sweep), "time t/tau"),
        Table((), [("path", sweep.path), ("status", status), *axes]),
    ]
    for name in [d for d in sweep.grid.dimensions if d != "seed" and data.sizes[d] > 1]:
        mean = data["final_loss"].mean([d for d in data["final_loss"].dims if d != name])
        rows = list(zip(data[name].values.tolist(), mean.values.tolist(), strict=True))
        parts.append(Table((name, "final loss, mean over all other axes"), rows))
    return Card(f"Sweep of {sweep.grid.count} runs", parts, {"path": str(sweep.path), "status": sweep.status})


def curves(sweep: "Sweep") -> list[Line]:
    """Some of the loss curves, evenly spread over the sweep."""
    if "loss" not in sweep.data:
        return []
    losses, times = (sweep.data[name].values.reshape(-1, sweep.data.sizes["point"]) for name in ("loss", "curve_time"))
    return [Line(times[i], losses[i], f"run {i}") for i in even_places(len(losses), MOST_DRAWN)]
