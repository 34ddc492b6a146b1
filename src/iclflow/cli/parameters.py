"""How flags are shown by `--help`: their groups, what a value looks like, switches without a value."""

from cyclopts import Group, Parameter

__all__ = ["CONFIG", "MODEL", "TASK", "TRAINING", "named", "switch"]

TASK, MODEL, TRAINING, OPTIONS = (
    Group(name, sort_key=number) for number, name in enumerate(("Task", "Model", "Training", "Options"))
)


def named(metavar: str, help: str, group: Group = OPTIONS) -> Parameter:
    """A flag with a value, which the help shows as `metavar`."""
    return Parameter(help=help, metavar=metavar, group=group, negative=())


def switch(help: str, name: str | None = None, off: str | None = None) -> Parameter:
    """A flag without a value; `off` is the flag that turns it off where it is on by default."""
    return Parameter(name=name, help=help, negative=off or (), show_default=False, group=OPTIONS)


CONFIG = named("FILE.toml", "a TOML file with the same names; flags override it")
