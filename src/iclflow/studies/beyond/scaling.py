"""Scaling laws of the staircase: power laws of time, size and context."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import zeta

import iclflow as icl
from iclflow.figures.style import GREY, MODEL_COLOUR, THEORY, letters, power_of_ten, shades, theory_key
from iclflow.studies.measures import panels
from iclflow.studies.study import Measured, Result, claim, figure
from iclflow.theory.collinear import Modes
from iclflow.theory.laws import scaling
from iclflow.theory.laws.scaling import ScalingLaws, merged_excess, scalar_modes, separate_excess

PAIRS = ((1.5, 0.0), (2.0, 0.0), (1.2, 0.5), (1.5, 1.0), (2.0, 1.5))
D, SIZE = 1000, 1e-3


def power_task(a: float, b: float, dim: int = D, context: int = 10**12) -> icl.Task:
    """Spectra that are power laws; a context of 10^12 is as good as an infinite one."""
    return icl.Task(dim=dim, context=context, spectrum=f"power:{a}", task_spectrum=f"power:{b}", basis="identity")


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """The exponent of the power law through the points."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def unlearned(modes: Modes, laws: ScalingLaws) -> float:
    """What directions beyond D are worth, which no run at D learns; without them D would bend the line."""
    return float(modes.saved[0] * zeta(laws.a + laws.b, len(modes.drive) + 1))


@claim(bound=5e-3, quick=True)
def scaling_separate(sabotage: bool = False, offset: int = 0) -> float:
    """With power-law spectra the loss of separate attention falls as (v0 t)^-(a+b-1)/(2a+b), amplitude included.
    Measured: largest distance of the fitted exponent, and of the amplitude over four (scalar equations, five (a, b))
    """
    return worst_fit("separate", "merged" if sabotage else "separate")  # sabotage: the law of merged attention


@claim(bound=5e-3, quick=True)
def scaling_merged(sabotage: bool = False, offset: int = 0) -> float:
    """The loss of merged attention falls as t^-(a+b-1)/(2a+b-1/2), amplitude included, whatever the initial size.
    Measured: largest distance of the fitted exponent, and of the amplitude over four (scalar equations, five (a, b))
    """
    return worst_fit("merged", "separate" if sabotage else "merged")  # sabotage: the law of separate attention


def worst_fit(model: str, law: str) -> float:
    """The largest distance of an exponent from a law, or of an amplitude over four, of five pairs (a, b)."""
    fits = [fitted(D, a, b, first=60) for a, b in PAIRS]
    gaps = [(fit[model] - fit[f"{law}_law"], (fit[f"{model}_amplitude"] - 1) / 4) for fit in fits]
    return float(np.abs(gaps).max())


@claim(bound=5e-3, quick=True)
def scaling_sizes(sabotage: bool = False, offset: int = 0) -> float:
    """What H heads of rank R leave falls as (HR)^-(a+b-1), and what a context of N leaves as N^-(a+b-1)/(a+b).
    Measured: largest distance of the fitted exponent (exact levels at D = 100,000, three (a, b))
    """
    gaps, dim = [], 100_000
    for a, b in ((2.0, 0.0), (1.5, 1.0), (2.0, 1.0)):
        laws, modes = scaling.scaling_laws(power_task(a, b, dim)), scalar_modes(power_task(a, b, dim))
        heads = np.array([100, 200, 400, 800])
        left = np.array([modes.saved[n:].sum() for n in heads]) + unlearned(modes, laws)
        contexts = np.array([10**5, 10**6, 10**7])
        lowest = np.array([scalar_modes(power_task(a, b, dim, int(n))).minimum for n in contexts])
        context = laws.separate if sabotage else laws.context  # sabotage: context acts like time
        gaps += [slope(heads, left) - laws.components.exponent, slope(contexts, lowest) - context.exponent]
    return float(np.abs(gaps).max())


SIZES = (1e-1, 1e-2, 1e-3)


