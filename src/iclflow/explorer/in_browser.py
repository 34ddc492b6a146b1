"""What the browser does alone: cursor, film, maps, clipboard, downloaded pictures (`assets/explorer.js`)."""

from dash import ClientsideFunction, Dash, Input, Output
from dash import State as DashState

__all__ = ["HIDDEN", "OFF", "READ", "connect_browser"]

READ = ("heads", "rank", "dim", "context", "exponent", "log_init", "log_lr", "noise", "task_exponent", "log_samples",
        "seeds", "seed", "layers", "log_decay", "log_length")  # fmt: skip
HIDDEN = ("rank", "exponent", "log_lr", "log_samples", "task_exponent", "log_length")
OFF = ("layers", "rule", "data")  # greyed out where they have no choice
ASKED = ("model", "spectrum", "rule", "data", "tasks", "dim", "layers", "optimizer", "log_decay")


def connect_browser(app: Dash) -> None:
    """Tie together what the browser does alone: cursor, film, maps, clipboard, downloaded pictures."""
    own = lambda name: ClientsideFunction("iclflow", name)  # of assets/explorer.js
    app.clientside_callback(own("readouts"), *(Output(f"shown-{n}", "children") for n in READ),
                            *(Input(n, "value") for n in READ))  # fmt: skip
    app.clientside_callback(
        own("visible"),
        *(Output(f"box-{n}", "className") for n in (*HIDDEN, *OFF)),
        Output("free", "className"),
        *(Input(n, "value") for n in ASKED),
    )
    app.clientside_callback(own("idle"), Output("tick", "disabled"), Input("job", "data"), Input("sent", "data"))
    app.clientside_callback(
        own("look"),
        Output("sentence", "children"),
        Output("algorithm", "children"),
        Output("shown-cursor", "children"),
        Output("map-first", "figure"),
        Output("map-second", "figure"),
        Input("cursor", "value"),
        Input("detail", "data"),
        Input("theory", "data"),
        Input("dark", "data"),
        DashState("map-first", "figure"),
        DashState("map-second", "figure"),
    )
    app.clientside_callback(
        own("film"),
        Output("cursor", "value"),
        Input("film", "n_intervals"),
        DashState("cursor", "value"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        own("play"),
        Output("film", "disabled"),
        Output("play", "children"),
        Input("play", "n_clicks"),
        DashState("film", "disabled"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        own("clicked"),
        Output("cursor", "value", allow_duplicate=True),
        Input("loss", "clickData"),
        DashState("detail", "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        own("address"), Output("ignored", "data"), Input("query", "data"), DashState("preset", "value")
    )
    app.clientside_callback(
        own("axes"),
        Output("loss", "figure", allow_duplicate=True),
        Input("axes", "value"),
        DashState("loss", "figure"),
        DashState("theory", "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        own("copy"),
        Output("copied", "children"),
        *(Input(f"copy-{what}", "n_clicks") for what in ("link", "command", "python")),
        DashState("command", "children"),
        DashState("python", "children"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        own("picture"),
        Output("ignored", "data", allow_duplicate=True),
        *(Input(f"save-{kind}", "n_clicks") for kind in ("png", "svg")),
        prevent_initial_call=True,
    )
    app.clientside_callback(own("scheme"), Output("dark", "data"), Input("scheme", "n_clicks"))
