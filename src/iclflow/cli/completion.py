"""`iclflow completion`: commands, flags and choices in the shell, by its Tab key."""

from typing import Annotated, Literal

from cyclopts import Parameter

__all__ = ["completion"]


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="your shell")] = "bash", /) -> int:
    """Print a script that completes commands, flags and choices in your shell.

    Example: iclflow completion bash > ~/.iclflow-completion

    Then add the line `source ~/.iclflow-completion` to ~/.bashrc; zsh and fish have directories for such files.
    """
    from iclflow.cli import app

    print(app.generate_completion(shell=shell))
    return 0
