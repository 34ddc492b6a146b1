"""The API reference: a page for the front door, one for each room, and in `theory` one for each module."""

import ast
import copy
import importlib
import inspect
from functools import cache
from pathlib import Path

from docstrings import to_markdown
from names import PACKAGE, Module, documented, home, module
from pages import linked, write

FRONT = {  # the names of the front door, in the order in which one meets them
    "What to run": ("Task", "Training", "Separate", "Merged", "MLP", "Model"),
    "Verbs": (
        *("train", "resume", "load", "predict", "compare", "probe", "infer", "design", "sweep"),
        *("reproduce", "sample", "cite"),
    ),
    "Results and errors": ("Run", "IclflowError", "BadInput", "NoRoom", "DamagedStore"),
}
DOORS = ("theory", "figures")  # rooms that are names of the front door themselves


def links() -> dict[str, str]:
    """Every name that can be linked to, with what links to it: the role, and {} for what is shown."""
    to = lambda role, full: "{{" + role + "}}`{} <" + full + ">`"
    rooms = [*documented(), *(name for names in documented().values() for name in names)]
    found = {f"iclflow.{name}": to("ref", f"iclflow.{name}") for name in rooms}
    for full, (where, name) in entries().items():
        found[full] = to("py:obj", full)
        found |= {f"{full}.{method}": to("py:obj", f"{full}.{method}") for method in where.methods(name)}
    for short in (f"iclflow.{door}.{name}" for door in DOORS for name in module(door).public):
        found.setdefault(short, found[home(short)])
    return found


@cache
def entries() -> dict[str, tuple[Module, str]]:
    """Every name that has an entry of its own, and the module that defines it."""
    found = {f"iclflow.{name}": defining(home(f"iclflow.{name}")) for names in FRONT.values() for name in names}
    at_the_door = {(m.full, name) for m, name in found.values()}
    for names in documented().values():
        for one in map(module, names):
            found |= {f"{one.full}.{n}": (one, n) for n in one.defined if (one.full, n) not in at_the_door}
    found |= {f"{m.full}.{name}": (m, name) for m, name in found.values()}  # the full name of what the door shows
    return found


def defining(full: str) -> tuple[Module, str]:
    outer, _, name = full.rpartition(".")
    return module(outer.removeprefix("iclflow.")), name


def write_pages(target: Path, links: dict[str, str]) -> None:
    """Write every page of the reference into the staging folder."""
    put = lambda name, text: write(target / "api" / f"{name}.md", linked(text, links))
    put("index", index())
    put("iclflow", front_door())
    for room, names in documented().items():
        if room == "theory":
            put("theory/index", theory_index(names))
            for name in names:
                put(f"theory/{page_of(name)}", module_page(module(name), "#"))
        else:
            put(room, room_page(room, names))


def index() -> str:
    lines = ["# API", "", "`import iclflow as icl` and everything on the first page is at hand."]
    for title, names in FRONT.items():
        lines += ["", f"## {title}", "", "| name | what it is |", "| --- | --- |"]
        lines += [f"| {{py:obj}}`icl.{n} <iclflow.{n}>` | {first_line(*entries()[f'iclflow.{n}'])} |" for n in names]
    lines += ["", "## Rooms", "", "| room | what it holds |", "| --- | --- |"]
    for room in documented():
        lines.append(f"| {{ref}}`iclflow.{room} <iclflow.{room}>` | {first_sentence(module(room).docstring)} |")
    rooms = [f"{room}/index" if room == "theory" else room for room in documented()]
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", "", "iclflow", *rooms, "```", ""])


def front_door() -> str:
    parts = ["# The front door", "", "```python\nimport iclflow as icl\n```", ""]
    parts += ["```{py:currentmodule} iclflow\n```"]
    for title, names in FRONT.items():
        parts += ["", f"## {title}"]
        for name in names:
            where, inner = entries()[f"iclflow.{name}"]
            parts += ["", entry(where, inner, name, runtime_docstring(name), canonical=f"{where.full}.{inner}")]
    return "\n".join(parts) + "\n"


def runtime_docstring(name: str) -> str:
    """What `help` shows: verbs like `train` add their settings to it."""
    return inspect.getdoc(getattr(importlib.import_module("iclflow"), name)) or ""


def page_of(name: str) -> str:
    """The page of a module of theory."""
    return name.removeprefix("theory.").replace(".", "-")


def theory_index(names: list[str]) -> str:
    room = module("theory")
    lines = ["(iclflow.theory)=", "# theory", "", to_markdown(room.docstring), ""]
    lines += ["`icl.theory` itself has", "", "| name | what it is |", "| --- | --- |"]
    for name in room.public:
        where = home(f"iclflow.theory.{name}")
        if where.removeprefix("iclflow.") not in names:
            lines.append(f"| {{py:obj}}`icl.theory.{name} <{where}>` | {first_line(*defining(where))} |")
    lines += ["", "and the modules", "", "| module | what it holds |", "| --- | --- |"]
    for name in names:
        last = page_of(name)
        lines.append(f"| {{ref}}`{last} <iclflow.{name}>` | {first_sentence(module(name).docstring)} |")
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", "", *(page_of(n) for n in names), "```", ""])


