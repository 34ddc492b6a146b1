"""What the package makes public: read from its sources, module by module, without importing them."""

import ast
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from pages import DOCS, ROOT

PACKAGE = ROOT / "src" / "iclflow"
WHOLE = ("errors", "units", "config", "data", "models", "figures", "theory")  # rooms of which every module is shown
RETURNED = (  # modules of other rooms, whose classes the verbs return
    "prediction.result", "comparison.comparing", "comparison.levels", "comparison.overlay",
    "comparison.distribution", "probing.result", "sweeps.results", "studies", "studies.report", "studies.study",
    "results.run",
)  # fmt: skip
Definition = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Module:
    """A module of the package: its docstring, its source, and where each of its names is defined."""

    name: str  # below iclflow: theory.landscape; empty for the package itself
    path: Path
    tree: ast.Module

    @property
    def full(self) -> str:
        return f"iclflow.{self.name}" if self.name else "iclflow"

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    @cached_property
    def public(self) -> list[str]:
        """The names of `__all__`."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return list(ast.literal_eval(node.value))
        return []

    @cached_property
    def defined(self) -> dict[str, Definition]:
        """The statements that define names of `__all__`, or of the ledger of equations, in this very module."""
        found: dict[str, Definition] = {}
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                several = target.elts if isinstance(target, ast.Tuple) else [target]
                found |= {ast.unparse(one): node for one in several}
        shown = [*self.public, *(name for name in found if f"{self.name}.{name}" in ledger())]
        return {name: found[name] for name in shown if name in found}

    def methods(self, name: str) -> list[str]:
        """The public methods of a class that have a docstring; what has none is not for users."""
        node = self.defined[name]
        inside = node.body if isinstance(node, ast.ClassDef) else []
        public = [one for one in inside if isinstance(one, ast.FunctionDef) and one.name[0] != "_"]
        return [one.name for one in public if ast.get_docstring(one)]

    @cached_property
    def imported(self) -> dict[str, str]:
        """Where the names come from that this module imports from others, under TYPE_CHECKING too."""
        return {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }

    def comment(self, node: ast.stmt) -> str:
        """The comment at the end of a statement."""
        line = self.path.read_text().splitlines()[(node.end_lineno or node.lineno) - 1]
        return line[node.end_col_offset or 0 :].strip().removeprefix("# ").strip()


@cache
def module(name: str) -> Module:
    """A module by its name below iclflow."""
    path = PACKAGE.joinpath(*name.split(".")) if name else PACKAGE
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return Module(name, path, ast.parse(path.read_text()))


def modules_of(room: str) -> list[str]:
    """The modules of a room that make names public, in alphabetical order."""
    if (PACKAGE / f"{room}.py").is_file():
        return [room]
    inside = (f"{room}.{path.stem}" for path in sorted((PACKAGE / room).glob("[a-z]*.py")))
    return [name for name in inside if module(name).public]


@cache
def ledger() -> frozenset[str]:
    """The functions that the ledger of equations names."""
    rows = re.findall(r"^\| `[^|]*\|[^|]*\| `([\w.]+)` \|", (DOCS / "equations.md").read_text(), flags=re.MULTILINE)
    return frozenset(rows)


def modules_in_ledger() -> list[str]:
    found = [function.rpartition(".")[0] for function in ledger()]
    return [name for name in found if name.split(".")[-1][0].islower()]  # the rest are methods of a class


@cache
def documented() -> dict[str, list[str]]:
    """The modules of the reference by room: whole rooms, what verbs return, and what the ledger names."""
    every = [name for room in WHOLE for name in modules_of(room)] + [*RETURNED, *modules_in_ledger()]
    order = re.search(r"```rooms\n(.*?)```", (DOCS / "architecture.md").read_text(), re.DOTALL)
    rooms = [line.split()[0] for line in order[1].splitlines()] if order else []
    return {
        room: names
        for room in rooms
        if (names := list(dict.fromkeys(name for name in sorted(every) if name.split(".")[0] == room)))
    }


def home(name: str) -> str:
    """Where a name of the front door, of `theory` or of `figures` is defined: `iclflow.predict` leads to its module."""
    outer, _, last = name.rpartition(".")
    source = module(outer.removeprefix("iclflow").removeprefix("."))
    if last in source.defined:
        return name
    if last in source.imported:
        found = source.imported[last]
        path = PACKAGE.joinpath(*found.split(".")[1:])
        return found if path.is_dir() or path.with_suffix(".py").is_file() else home(found)
    modules = {n for names in documented().values() for n in names if last in module(n).defined}
    return f"iclflow.{modules.pop()}.{last}" if len(modules) == 1 else name  # a name that is imported when it is used
