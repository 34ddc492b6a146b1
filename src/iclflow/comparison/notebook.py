"""Predictions and comparisons in a terminal and in a notebook. Heads and components count from 1."""

from typing import TYPE_CHECKING, Any

import numpy as np

from iclflow.system.notebook import Line, card, chart, paragraph, table

if TYPE_CHECKING:
    from iclflow.comparison.comparing import Comparison
    from iclflow.comparison.levels import LevelComparison
    from iclflow.comparison.overlay import Overlay
    from iclflow.comparison.predicted import Prediction

__all__ = ["comparison_card", "levels_card", "overlay_card", "prediction_card", "prediction_text"]

CLOCK = "time t/tau"


def prediction_text(prediction: "Prediction") -> str:
    """The levels and every drop, one line each."""
    levels = ", ".join(f"{level:.5g}" for level in prediction.levels)
    lines = [f"<iclflow.Prediction: levels {levels}>"]
    for number, (time, low, high, head, direction, share) in enumerate(drops(prediction), 1):
        who = "all heads at once" if head is None else f"head {head} learns component {direction}{confidence(share)}"
        span = f" (95 % interval {low:.5g} to {high:.5g})" if np.isfinite(low) else ""
        lines.append(f"  drop {number} at t/tau = {time:.5g}{span}: {who}")
    return "\n".join([*lines, *(f"  {note}" for note in remarks(prediction))])


def prediction_card(prediction: "Prediction") -> str:
    """The curve, the drops and the notes."""
    rows = [(number, *drop) for number, drop in enumerate(drops(prediction), 1)]
    return card(
        "Prediction from the initial weights",
        chart([theory_line(prediction, prediction.end)], CLOCK, levels=prediction.levels),
        table(rows, ("drop", "t/tau", "95 % from", "to", "head", "component", "share held")),
        table([("levels", ", ".join(f"{level:.5g}" for level in prediction.levels))]),
        *(paragraph(note) for note in remarks(prediction)),
    )


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


def theory_line(prediction: "Prediction", end: float) -> Line:
    """The predicted curve, dense where it drops."""
    near = (prediction.drop_times[:, None] * np.linspace(0.7, 1.3, 61)).ravel()
    time = np.union1d(np.linspace(0, end, 200), near[(near > 0) & (near < end)])
    return Line(time, prediction.loss(time), "theory", theory=True)


def drops(prediction: "Prediction") -> list[tuple[float, float, float, Any, Any, Any]]:
    """Time, its interval, head and component of every drop, and the share of it that the head will hold."""
    p = prediction
    rows = zip(p.drop_times, p.drop_intervals, p.heads, p.directions, p.head_shares, strict=True)
    known = lambda share: None if np.isnan(share) else float(share)
    return [(float(t), float(i[0]), float(i[1]), counted(int(h)), counted(int(d)), known(c)) for t, i, h, d, c in rows]


def confidence(share: float | None) -> str:
    """How sure head and component are, in words: see `Prediction.head_shares`."""
    if share is None:
        return ""
    return f" and holds {share:.0%} of it" if share > 0 else ", or another: small effects decide"


def remarks(prediction: "Prediction") -> list[str]:
    """What else there is to say: components that are never learned, and the notes of theory."""
    never = ", ".join(str(d + 1) for d in prediction.never)
    start = [f"Weight decay keeps these components from being learned: {never}."] if never else []
    doubt = [] if prediction.reliable else ["Not reliable: the theory is outside its range."]
    return [*start, *doubt, *prediction.notes]


def counted(index: int | None) -> int | None:
    """The number (from 1) of an index (from 0); `None` where no single head or component is meant."""
    return None if index is None or index < 0 else index + 1


def percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.2%}"
