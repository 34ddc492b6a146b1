r"""Texts of the report with their maths set as MathML, which browsers draw themselves.

Docstrings of figures write maths as `$\gamma T < 1$`. Claims and gaps are also printed in terminals, so they write it
in plain letters; what occurs there is known here, formula by formula.
"""

import re
from functools import cache

from markupsafe import Markup, escape

__all__ = ["bare", "with_maths"]

FORMULAS = {
    "1/||Lambda^2||_F": r"1/\|\Lambda^2\|_F",
    "<U_i, U_j> - v_i v_j": r"\langle U_i, U_j\rangle - v_i v_j",
    "KK' - QQ'": r"KK^\top - QQ^\top",
    "t(init) - t(1e-2) ~ ln(1e-2/init)^a": r"t(w) - t(10^{-2}) \sim \ln(10^{-2}/w)^a",
    "ln(1/init)": r"\ln(1/\mathrm{init})",
    "ln t": r"\ln t",
    "~ init^a": r"\sim \mathrm{init}^a",
    "1/init": r"1/\mathrm{init}",
    "|a - 1|": "|a - 1|",
    "|a + 1|": "|a + 1|",
    "|a + 1/2|": "|a + 1/2|",
    "~ N^a": r"\sim N^a",
    "L(M_m)": "L(M_m)",
    "M_m": "M_m",
    "v^3": "v^3",
    "2^D": "2^D",
    "D + 1": "D + 1",
    "min(K, D)": r"\min(K, D)",
    "(v0 t)^-(a+b-1)/(2a+b)": r"(v_0 t)^{-(a+b-1)/(2a+b)}",
    "t^-(a+b-1)/(2a+b-1/2)": r"t^{-(a+b-1)/(2a+b-1/2)}",
    "(HR)^-(a+b-1)": "(HR)^{-(a+b-1)}",
    "N^-(a+b-1)/(a+b)": "N^{-(a+b-1)/(a+b)}",
    "gamma T < 1": r"\gamma T < 1",
    "gamma T": r"\gamma T",
    "-ln(1 - gamma T)/gamma": r"-\ln(1 - \gamma T)/\gamma",
    "gamma = 0.4725 g c": r"\gamma = 0.4725\,g c",
    "gamma < |C_1|": r"\gamma < |C_1|",
    "2 lr step/(1 - beta)": r"2\,\mathrm{lr}\,\mathrm{step}/(1 - \beta)",
    "T eps/2": r"T\varepsilon/2",
    "lr/eps": r"\mathrm{lr}/\varepsilon",
    "2/kappa": r"2/\kappa",
    "mu = 2/3": r"\mu = 2/3",
    "M_3/(1+x)^2 - 1": "M_3/(1+x)^2 - 1",
    "1/sqrt(N)": r"1/\sqrt{N}",
    "sqrt(2)": r"\sqrt{2}",
    "2/(N+2)": "2/(N+2)",
    "1/N": "1/N",
    "E log|1 + h z_B|/h": r"\mathbb{E}\log|1 + h z_B|/h",
    "h tr C/(2B)": r"h\,\mathrm{tr}\,C/(2B)",
    "t/tau": r"t/\tau",
    "v = 0": "v = 0",
    "diag(1, 3, 1.5, 1)": r"\mathrm{diag}(1, 3, 1.5, 1)",
}
GREEK = ("gamma", "beta", "kappa", "lambda", "Lambda", "omega", "sigma", "alpha", "tau")
PARTS = {  # what a text consists of beside words; the first that fits is taken
    "latex": r"\$(?P<latex_text>[^$]+)\$",
    "code": r"`(?P<code_text>[^`]+)`",
    "equation": r"(?<!\w)(?P<left>[BDNPKRHp]|t/tau) (?P<sign>[=<]) (?P<right>[\d.]*\d)",
    "formula": "|".join(rf"(?<![\w^]){re.escape(plain)}(?!\w)" for plain in sorted(FORMULAS, key=len, reverse=True)),
    "power": r"(?<![\w.])(?P<factor>\d(\.\d+)?)e(?P<exponent>-?\d+)(?!\w)",
    "greek": rf"\b({'|'.join(GREEK)})\b",
}
MATH = r"<math(?:(?!</math>).)*</math>"
GLUED = re.compile(rf"\({MATH}[).,;:]*|{MATH}[).,;:]+")  # no line may break between maths and its brackets
PART = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in PARTS.items()))


def with_maths(text: str) -> Markup:
    """The text as HTML: escaped, with its maths as MathML and what stands between backticks as code."""
    pieces, end = [], 0
    for found in PART.finditer(text):
        pieces += [escape(text[end : found.start()]), set_part(found)]
        end = found.end()
    html = Markup("").join([*pieces, escape(text[end:])])
    return Markup(GLUED.sub(r'<span class="glued">\g<0></span>', str(html)))


def set_part(found: re.Match[str]) -> Markup:
    """A formula or a piece of code as HTML."""
    text = found.group()
    if found["code"]:
        return Markup("<code>{}</code>").format(found["code_text"])
    if found["latex"]:
        return mathml(found["latex_text"])
    if found["formula"]:
        return mathml(FORMULAS[text])
    if found["power"]:
        factor = "" if found["factor"] == "1" else rf"{found['factor']}\times "
        return mathml(rf"{factor}10^{{{int(found['exponent'])}}}")
    if found["equation"]:
        return mathml(f"{FORMULAS.get(found['left'], found['left'])} {found['sign']} {found['right']}")
    return mathml(rf"\{text}")  # a Greek letter


@cache
def mathml(latex: str) -> Markup:
    """A formula as MathML."""
    from latex2mathml.converter import convert

    return Markup(convert(latex))


def bare(text: str) -> str:
    """The text without signs of maths and code, for places that hold letters only."""
    return re.sub(r"\\[,;!]|\\(?=[a-zA-Z])|[$`{}]", "", text)
