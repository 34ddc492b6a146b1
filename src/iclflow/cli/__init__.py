"""The command line: each command reads its flags, calls one function of the package and prints the outcome."""

import sys
import warnings
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from iclflow.errors import IclflowError

__all__ = ["app", "main"]


def version() -> str:
    """The name of the program and its version."""
    from importlib import metadata

    return f"iclflow {metadata.version('iclflow')}"


app = App(
    name="iclflow",
    help="Training dynamics of in-context learning in linear attention: simulation and theory on one clock.",
    version=version,
    result_action="return_value",
)
app.command("iclflow.cli.train:train", name="train")
app.command("iclflow.cli.theory:theory", name="theory")
app.command("iclflow.cli.compare:compare", name="compare")
app.command("iclflow.cli.verify:verify", name="verify")
app.command("iclflow.cli.probe:probe", name="probe")
app.command("iclflow.cli.reproduce:reproduce", name="reproduce")
app.command("iclflow.cli.sweep:app", name="sweep")
app.command("iclflow.cli.explore:explore", name="explore")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code; bad input is reported in one line, never as a traceback."""
    warnings.simplefilter("ignore")
    try:
        import_named_model(list(sys.argv[1:] if arguments is None else arguments))
        result = app(arguments, exit_on_error=False, print_error=False)
        code = result if isinstance(result, int) else 0
    except CycloptsError as error:
        from iclflow.cli.flags import explain

        code = complain(explain(error), 2)
    except IclflowError as error:
        code = complain(str(error), error.exit_code)
    except MemoryError:
        code = complain("memory: ran out; try fewer samples, a smaller dim, or the flow on the population", 4)
    except KeyboardInterrupt:
        code = complain("interrupted", 130)
    except BrokenPipeError:
        code = 0
    sys.exit(code)


def import_named_model(arguments: list[str]) -> None:
    """Import the class of `--model module:Class`, so that its fields become flags like all others."""
    for number, word in enumerate(arguments):
        flag, equals, value = word.partition("=")
        name = value if equals else "".join(arguments[number + 1 : number + 2])
        if flag == "--model" and ":" in name:
            from iclflow.models.base import import_model

            import_model(name)


def complain(line: str, code: int) -> int:
    """Print a line on standard error and return the exit code."""
    print(f"iclflow: {line}", file=sys.stderr)
    return code
