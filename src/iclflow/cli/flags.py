"""Command-line flags, made from the records that are used in Python.

Values remain text here: the records turn them into numbers and refuse bad ones.
"""

import difflib
import tomllib
from dataclasses import field, make_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from cyclopts import CycloptsError, Parameter
from cyclopts.exceptions import MissingArgumentError, UnknownOptionError, UnusedCliTokensError

from iclflow.cli.parameters import MODEL, TASK, TRAINING, named
from iclflow.config import Task, Training
from iclflow.config.record import Record
from iclflow.errors import BadInput
from iclflow.models.base import KNOWN, import_model
from iclflow.system.files import read_text

__all__ = ["Flags", "explain", "given"]

RECORDS: tuple[type[Record], ...] = (Task, *KNOWN.values(), Training)
GROUPS = {Task: TASK, Training: TRAINING}


def make_flags() -> type:
    """A class with one optional flag per field; None means that the flag was not given."""
    fields: dict[str, Any] = {
        "model": Annotated[
            str | None,
            named("MODEL", "merged, separate, mlp, or module:Class of your own [default: separate]", MODEL),
        ],
        "data": Annotated[str | None, named("FILE.npz", "your own sequences in place of drawn ones", TASK)],
    }
    for record in RECORDS:
        group = GROUPS.get(record, MODEL)
        for name, info in record.model_fields.items():
            words = f"{info.description or f'of {record.__name__}'}{default_of(name)}"
            if info.annotation is bool:
                negative = f"--no-{name.replace('_', '-')}" if info.default else ()
                fields[name] = Annotated[bool | None, Parameter(help=words, negative=negative, group=group)]
            else:
                shown = Parameter(
                    help=words, metavar=kind_of(info.annotation), group=group, allow_leading_hyphen=True,
                    show_choices=False, converter=as_text,
                )  # fmt: skip
                fields[name] = Annotated[choices_of(info.annotation) | None, shown]
    flags = make_dataclass("Flags", [(n, t, field(default=None)) for n, t in fields.items()], kw_only=True, frozen=True)
    flags.__module__ = __name__  # with the default, `types`, cyclopts would take it for a built-in class
    return flags


def as_text(kind: Any, tokens: Any) -> str:
    """The word as it was typed; the records read and judge it."""
    return tokens[0].value


def choices_of(annotation: Any) -> Any:
    """Any text, and for the shell's completion the words to choose from."""
    return annotation | str if get_origin(annotation) is Literal else str


def kind_of(annotation: Any) -> str:
    """What a value looks like: INT, FLOAT, or the words to choose from."""
    if get_origin(annotation) is Literal:
        return "|".join(map(str, get_args(annotation)))
    if get_origin(annotation) in (Union, UnionType):
        kinds = dict.fromkeys(kind_of(part) for part in get_args(annotation) if part is not type(None))
        return "TEXT" if "TEXT" in kinds else "|".join(kinds)
    if get_origin(annotation) is Annotated:
        return kind_of(get_args(annotation)[0])
    return {int: "INT", float: "FLOAT"}.get(annotation, "TEXT")


def default_of(name: str) -> str:
    """The default of a setting in brackets: one value, or one for each model; nothing where there is none to name."""
    by_record = {record: record.model_fields[name].default for record in RECORDS if name in record.model_fields}
    values = list(dict.fromkeys(by_record.values()))
    if values[0] is None or values[0] is False:
        return ""
    if len(values) == 1:
        return f" [default: {'yes' if values[0] is True else values[0]}]"
    each = (f"{getattr(record, 'kind', '')} {value}" for record, value in by_record.items())
    return f" [default: {', '.join(each)}]"


Flags: Any = make_flags()


def given(flags: object, config: Path | None = None) -> dict[str, Any]:
    """The settings of a TOML file, overridden by the flags that were given."""
    settings = {} if config is None else read_toml(config)
    settings |= {name: value for name, value in vars(flags).items() if value is not None}
    if "model" in settings:
        import_model(str(settings["model"]))
    return settings


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, which has no tables."""
    settings = read_text(path, "config", "TOML", tomllib.loads)
    for name, value in settings.items():
        if isinstance(value, dict):
            raise BadInput(f"config: {name!r} is a table; settings belong at the top level, named like the flags")
    return settings


def explain(error: CycloptsError) -> str:
    """A parse error in one line."""
    if isinstance(error, UnknownOptionError):
        flag = str(getattr(error.token, "keyword", None) or getattr(error.token, "value", error.token))
        return unknown_flag(flag)
    if isinstance(error, UnusedCliTokensError):
        return unknown_flag(str((error.unused_tokens or [""])[0]))
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        return f"{error.argument.name}: needs a value"
    return " ".join(str(error).split())


def unknown_flag(flag: str) -> str:
    """The complaint about a flag, with the nearest known one."""
    names = ["--" + name.replace("_", "-") for name in Flags.__dataclass_fields__]
    near = [name for name in difflib.get_close_matches(flag, names, n=1) if name != flag]
    hint = f"did you mean {near[0]}?" if near else "see `iclflow COMMAND --help`"
    return f"{flag}: unknown flag or argument; {hint}"
