"""No setting makes `predict` raise anything but an error of iclflow, and what it gives is in order."""

import os
import warnings

import numpy as np
import pytest

import iclflow as icl

FULL = os.environ.get("ICLFLOW_RELIABILITY") == "full"
COUNT, PARTS = (500, 10) if FULL else (40, 4)


def setting(rng):
    """A small task, a model and a training, over all that a forecast depends on."""
    pick = lambda *options: options[int(rng.integers(len(options)))]
    often = lambda share: rng.random() < share
    dim, outputs = int(rng.integers(1, 4)), 2 if often(0.2) else 1
    spectrum = pick("linear", "white", f"power:{rng.uniform(0, 2):.2f}", (1.0, 0.98, 0.3)[:dim], (0.5, 0.5, 0.0)[:dim])
    task = {"dim": dim, "out_dim": outputs, "context": int(rng.integers(1, 30)), "spectrum": spectrum}
    task |= {"normalize": pick("context", "tokens", "none")} if often(0.3) else {}
    task |= {"label_noise": 0.3} if often(0.2) else {}
    task |= {"prefix_loss": True} if often(0.1) and "label_noise" not in task else {}
    task |= {"tasks": int(rng.integers(1, 9)), "mirror_tasks": often(0.5)} if often(0.15) else {}
    task |= {"icl_fraction": pick(0.0, 0.4, 1.0)} if often(0.1) and "tasks" not in task else {}
    task |= {"task_spectrum": pick("linear", "power:1")} if often(0.15) else {}
    heads = int(rng.integers(1, 5))
    deep = {"layers": pick(2, 3 if FULL else 2), "looped": often(0.5)} if often(0.5) else {}
    model = pick(
        lambda: icl.Separate(heads=heads, rank=int(rng.integers(1, dim + 1))),
        lambda: icl.Separate(heads=heads, **deep),
        lambda: icl.Merged(heads=heads, softmax=often(0.1)),
        lambda: icl.MLP(heads=heads),
    )()
    how = {"init": float(10 ** rng.uniform(-12, 1)), "seed": int(rng.integers(99))}
    how |= {"init_law": pick("entry", "public", "norm", "aligned", "random")} if often(0.5) else {}
    how |= {"optimizer": pick("momentum", "adam", "muon")} if often(0.4) else {}
    how |= {"muon": pick("stacked", "heads")} if often(0.2) else {}
    how |= {"lr": float(10 ** rng.uniform(-4, 1))} if often(0.6) else {}
    how |= {"batch": int(2 ** rng.integers(0, 7))} if often(0.25) else {}
    how |= {"weight_decay": float(10 ** rng.uniform(-7, 0))} if often(0.25) else {}
    how |= {"samples": int(rng.integers(2, 300))} if often(0.25) else {}
    how |= {"freeze_vectors": True} if often(0.2) else {}
    return task, model, how


@pytest.mark.parametrize("part", range(PARTS))
def test_no_setting_makes_a_forecast_crash(part):
    for number in range(part, COUNT, PARTS):
        rng = np.random.default_rng([12, number])
        told = str(number)
        try:
            task, model, how = setting(rng)
            told = f"{number}: icl.predict(icl.Task(**{task}), {model!r}, **{how})"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = icl.predict(icl.Task(**task), model, **how)
                found.loss(np.array([0.0, 1.0, found.end]))
        except icl.IclflowError:
            continue
        except Exception as crash:
            raise AssertionError(f"{type(crash).__name__}: {crash} in {told}") from crash
        assert (np.diff(found.drop_times, prepend=0.0) >= 0).all(), told
        assert found.drop_intervals.shape == (len(found.drop_times), 2), told
        assert len(found.levels) == len(found.drop_times) + 1 or not len(found.drop_times) or not found.reliable, told
        assert len(str(found).splitlines()) > len(found.drop_times), told