def room_page(room: str, names: list[str]) -> str:
    if names == [room]:
        return module_page(module(room), "#")
    parts = [f"(iclflow.{room})=", f"# {room}", "", to_markdown(module(room).docstring)]
    if room in DOORS:
        parts += ["", f"All of it is reached as `icl.{room}.NAME`."]
    return "\n".join([*parts, *(f"\n{module_page(module(n), '##')}" for n in names if n != room)]) + "\n"


def module_page(one: Module, heading: str) -> str:
    parts = [f"({one.full})=", f"{heading} {one.name}", "", to_markdown(one.docstring)]
    parts += ["", f"Source: `src/{one.path.relative_to(PACKAGE.parent)}`"]
    parts += ["", f"```{{py:currentmodule}} {one.full}\n```"]
    elsewhere = [name for name in one.defined if home_entry(one, name) != f"{one.full}.{name}"]
    for name in elsewhere:
        full = home_entry(one, name)
        parts += ["", f"`{name}` is described at {{py:obj}}`{full.replace('iclflow', 'icl', 1)} <{full}>`."]
    shown = (entry(one, n, n, own_docstring(one.defined[n])) for n in one.defined if n not in elsewhere)
    return "\n".join([*parts, *(f"\n{text}" for text in shown)]) + "\n"


def home_entry(one: Module, name: str) -> str:
    """Where a name of a module is described: at the front door if it is there."""
    for front in (n for names in FRONT.values() for n in names):
        if entries()[f"iclflow.{front}"] == (one, name):
            return f"iclflow.{front}"
    return f"{one.full}.{name}"


# --- one entry --------------------------------------------------------------------------------------------------------


def own_docstring(node: ast.AST) -> str:
    return (ast.get_docstring(node) or "") if isinstance(node, ast.FunctionDef | ast.ClassDef) else ""


def first_line(where: Module, name: str) -> str:
    return first_sentence(own_docstring(where.defined[name]))


def first_sentence(docstring: str) -> str:
    return docstring.split("\n\n")[0].replace("\n", " ").replace("|", r"\|").rstrip(".:")


def entry(where: Module, name: str, shown: str, docstring: str, canonical: str = "") -> str:
    """The description of one name: a function, a class with its fields and methods, or a constant."""
    node = where.defined[name]
    option = f":canonical: {canonical}\n" if canonical else ""
    text = to_markdown(docstring)
    if isinstance(node, ast.FunctionDef):
        return f"`````{{py:function}} {shown}{signature(where, node)}\n{option}\n{text}\n`````"
    if isinstance(node, ast.ClassDef):
        inside = [text, fields(where, node), *(method(where, m) for m in node.body if isinstance(m, ast.FunctionDef))]
        kind = "exception" if name.endswith("Error") or "exit_code" in ast.unparse(node) else "class"
        body = "\n\n".join(part for part in inside if part)
        return f"```````{{py:{kind}}} {shown}{constructor(where, node)}\n{option}\n{body}\n```````"
    comment = where.comment(node)
    source = ast.unparse(node)
    value = f"\n\n```python\n{source}\n```" if len(source) < 400 else ""
    return f"`````{{py:data}} {shown}\n{option}\n{comment}{value}\n`````"


