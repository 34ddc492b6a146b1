"""Command-line flags, made from the records that are used in Python.

Values remain text here: the records turn them into numbers and refuse bad ones.
"""

import difflib
import tomllib
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import CycloptsError, Parameter
from cyclopts.exceptions import MissingArgumentError, UnknownOptionError, UnusedCliTokensError

from iclflow.config import Task, Training
from iclflow.config.record import Record
from iclflow.errors import BadInput
from iclflow.models.base import KNOWN, import_model

__all__ = ["Flags", "explain", "given"]

RECORDS: tuple[type[Record], ...] = (Task, *KNOWN.values(), Training)


def make_flags() -> type:
    """A class with one optional flag per field; None means that the flag was not given."""
    fields: dict[str, Any] = {
        "model": Annotated[str | None, Parameter(help="merged, separate (default), mlp, or module:Class of your own")],
        "data": Annotated[str | None, Parameter(help="your own sequences, FILE.npz")],
    }
    for record in RECORDS:
        for name, info in record.model_fields.items():
            if info.annotation is bool:
                negative = f"--no-{name.replace('_', '-')}" if info.default else ()
                parameter = Parameter(help=info.description, negative=negative)
                fields[name] = Annotated[bool | None, parameter]
            else:
                fields[name] = Annotated[str | None, Parameter(help=info.description, allow_leading_hyphen=True)]
    flags = make_dataclass("Flags", [(n, t, field(default=None)) for n, t in fields.items()], kw_only=True, frozen=True)
    flags.__module__ = __name__  # with the default, `types`, cyclopts would take it for a built-in class
    return flags


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
    try:
        settings = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadInput(f"config: cannot read {str(path)!r} ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"config: {str(path)!r} is not TOML ({error})") from None
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
