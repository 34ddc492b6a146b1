"""A prediction, and those of several seeds, as cards. Heads and components count from 1."""

from typing import TYPE_CHECKING

import numpy as np

from iclflow.results.card import Card, Chart, Line, Part, Table, one_based
from iclflow.system.thinning import subdivided

if TYPE_CHECKING:
    from iclflow.prediction.result import Prediction, Predictions

__all__ = ["CLOCK", "drop_table", "prediction_card", "predictions_card", "remarks", "spans", "theory_line"]

CLOCK = "time t/tau"
FINE = 0.005  # of the whole fall: how far a drawn curve moves between two of its points
MOST_PARTS = 16  # into which a stretch is divided at once


def prediction_card(prediction: "Prediction") -> Card:
    """The curve, the drops and the notes."""
    p = prediction
    parts: list[Part] = [Chart(lambda: [theory_line(p, p.end)], CLOCK, levels=p.levels), drop_table(p), *remarks(p)]
    return Card(f"Prediction: levels {', '.join(f'{level:.5g}' for level in p.levels)}", parts, p.to_dict())


def drop_table(prediction: "Prediction", digits: int = 5, clock: str = "t/tau") -> Table:
    """Every drop with its interval and who learns what."""
    rows = zip(prediction.drop_times, prediction.drop_intervals, learners(prediction), strict=True)
    return Table(
        ("drop", clock, "95 % from", "to", "what happens"),
        [(number, float(time), *map(float, ends), who) for number, (time, ends, who) in enumerate(rows, 1)],
        digits=digits,
    )


def predictions_card(several: "Predictions") -> Card:
    """All curves, and one row of drop times a seed."""
    most = several.drop_times.sizes["drop"]
    rows = [
        (seed, "yes" if p.reliable else "no", *spans(p), *["-"] * (most - len(p.drop_times)))
        for seed, p in zip(several.seeds, several, strict=True)
    ]
    heading = ("seed", "reliable", *(f"drop {m + 1} at t/tau (95 %)" for m in range(most)))
    notes = dict.fromkeys(note for p in several for note in p.notes)
    return Card(
        f"Predictions for {len(several)} seeds",
        [
            Chart(lambda: [theory_line(p, p.end) for p in several], CLOCK, levels=several[0].levels),
            Table(heading, rows),
            *notes,
        ],
        several.to_dict(),
    )


def spans(prediction: "Prediction") -> list[str]:
    """The predicted drop times, each with its interval where there is one."""
    rows = zip(prediction.drop_times, prediction.drop_intervals, strict=True)
    return [
        f"{time:.5g} ({low:.5g} to {high:.5g})" if np.isfinite(low) else f"{time:.5g}" for time, (low, high) in rows
    ]


def learners(prediction: "Prediction") -> list[str]:
    """Who learns what at every drop, and how sure that is: see `Prediction.head_shares`."""
    words = []
    for head, direction, share in zip(prediction.heads, prediction.directions, prediction.head_shares, strict=True):
        if head < 0:
            words.append("all heads at once")
            continue
        sure = "" if np.isnan(share) else f" and holds {share:.0%} of it"
        sure = ", or another: small effects decide" if share <= 0 else sure
        words.append(f"head {one_based(int(head))} learns component {one_based(int(direction))}{sure}")
    return words


def theory_line(prediction: "Prediction", end: float) -> Line:
    """The predicted curve, with so many points that a picture of any size shows it where it belongs."""
    if not len(prediction.drop_times):
        return Line(np.array([]), np.array([]), "theory", theory=True)
    first = min(float(prediction.drop_times[0]), end)
    time = np.union1d(np.linspace(0, end, 100), np.geomspace(1e-3 * first, end, 100))
    loss = prediction.loss(time)
    for _ in range(3):
        step = FINE * float(np.ptp(loss)) or np.inf
        parts = np.minimum(np.nan_to_num(np.abs(np.diff(loss)) / step), MOST_PARTS - 1).astype(int) + 1
        if (parts == 1).all():
            break
        interval, share = subdivided(parts)
        time = np.append(time[0], time[interval] + share * np.diff(time)[interval])
        loss = prediction.loss(time)
    return Line(time, loss, "theory", theory=True)


def remarks(prediction: "Prediction") -> list[str]:
    """What else there is to say: components that are never learned, floors, and the notes of theory."""
    p, words = prediction, []
    if p.never:
        words.append(
            f"Weight decay keeps these components from being learned: {', '.join(str(d + 1) for d in p.never)}."
        )
    if len(p.floors):
        floors = ", ".join(f"{floor:.3g}" for floor in p.floors)
        words.append(f"Minibatches keep the loss above the levels by: {floors}.")
    if not p.reliable:
        words.append("This forecast is not reliable: the theory is outside its range.")
    return [*words, *p.notes]