class FullNames(ast.NodeTransformer):
    """Types of the package under their full names, by which they can be linked to; the page shows the last part."""

    def __init__(self, where: Module) -> None:
        self.where = where

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id in self.where.defined:
            return ast.Name(f"{self.where.full}.{node.id}")
        found = self.where.imported.get(node.id, "")
        return ast.Name(home(found)) if found.startswith("iclflow.") else node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """A type in quotes, if it is one of the package."""
        full = isinstance(node.value, str) and node.value.isidentifier() and self.visit_Name(ast.Name(node.value)).id
        return ast.Name(full) if full and full.startswith("iclflow.") else node


def typed(where: Module, annotation: ast.expr) -> str:
    return ast.unparse(FullNames(where).visit(copy.deepcopy(annotation)))


def signature(where: Module, node: ast.FunctionDef, bound: bool = False) -> str:
    """The arguments and the result, with their types; `bound` leaves out the first one of a method."""
    arguments = copy.deepcopy(node.args)
    if bound and not is_static(node):
        del arguments.args[0]
    for one in (*arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if one is not None and one.annotation is not None:
            one.annotation = FullNames(where).visit(one.annotation)
    result = f" -> {typed(where, node.returns)}" if node.returns is not None else ""
    return f"({ast.unparse(arguments)}){result}"


def decorators(node: ast.FunctionDef) -> set[str]:
    return {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}


def is_static(node: ast.FunctionDef) -> bool:
    return "staticmethod" in decorators(node)


def constructor(where: Module, node: ast.ClassDef) -> str:
    """The arguments of a class that has a constructor of its own; records show their fields in a table instead."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__" and not method.args.kwarg:
            return signature(where, method, bound=True).removesuffix(" -> None")
    return ""


def method(where: Module, node: ast.FunctionDef) -> str:
    """A public method with a docstring; what has none is not for users."""
    text = to_markdown(own_docstring(node))
    if node.name.startswith("_") or not text:
        return ""
    marks = decorators(node)
    if marks & {"property", "cached_property"}:
        kind = f":type: {typed(where, node.returns)}\n" if node.returns is not None else ""
        return f"`````{{py:property}} {node.name}\n{kind}\n{text}\n`````"
    option = ":classmethod:\n" if "classmethod" in marks else ":staticmethod:\n" if is_static(node) else ""
    return f"`````{{py:method}} {node.name}{signature(where, node, bound=True)}\n{option}\n{text}\n`````"


def fields(where: Module, node: ast.ClassDef) -> str:
    """The fields of a record, a table: name, type, default, and what the comment or the description says."""
    rows = [row for one in node.body if isinstance(one, ast.AnnAssign) and (row := field_row(where, one))]
    if not rows:
        return ""
    names = ["field", "type", "default", "meaning"]
    used = [n for n in range(4) if n == 0 or any(row[n] for row in rows)]
    table = [[names[n] for n in used], ["---"] * len(used), *([row[n] for n in used] for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)


class Plain(ast.NodeTransformer):
    """A type without its bounds: `int` for a count, `'log' | 'even'` for a choice."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name("int") if node.id in ("Count", "Seed") else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if ast.unparse(node.value) == "Annotated":
            return self.visit(inside[0])
        return ast.Name(" | ".join(map(ast.unparse, inside))) if ast.unparse(node.value) == "Literal" else node


def field_row(where: Module, node: ast.AnnAssign) -> tuple[str, str, str, str] | None:
    name, kind = ast.unparse(node.target), ast.unparse(Plain().visit(copy.deepcopy(node.annotation)))
    if name.startswith("_") or "ClassVar" in kind:
        return None
    default, meaning = "", where.comment(node)
    if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in ("Field", "field"):
        given = {word.arg: word.value for word in node.value.keywords}
        default = ast.unparse(node.value.args[0]) if node.value.args else ""
        if "description" in given:
            meaning = str(ast.literal_eval(given["description"]))
    elif node.value is not None:
        default = ast.unparse(node.value)
    code = lambda text: f"`{text}`".replace("|", r"\|") if text else ""
    return code(name), code(kind), code(default), meaning.replace("|", r"\|")
