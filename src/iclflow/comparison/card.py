"""Comparisons of runs and curves with theory as cards. Heads and components count from 1."""

from typing import TYPE_CHECKING

from iclflow.prediction.card import CLOCK, remarks, spans, theory_line
from iclflow.results.card import Card, Chart, Line, Part, Table, one_based, relative

if TYPE_CHECKING:
    from iclflow.comparison.comparing import Comparison
    from iclflow.comparison.levels import LevelComparison
    from iclflow.comparison.overlay import Overlay

__all__ = ["comparison_card", "levels_card", "overlay_card"]


def comparison_card(comparison: "Comparison") -> Card:
    """Run and theory, drops, plateaus and the floor of minibatches."""
    c = comparison
    drops = []
    for number, d in enumerate(c.drops, 1):
        who = map(one_based, (d.predicted_head, d.observed_head, d.direction, d.observed_direction))
        times = (d.predicted_time, d.low, d.high, d.observed_time)
        drops.append((number, *times, relative(d.error), yes_or_no(d.inside), *who))
    plateaus = [
        (number, p.observed_level, p.predicted_level, p.start, p.length, p.predicted_length)
        for number, p in enumerate(c.plateaus, 1)
    ]
    parts: list[Part] = [
        Chart(
            lambda: [Line(c.time, c.loss, "simulation"), theory_line(c.prediction, float(c.time[-1]))],
            CLOCK,
            levels=c.prediction.levels,
        ),
        *remarks(c.prediction),
        Table(
            ("drop", "predicted t/tau", "95 % from", "to", "observed", "error", "inside",
             "head", "observed", "component", "observed"),
            drops,
        ),
        Table(("plateau", "observed", "predicted", "start", "length", "predicted length"), plateaus),
    ]  # fmt: skip
    if c.floor is not None:
        f = c.floor
        seen = f"expected {f.expected:.3g}, observed {f.observed:.3g} +- {f.error:.2g}"
        parts.append(f"floor above the last level: {seen}")
    gap = f"largest gap {relative(c.largest_gap, 2)}, mean {relative(c.mean_gap, 2)}{c.averaged}"
    return Card(f"seed {c.seed}: theory from the {c.source}'s moments; {gap}", parts, c.to_dict())


def levels_card(comparison: "LevelComparison") -> Card:
    """The curve over the levels, its plateaus, and how far the model is from linear attention."""
    c = comparison
    plateaus = [
        (number, p.observed_level, p.predicted_level, off(p.observed_level, p.predicted_level), p.start, p.length)
        for number, p in enumerate(c.plateaus, 1)
    ]
    distances = [] if c.distances is None else zip(range(len(c.levels)), c.levels, c.distances, strict=True)
    times = ", ".join(f"{t:.5g}" for t in c.drops) or "-"
    parts: list[Part] = [
        Chart(lambda: [Line(c.time, c.loss, "simulation")], c.clock, levels=c.levels),
        f"levels of linear attention ({c.source}): {', '.join(f'{level:.5g}' for level in c.levels)}",
        f"drops at {c.clock}: {times}; final loss {c.loss[-1]:.5g}",
        Table(("plateau", "observed", "nearest level", "off by", "start", "length"), plateaus),
        Table(("components", "level", "distance of the last predictions"), list(distances)),
        c.linear(),
    ]
    return Card(f"seed {c.seed}: no predicted curve ({c.why})", parts, c.to_dict())


def overlay_card(overlay: "Overlay") -> Card:
    """Every curve with its prediction, distances and plateaus."""
    clock = CLOCK if overlay.clock == "time" else "step"
    curves = []
    for c in overlay.curves:
        seen, known = overlay.drops[c.name], overlay.predictions.get(c.name)
        times = ", ".join(f"{t:.5g}" for t in seen) or "-"
        curves.append(
            (c.name, float(c.loss[0]), float(c.loss[-1]), times, None if known is None else ", ".join(spans(known)))
        )
    plateaus = [
        (c.name, level, near, None if near is None else off(level, near))
        for c in overlay.curves
        for level, near in overlay.plateaus[c.name]
    ]
    distances = [(d.curve, d.reference, relative(d.largest, 2), relative(d.mean, 2)) for d in overlay.distances]
    parts: list[Part] = [
        Chart(lambda: overlay_lines(overlay), clock, levels=() if overlay.levels is None else overlay.levels),
        Table(("curve", "first loss", "last loss", f"drops at {clock}", "predicted drops at t/tau"), curves),
        Table(("curve", "plateau", "nearest level", "off by"), plateaus, digits=6),
        Table(("curve", "compared with", "largest distance", "mean"), distances),
    ]
    parts += [f"{name}: {overlay.foreign(name)}; icl.infer says what this curve fits." for name in overlay.strangers]
    return Card("Loss curves", parts, overlay.to_dict())


def overlay_lines(overlay: "Overlay") -> list[Line]:
    """All curves, then those of theory."""
    axes = {c.name: c.axis(overlay.clock) for c in overlay.curves}
    theory = [theory_line(p, float(axes[name][-1])) for name, p in overlay.predictions.items()]
    return [*(Line(axes[c.name], c.loss, c.name) for c in overlay.curves), *theory]


def off(observed: float, predicted: float) -> str:
    """The signed relative distance of a level."""
    return f"{'+' if observed > predicted else '-'}{relative(abs(observed / predicted - 1))}"


def yes_or_no(value: bool | None) -> str | None:
    """A truth value in words."""
    return None if value is None else "yes" if value else "no"
