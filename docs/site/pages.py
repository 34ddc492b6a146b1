"""Which pages the site has, in which order, and how a page of the repository becomes a page of the site.

Pages are copied into a staging folder: `docs/X` to `X`, notebooks to `tutorial/`, the changelog beside them. Links
follow the files that they lead to; references like [`key`] lead to the ledger of equations, code like `icl.predict` to
the API.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
START = DOCS / "index.md"
NOT_SHOWN = (DOCS / "README.md",)  # the same index, for readers of the repository

FIRST = {  # what comes first in each folder; pages that are not named here follow in alphabetical order
    "docs/how-to": (
        "reproduce", "own-data", "pytorch", "new-spectrum", "trust", "optimisers", "infer", "depth", "task-diversity",
        "large-problems", "new-model", "new-probe", "sweep", "explore", "public-code",
    ),
    "docs/derivations": ("staircase", "merged", "separate", "algorithm", "regimes", "in_weight", "forecast"),
}  # fmt: skip
LEXERS = {"rooms": "text", "torch": "python", "console": "bash"}  # how blocks of code are coloured


def folder(name: str, kind: str = "md") -> list[Path]:
    """The pages of a folder of the repository, in the order in which they are read."""
    first = FIRST.get(name, ())
    rank = lambda page: (first.index(page.stem) if page.stem in first else len(first), page.stem)
    return sorted((ROOT / name).glob(f"*.{kind}"), key=rank)


def sections() -> dict[str, list[Path | str]]:
    """Every page under its heading in the sidebar: files of the repository, and names of generated pages."""
    named: dict[str, list[Path | str]] = {
        "Tutorial": [*folder("notebooks", "ipynb")],
        "How to": [*folder("docs/how-to")],
        "Theory": [DOCS / "notation.md", *folder("docs/derivations"), DOCS / "equations.md", DOCS / "differences.md"],
        "Evidence": ["gallery", DOCS / "claims.md", DOCS / "speed.md"],
        "Reference": ["api/index", "commands"],
        "About": [DOCS / "faq.md", DOCS / "architecture.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"],
    }
    shown = {START, *NOT_SHOWN, *(page for pages in named.values() for page in pages)}
    named["About"] += [page for page in sorted(DOCS.glob("*.md")) if page not in shown]
    return named


def staged_name(path: Path) -> str:
    """Where a file of the repository stands in the staging folder."""
    inside = path.relative_to(ROOT)
    if path.is_dir():
        return staged_name(folder(str(inside), "ipynb" if inside.name == "notebooks" else "md")[0])
    if inside.parts[0] == "docs":
        return str(inside.relative_to("docs"))
    if inside.parts[0] == "notebooks":
        return str(Path("tutorial", inside.name))
    return inside.name.lower() if inside.suffix == ".md" else str(Path("files", inside.name))


def stage(target: Path, links: dict[str, str]) -> None:
    """Copy every page of the repository, and every file that one of them shows or offers."""
    for pages in sections().values():
        for page in pages:
            if isinstance(page, Path):
                stage_page(page, target, links)
    start = site_page(START, target, links) + "".join(toctree(title, pages) for title, pages in sections().items())
    write(target / "index.md", start)


def toctree(title: str, pages: list[Path | str]) -> str:
    names = [page if isinstance(page, str) else str(Path(staged_name(page)).with_suffix("")) for page in pages]
    return "\n\n```{toctree}\n:hidden:\n:caption: " + title + "\n\n" + "\n".join(names) + "\n```\n"


def stage_page(page: Path, target: Path, links: dict[str, str]) -> None:
    if page.suffix == ".ipynb":
        write(target / staged_name(page), page.read_text())
    else:
        write(target / staged_name(page), site_page(page, target, links))


def site_page(page: Path, target: Path, links: dict[str, str]) -> str:
    """The text of a page with links of the site; files that it shows or offers are copied."""

    def moved(link: re.Match[str]) -> str:
        place, mark, anchor = link[2].partition("#")
        if not place or re.match(r"[a-z]+:", place):
            return link[0]
        file = (page.parent / place).resolve()
        if file == ROOT / "README.md":
            file = START
        name = staged_name(file)
        if file.is_file() and file.suffix != ".md" and file.suffix != ".ipynb":
            copy(file, target / name)
        here = Path(staged_name(page)).parent
        return f"{link[1]}({os.path.relpath(name, here)}{mark}{anchor})"

    text = page.read_text()
    if page.name == "equations.md":
        text = with_anchors(text, links)
    text = outside_code(text, lambda part: re.sub(r"(\])\(([^)\s]+)\)", moved, part))
    for ours, lexer in LEXERS.items():
        text = re.sub(f"^```{ours}$", f"```{lexer}", text, flags=re.MULTILINE)
    return linked(text, links)


def with_anchors(ledger: str, links: dict[str, str]) -> str:
    """The ledger of equations, each key a place to link to, each function a link to the API."""

    def row(cells: re.Match[str]) -> str:
        key, paper, function = cells.groups()
        if f"iclflow.{function}" not in links:
            raise ValueError(f"docs/equations.md: `{function}` of key `{key}` is not in the API reference")
        return f"| [`{key}`]{{#eq-{key}}} |{paper}| {links[f'iclflow.{function}'].format(function)} |"

    ledger = re.sub(r"^\| `([\w-]+)` \|([^|]*)\| `([\w.]+)` \|", row, ledger, flags=re.MULTILINE)
    return re.sub(r"^\| key \|", "{.ledger}\n| key |", ledger, flags=re.MULTILINE)


# --- Markdown ---------------------------------------------------------------------------------------------------------


def equation_keys() -> frozenset[str]:
    return frozenset(re.findall(r"^\| `([\w-]+)` \|", (DOCS / "equations.md").read_text(), flags=re.MULTILINE))


def linked(text: str, links: dict[str, str]) -> str:
    """Markdown in which keys of equations and names of the API are links."""
    keys = equation_keys()

    def to_equations(reference: re.Match[str]) -> str:
        found = re.findall(r"`([\w-]+)`", reference[1])
        if not keys.issuperset(found):
            return reference[0]
        return "[" + ", ".join(f"[`{key}`](#eq-{key})" for key in found) + "]"

    def to_name(code: re.Match[str]) -> str:
        if code[1].startswith("docs/") and (ROOT / code[1]).is_file():
            return "{doc}`/" + code[1].removeprefix("docs/").removesuffix(".md") + "`"
        name = re.sub(r"^icl(flow)?\.", "", code[1])
        full = f"iclflow.{name}"
        return links[full].format(code[1]) if "." in code[1] and full in links else code[0]

    def change(part: str) -> str:
        part = re.sub(r"(?<![\]\w])\[((?:`[\w-]+`(?:, )?)+)\](?![\(\{\[])", to_equations, part)
        return re.sub(r"(?<![\[`}\w])`([\w.]+|docs/[\w/-]+\.md)`(?![\]`])", to_name, part)

    return outside_code(text, change)


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Change the text between fenced blocks of code; the text inside a directive is text, the code in it is not."""
    done, plain, open_fences = [], [], []
    for line in text.splitlines(keepends=True):
        fence = re.match(r" *(`{3,})(.*)", line)
        in_code = bool(open_fences) and not open_fences[-1][1]
        if fence and open_fences and fence[1] == open_fences[-1][0] and not fence[2].strip():
            open_fences.pop()
        elif fence and not in_code:
            open_fences.append((fence[1], fence[2].startswith("{")))
        elif not in_code:
            plain.append(line)
            continue
        done += [change("".join(plain)), line]
        plain = []
    return "".join([*done, change("".join(plain))])


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def copy(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)
