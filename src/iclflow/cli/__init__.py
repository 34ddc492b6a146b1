"""The command line: each command reads its flags, calls one function of the package and prints the outcome."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iclflow.cli.commands import COMMANDS, app, main

__all__ = ["COMMANDS", "app", "main"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # what reads flags takes a while to import, and the public code's command has its own
        return getattr(import_module("iclflow.cli.commands"), name)
    raise AttributeError(f"module 'iclflow.cli' has no attribute {name!r}")
