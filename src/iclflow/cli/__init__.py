"""The command line: each command reads its flags, calls one function of the package and prints the outcome."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iclflow.cli.commands import COMMANDS, app

__all__ = ["COMMANDS", "app", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code; nothing is imported before signals are heard."""
    from iclflow.cli.ending import ended

    ended("iclflow", lambda: import_module("iclflow.cli.commands").run(arguments), program=arguments is None)


def __getattr__(name: str) -> Any:
    if name in __all__:  # what reads flags takes a while to import, and the public code's command has its own
        return getattr(import_module("iclflow.cli.commands"), name)
    raise AttributeError(f"module 'iclflow.cli' has no attribute {name!r}")
