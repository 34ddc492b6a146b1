"""Writes every percent script of this folder as a notebook beside it, executed: `python notebooks/pair.py [NAME ...]`.

A cell begins with `# %%`, a cell of text with `# %% [markdown]`. Scripts are the sources; notebooks are never edited.
"""

import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
SCRIPTS = sorted(HERE.glob("[0-9]*.py"))


def notebook_of(script: Path) -> nbformat.NotebookNode:
    """The cells of a script, not yet executed."""
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for number, (kind, body) in enumerate(cells(script.read_text())):
        make = nbformat.v4.new_markdown_cell if kind else nbformat.v4.new_code_cell
        notebook.cells.append(make(body, id=f"cell-{number}"))
    return notebook


def cells(text: str) -> list[tuple[bool, str]]:
    """Whether each cell is text, and its lines."""
    parts = re.split(r"^# %%( \[markdown\])?\n", text, flags=re.MULTILINE)[1:]
    pairs = list(zip(parts[::2], parts[1::2], strict=True))
    uncommented = lambda body: re.sub(r"^# ?", "", body, flags=re.MULTILINE)
    return [(bool(kind), (uncommented(body) if kind else body).strip()) for kind, body in pairs]


def executed(notebook: nbformat.NotebookNode, where: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs, without times and progress bars."""
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(where)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            bars = lambda o: o.output_type == "display_data" or (o.output_type == "stream" and o.name == "stderr")
            cell.outputs = [output for output in cell.outputs if not bars(output)]
    notebook.metadata.pop("language_info", None)
    return notebook


def main(names: list[str]) -> None:
    import tempfile

    for script in SCRIPTS:
        if not names or script.stem in names:
            with tempfile.TemporaryDirectory() as scratch:
                nbformat.write(executed(notebook_of(script), Path(scratch)), script.with_suffix(".ipynb"))
            print(script.with_suffix(".ipynb").name)


if __name__ == "__main__":
    main(sys.argv[1:])
