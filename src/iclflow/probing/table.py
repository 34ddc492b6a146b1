"""A probe as a table for the terminal."""

from typing import TYPE_CHECKING

from iclflow.probing.fixed_points import HOLD

if TYPE_CHECKING:
    from iclflow.probing.result import Probe

__all__ = ["table"]

NEAREST = 8  # candidates shown


def table(probe: "Probe") -> str:
    """The verdict first, then the measurements behind it."""
    parts = [part(probe) for part in (verdict, distances, components, heads, layers, fixed_point, shifts)]
    if len(probe.verdicts) > 1:
        parts.insert(1, phases(probe))
    return "\n".join(line for part in parts for line in part)


def shown(components: tuple[int, ...]) -> str:
    """A set in braces."""
    return "{" + ",".join(map(str, components)) + "}"


def verdict(probe: "Probe") -> list[str]:
    kind = "a function" if probe.model is None else probe.model.describe()
    return [
        f"{probe.subject} ({kind}): {probe.algorithm}, components {shown(probe.components)}",
        f"  {probe.last}",
        *(f"  note: {note}" for note in probe.notes),
    ]


def unit(probe: "Probe") -> str:
    """What the snapshots are counted in."""
    return "t/tau" if probe.time is not None else "step" if probe.steps is not None else "snapshot"


def phases(probe: "Probe") -> list[str]:
    lines = [
        f"  along training ({len(probe.verdicts)} snapshots)",
        f"    from {unit(probe):<7s}         to   algorithm      components   distance     margin",
    ]
    for first, last, best in probe.phases():
        name = f"{best.algorithm:<14s} {shown(best.components):<11s}"
        where = f"  {best.where}" if best.where else ""
        lines.append(f"  {first:12.5g} {last:10.5g}   {name} {best.distance:9.2e}  {best.margin:9.2e}{where}")
    if len(probe.verdicts) == 2 and probe.time is not None:
        lines.append(
            "    Only the first and last weights of this run were kept; `iclflow train --save-weights` keeps more."
        )
    return lines


def distances(probe: "Probe") -> list[str]:
    how = "exact where both are matrices, else " if probe.exact else ""
    near = list(probe.distances.items())[:NEAREST]
    lines = [f"  distance to the nearest of {len(probe.distances)} candidates ({how}on {probe.sequences} sequences)"]
    return lines + [f"    {label:<32s} {distance:10.2e}" for label, distance in near]


def components(probe: "Probe") -> list[str]:
    gains = probe.gains
    row = " ".join(f"{gain:7.3f}" for gain in gains.gain[-1])
    return [
        f"  gain by component: {row}",
        f"    learned {gains.learned[-1]}, effective rank {gains.effective_rank[-1]:.2f}, mixed {gains.mixing[-1]:.2g}",
    ]


def heads(probe: "Probe") -> list[str]:
    measured = probe.heads
    if measured is None:
        return []
    names = "value     |U|        " if measured.query is None else "value     |key|     |query|"
    lines = [f"  head  {names}    balance   carries   alignment with each component"]
    for h in range(len(measured.value)):
        norms = f"{measured.value[h]:9.3g} {measured.key[h]:9.3g}"
        norms += "" if measured.query is None else f" {measured.query[h]:9.3g}"
        carried = shown(tuple(d + 1 for d, head in enumerate(measured.carrier) if head == h))
        aligned = " ".join(f"{a:6.2f}" for a in measured.alignment[h])
        lines.append(f"  {h + 1:4d} {norms} {measured.balance[h]:10.2e}   {carried:<8s} {aligned}")
    blocks = ", ".join(f"{name} {size:.2g}" for name, size in probe.vector_blocks.items())
    return lines + ([f"  blocks that theory keeps at zero, relative to the rest: {blocks}"] if blocks else [])


def layers(probe: "Probe") -> list[str]:
    measured = probe.layers
    if measured is None:
        return []
    lines = ["  layer  holds     share of each component's strength   tokens move by   token power behind it"]
    for number, held in enumerate(measured.holds):
        share = " ".join(f"{s:6.2f}" for s in measured.share[number])
        power = " ".join(f"{p:6.3f}" for p in measured.token_power[number])
        moved = f"{measured.token_change[number]:<14.2g}"
        lines.append(f"  {number + 1:5d}  {shown(held):<9s} {share:<36s} {moved}   {power}")
    stream = "the tokens move between the steps (GD++)" if measured.gd_plus_plus else "the tokens stay as they are"
    return [*lines, f"    {measured.acting} of {len(measured.holds)} layers act; {stream}"]


def fixed_point(probe: "Probe") -> list[str]:
    point = probe.fixed_points
    own = "" if point.of_this_model or probe.model is None else " (not a fixed point of this model)"
    lines = [f"  nearest fixed point {shown(point.nearest)}, distance {point.distance:.2g}{own}"]
    if point.conditions is not None:
        c = point.conditions
        lines.append(
            f"    conditions of the paper, violated by at most: C1 {c['C1']:.1%}, C2 {c['C2']:.1%}, C3 {c['C3']:.1%}"
            f" ({'hold' if c['hold'] else 'do not hold'} to {HOLD:.0%})"
        )
    if point.index is not None:
        rate = f", fastest at rate {point.fastest_escape:.3g}" if point.fastest_escape else ""
        lines.append(f"    directions of negative curvature there: {point.index}{rate}")
    return lines + ([f"    {point.note}"] if point.note else [])


def shifts(probe: "Probe") -> list[str]:
    if not probe.off_distribution:
        return []
    lines = [
        "  off distribution: loss relative to predicting zero",
        "                           measured      theory of the named algorithm",
    ]
    for shift in probe.off_distribution:
        measured = (
            f"failed ({shift.note})"
            if shift.measured is None
            else f"{shift.measured:8.4f} +-{shift.standard_error:7.4f}"
        )
        theory = "       -" if shift.theory is None else f"{shift.theory:8.4f}"
        lines.append(f"    {shift.name:<20s} {measured} {theory:>10s}")
    return lines
