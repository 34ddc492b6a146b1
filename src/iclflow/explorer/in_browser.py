"""What the browser does alone: cursor, film, maps, clipboard, downloaded pictures (`assets/explorer.js`)."""

from collections.abc import Sequence

from dash import ClientsideFunction, Dash, Input, Output
from dash import State as DashState

__all__ = ["connect_browser"]

READ = ("heads", "rank", "dim", "context", "exponent", "log_init", "log_lr", "noise", "task_exponent", "log_samples",
        "seeds", "seed", "layers", "log_decay", "log_length")  # fmt: skip
HIDDEN = ("rank", "exponent", "log_lr", "log_samples", "task_exponent", "log_length")
OFF = ("layers", "rule", "data")  # greyed out where they have no choice
ASKED = ("model", "spectrum", "rule", "data", "tasks", "dim", "layers", "optimizer", "log_decay")
TIMED = ("loss", "gains", "values")  # pictures that share one time axis


def connect_browser(app: Dash, controls: Sequence[str], eigenvalues: Sequence[str]) -> None:
    """Tie together what the browser does alone; the functions have the names that they have in JavaScript."""

    def tie(name: str, outputs: str, *asked: str, known: str = "", first: bool = False) -> None:
        """Call a function of the browser; every place is written `id.property`, with a star if others write it too."""
        app.clientside_callback(
            ClientsideFunction("iclflow", name),
            *(Output(*pair(place.rstrip("*")), allow_duplicate=place.endswith("*")) for place in outputs.split()),
            *(Input(*pair(place)) for place in asked),
            *(DashState(*pair(place)) for place in known.split()),
            prevent_initial_call=not first,
        )

    values = [f"{name}.value" for name in controls]
    tie("fade", "pictures.className*", *values)
    tie("readouts", " ".join(f"shown-{n}.children" for n in READ), *(f"{n}.value" for n in READ), first=True)
    boxes = " ".join(f"box-{n}.className" for n in (*HIDDEN, *OFF))
    tie("visible", f"{boxes} free.className", *(f"{n}.value" for n in ASKED), first=True)
    for name in eigenvalues:  # slider and number
        tie("same", f"{name}.value* number-{name}.value", f"{name}.value", f"number-{name}.value", first=False)
    tie("idle", "tick.disabled", "job.data", "sent.data", first=True)
    said = "sentence.children algorithm.children shown-cursor.children"
    maps = "map-first.figure map-second.figure"
    tie("look", f"{said} {maps}", "cursor.value", "detail.data", "theory.data", "dark.data", known=maps, first=True)
    tie("film", "cursor.value", "film.n_intervals", known="cursor.value")
    tie("play", "film.disabled play.children", "play.n_clicks", known="film.disabled")
    tie("clicked", "cursor.value*", "loss.clickData", known="detail.data")
    tie("address", "ignored.data", "query.data", known="preset.value", first=True)
    timed = " ".join(f"{name}.figure" for name in TIMED)
    tie("axes", timed.replace("figure", "figure*"), "axes.value", known=f"{timed} theory.data")
    copied = (f"copy-{what}.n_clicks" for what in ("link", "command", "python"))
    tie("copy", "copied.children", *copied, known="command.children python.children")
    tie("picture", "ignored.data*", "save-png.n_clicks", "save-svg.n_clicks")
    tie("scheme", "dark.data", "scheme.n_clicks", first=True)


def pair(place: str) -> tuple[str, str]:
    """Component and property of a place."""
    component, name = place.split(".")
    return component, name
