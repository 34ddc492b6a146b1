"""The command `iclflow`: the list of its commands, and how any of them ends."""

import sys
import warnings
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from iclflow.cli.ending import complain
from iclflow.errors import IclflowError
from iclflow.system.garbage import searched_rarely

__all__ = ["app", "run"]


def version() -> str:
    """The name of the program and its version."""
    from importlib import metadata

    return f"iclflow {metadata.version('iclflow')}"


COMMANDS = {  # what each one says of itself, so that the list of them is printed without importing any
    "train": "Train a model and save the run.",
    "theory": "Print plateaus, minimum, escape rate and, with --init, the predicted drop times (t/tau).",
    "compare": "Draw loss curves over theory and over each other, and print how far apart they are.",
    "infer": "Infer eigenvalues, context length and initial sizes from a loss curve.",
    "design": "Find a task, and initial weights, whose staircase has wanted levels and drop times.",
    "probe": "Name the in-context algorithm that weights implement, at every saved time of a run.",
    "sweep": "Run a grid of experiments that survives crashes.",
    "explore": "Explore theory and simulation in a browser, on this machine only.",
    "reproduce": "Reproduce the paper: figures with theory over every simulation, and the error of each claim.",
    "verify": "Measure every claim of the paper, and ours beyond it, against its bound.",
    "completion": "Print a script that completes commands, flags and choices in your shell.",
}


def commands(listed: bool) -> App:
    """The commands, each imported when it is called; for the list of them with its summary as its only help."""
    made = App(
        name="iclflow",
        help="Training dynamics of in-context learning in linear attention: simulation and theory on one clock.",
        help_format="plaintext" if listed else None,
        version=version,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for number, (name, summary) in enumerate(COMMANDS.items()):
        function = "app" if name == "sweep" else name
        made.command(f"iclflow.cli.{name}:{function}", name=name, help=summary if listed else None, sort_key=number)
    return made


app = commands(listed=False)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; bad input is reported in one line, never as a traceback."""
    warnings.simplefilter("ignore")
    try:
        words = list(sys.argv[1:] if arguments is None else arguments)
        import_named_model(words)
        chosen = commands(listed=True) if words in ([], ["--help"], ["-h"]) else app
        with searched_rarely():
            result = chosen(words, exit_on_error=False, print_error=False)
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        from iclflow.cli.flags import explain

        return complain("iclflow", explain(error), 2)
    except IclflowError as error:
        return complain("iclflow", str(error), error.exit_code)
    except MemoryError:
        return complain(
            "iclflow", "memory: ran out; try fewer samples, a smaller dim, or the flow on the population", 4
        )


def import_named_model(arguments: list[str]) -> None:
    """Import the class of `--model module:Class`, so that its fields become flags like all others."""
    for number, word in enumerate(arguments):
        flag, equals, value = word.partition("=")
        name = value if equals else "".join(arguments[number + 1 : number + 2])
        if flag == "--model" and ":" in name:
            from iclflow.models.base import import_model

            import_model(name)
