"""One quantity of a sweep along one of its axes: median and every seed, theory dashed."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iclflow.errors import BadInput
from iclflow.figures.style import BLACK, COLOURS, axes, figure_of, styled
from iclflow.sweeps.columns import NUMBERED
from iclflow.sweeps.forecast import expected_quantity
from iclflow.sweeps.select import RunFamily, check_axis, families, spoken

if TYPE_CHECKING:
    import iclflow.sweeps.results

__all__ = ["along_axis"]

PLAIN = ("final_loss", "components", "drops", "steps_done", "seconds")
THEORY_SEEDS = 9  # seeds whose predictions make the dashed line
WORDS = {
    "final_loss": "final loss", "components": "directions learned", "drops": "drops seen", "steps_done": "steps",
    "seconds": "seconds per run",
}  # fmt: skip


def along_axis(
    sweep: "iclflow.sweeps.results.Sweep",
    axis: str,
    quantity: str = "final_loss",
    *,
    ax: Axes | None = None,
    where: dict[str, Any] | None = None,
    theory: bool = True,
) -> Figure:
    """Draw a quantity of a sweep along one of its axes, with one line per value of another axis.

    Args:
        sweep: the sweep.
        axis: the setting along which to draw.
        quantity: `final_loss`, `components`, `drops`, `steps_done`, `seconds`, `drop_times:K` or `plateau_losses:K`.
        ax: axes to draw on; by default those of a new figure.
        where: values at which further axes are fixed.
        theory: also draw the prediction.

    Returns:
        The figure.

    Raises:
        BadInput: if the sweep has no such axis or quantity, or if too many axes are left open.
    """
    check_axis(sweep, axis)
    if axis in (where or {}):
        raise BadInput(f"where: {axis!r} is drawn along, and cannot be fixed as well")
    name, slot = parsed(sweep, quantity)
    lines = families(sweep, where or {}, keep=(axis,))
    values = sweep.data[axis].values
    numbers = values.dtype != object
    places = values.astype(float) if numbers else np.arange(len(values), dtype=float)
    order = np.argsort(places, kind="stable")
    with styled():
        ax = axes(ax)
        drawn = False
        largest, smallest = [], []
        for number, line in enumerate(lines):
            measured = measured_rows(line, axis, name, slot)[order]
            colour = COLOURS[number % len(COLOURS)]
            shown = np.isfinite(measured)
            largest.append(np.max(measured, where=shown, initial=-np.inf))
            smallest.append(np.min(measured, where=shown, initial=np.inf))
            x = np.broadcast_to(places[order][:, None], measured.shape)
            ax.plot(x[shown], measured[shown], ".", color=colour, alpha=0.45, ms=4)
            known = shown.any(axis=1)
            middle = [float(np.median(row[np.isfinite(row)])) for row in measured[known]]
            ax.plot(places[order][known], middle, "o-", color=colour, ms=4, label=line.label)
            if theory:
                drawn |= draw_theory(ax, sweep, line, axis, (name, slot), places, order)
        if drawn:
            ax.plot([], [], color=BLACK, lw=1.0, ls=(0, (4, 3)), label="theory")
        dress(ax, axis, places, values, numbers, words(name, slot))
        if name == "drop_times" and max(largest) > 20 * min(smallest) > 0:
            ax.set_yscale("log")
        ax.legend(fontsize=8)
        return figure_of(ax)


def parsed(sweep: "iclflow.sweeps.results.Sweep", quantity: str) -> tuple[str, int | None]:
    """Name and index of a quantity such as `drop_times:2`; drops count from 1, plateaus from 0."""
    name, colon, number = quantity.partition(":")
    if name in PLAIN and not colon:
        return name, None
    if name in NUMBERED:
        known = sweep.data[NUMBERED[name]].values.tolist()
        if number.isdecimal() and int(number) in known:
            return name, known.index(int(number))
        raise BadInput(f"quantity: {quantity!r} must be {name}:{known[0]} to {name}:{known[-1]}")
    numbered = ", ".join(f"{n}:K" for n in NUMBERED)
    raise BadInput(f"quantity: {quantity!r} must be one of {', '.join(PLAIN)}, {numbered}")


def measured_rows(line: RunFamily, axis: str, name: str, slot: int | None) -> np.ndarray:
    """One row per place along the axis, one column per seed."""
    array = line.data[name] if slot is None else line.data[name][..., slot]
    seeds = () if axis == "seed" else tuple(d for d in array.dims if d == "seed")
    return array.transpose(axis, *seeds).values.reshape(array.sizes[axis], -1)


def draw_theory(
    ax: Axes, sweep: "iclflow.sweeps.results.Sweep", line: RunFamily, axis: str, quantity: tuple[str, int | None],
    places: np.ndarray, order: np.ndarray,
) -> bool:  # fmt: skip
    """Draw the median prediction at every place; returns whether there is any."""
    runs = line.data["run"].transpose(axis, ...).values.reshape(len(places), -1)[order]
    predicted = []
    for row in runs:
        values = np.array([expected_quantity(sweep.grid.experiment(int(run)), *quantity) for run in row[:THEORY_SEEDS]])
        predicted.append(float(np.median(values[np.isfinite(values)])) if np.isfinite(values).any() else np.nan)
    if not np.isfinite(predicted).any():
        return False
    ax.plot(places[order], predicted, color=BLACK, lw=1.0, ls=(0, (4, 3)), zorder=3)
    return True


def words(name: str, slot: int | None) -> str:
    """The label of the vertical axis."""
    if name == "drop_times":
        return rf"time of drop {(slot or 0) + 1}, $t/\tau$"
    if name == "plateau_losses":
        return f"loss on plateau {slot}"
    return WORDS[name]


def dress(ax: Axes, axis: str, places: np.ndarray, values: np.ndarray, numbers: bool, ylabel: str) -> None:
    """Label both axes; the horizontal one is logarithmic if its positive values span a factor of 8."""
    ax.set(xlabel=axis.replace("_", " "), ylabel=ylabel)
    finite = places[np.isfinite(places)]
    if not numbers:
        ax.set_xticks(places, [spoken(value) for value in values])
    elif len(finite) > 2 and finite.min() > 0 and finite.max() >= 8 * finite.min():
        ax.set_xscale("log")
