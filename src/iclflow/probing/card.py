"""A probe as a card: the verdict first, then the measurements behind it. Heads and components count from 1."""

from collections.abc import Sized
from typing import TYPE_CHECKING

from iclflow.probing.fixed_points import HOLD
from iclflow.results.card import Card, Chart, Line, Part, Table

if TYPE_CHECKING:
    from iclflow.probing.result import Probe

__all__ = ["probe_card"]

NEAREST = 8  # candidates shown
Parts = list[Part]


def probe_card(probe: "Probe") -> Card:
    """Everything that was measured on the last snapshot, and the gain of every component along training."""
    kind = "a function" if probe.model is None else probe.model.describe()
    gains = probe.gains.gain.T
    chart = Chart(
        lambda: [Line(probe.clock, gain, f"component {d}") for d, gain in enumerate(gains, 1)], unit(probe), "gain"
    )
    notes = [str(probe.last), *(f"note: {note}" for note in probe.notes)]
    measured = (phases, distances, components, heads, layers, fixed_point, shifts)
    title = f"{probe.subject} ({kind}): {probe.algorithm}, components {braces(probe.components)}"
    return Card(title, [*notes, chart, *(part for parts in measured for part in parts(probe))], probe.to_dict())


def braces(components: tuple[int, ...]) -> str:
    """A set in braces."""
    return "{" + ",".join(map(str, components)) + "}"


def unit(probe: "Probe") -> str:
    """What the snapshots are counted in."""
    return "t/tau" if probe.time is not None else "step" if probe.steps is not None else "snapshot"


def phases(probe: "Probe") -> Parts:
    if len(probe.verdicts) < 2:
        return []
    rows = [
        (first, last, best.algorithm, braces(best.components), f"{best.distance:.2e}", f"{best.margin:.2e}", best.where)
        for first, last, best in probe.phases()
    ]
    heading = (f"from {unit(probe)}", "to", "algorithm", "components", "distance", "margin", "where")
    kept = "Only the first and last weights of this run were kept; `iclflow train --save-weights` keeps more."
    few = len(probe.verdicts) == 2 and probe.time is not None
    return [Table(heading, rows, f"along training ({len(probe.verdicts)} snapshots)"), *([kept] if few else [])]


def distances(probe: "Probe") -> Parts:
    how = "exact where both are matrices, else " if probe.exact else ""
    near = [(label, f"{distance:.2e}") for label, distance in list(probe.distances.items())[:NEAREST]]
    about = f"the nearest of {len(probe.distances)} candidates ({how}on {probe.sequences} sequences)"
    return [Table(("candidate", "distance"), near, about)]


def components(probe: "Probe") -> Parts:
    gains = probe.gains
    rows = [("", *(f"{gain:.3f}" for gain in gains.gain[-1]))]
    found = f"learned {gains.learned[-1]}, effective rank {gains.effective_rank[-1]:.2f}, mixed {gains.mixing[-1]:.2g}"
    return [Table(("gain by component", *range_of(rows[0][1:])), rows), found]


def heads(probe: "Probe") -> Parts:
    measured = probe.heads
    if measured is None:
        return []
    norms = {"value": measured.value, "|U|" if measured.query is None else "|key|": measured.key}
    norms |= {} if measured.query is None else {"|query|": measured.query}
    rows = []
    for h, aligned in enumerate(measured.alignment):
        carried = braces(tuple(d + 1 for d, head in enumerate(measured.carrier) if head == h))
        sizes = (f"{norm[h]:.3g}" for norm in norms.values())
        rows.append((h + 1, *sizes, f"{measured.balance[h]:.2e}", carried, *(f"{a:.2f}" for a in aligned)))
    about = f"alignment of each head with components 1 to {len(measured.alignment[0])} in the last columns"
    heading = ("head", *norms, "balance", "carries", *range_of(measured.alignment[0]))
    blocks = ", ".join(f"{name} {size:.2g}" for name, size in probe.vector_blocks.items())
    zero = [f"blocks that theory keeps at zero, relative to the rest: {blocks}"] if blocks else []
    return [Table(heading, rows, about), *zero]


def layers(probe: "Probe") -> Parts:
    measured = probe.layers
    if measured is None:
        return []
    rows = [
        (number + 1, braces(held), *(f"{s:.2f}" for s in measured.share[number]),
         f"{measured.token_change[number]:.2g}", " ".join(f"{p:.3f}" for p in measured.token_power[number]))
        for number, held in enumerate(measured.holds)
    ]  # fmt: skip
    shares = (f"share of {d}" for d in range_of(measured.share[0]))
    heading = ("layer", "holds", *shares, "tokens move by", "token power behind it")
    stream = "the tokens move between the steps (GD++)" if measured.gd_plus_plus else "the tokens stay as they are"
    return [
        Table(heading, rows, "each layer's share of the strength of each component"),
        f"{measured.acting} of {len(measured.holds)} layers act; {stream}",
    ]


def fixed_point(probe: "Probe") -> Parts:
    point = probe.fixed_points
    own = "" if point.of_this_model or probe.model is None else " (not a fixed point of this model)"
    lines = [f"nearest fixed point {braces(point.nearest)}, distance {point.distance:.2g}{own}"]
    if point.conditions is not None:
        c = point.conditions
        lines.append(
            f"conditions of the paper, violated by at most: C1 {c['C1']:.1%}, C2 {c['C2']:.1%}, C3 {c['C3']:.1%}"
            f" ({'hold' if c['hold'] else 'do not hold'} to {HOLD:.0%})"
        )
    if point.index is not None:
        rate = f", fastest at rate {point.fastest_escape:.3g}" if point.fastest_escape else ""
        lines.append(f"directions of negative curvature there: {point.index}{rate}")
    return [*lines, *([point.note] if point.note else [])]


def shifts(probe: "Probe") -> Parts:
    rows = []
    for shift in probe.off_distribution:
        error = "" if shift.standard_error is None else f" +- {shift.standard_error:.4f}"
        measured = f"failed ({shift.note})" if shift.measured is None else f"{shift.measured:.4f}{error}"
        rows.append((shift.name, measured, None if shift.theory is None else f"{shift.theory:.4f}"))
    about = "off distribution: loss relative to predicting zero"
    return [Table(("shift", "measured", "theory of the named algorithm"), rows, about)]


def range_of(values: Sized) -> tuple[str, ...]:
    """The numbers of components, from 1."""
    return tuple(str(d + 1) for d in range(len(values)))
