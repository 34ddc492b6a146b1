r"""Scaling laws of the staircase, for spectra $\lambda_d = \ell d^{-a}$, $\omega_d = w d^{-b}$ and long contexts.

A drop per direction adds up to a power law of the loss above its minimum, the excess: direction $d$ is worth
$T_d^2 = \ell w\,d^{-(a+b)}$ and is learned at a time that grows with $d$ [`scaling-laws`].

*Separate.* A head of size $v_0$ learns direction $d$ at $1/(g_dv_0)$, $g_d = \ell^2w\,d^{-(2a+b)}$, at once. What is
left at $t$ is the sum beyond $d(t) = (\ell^2wv_0t)^{1/(2a+b)}$:

$$L - L_\infty = \frac{\ell w}{a+b-1}\,(\ell^2w\,v_0t)^{-(a+b-1)/(2a+b)} .$$

*Merged.* One value $a(t)$ drives all directions. With $Y = \int a^2dt$ and $Q = 3a+b$ direction $d$ is learned to the
fraction $X(z)$, $z = m_dY$; the value grows with what is learned, $a^4 = \sum_d(\alpha_dX_d)^2 \propto Y^{4r}$,
$r = (2a+1)/4Q$. Hence

$$X(z) = z\int_0^1 s^{-r}e^{-z(1-s)}ds,\qquad I_1 = \int_0^\infty y^{2a}X(y^{-Q})^2dy,\qquad
  I_2 = \int_0^\infty y^{-(a+b)}\big(1 - X(y^{-Q})\big)^2dy,$$
$$L - L_\infty = \ell w\,I_2\,\big[(1-2r)\sqrt{I_1}\;\ell^2w\,t\big]^{-(a+b-1)/(2a+b-1/2)} :$$

faster, because the value keeps growing, and without the initial weights, which only shift the time by a logarithm.

*Components.* Heads and ranks that hold $HR$ directions leave $\frac{\ell w}{a+b-1}(HR)^{-(a+b-1)}$. *Context.* A finite
context leaves $\ell w\,\frac{\pi/e}{\sin\pi/e}\,(s/N)^{(e-1)/e}$ with $e = a + b$ and $s = \sum_dd^{-e}$, from
$\sum_d\lambda_d\omega_d\,\epsilon_d/(1+\epsilon_d)$.

The scalar equations themselves, one per direction, need eigenvalues only and are evaluated here for any spectrum and
context length.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Real

from iclflow.config import Task
from iclflow.config.spectra import is_matrix
from iclflow.data.spectrum import spectrum_eigenvalues
from iclflow.errors import BadInput
from iclflow.theory.collinear import Modes
from iclflow.theory.landscape import length_factors
from iclflow.theory.single_mode import clock_from
from iclflow.theory.solve import solve

__all__ = [
    "PowerLaw",
    "ScalingLaws",
    "merged_excess",
    "scalar_modes",
    "scaling_laws",
    "separate_excess",
]

LOGITS = np.linspace(-60, 40, 40_000)  # of the fraction learned, at which the scalar solution is tabulated
LOG_LEARNED, LOG_LEFT = -np.logaddexp(0, -LOGITS), -np.logaddexp(0, LOGITS)  # of X and of 1 - X
CLOCK = clock_from(np.exp(LOG_LEARNED / 3), LOG_LEFT)
LEFT = np.exp(2 * LOG_LEFT)  # (1 - X)^2: the share of its loss that a direction has yet to save

Times = Float[np.ndarray, " T"]
Vector = Float[np.ndarray, " D"]


@dataclass(frozen=True)
class PowerLaw:
    """amplitude * x ** exponent."""

    exponent: float
    amplitude: float

    def __call__(self, x: Real[np.ndarray, "*n"] | int | float) -> Float[np.ndarray, "*n"] | float:
        """The value at x."""
        return self.amplitude * x**self.exponent


@dataclass(frozen=True)
class ScalingLaws:
    """The excess loss as power laws, for $\\lambda_d = \\ell d^{-a}$ and $\\omega_d = w d^{-b}$."""

    a: float
    b: float
    separate: PowerLaw  # of v_0 t
    merged: PowerLaw  # of t
    components: PowerLaw  # of heads x rank
    context: PowerLaw  # of N


def scaling_laws(task: Task) -> ScalingLaws:
    r"""The laws for a task with spectrum `power:A` and task spectrum `power:B` or none [`scaling-laws`].

    Args:
        task: The task; its dimension fixes the scale of the spectra, whose traces are 1 and D.

    Returns:
        Exponents and amplitudes of the excess loss.

    Raises:
        BadInput: If a spectrum is not a power law, or $a \le 0$ or $a + b \le 1$, where the sums do not converge.
    """
    a, b = exponent("spectrum", task.spectrum), exponent("task_spectrum", task.task_spectrum or "power:0")
    e, Q = a + b, 3 * a + b
    if a <= 0 or e <= 1:
        raise BadInput(f"spectrum: exponents a = {a:g}, b = {b:g} must have a > 0 and a + b > 1 for a scaling law")
    modes = eigenvalues(task)
    unit, w = float(modes[0].max()), float(modes[1].max())
    speed, worth = unit**2 * w, unit * w
    r = (2 * a + 1) / (4 * Q)
    first, second = merged_integrals(a, b)
    steep = -(e - 1) / (2 * a + b - 0.5)
    trace = float(np.sum(modes[0] * modes[1])) / worth
    return ScalingLaws(
        a,
        b,
        separate=PowerLaw(-(e - 1) / (2 * a + b), worth / (e - 1) * speed ** (-(e - 1) / (2 * a + b))),
        merged=PowerLaw(steep, worth * second * ((1 - 2 * r) * np.sqrt(first) * speed) ** steep),
        components=PowerLaw(1 - e, worth / (e - 1)),
        context=PowerLaw(-(e - 1) / e, worth * np.pi / e / np.sin(np.pi / e) * trace ** ((e - 1) / e)),
    )


def exponent(field: str, spectrum: object) -> float:
    name, _, number = str(spectrum).partition(":")
    if name != "power" or not number:
        raise BadInput(f"{field}: {spectrum!r} must be power:A for a scaling law")
    return float(number)


def merged_integrals(a: float, b: float) -> tuple[float, float]:
    r"""$I_1$ and $I_2$, by the trapezoidal rule in $\ln y$."""
    from scipy.special import hyp1f1  # slow to load, and needed here alone

    Q = 3 * a + b
    r = (2 * a + 1) / (4 * Q)
    log_y = np.linspace(-12.0, 60.0 / Q + 12.0, 40_001)
    y = np.exp(log_y)
    z = y**-Q
    # int_0^1 s^-r e^{-z(1-s)} ds = M(1, 2 - r, -z)/(1 - r); 1 - X ~ r/z where M can no longer be evaluated
    near = z < 500
    X = np.where(near, z * hyp1f1(1.0, 2 - r, -np.where(near, z, 1.0)) / (1 - r), 1 + r / np.maximum(z, 500))
    width = log_y[1] - log_y[0]
    first = float(np.sum(y ** (2 * a + 1) * X**2) * width)
    return first, float(np.sum(y ** (1 - a - b) * (1 - X) ** 2) * width)


def scalar_modes(task: Task) -> Modes:
    """Drive and curvature from eigenvalues alone: no matrix is formed, so D may be in the tens of thousands.

    Args:
        task: The task; its covariances must be given by eigenvalues and share eigenvectors.

    Returns:
        The directions of one output.

    Raises:
        BadInput: If a spectrum is a matrix, if there are K fixed tasks or several outputs, or if `icl_fraction` < 1.
    """
    if task.icl_fraction < 1 or task.tasks is not None or task.out_dim > 1:
        raise BadInput("tasks, icl_fraction, out_dim: the scalar equations are for own tasks and one output")
    token, omega = eigenvalues(task)
    k1, k2, k3 = length_factors(task)
    drive, power = token**2 * omega, float(np.sum(token * omega))
    context = (k2 + k3) * drive + k3 * (power + task.label_noise) * token
    base = power + task.label_noise * task.query_noise
    return Modes(base, 1, k1 * drive, context * token)


def eigenvalues(task: Task) -> tuple[Vector, Vector]:
    """Of tokens and tasks, direction by direction."""
    if is_matrix(task.spectrum) or is_matrix(task.task_spectrum):
        raise BadInput("spectrum: must be given by eigenvalues here, not by a matrix")
    token = spectrum_eigenvalues(task.spectrum, task.dim, trace=1.0)
    if task.task_spectrum is None:
        return token, np.ones(task.dim)
    return token, spectrum_eigenvalues(task.task_spectrum, task.dim, trace=float(task.dim))


def separate_excess(modes: Modes, sizes: Vector | float, time: Times) -> Times:
    r"""The excess if every direction has a balanced head of its own [`scalar-loss`].

    $$\tau\dot v_d = g_dv_d^2 - m_dv_d^5 ,$$

    whose solutions are one function of $g_dc_dt$, read off a table.

    Args:
        modes: The directions.
        sizes: Initial size of the head of every direction, or of all.
        time: Times t/tau.

    Returns:
        The loss above its minimum at every time.

    Raises:
        BadInput: If a size is not between 0 and the final one.
    """
    c = np.cbrt(modes.drive / modes.curvature)
    x = sizes / c
    if not ((x > 0) & (x < 1)).all():
        raise BadInput(f"sizes: must lie between 0 and the final sizes, the smallest of which is {c.min():.4g}")
    begin, pace = clock_from(x, np.log1p(-(x**3))), modes.drive * c
    return np.array([modes.saved @ np.interp(begin + pace * t, CLOCK, LEFT) for t in np.asarray(time, dtype=float)])


def merged_excess(modes: Modes, alpha: float, time: Times) -> Times:
    r"""The excess of merged attention from a small start [`scalar-loss`], by `theory.collinear`.

    Args:
        modes: The directions.
        alpha: Growing part of the initial weights, $a(0)^2$.
        time: Rising times t/tau.

    Returns:
        The loss above its minimum at every time.

    Raises:
        BadInput: If `alpha` is not positive or `time` does not rise.
    """
    time = np.asarray(time, dtype=float)
    if not alpha > 0 or (np.diff(time) <= 0).any():
        raise BadInput(f"alpha, time: {alpha} must be positive and times must rise")
    strength = modes.split(solve(modes, modes.start(alpha), float(time[-1])).at(time))[2]
    return (1 - modes.curvature * strength / modes.drive)[:, 0] ** 2 @ modes.saved
