"""Maths as MathML, made when the site is built: browsers set it themselves, with no script and no font to load."""

from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

SPACE, PRIME = "{http://www.w3.org/1998/Math/MathML}", "\u2032"
ElementTree.register_namespace("", SPACE.strip("{}"))


def inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="equation">{mathml(node, "block")}</div>\n')
    raise nodes.SkipNode


def mathml(node: nodes.Node, display: str) -> str:
    """LaTeX as MathML; what cannot be read, and a command that would be printed as it stands, is a warning."""
    try:
        tree = ElementTree.fromstring(convert(node.astext().strip(), display=display))
    except Exception as error:
        logging.getLogger(__name__).warning("maths: cannot read %r: %s", node.astext(), error, location=node)
        return ""
    for element in list(tree.iter()):
        lower_prime(element)
        element.text = {r"\{": "{", r"\}": "}"}.get(element.text or "", element.text)  # braces that have a size
        if "\\" in (element.text or ""):
            logging.getLogger(__name__).warning("maths: %r is not known", element.text, location=node)
    return ElementTree.tostring(tree, encoding="unicode")


def lower_prime(element: ElementTree.Element) -> None:
    """Set a transpose as a prime behind its letter: as an exponent it would be raised twice, and tiny."""
    script = element.tag.removeprefix(SPACE)
    if script in ("msup", "msubsup") and (element[-1].text or "").strip(PRIME) == "" and element[-1].text:
        prime = ElementTree.Element(f"{SPACE}mo", form="postfix", lspace="0", rspace="0")
        prime.text = element[-1].text
        letter = element[0]
        if script == "msubsup":
            letter = ElementTree.Element(f"{SPACE}msub")
            letter.extend(element[:2])
        element[:] = [letter, prime]
        element.tag = f"{SPACE}mrow"


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
