"""What a probe found: names along training, and the last snapshot in detail."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.models import Model
from iclflow.probing.candidates import Entry
from iclflow.probing.fixed_points import FixedPoints
from iclflow.probing.gains import Gains
from iclflow.probing.heads import Heads
from iclflow.probing.naming import THRESHOLD, Verdict, by_label
from iclflow.probing.off_distribution import Shift

__all__ = ["Probe"]


@dataclass(frozen=True)
class Probe:
    """One subject, probed. Components count from 1, in falling order of the tokens' eigenvalues."""

    subject: str
    task: Task  # the one whose population the candidates belong to
    model: Model | None
    time: Float[np.ndarray, " T"] | None
    steps: Float[np.ndarray, " T"] | None
    verdicts: tuple[Verdict, ...]
    gains: Gains
    entries: dict[str, Entry]
    fixed_points: FixedPoints
    heads: Heads | None
    vector_blocks: dict[str, float]
    off_distribution: tuple[Shift, ...]
    sequences: int
    sampling_error: float  # standard error of a sampled distance as large as the threshold
    exact: bool  # distances between matrices from the population, not from the sample

    @property
    def last(self) -> Verdict:
        return self.verdicts[-1]

    @property
    def algorithm(self) -> str:
        return self.last.algorithm

    @property
    def components(self) -> tuple[int, ...]:
        return self.last.components

    @property
    def distances(self) -> dict[str, float]:
        """Of the last snapshot to every candidate, nearest first."""
        found = by_label(self.entries, self.gains.sets, len(self.verdicts) - 1)
        return {label: found[label].distance for label in sorted(found, key=lambda one: found[one].distance)}

    @property
    def clock(self) -> Float[np.ndarray, " T"]:
        """t/tau where there is one, else steps, else the number of the snapshot."""
        if self.time is not None:
            return self.time
        return self.steps if self.steps is not None else np.arange(len(self.verdicts), dtype=float)

    def at(self, time: float) -> Verdict:
        """The verdict on the snapshot nearest to a time."""
        return self.verdicts[int(np.argmin(np.abs(self.clock - time)))]

    def phases(self) -> list[tuple[float, float, Verdict]]:
        """Stretches with one algorithm and the same components: first time, last time, nearest verdict."""
        found: list[tuple[float, float, Verdict]] = []
        for when, verdict in zip(self.clock, self.verdicts, strict=True):
            same = found and (found[-1][2].algorithm, found[-1][2].components) == (
                verdict.algorithm,
                verdict.components,
            )
            if same:
                first, _, best = found[-1]
                found[-1] = (first, float(when), min(best, verdict, key=lambda v: v.distance))
            else:
                found.append((float(when), float(when), verdict))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
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
            "heads": None if self.heads is None else {name: plain(value) for name, value in vars(self.heads).items()},
            "vector_blocks": self.vector_blocks,
            "off_distribution": [asdict(shift) for shift in self.off_distribution],
            "along_training": {
                "time": numbers(self.time),
                "step": numbers(self.steps),
                "algorithm": [v.algorithm for v in self.verdicts],
                "components": [list(v.components) for v in self.verdicts],
                "label": [v.label for v in self.verdicts],
                "distance": [v.distance for v in self.verdicts],
                "margin": [v.margin for v in self.verdicts],
                "learned": gains.learned.tolist(),
                "effective_rank": gains.effective_rank.tolist(),
                "mixing": gains.mixing.tolist(),
                "gains": gains.gain.tolist(),
                "distances": {label: entry.distance.tolist() for label, entry in self.entries.items()},
            },
            "sequences": self.sequences,
            "sampling_error": self.sampling_error,
            "exact": self.exact,
        }

    def __str__(self) -> str:
        from iclflow.probing.table import table

        return table(self)


def path_of(entry: Entry) -> dict[str, list[float]]:
    """Every value that was tried, in rising order, and the distance with it."""
    assert entry.path is not None
    values, distances = entry.path
    order = np.argsort(values)
    return {entry.meaning: values[order].tolist(), "distance": distances[order].tolist()}


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else list(value) if isinstance(value, tuple) else value