@figure()
def scaling_laws(fast: bool = False) -> Result:
    r"""A staircase for every seed, a power law in the envelope.

    Token eigenvalues fall as $d^{-a}$ and task eigenvalues as $d^{-b}$, the context is long, $D = 1000$. The loss above
    its minimum is a power law of time whose exponent and amplitude theory gives: $-(a+b-1)/(2a+b)$ for separate key and
    query, where a direction waits for its own head, and $-(a+b-1)/(2a+b-1/2)$ for merged attention, where one value
    drives all of them and grows. (a, b) The scalar equations, one per direction, at $a = 1.5$, $b = 0$, for three
    initial sizes (solid), for one draw of random sizes (thin), and the law (dashed); the initial size enters as a
    factor of time in (a) and as a small shift in (b). What directions beyond $D$ are worth is added to the loss; they
    are never learned. (c) Exponents fitted to the scalar equations at five pairs $(a, b)$ against theory.
    """
    dim, pairs, points = (200, PAIRS[:3], 60) if fast else (1000, PAIRS, 300)
    task = power_task(*PAIRS[0], dim)
    modes, laws, curves = scalar_modes(task), scaling.scaling_laws(task), []
    end = (dim / 2) ** (2 * laws.a + laws.b) / modes.drive[0]
    beyond = unlearned(modes, laws)
    fits = pd.DataFrame([fitted(dim, a, b) for a, b in pairs])
    figure, (left, middle, right) = panels(2.7, 1, 3, width_ratios=(1.2, 1.2, 1))
    for colour, size in zip(shades(len(SIZES)), SIZES, strict=True):
        time = np.geomspace(1, end / size, points)
        smooth = separate_excess(modes, size, time) + beyond
        left.plot(time, smooth, color=colour, label=power_of_ten(size))
        left.plot(time, laws.separate(size * time), **THEORY)
        curves.append(curve("separate", size, time, smooth, laws.separate(size * time)))
        time = np.geomspace(1, (dim / 2) ** (2 * laws.a + laws.b - 0.5) / modes.drive[0], points)
        merged = merged_excess(modes, size**2, time) + beyond
        middle.plot(time, merged, color=colour, label=power_of_ten(size))
        curves.append(curve("merged", size, time, merged, laws.merged(time)))
    middle.plot(time, laws.merged(time), **THEORY)
    fine = np.geomspace(1, end / SIZES[-1], 4 * points)
    sizes = SIZES[-1] * np.abs(np.random.default_rng(0).standard_normal(dim))
    steps = separate_excess(modes, np.maximum(sizes, 1e-3 * SIZES[-1]), fine) + beyond
    left.plot(fine, steps, color=GREY, lw=0.8, zorder=0, label="random")
    curves.append(curve("separate, random sizes", SIZES[-1], fine, steps, laws.separate(SIZES[-1] * fine)))
    for ax, title in ((left, "separate"), (middle, "merged")):
        ax.set(xscale="log", yscale="log", xlabel=r"time $t/\tau$", ylabel="loss above its minimum", title=title)
        ax.set_ylim(0.8 * beyond, 2 * modes.saved.sum())
        theory_key(ax)
        ax.legend(title="initial size", loc="lower left", labelspacing=0.2)
    for name, marker in (("separate", "o"), ("merged", "s")):
        style = {"ms": 5, "mfc": "none", "color": MODEL_COLOUR[name], "label": name}
        right.plot(-fits[f"{name}_law"], -fits[name], marker, **style)
    span = [0.9 * float(-fits.separate_law.max()), 1.1 * float(-fits.merged_law.min())]
    right.plot(span, span, label="theory", **THEORY)
    right.set(xlabel="exponent of theory", ylabel="fitted exponent")
    right.legend(loc="upper left")
    letters(left, middle, right)
    amplitudes = fits[["separate_amplitude", "merged_amplitude"]].to_numpy()
    gaps = (
        Measured("largest distance of a fitted exponent from theory", largest(fits, "separate", "merged")),
        Measured("largest relative distance of a fitted amplitude from theory", float(np.abs(amplitudes - 1).max())),
    )
    return Result(figure, {"curves": pd.concat(curves), "fits": fits}, gaps, {})


def curve(model: str, size: float, time: np.ndarray, excess: np.ndarray, law: Any) -> pd.DataFrame:
    return pd.DataFrame({"model": model, "size": size, "time": time, "excess": excess, "law": law})


def fitted(dim: int, a: float, b: float, first: float = 40) -> dict[str, float]:
    """Exponents fitted to the scalar equations between a few dozen learned directions and a third of them.

    Directions beyond D are not learned in that time: what they are worth is added, so that D does not bend the line.
    """
    task = power_task(a, b, dim)
    modes, laws = scalar_modes(task), scaling.scaling_laws(task)
    beyond = unlearned(modes, laws)
    separate = np.geomspace(min(first, dim / 8), dim / 3, 20) ** (2 * a + b) / modes.drive[0] / SIZE
    merged = np.geomspace(min(20, dim / 8), dim / 8, 20) ** (2 * a + b - 0.5) / modes.drive[0]
    left = separate_excess(modes, SIZE, separate) + beyond, merged_excess(modes, SIZE**2, merged) + beyond
    return {
        "a": a,
        "b": b,
        "separate": slope(separate, left[0]),
        "separate_law": laws.separate.exponent,
        "separate_amplitude": float(np.mean(left[0] / laws.separate(SIZE * separate))),
        "merged": slope(merged, left[1]),
        "merged_law": laws.merged.exponent,
        "merged_amplitude": float(np.mean(left[1] / laws.merged(merged))),
    }


def largest(fits: pd.DataFrame, *names: str) -> float:
    """The largest distance of a fitted exponent from theory."""
    return max(float((fits[name] - fits[f"{name}_law"]).abs().max()) for name in names)
