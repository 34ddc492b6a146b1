r"""A staircase for every seed, a power law in the envelope.

Token eigenvalues fall as $d^{-a}$ and task eigenvalues as $d^{-b}$, the context is long, $D = 1000$. The loss above its
minimum is a power law of time whose exponent and amplitude theory gives: $-(a+b-1)/(2a+b)$ for separate key and query,
where a direction waits for its own head, and $-(a+b-1)/(2a+b-1/2)$ for merged attention, where one value drives all of
them and grows. (a, b) The scalar equations, one per direction, at $a = 1.5$, $b = 0$, for three initial sizes (solid),
for one draw of random sizes (thin), and the law (dashed); the initial size enters as a factor of time in (a) and as a
small shift in (b). What directions beyond $D$ are worth is added to the loss; they are never learned. (c) Exponents
fitted to the scalar equations at five pairs $(a, b)$ against theory.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.special import zeta

import iclflow as icl
from iclflow.figures.style import GREY, MODEL_COLOUR, THEORY, WIDTH, letters, power_of_ten, shades, styled, theory_key
from iclflow.paper.drawn import Drawn, Gap
from iclflow.theory.collinear import Modes
from iclflow.theory.laws.scaling import ScalingLaws, merged_excess, scalar_modes, scaling_laws, separate_excess

__all__ = ["draw", "fitted"]

SOURCE = "beyond the paper"
PAIRS = ((1.5, 0.0), (2.0, 0.0), (1.2, 0.5), (1.5, 1.0), (2.0, 1.5))
SIZES = (1e-1, 1e-2, 1e-3)
LONG = 10**12


def draw(fast: bool = False) -> Drawn:
    dim, pairs, points = (200, PAIRS[:3], 60) if fast else (1000, PAIRS, 300)
    task = power_task(dim, *PAIRS[0])
    modes, laws, curves = scalar_modes(task), scaling_laws(task), []
    end = (dim / 2) ** (2 * laws.a + laws.b) / modes.drive[0]
    beyond = unlearned(modes, laws)
    fits = pd.DataFrame([fitted(dim, a, b) for a, b in pairs])
    with styled():
        figure = Figure(figsize=(WIDTH, 2.7))
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 1.2, 1))
        for colour, size in zip(shades(len(SIZES)), SIZES, strict=True):
            time = np.geomspace(1, end / size, points)
            smooth = separate_excess(modes, size, time) + beyond
            left.plot(time, smooth, color=colour, label=power_of_ten(size))
            left.plot(time, laws.separate(size * time), **THEORY)
            curves.append(
                pd.DataFrame(
                    {
                        "model": "separate",
                        "size": size,
                        "time": time,
                        "excess": smooth,
                        "law": laws.separate(size * time),
                    }
                )
            )
            time = np.geomspace(1, (dim / 2) ** (2 * laws.a + laws.b - 0.5) / modes.drive[0], points)
            merged = merged_excess(modes, size**2, time) + beyond
            middle.plot(time, merged, color=colour, label=power_of_ten(size))
            curves.append(
                pd.DataFrame(
                    {"model": "merged", "size": size, "time": time, "excess": merged, "law": laws.merged(time)}
                )
            )
        middle.plot(time, laws.merged(time), **THEORY)
        fine = np.geomspace(1, end / SIZES[-1], 4 * points)
        sizes = SIZES[-1] * np.abs(np.random.default_rng(0).standard_normal(dim))
        steps = separate_excess(modes, np.maximum(sizes, 1e-3 * SIZES[-1]), fine) + beyond
        left.plot(fine, steps, color=GREY, lw=0.8, zorder=0, label="random")
        curves.append(
            pd.DataFrame(
                {
                    "model": "separate, random sizes",
                    "size": SIZES[-1],
                    "time": fine,
                    "excess": steps,
                    "law": laws.separate(SIZES[-1] * fine),
                }
            )
        )
        for ax, title in ((left, "separate"), (middle, "merged")):
            ax.set(
                xscale="log",
                yscale="log",
                xlabel=r"time $t/\tau$",
                ylabel="loss above its minimum",
                title=title,
                ylim=(0.8 * beyond, 2 * modes.saved.sum()),
            )
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
        Gap("largest distance of a fitted exponent from theory", largest(fits, "separate", "merged")),
        Gap("largest relative distance of a fitted amplitude from theory", float(np.abs(amplitudes - 1).max())),
    )
    return Drawn(figure, {"curves": pd.concat(curves), "fits": fits}, gaps, {})


def power_task(dim: int, a: float, b: float) -> icl.Task:
    """A task whose spectra are power laws, with a context that is long enough not to matter."""
    return icl.Task(dim=dim, context=LONG, spectrum=f"power:{a}", task_spectrum=f"power:{b}", basis="identity")


def fitted(dim: int, a: float, b: float, size: float = 1e-3) -> dict[str, float]:
    """Exponents fitted to the scalar equations between a few dozen learned directions and a third of them.

    Directions beyond D are not learned in that time: what they are worth is added, so that D does not bend the line.
    """
    task = power_task(dim, a, b)
    modes, laws = scalar_modes(task), scaling_laws(task)
    beyond = unlearned(modes, laws)
    separate = np.geomspace(min(40, dim / 8), dim / 3, 20) ** (2 * a + b) / modes.drive[0] / size
    merged = np.geomspace(min(20, dim / 8), dim / 8, 20) ** (2 * a + b - 0.5) / modes.drive[0]
    left = separate_excess(modes, size, separate) + beyond, merged_excess(modes, size**2, merged) + beyond
    slope = lambda time, excess: float(np.polyfit(np.log(time), np.log(excess), 1)[0])
    return {
        "a": a,
        "b": b,
        "separate": slope(separate, left[0]),
        "separate_law": laws.separate.exponent,
        "separate_amplitude": float(np.mean(left[0] / laws.separate(size * separate))),
        "merged": slope(merged, left[1]),
        "merged_law": laws.merged.exponent,
        "merged_amplitude": float(np.mean(left[1] / laws.merged(merged))),
    }


def unlearned(modes: Modes, laws: ScalingLaws) -> float:
    """What the directions beyond D are worth."""
    return float(modes.saved[0] * zeta(laws.a + laws.b, len(modes.drive) + 1))


def largest(fits: pd.DataFrame, *names: str) -> float:
    """The largest distance of a fitted exponent from theory."""
    return max(float((fits[name] - fits[f"{name}_law"]).abs().max()) for name in names)
