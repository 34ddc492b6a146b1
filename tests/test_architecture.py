"""The rooms stand in the order that docs/architecture.md declares, and nobody asks which model it has."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from iclflow.engines.minimum import pseudo_inverse

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "iclflow"
FILES = sorted(PACKAGE.rglob("*.py"))


def declared() -> list[str]:
    block = re.search(r"```rooms\n(.*?)```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL)
    return [line.split()[0] for line in block[1].splitlines()]


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST, type_checking: bool) -> Iterator[str]:
    """Every module of ours that a file imports, at its top or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not type_checking:
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("iclflow"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("iclflow"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "iclflow"


NAMED = {name_of(path): path for path in FILES}
MODULES = set(NAMED)


def names_its_theory(module: str, imported: str) -> bool:
    """A model names the regime of theory that predicts it, inside a method: the one arrow that points upwards."""
    return room_of(module) == "models" and imported.startswith("iclflow.prediction.regimes.")


def resolved(imported: str) -> str:
    """The module that an import loads: `iclflow.a.b` or, for a name inside of it, `iclflow.a`."""
    return imported if imported in MODULES else imported.rpartition(".")[0]


def test_every_room_is_declared_and_few_modules_stand_beside_them():
    beside = [path.stem for path in PACKAGE.glob("*.py")]
    rooms = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()]
    assert sorted([*rooms, *beside]) == sorted([*declared(), "__init__", "__main__"])
    assert len(beside) <= 7
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_from_rooms_above_it(path):
    order, room = declared(), room_of(name_of(path))
    if room in ("iclflow", "__main__"):
        return
    for imported in imports(ast.parse(path.read_text()), type_checking=True):
        other = room_of(resolved(imported))
        if other == "iclflow":  # the front door, as studies use it: a user's view of the package
            assert room in ("studies", "units", "theory"), f"{path}: imports the front door"
        elif not names_its_theory(name_of(path), imported):
            assert order.index(other) <= order.index(room), f"{path}: {room} must not import {imported}"


def test_theory_knows_the_task_and_nothing_else():
    for path in (PACKAGE / "theory").rglob("*.py"):
        for imported in imports(ast.parse(path.read_text()), type_checking=True):
            allowed = ("iclflow.theory", "iclflow.config", "iclflow.errors", "iclflow.data.spectrum")
            assert imported.startswith(allowed), f"{path}: imports {imported}"


def test_no_module_imports_itself_on_the_way():
    imported = lambda path: {resolved(name) for name in imports(ast.parse(path.read_text()), type_checking=False)}
    edges = {name: {i for i in imported(path) if not names_its_theory(name, i)} for name, path in NAMED.items()}
    done: set[str] = set()

    def walk(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join([*way[way.index(module) :], module])
        if module in done or module not in edges:
            return
        for other in sorted(edges[module] - {"iclflow"}):
            walk(other, (*way, module))
        done.add(module)

    for module in sorted(edges):
        walk(module, ())


def lines(pattern: str) -> list[str]:
    """Places outside of `models` where a line of code matches."""
    found = []
    for path in FILES:
        if room_of(name_of(path)) != "models":
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(pattern, line):
                    found.append(f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}")
    return found


def test_nobody_outside_of_models_asks_which_model_it_is():
    kinds = lines(r"\.kind (==|!=|in|not in) |isinstance\([^)]*\b(Separate|Merged|MLP|Attention)\b")
    assert len(kinds) <= 5, "\n".join(kinds)
    softmax = lines(r"model\.softmax\b")
    assert len(softmax) <= 6, "\n".join(softmax)


def test_annotations_are_checked_in_everything_but_the_records(request):
    """The import hook covers every module that is not a pydantic record, and it bites."""
    covered = request.config.getoption("--jaxtyping-packages").split(",")[:-1]
    records = {"config", "experiment", "errors", "versions", "__main__", "iclflow"}
    models = {f"iclflow.models.{name}" for name in ("base", "attention", "merged", "separate", "mlp")}
    for module in sorted(MODULES - models - {"iclflow", "iclflow.models"}):
        if room_of(module) not in records:
            assert any(module == name or module.startswith(f"{name}.") for name in covered), module
    with pytest.raises(TypeCheckError):
        pseudo_inverse(np.ones((2, 3)))  # says that it takes square matrices
