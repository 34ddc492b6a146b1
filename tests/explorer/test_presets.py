"""Presets show the numbers that `iclflow reproduce` writes for the same figure."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.explorer.presets import PRESETS
from iclflow.explorer.theory_view import theory_view
from iclflow.studies import figure_named
from iclflow.training.start import run_experiment
from iclflow.units import clock_rate

CURVES = {  # preset -> figure, its table, the curve in it
    "Fig. 1: one abrupt drop (merged)": ("abrupt_drop", "covariances", "linear"),
    "Eq. 10: white tokens (merged)": ("abrupt_drop", "covariances", "white"),
    "Fig. 3: saddle to saddle, as published": ("saddle_to_saddle", "seeds", "seed 10"),
    "Fig. 6: larger weights, shorter plateaus": ("init_scale", "", "init 0.05"),
    "Fig. 6: very large weights, no plateau": ("init_scale", "", "init 1"),
}
THEORIES = {  # the page follows the flow and the figure takes steps, so what is predicted differs by the lag of these
    "Noisy labels": ("noise_and_task_covariance", "loss", "noise 1"),
}


@pytest.fixture(scope="module")
def table():
    drawn = {}

    def find(figure: str, name: str, curve: str):
        if figure not in drawn:
            drawn[figure] = figure_named(figure.replace("_", "-")).measure()
        rows = drawn[figure].tables[name]
        return rows[rows["curve"] == curve]

    return find


@pytest.mark.parametrize("name", CURVES)
def test_a_preset_trains_to_the_curve_of_its_figure(table, name):
    state, rows = PRESETS[name], table(*CURVES[name])
    run = run_experiment(state.experiment(state.seed), progress=False, roomy=True)
    shared = rows[rows["time"] <= float(run.time[-1])]
    assert len(shared) > 50
    loss = np.interp(shared["time"], run.time, run.loss)
    np.testing.assert_allclose(loss, shared["loss"], atol=2e-3 * loss[0])  # chords of the flow's curve


@pytest.mark.parametrize("name", THEORIES)
def test_a_preset_predicts_the_curve_of_its_figure(table, name):
    state, rows = PRESETS[name], table(*THEORIES[name])
    one, last = state.experiment(state.seed), rows.iloc[-1]
    lr = float(last["time"] / last["step"]) / clock_rate(one.task, one.model)
    stepped = icl.predict(one.task, one.model, init=state.init, seed=state.seed, lr=lr)
    np.testing.assert_allclose(stepped.loss(rows["time"].values), rows["theory"], atol=1e-9)
    shown = theory_view(state).prediction
    lag = stepped.drop_times - shown.drop_times
    assert lag[0] > 0
    assert (np.abs(lag) < 0.02 * shown.drop_times).all()
