"""How Sphinx builds the site from the staged pages; `make docs` runs it."""

from importlib import metadata, resources
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util import logging

project = "iclflow"
release = metadata.version("iclflow")
author = "the authors of iclflow"
project_copyright = "the authors of iclflow, Apache-2.0"

extensions = ["myst_nb", "mathml"]
exclude_patterns: list[str] = []
nb_execution_mode = "off"  # notebooks hold their outputs, and a test compares them with their scripts
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 4
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
add_module_names = False
highlight_language = "python"
smartquotes = False  # two hyphens are a flag, not a dash
pygments_style = "friendly"
pygments_dark_style = "github-dark"

html_theme = "furo"
html_title = f"iclflow {release}"
html_math_renderer = "mathml"
FONT = resources.files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf"  # for machines that have no font for maths
html_static_path = [str(Path(__file__).parent / "static"), str(FONT)]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # a page opened from disk may not read other pages
html_domain_indices = False


def setup(app: Any) -> None:
    app.connect("doctree-read", lambda app, tree: dashes(tree))
    app.connect("missing-reference", lambda app, env, node, shown: report_missing(node))


def dashes(tree: nodes.document) -> None:
    """Set the two hyphens between an argument and its meaning as a dash, which `smartquotes` would have done."""
    for text in list(tree.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" – "))


def report_missing(node: nodes.Element) -> None:
    """A link of ours to a name of the package that has no entry; types in signatures need not have one."""
    if node.get("reftype") == "obj" and node["reftarget"].startswith("iclflow."):
        logging.getLogger(__name__).warning("no entry for %s", node["reftarget"], location=node)
