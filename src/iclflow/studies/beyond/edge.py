"""The edge of stability along the staircase."""

import numpy as np
import pandas as pd
from jaxtyping import Float

import iclflow as icl
from iclflow.figures.style import COLOURS, GREY, MODEL_COLOUR, THEORY, letters, log_time, plateau_lines, shades
from iclflow.models import Weights
from iclflow.prediction.edges import stable_rates
from iclflow.studies.measures import few, loss_table, panels, shifted, stacked, train
from iclflow.studies.study import Measured, Result, claim, figure
from iclflow.theory import directions, plateau_losses
from iclflow.theory.laws.edge import MODE_EDGE, mode_orbit
from iclflow.units import clock_rate

TASK = icl.Task(dim=3, context=2000, spectrum="1,.1,.005")


@claim(bound=0, seeds="basis 0")
def edge_of_stability(sabotage: bool = False, offset: int = 0) -> float:
    """Descent stays on a plateau for steps up to 2/kappa, and leaves it for larger ones; a late drop lowers the edge.
    Measured: wrong outcomes of 6, 5 % below and above the edge of three plateaus
    """
    task = shifted(TASK, offset)
    d, model, wrong = directions(task), icl.Separate(heads=3), 0
    rates = stable_rates(task, model)
    assert rates is not None
    for m in range(1, task.dim + 1):
        held = np.isin(np.arange(task.dim), d.order[:m])
        start = model.balanced(d.matrix(d.strength * held * (1 + 1e-6)), task)
        dice = np.random.default_rng(0)
        start = {name: array * (1 + 1e-6 * dice.standard_normal(array.shape)) for name, array in start.items()}
        level = d.loss(held)
        for factor in (0.95, 1.05):
            lr = factor * float(rates[m]) * (1.2 if sabotage else 1)
            run = train(task, model, weights=start, lr=lr, steps=2000, records=2)
            stays = abs(float(run.loss.values[-1]) - level) < 1e-7 * d.base
            wrong += stays != (factor < 1)
    return float(wrong)


MODEL = icl.Separate(heads=3)
RATE = clock_rate(TASK, MODEL)
SHARES = (1e-3, 1e-3, 0.03)  # of the strengths at the start, so that the last drop comes within the steps taken


