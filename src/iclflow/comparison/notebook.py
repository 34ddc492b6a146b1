"""Comparisons in a notebook. Heads and components count from 1."""

from typing import TYPE_CHECKING

from iclflow.prediction.notebook import CLOCK, counted, remarks, theory_line
from iclflow.system.notebook import Line, card, chart, paragraph, table

if TYPE_CHECKING:
    from iclflow.comparison.comparing import Comparison
    from iclflow.comparison.levels import LevelComparison
    from iclflow.comparison.overlay import Overlay

__all__ = ["comparison_card", "levels_card", "overlay_card"]


def comparison_card(comparison: "Comparison") -> str:
    """Run and theory, drops and plateaus."""
    c = comparison
    curves = [Line(c.time, c.loss, "simulation"), theory_line(c.prediction, float(c.time[-1]))]
    drop_rows = []
    for number, d in enumerate(c.drops, 1):
        heads = counted(d.predicted_head), counted(d.observed_head)
        components = counted(d.direction), counted(d.observed_direction)
        times = (d.predicted_time, d.low, d.high, d.observed_time)
        drop_rows.append((number, *times, percent(d.error), *heads, *components))
    plateau_rows = [(p.observed_level, p.predicted_level, p.start, p.length, p.predicted_length) for p in c.plateaus]
    return card(
        f"Theory over simulation, seed {c.seed}: largest gap {c.largest_gap:.2e}, mean {c.mean_gap:.2e}{c.averaged}",
        chart(curves, CLOCK, levels=c.prediction.levels),
        paragraph(f"Theory (dashed) uses the moments of the {c.source}."),
        table(
            drop_rows,
            (
                "drop",
                "predicted t/tau",
                "95 % from",
                "to",
                "observed",
                "error",
                "head",
                "observed",
                "component",
                "observed",
            ),
        ),
        table(plateau_rows, ("plateau", "predicted level", "start", "length", "predicted length")),
        *(paragraph(note) for note in remarks(c.prediction)),
    )


def levels_card(comparison: "LevelComparison") -> str:
    """The curve over the levels, its plateaus, and how far the model is from linear attention."""
    c = comparison
    plateaus = [
        (p.observed_level, p.predicted_level, percent(p.observed_level / p.predicted_level - 1), p.start, p.length)
        for p in c.plateaus
    ]
    distances = (
        [] if c.distances is None else [(m, *pair) for m, pair in enumerate(zip(c.levels, c.distances, strict=True))]
    )
    return card(
        f"Levels of linear attention under the run, seed {c.seed}",
        chart([Line(c.time, c.loss, "simulation")], c.clock, levels=c.levels),
        paragraph(f"No predicted curve: {c.why}."),
        table(plateaus, ("plateau", "nearest level", "off by", "start", "length")),
        table(distances, ("components", "level", "distance of the last predictions")),
        paragraph(c.linear()),
    )


def overlay_card(overlay: "Overlay") -> str:
    """Every curve with its prediction, distances and plateaus."""
    curves = [Line(curve.axis(overlay.clock), curve.loss, curve.name) for curve in overlay.curves]
    theory = [
        theory_line(overlay.predictions[c.name], float(c.axis(overlay.clock)[-1]))
        for c in overlay.curves
        if c.name in overlay.predictions
    ]
    plateaus = [
        (c.name, level, near, None if near is None else percent(level / near - 1))
        for c in overlay.curves
        for level, near in overlay.plateaus[c.name]
    ]
    listed = lambda times: ", ".join(f"{t:.5g}" for t in times) or "-"
    times = [
        (c.name, listed(overlay.drops[c.name]), listed(p.drop_times) if (p := overlay.predictions.get(c.name)) else "")
        for c in overlay.curves
    ]
    clock = CLOCK if overlay.clock == "time" else "step"
    return card(
        "Loss curves",
        chart([*curves, *theory], clock, levels=() if overlay.levels is None else overlay.levels),
        table(times, ("curve", f"drops at {clock}", "predicted")),
        table(plateaus, ("curve", "plateau", "nearest level", "off by")),
        table([(d.curve, d.reference, d.largest, d.mean) for d in overlay.distances],
              ("curve", "compared with", "largest distance", "mean")),
    )  # fmt: skip


def percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.2%}"
