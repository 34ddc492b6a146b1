"""A prediction in a terminal and in a notebook. Heads and components count from 1."""

from typing import TYPE_CHECKING, Any

import numpy as np

from iclflow.system.notebook import Line, card, chart, paragraph, table

if TYPE_CHECKING:
    from iclflow.prediction.result import Prediction, Predictions

__all__ = [
    "CLOCK",
    "confidence",
    "counted",
    "prediction_card",
    "prediction_text",
    "predictions_card",
    "predictions_text",
    "remarks",
    "theory_line",
]

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


def predictions_text(several: "Predictions") -> str:
    """One line of drop times a seed."""
    lines = [f"<iclflow.Predictions: {len(several)} seeds>", "  seed   reliable   drops at t/tau (95 % interval)"]
    for seed, p in zip(several.seeds, several, strict=True):
        times = [
            f"{t:.5g} ({low:.5g} to {high:.5g})" for t, (low, high) in zip(p.drop_times, p.drop_intervals, strict=True)
        ]
        lines.append(f"  {seed:4d}   {'yes' if p.reliable else 'no':8s}   {', '.join(times) or '-'}")
    return "\n".join([*lines, *(f"  {note}" for note in shared_remarks(several))])


def predictions_card(several: "Predictions") -> str:
    """All curves, and one row of drop times a seed."""
    times, most = several.drop_times.values, several.drop_times.sizes["drop"]
    cells = lambda row: [None if np.isnan(t) else float(t) for t in row]
    rows = [
        (seed, "yes" if p.reliable else "no", *cells(row))
        for seed, p, row in zip(several.seeds, several, times, strict=True)
    ]
    return card(
        f"Predictions for {len(several)} seeds",
        chart([theory_line(p, p.end) for p in several], CLOCK, levels=several[0].levels),
        table(rows, ("seed", "reliable", *(f"drop {m + 1}" for m in range(most)))),
        *(paragraph(note) for note in shared_remarks(several)),
    )


def shared_remarks(several: "Predictions") -> list[str]:
    """What is said about any of them, once."""
    return list(dict.fromkeys(note for p in several for note in p.notes))


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
