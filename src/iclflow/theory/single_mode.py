r"""One direction learned by one head: the scalar equation, solved in closed form.

On the manifold $k = q = v\,e_d$ the flow of separate attention is (Eq. 21) [`scalar-flow`]

$$\tau\dot v = g v^2 - m v^5 .$$

A head of rank $R$ that already holds strengths $S = \sum \alpha$ learns one more direction, $w =
v\kappa^2$, with the held ones following adiabatically, $v^3 = S + w$ [`component-flow`]:

$$\tau\dot w = 2w\,(g - m w)\,\frac{(S+w)^{4/3}}{S + \tfrac23 w},$$

which is the scalar equation again for $S = 0$. In $v = (S+w)^{1/3}$ the right-hand side is a rational
function, so both have an implicit solution $t(v)$ in elementary functions. Time is counted from the instant
at which the solution *without* saturation would blow up ($S = 0$) or would pass full strength ($S > 0$);
call that the age.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from iclflow.errors import BadInput

__all__ = ["MIDPOINT", "SATURATION", "Growth", "clock", "fallen", "scalar_flow", "time_to_reach", "value_at"]

MIDPOINT = 1 - 1 / np.sqrt(2)  # fraction of its strength at which a direction has saved half of its loss
SATURATION = 1 - np.log(3) / 2 + np.pi / (6 * np.sqrt(3))  # kappa_0: what saturation adds to g * integral of v
NEWTON_STEPS = 60

Times = Float[np.ndarray, "*times"] | float


def scalar_flow(v: Times, g: float, m: float) -> Times:
    r"""$\tau\dot v = g v^2 - m v^5$ [`scalar-flow`]."""
    return g * v**2 - m * v**5


def fallen(fraction: Times) -> Times:
    r"""Share $2X - X^2$ of its loss that a direction at the fraction $X$ of its strength saves [`drop`].

    For a head on its own $X = x^3$, $x = v/\alpha^{1/3}$.
    """
    return fraction * (2 - fraction)


def clock(x: Times) -> Times:
    r"""$g c\,(t - T^*)/\tau$ when $v = c x$, $c = \alpha^{1/3}$ [`implicit-solution`].

    $$F(x) = -\frac1x - \tfrac13\ln|1-x| + \tfrac16\ln(1+x+x^2) - \tfrac1{\sqrt3}\arctan\frac{2x+1}{\sqrt3}
      + \frac{\pi}{6\sqrt3} = -\frac1x + \frac{x^2}2 + O(x^5)$$
    """
    x = np.asarray(x, dtype=float)
    return clock_from(x, np.log(np.abs(1 - x**3)))


def clock_from(x: Times, log_rest: Times) -> Times:
    r"""`clock` from $x$ and $\ln|1 - x^3|$, which near $x = 1$ a caller knows more accurately than $x$ gives it."""
    arc = np.arctan((2 * x + 1) / np.sqrt(3)) - np.pi / 6
    return -1 / x - log_rest / 3 + np.log1p(x + x**2) / 2 - arc / np.sqrt(3)


def time_to_reach(v: Times, v0: float, g: float, m: float) -> Times:
    r"""$t/\tau$ that the scalar equation takes from `v0` to `v`, both in $(0, c)$ [`implicit-solution`]."""
    c = (g / m) ** (1 / 3)
    for name, value in (("v0", v0), ("v", v)):
        if np.any(np.asarray(value) <= 0) or np.any(np.asarray(value) >= c):
            raise BadInput(f"{name}: {value} must lie between 0 and (g/m)^(1/3) = {c:.6g}")
    return (clock(np.asarray(v, dtype=float) / c) - clock(v0 / c)) / (g * c)


def value_at(time: Times, v0: float, g: float, m: float) -> Times:
    r"""$v(t)$ of the scalar equation from $0 < v_0 < c$, the inverse of `time_to_reach` [`implicit-solution`]."""
    growth = Growth(g, m)
    start = time_to_reach(v0, v0, g, m) + clock(v0 / growth.final_value) / (g * growth.final_value)
    return growth.value(np.asarray(time, dtype=float) + start)


@dataclass(frozen=True)
class Growth:
    r"""Growth of one direction to its strength $\alpha = g/m$ in a head that holds `held` $= S$ already.

    The natural variable is $u = \ln\frac{X}{1-X}$ with $X = w/\alpha$; both the age and $\eta = \int
    v\,dt/\tau$ are increasing and concave in it, so Newton's method from the left cannot fail.
    """

    drive: float
    curvature: float
    held: float = 0.0

    @property
    def strength(self) -> float:
        r"""$\alpha = g/m$."""
        return self.drive / self.curvature

    @property
    def first_value(self) -> float:
        """$a = S^{1/3}$, the value weight before."""
        return self.held ** (1 / 3)

    @property
    def final_value(self) -> float:
        r"""$b = (S + \alpha)^{1/3}$, the value weight after [`rank-strength`]."""
        return (self.held + self.strength) ** (1 / 3)

    @property
    def full_amplitude(self) -> float:
        r"""Size of key and query where growth without saturation has age 0: $c$, or $\sqrt{\alpha/a}$."""
        return self.final_value if self.held == 0 else np.sqrt(self.strength / self.first_value)

    @property
    def switch_age(self) -> float:
        r"""Age at which the drive along this direction is in effect switched off for all other heads [`switch`].

        They feel $g(1 - X)$, which is equivalent to the full drive $g$ for the time $\int (1 - X)\,dt$, up to the age

        $$-\frac1{gc}\quad(S = 0),\qquad
          \frac1{2g}\Big[-\frac2p - \frac3a F(p/a)\Big]_{a}^{b}\quad(S > 0,\ \text{logarithm at } p = a
          \text{ removed}).$$
        """
        g, a, b = self.drive, self.first_value, self.final_value
        if self.held == 0:
            return -1 / (g * b)
        end = -2 / b - 3 / a * clock_from(b / a, np.log(self.strength / self.held))
        start = -2 / a - 3 / a * clock_from(1.0, 0.0) + np.log(self.strength / self.held) / a
        return float((end - start) / (2 * g))

    @property
    def stretch(self) -> float:
        r"""$\eta - b\cdot$age long after saturation, with $\eta$ as in `eta` [`stretch`]."""
        if self.held == 0:
            return SATURATION / self.drive
        late = 45.0
        return float(self.eta(late) - self.final_value * self.age_at(late))

    def age_at(self, u: Times) -> Times:
        r"""Age at which $\ln\frac{X}{1-X} = u$, in closed form [`implicit-solution`, `component-solution`].

        For $S > 0$, with $p = (S + w)^{1/3}$ and up to the constant that makes it $\ln X/(2ga)$ at the
        start,

        $$\frac{t}{\tau} = \frac1{2g}\Big[\frac{a^3 + 2b^3}{b^4}F(p/b) - \frac3a F(p/a)\Big].$$
        """
        g, a, b, alpha = self.drive, self.first_value, self.final_value, self.strength
        log_rest = log_expit(-np.asarray(u, dtype=float))  # ln(1 - X), exact however close X is to 1
        if self.held == 0:
            return clock_from(np.exp(log_expit(u) / 3), log_rest) / (g * b)
        p = (self.held + alpha * expit(u)) ** (1 / 3)
        shape = (a**3 + 2 * b**3) / b**4
        unit = np.log(alpha / b**3)
        end = shape * (clock_from(p / b, log_rest + unit) - clock_from(a / b, unit))
        start = 3 / a * (clock_from(p / a, 0.0) - clock_from(1.0, 0.0)) - log_expit(u) / a
        return (end - start) / (2 * g)

    def rate(self, u: Times) -> Times:
        r"""$d\,\text{age}/du = (S + \tfrac23 w)\,/\,2g(S + w)^{4/3}$."""
        if self.held == 0:
            return np.exp(-log_expit(u) / 3) / (3 * self.drive * self.final_value)
        w = self.strength * expit(u)
        return (self.held + 2 * w / 3) / (2 * self.drive * (self.held + w) ** (4 / 3))

    def eta(self, u: Times) -> Times:
        r"""$\eta = \int v\,dt/\tau$, zero at age 0 of growth without saturation: logarithms only [`stretch`]."""
        grown, rest = log_expit(u), log_expit(-np.asarray(u, dtype=float))
        if self.held == 0:
            return (grown - rest) / (3 * self.drive)
        total = self.held + self.strength
        heavier = np.log1p(self.strength * expit(u) / self.held)
        bend = (self.held + 2 * self.strength / 3) / total * rest + self.strength / (3 * total) * heavier
        return (grown - bend) / (2 * self.drive)

    def logit_at(self, age: Times) -> Times:
        """The inverse of `age_at`, to machine precision."""
        age = np.asarray(age, dtype=float)
        u = self.left_guess(age)
        for _ in range(NEWTON_STEPS):
            step = (age - self.age_at(u)) / self.rate(u)
            u = u + step
            if np.all(np.abs(step) <= 1e-13 * (1 + np.abs(u))):
                break
        return u

    def left_guess(self, age: Times) -> Times:
        """A start at or below the root: concave curves lie under their asymptotes."""
        late_rate = float(self.rate(45.0))
        late = 45.0 + (age - float(self.age_at(45.0))) / late_rate
        if self.held > 0:
            return np.maximum(2 * self.drive * self.first_value * age, late)
        s = np.minimum(self.drive * self.final_value * age, -1.6)
        early = logit((-1 / s) ** 3)
        return np.where(age * self.drive * self.final_value < -1.6, early, np.maximum(late, logit(1.6**-3.0)))

    def fraction(self, age: Times) -> Times:
        r"""$X = w/\alpha$ at an age."""
        return expit(self.logit_at(age))

    def value(self, age: Times) -> Times:
        """$v = (S + w)^{1/3}$ at an age."""
        if self.held == 0:
            return self.final_value * np.exp(log_expit(self.logit_at(age)) / 3)
        return (self.held + self.strength * self.fraction(age)) ** (1 / 3)

    @property
    def midpoint_age(self) -> float:
        """Age at which half of the loss that this direction saves is gone."""
        return float(self.age_at(logit(MIDPOINT)))

    def fallen_at(self, age: Times) -> Times:
        """Share of this direction's loss that is gone at an age [`drop`]."""
        return fallen(self.fraction(age))

    def gained(self, age: Times) -> Times:
        """What the direction adds to the cube of the head's value weight."""
        return self.value(age) ** 3 - self.held


def logit(share: Times) -> Times:
    """The logarithm of a share over the rest; `expit` is its inverse (SciPy has them too, but takes longer to load)."""
    return np.log(share) - np.log1p(-np.asarray(share))


def log_expit(u: Times) -> Times:
    return -np.logaddexp(0.0, -np.asarray(u, dtype=float))


def expit(u: Times) -> Times:
    return np.exp(log_expit(u))
