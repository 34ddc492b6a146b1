"""Scaling laws of the staircase."""

import numpy as np
from scipy.special import zeta

import iclflow as icl
from iclflow.claims.registry import claim
from iclflow.theory.laws.scaling import PowerLaw, merged_excess, scalar_modes, scaling_laws, separate_excess

__all__: list[str] = []

PAIRS = ((1.5, 0.0), (2.0, 0.0), (1.2, 0.5), (1.5, 1.0), (2.0, 1.5))
D, SIZE = 1000, 1e-3


def power_task(a: float, b: float, dim: int = D, context: int = 10**12) -> icl.Task:
    """Spectra that are power laws; a context of 10^12 is as good as an infinite one."""
    return icl.Task(dim=dim, context=context, spectrum=f"power:{a}", task_spectrum=f"power:{b}", basis="identity")


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """The exponent of the power law through the points."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def beyond(a: float, b: float, dim: int) -> float:
    """What directions beyond D are worth, which no run at D learns; without them D would bend the line."""
    return float(scalar_modes(power_task(a, b, dim)).saved[0] * zeta(a + b, dim + 1))


@claim(
    "scaling-separate",
    "With power-law spectra the loss of separate attention falls as (v0 t)^-(a+b-1)/(2a+b), amplitude included.",
    source="beyond the paper",
    quantity="largest distance of the fitted exponent, and of the amplitude over four (scalar equations, five (a, b))",
    bound=5e-3,
    quick=True,
)
def scaling_separate(sabotage: bool = False, offset: int = 0) -> float:
    gaps: list[float] = []
    for a, b in PAIRS:
        task = power_task(a, b)
        modes, laws = scalar_modes(task), scaling_laws(task)
        time = np.geomspace(60, D / 3, 20) ** (2 * a + b) / modes.drive[0] / SIZE
        excess = separate_excess(modes, SIZE, time) + beyond(a, b, D)
        law = laws.merged if sabotage else laws.separate  # sabotage: the law of merged attention
        gaps += [slope(time, excess) - law.exponent, (float(np.mean(excess / law(SIZE * time))) - 1) / 4]
    return float(np.abs(gaps).max())


@claim(
    "scaling-merged",
    "The loss of merged attention falls as t^-(a+b-1)/(2a+b-1/2), amplitude included, whatever the initial size.",
    source="beyond the paper",
    quantity="largest distance of the fitted exponent, and of the amplitude over four (scalar equations, five (a, b))",
    bound=5e-3,
    quick=True,
)
def scaling_merged(sabotage: bool = False, offset: int = 0) -> float:
    gaps: list[float] = []
    for a, b in PAIRS:
        task = power_task(a, b)
        modes, laws = scalar_modes(task), scaling_laws(task)
        time = np.geomspace(20, D / 8, 20) ** (2 * a + b - 0.5) / modes.drive[0]
        excess = merged_excess(modes, SIZE**2, time) + beyond(a, b, D)
        law = laws.separate if sabotage else laws.merged  # sabotage: the law of separate attention
        gaps += [slope(time, excess) - law.exponent, (float(np.mean(excess / law(time))) - 1) / 4]
    return float(np.abs(gaps).max())


@claim(
    "scaling-sizes",
    "What H heads of rank R leave falls as (HR)^-(a+b-1), and what a context of N leaves as N^-(a+b-1)/(a+b).",
    source="beyond the paper",
    quantity="largest distance of the fitted exponent (exact levels at D = 100,000, three (a, b))",
    bound=5e-3,
    quick=True,
)
def scaling_sizes(sabotage: bool = False, offset: int = 0) -> float:
    gaps, dim = [], 100_000
    for a, b in ((2.0, 0.0), (1.5, 1.0), (2.0, 1.0)):
        laws, modes = scaling_laws(power_task(a, b, dim)), scalar_modes(power_task(a, b, dim))
        heads = np.array([100, 200, 400, 800])
        left = np.array([modes.saved[n:].sum() for n in heads]) + beyond(a, b, dim)
        contexts = np.array([10**5, 10**6, 10**7])
        lowest = np.array([scalar_modes(power_task(a, b, dim, int(n))).minimum for n in contexts])
        context = laws.separate if sabotage else laws.context  # sabotage: context acts like time
        pairs: tuple[tuple[PowerLaw, np.ndarray, np.ndarray], ...] = (
            (laws.components, heads, left),
            (context, contexts, lowest),
        )
        gaps += [slope(x, y) - law.exponent for law, x, y in pairs]
    return float(np.abs(gaps).max())
