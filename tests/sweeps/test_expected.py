"""What theory predicts for the runs of a sweep."""

import numpy as np
import pytest

from iclflow.experiment import Experiment
from iclflow.sweeps.forecast import expected_quantity

BASE = {"dim": 4, "context": 31, "init": 1e-2, "lr": 0.01, "steps": 10}


def test_theory_knows_the_optimiser():
    plain, lagging, adam = (
        Experiment.from_flat({**BASE, "optimizer": name, "beta": 0.9 if name != "sgd" else None})
        for name in ("sgd", "momentum", "adam")
    )
    assert expected_quantity(lagging, "drop_times", 0) > expected_quantity(plain, "drop_times", 0)
    assert expected_quantity(adam, "final_loss", None) == expected_quantity(plain, "final_loss", None)
    assert np.isnan(expected_quantity(adam, "drop_times", 0))


@pytest.mark.parametrize(
    ("model", "count"),
    [
        ({"model": "separate", "heads": 2, "rank": 1}, 2),
        ({"model": "separate", "heads": 5, "rank": 1}, 4),
        ({"model": "separate", "heads": 1, "rank": 3}, 3),
        ({"model": "separate", "heads": 9, "rank": 2}, 4),
        ({"model": "merged", "heads": 1}, 4),
        ({"model": "mlp", "heads": 1}, 4),
    ],
)
def test_no_more_directions_are_expected_than_there_are_and_than_heads_have_room_for(model, count):
    assert expected_quantity(Experiment.from_flat({**BASE, **model}), "components", None) == count
