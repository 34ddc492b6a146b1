"""The ledger of equations names functions and tests that exist, and every key in the code is in it."""

import ast
import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

ROOT = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "equations.md").read_text().splitlines()
    if line.startswith("| `")
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip("`") for row in ROWS])
def test_function_and_test_exist(row):
    _, _, function, test = row
    resolve_name(f"iclflow.{function.strip('`')}")
    file, _, test_name = test.strip("`").partition("::")
    names = {node.name for node in ast.walk(ast.parse((ROOT / "tests" / file).read_text())) if hasattr(node, "name")}
    assert test_name in names


def test_every_key_in_the_code_stands_in_the_ledger_once():
    listed = [row[0].strip("`") for row in ROWS]
    assert len(listed) == len(set(listed))
    code = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    used = set(re.findall(r"\[`([a-z0-9-]+)`\]", code))
    assert used <= set(listed), used - set(listed)


def test_theory_knows_nothing_of_the_engines():
    forbidden = ("engines", "models", "training", "moments", "sampled", "population", "run", "jax")
    for path in (ROOT / "src" / "iclflow" / "theory").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(part in forbidden for name in names for part in name.split(".")), (path.name, names)
