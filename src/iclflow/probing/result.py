"""The result of a probe: algorithms along training, and the last snapshot in detail."""

from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.models import Model
from iclflow.probing.candidates import Entry
from iclflow.probing.fixed_points import FixedPoints
from iclflow.probing.gains import Gains
from iclflow.probing.heads import Heads
from iclflow.probing.layers import Layers
from iclflow.probing.naming import THRESHOLD, Verdict, by_label
from iclflow.probing.off_distribution import Shift
from iclflow.results.card import Card, WithCard

__all__ = ["Probe"]


@dataclass(frozen=True, repr=False)
class Probe(WithCard):
    """The probe of one subject; components count from 1, in falling order of the eigenvalues of the tokens."""

    subject: str
    task: Task  # the task whose population defines the candidates
    model: Model | None
    time: Float[np.ndarray, " T"] | None
    steps: Float[np.ndarray, " T"] | None
    verdicts: tuple[Verdict, ...]
    gains: Gains
    entries: dict[str, Entry]
    fixed_points: FixedPoints
    heads: Heads | None
    layers: Layers | None  # of a model with several
    vector_blocks: dict[str, float]
    off_distribution: tuple[Shift, ...]
    sequences: int
    sampling_error: float  # standard error of a sampled distance at the threshold
    exact: bool  # whether distances between matrices are those of the population, not of the sample
    notes: tuple[str, ...] = ()  # sentences: what the verdict leaves open

    @property
    def last(self) -> Verdict:
        """The verdict on the last snapshot."""
        return self.verdicts[-1]

    @property
    def algorithm(self) -> str:
        """The algorithm of the last snapshot: zero, pcr, least_squares, ridge, gd, in_weight or none."""
        return self.last.algorithm

    @property
    def components(self) -> tuple[int, ...]:
        """The components that the last snapshot has learned."""
        return self.last.components

    @property
    def distances(self) -> dict[str, float]:
        """The distance of the last snapshot to every candidate, nearest first."""
        choices = by_label(self.entries, self.gains.sets, len(self.verdicts) - 1)
        return {one.label: one.distance for one in sorted(choices.values(), key=lambda one: one.distance)}

    @property
    def clock(self) -> Float[np.ndarray, " T"]:
        """The times t/tau if they are known, else the steps, else the numbers of the snapshots."""
        if self.time is not None:
            return self.time
        return self.steps if self.steps is not None else np.arange(len(self.verdicts), dtype=float)

    def at(self, time: float) -> Verdict:
        """Find the verdict on the snapshot nearest to a time.

        Args:
            time: a time in the units of `clock`.

        Returns:
            The verdict.
        """
        return self.verdicts[int(np.argmin(np.abs(self.clock - time)))]

    def phases(self) -> list[tuple[float, float, Verdict]]:
        """Divide training into phases with the same algorithm and components.

        Returns:
            For every phase its first time, its last time and its verdict with the smallest distance.
        """
        phases = []
        clock = zip(self.clock.tolist(), self.verdicts, strict=True)
        for _, group in groupby(clock, key=lambda pair: (pair[1].algorithm, pair[1].components)):
            times, verdicts = zip(*group, strict=True)
            phases.append((times[0], times[-1], min(verdicts, key=lambda verdict: verdict.distance)))
        return phases

    def to_dict(self) -> dict[str, Any]:
        """Return all measurements, ready for JSON."""
        gains, last = self.gains, self.last
        numbers = lambda array: None if array is None else np.asarray(array).tolist()
        return {
            "algorithm": self.algorithm,
            "components": list(self.components),
            "distances": self.distances,
            "label": last.label,
            "distance": last.distance,
            "margin": last.margin,
            "runner_up": last.runner_up,
            "ties": list(last.ties),
            "tied_algorithms": list(last.tied_algorithms),
            "between": list(last.between),
            "where": last.where,
            "notes": list(self.notes),
            "parameter": None if last.parameter is None else {last.parameter_name: last.parameter},
            "threshold": THRESHOLD,
            "paths": {label: path_of(entry) for label, entry in self.entries.items() if entry.path is not None},
            "subject": self.subject,
            "model": None if self.model is None else self.model.kind,
            "gains": gains.gain[-1].tolist(),
            "gain_matrix": gains.matrix[-1].tolist(),
            "mixing": float(gains.mixing[-1]),
            "learned": int(gains.learned[-1]),
            "effective_rank": float(gains.effective_rank[-1]),
            "fixed_point": asdict(self.fixed_points),
            "heads": None if self.heads is None else self.heads.to_dict(),
            "layers": None if self.layers is None else self.layers.to_dict(),
            "vector_blocks": self.vector_blocks,
            "off_distribution": [asdict(shift) for shift in self.off_distribution],
            "along_training": {
                "time": numbers(self.time),
                "step": numbers(self.steps),
                "algorithm": [v.algorithm for v in self.verdicts],
                "components": [list(v.components) for v in self.verdicts],
                "label": [v.label for v in self.verdicts],
                "where": [v.where for v in self.verdicts],
                "distance": [v.distance for v in self.verdicts],
                "margin": [v.margin for v in self.verdicts],
                "learned": gains.learned.tolist(),
                "effective_rank": gains.effective_rank.tolist(),
                "mixing": gains.mixing.tolist(),
                "gains": gains.gain.tolist(),
                "distances": {label: finite(entry.distance) for label, entry in self.entries.items()},
            },
            "sequences": self.sequences,
            "sampling_error": self.sampling_error,
            "exact": self.exact,
        }

    def card(self) -> Card:
        """The verdict first, then the measurements behind it."""
        from iclflow.probing.card import probe_card

        return probe_card(self)


def finite(distances: Float[np.ndarray, " T"]) -> list[float | None]:
    """The distances; `None` at snapshots to which a candidate does not apply."""
    return [None if np.isnan(one) else float(one) for one in distances]


def path_of(entry: Entry) -> dict[str, list[float]]:
    """All parameter values that were tried, in rising order, and the distance with each."""
    assert entry.path is not None
    values, distances = entry.path
    order = np.argsort(values)
    return {entry.meaning: values[order].tolist(), "distance": distances[order].tolist()}
