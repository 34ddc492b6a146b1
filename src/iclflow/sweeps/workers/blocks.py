"""How large samples are split into blocks. The moments of a huge sample depend on these numbers: do not tune them."""

from iclflow.data.sequences import CHUNK
from iclflow.engines.choose import choose
from iclflow.experiment import Experiment

__all__ = ["BLOCK", "FAN", "HUGE", "MANY", "block_count", "is_huge", "shares_moments"]

BLOCK = 16  # chunks in a block: 131,072 sequences
FAN = 16  # sums added at a time
MANY = FAN * FAN  # blocks above which `FAN` of them are one task; below, more workers can share them
HUGE = 2**20  # sequences above which a sample is summed block by block


def block_count(samples: int) -> int:
    return -(-samples // (BLOCK * CHUNK))


def shares_moments(experiment: Experiment) -> bool:
    """Whether a run needs moments of a finite sample, which other runs may share."""
    return experiment.data is None and not experiment.population and choose(experiment).engine in ("moments", "flow")


def is_huge(experiment: Experiment) -> bool:
    """Whether the sample of a run is summed block by block."""
    return shares_moments(experiment) and experiment.training.samples > HUGE