@figure()
def edge(fast: bool = False) -> Result:
    r"""The edge of stability along the staircase.

    Separate key and query of rank one on the population, eigenvalues 1, 0.1 and 0.005 and a context of 2000 tokens. (a)
    The largest stable step $2/\kappa$ on each plateau; here the last drop, which learns a direction with a large
    strength, lowers it (dots: where descent started at the plateau stops staying there, found by bisection). (b)
    Descent with a step between the two edges (dotted line in a) is quiet through the first two drops and leaves the
    minimum after the third, where half the step settles (dotted: losses $L(M_m)$). (c) A single mode is the map $x
    \mapsto x + \mu (x^2 - x^5)$ with $\mu = h g c$; it rests below $\mu = 2/3$ (dotted), doubles its period above,
    becomes chaotic, and from about 1.2 on falls back to zero.
    """
    rates = stable_rates(TASK, MODEL)
    assert rates is not None
    plateaus = np.arange(1, TASK.dim + 1)
    found = np.array([bisected(int(m), float(rates[m]), 4 if fast else 7) for m in plateaus])
    between = float(np.sqrt(rates[-1] * rates[-2]))
    steps = 2000 if fast else 70_000
    start = near(np.array(SHARES))
    large = train(TASK, MODEL, lr=between, weights=start, steps=steps, records=2)
    half = train(TASK, MODEL, lr=between / 2, weights=start, steps=2 * steps, records=2)
    mus = np.linspace(0.5, 1.2, 60 if fast else 400)
    orbits = np.array([mode_orbit(mu) for mu in mus])
    figure, (left, middle, right) = panels(2.7, 1, 3)
    left.plot(plateaus, RATE * rates[1:], "_", ms=22, color=THEORY["color"], label=r"theory: $2/\kappa$")
    left.plot(plateaus, RATE * found, "o", ms=5, color=MODEL_COLOUR["separate"], label="descent")
    left.axhline(RATE * between, color=shades(2)[1], lw=1.4, ls=":", label="step of b")
    left.set(xlabel="drops done", ylabel=r"largest stable step, $t/\tau$", xticks=plateaus, xlim=(0.5, 3.5))
    left.set_ylim(0, None)
    left.legend(loc="lower left", markerscale=0.6)
    for colour, name, run in zip(shades(2)[::-1], ("step of a", "half of it"), (large, half), strict=True):
        kept = few(len(run.time))
        above = run.loss.values[kept] - plateau_losses(TASK)[-1]
        middle.plot(run.time.values[kept], above, color=colour, label=name)
    middle.set(xlabel=r"time $t/\tau$", ylabel="loss above the minimum", yscale="log", ylim=(1e-7, 3))
    log_time(middle, 1, large.time.values[-1])
    plateau_lines(middle, plateau_losses(TASK)[:-1] - plateau_losses(TASK)[-1])
    middle.legend(loc="lower left")
    right.plot(np.repeat(mus, orbits.shape[1]), orbits.ravel(), ",", color=COLOURS[0])
    right.axvline(MODE_EDGE, color=GREY, lw=0.8, ls=":", label=r"theory: $\mu = 2/3$")
    right.set(xlabel=r"$\mu = hgc$", ylabel="$x$ at the end", ylim=(0, 1.3))
    right.legend(loc="lower left")
    letters(left, middle, right)
    distance = float(np.max(np.abs(found / rates[1:] - 1)))
    gaps = (
        Measured("largest relative distance of the edge found by bisection from 2/kappa", distance),
        Measured(
            "distance of the first period doubling of a mode from mu = 2/3, relative", first_doubling(mus, orbits)
        ),
    )
    edges = pd.DataFrame({"m": plateaus, "edge": RATE * rates[1:], "found": RATE * found})
    curves = stacked({"between the edges": loss_table(large), "half the step": loss_table(half)})
    modes = pd.DataFrame(orbits[:, :16], columns=[f"x{i}" for i in range(16)]).assign(mu=mus)
    runs = {"between the edges": large.experiment, "half the step": half.experiment}
    numbers = {"edges": edges, "curves": curves, "modes": modes}
    return Result(figure, numbers, gaps, runs, dict.fromkeys(runs, start))


def near(shares: Float[np.ndarray, " D"]) -> Weights:
    """Weights with these shares of the strengths, a millionth away from balance."""
    d = directions(TASK)
    strength = np.zeros(TASK.dim)
    strength[d.order] = shares * d.strength[d.order]
    exact = MODEL.balanced(d.matrix(strength), TASK)
    dice = np.random.default_rng(0)
    return {name: array * (1 + 1e-6 * dice.standard_normal(np.shape(array))) for name, array in exact.items()}


def bisected(m: int, edge: float, halvings: int) -> float:
    """The learning rate at which descent no longer stays at a plateau, between 0.7 and 1.4 times the predicted one."""
    low, high, start = 0.7 * edge, 1.4 * edge, near((np.arange(TASK.dim) < m).astype(float))
    level = plateau_losses(TASK)[m]
    for _ in range(halvings):
        lr = (low + high) / 2
        run = train(TASK, MODEL, weights=start, lr=lr, steps=3000, records=2)
        stays = abs(float(run.loss.values[-1]) - level) < 1e-8
        low, high = (lr, high) if stays else (low, lr)
    return (low + high) / 2


def first_doubling(mus: np.ndarray, orbits: np.ndarray) -> float:
    """How far the smallest mu with a moving orbit is from the edge."""
    moving = np.ptp(orbits, axis=1) > 1e-3
    return float(abs(mus[np.argmax(moving)] / MODE_EDGE - 1))
