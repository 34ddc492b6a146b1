"""Every notebook runs from its script in a kernel of its own, shows something, and is the one that stands beside it."""

import os
import sys
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
sys.path.insert(0, str(FOLDER))
import pair  # noqa: E402

FULL = os.environ.get("ICLFLOW_RELIABILITY") == "full"  # `make reliability` runs all of them, `make test` the first
IDS = [script.stem for script in pair.SCRIPTS]


@pytest.mark.parametrize("script", pair.SCRIPTS, ids=IDS)
def test_the_notebook_beside_the_script_has_its_cells(script):
    """`python notebooks/pair.py` was run after the last change of the script."""
    written = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    nbformat.validate(written)
    expected = pair.notebook_of(script)
    assert [(c.cell_type, c.source) for c in written.cells] == [(c.cell_type, c.source) for c in expected.cells]
    assert "make install" in written.cells[0].source
    assert "## Exercise" in written.cells[-1].source
    text = script.with_suffix(".ipynb").read_text()
    assert len(text) < 400_000
    assert "site-packages" not in text  # warnings name the machine that they were made on


@pytest.mark.parametrize("script", pair.SCRIPTS if FULL else pair.SCRIPTS[:1], ids=IDS if FULL else IDS[:1])
@pytest.mark.filterwarnings("default")
def test_the_notebook_runs(script, tmp_path):
    done = pair.executed(pair.notebook_of(script), tmp_path)
    outputs = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    assert all(output.output_type != "error" for output in outputs)
    shown = [output.data for output in outputs if output.output_type == "execute_result"]
    assert any("<svg" in data.get("text/html", "") for data in shown)
    assert not [o for o in outputs if "Warning" in str(o.get("data", o.get("text")))]
