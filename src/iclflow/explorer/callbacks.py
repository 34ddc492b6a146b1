"""What happens when a control moves: theory at once, simulation as it comes."""

from typing import Any, cast

import numpy as np
from dash import ClientsideFunction, Dash, Input, Output, Patch, no_update
from dash import State as Held
from dash.exceptions import PreventUpdate

from iclflow.explorer.jobs import Job, Jobs
from iclflow.explorer.page import CONTROLS, EIGEN_IDS, control_values
from iclflow.explorer.pictures import gain_lines, loss_lines, patch_theory, show_times, value_lines
from iclflow.explorer.presets import PRESETS
from iclflow.explorer.saved import Saved
from iclflow.explorer.state import State, clamped
from iclflow.explorer.theory_view import TheoryView, payload, theory_view
from iclflow.training.cost import draw_seconds

__all__ = ["connect"]

ALL = (*CONTROLS, *EIGEN_IDS)
TOO_LONG = 4.0  # seconds of sampling that the page is willing to wait for
FRESH, FADED = "wide", "wide faded"  # curves of the state on screen, or of the one before
NOTED = ("heads", "rank", "log_samples", "rule", "log_init", "spectrum")


def connect(app: Dash, jobs: Jobs, saved: Saved) -> None:
    """Tie controls and pictures together."""
    inputs = [Input(name, "value") for name in ALL]

    @app.callback(
        Output("loss", "figure"),
        Output("theory", "data"),
        Output("detail", "data"),
        Output("job", "data"),
        Output("query", "data"),
        Output("command", "children"),
        Output("python", "children"),
        Output("progress", "children"),
        Output("tick", "disabled"),
        Output("loss-box", "className"),
        *(Output(f"note-{name}", "children") for name in NOTED),
        *inputs,
        Held("axes", "value"),
        Held("client", "data"),
    )
    def controls_moved(*values: Any) -> Any:
        *settings, axes, name = values
        client, ticket = jobs.enter(str(name))
        state = read(settings)
        with client.turn:
            if client.ticket != ticket:
                raise PreventUpdate
            view = theory_view(state)
        wait = draw_seconds(state.experiment())
        job = None if wait > TOO_LONG else jobs.start(client, ticket, state)
        words = "theory only" if job is None else "simulating"
        told = (state.to_query(), state.command(), state.python(), words)
        token, idle = (None, True) if job is None else (job.token, False)
        picture = patch_theory(view, "time" in (axes or []), "loss" in (axes or []))
        return picture, payload(view), None, token, *told, idle, FADED, *notes_for(state, view, settings)

    @app.callback(
        Output("loss", "figure", allow_duplicate=True),
        Output("gains", "figure"),
        Output("values", "figure"),
        Output("detail", "data", allow_duplicate=True),
        Output("progress", "children", allow_duplicate=True),
        Output("sent", "data"),
        Output("tick", "disabled", allow_duplicate=True),
        Output("loss-box", "className", allow_duplicate=True),
        Input("tick", "n_intervals"),
        Held("client", "data"),
        Held("job", "data"),
        Held("sent", "data"),
        Held("axes", "value"),
        prevent_initial_call=True,
    )
    def more_simulated(_: Any, client: Any, token: Any, sent: Any, axes: Any) -> Any:
        job = jobs.get(str(client), str(token))
        if job is None:
            raise PreventUpdate
        answer = news(job, sent_of(job, sent), "time" in (axes or []))
        if job.dropped:  # in the meantime
            raise PreventUpdate
        return answer

    # Two callbacks, for a second request to the same one would void the answer to the first.
    @app.callback(
        *(Output(name, "value", allow_duplicate=True) for name in ALL),
        Input("url", "search"),
        prevent_initial_call="initial_duplicate",
    )
    def opened(search: Any) -> Any:
        return control_values(State.from_query(search))

    @app.callback(
        *(Output(name, "value", allow_duplicate=True) for name in ALL),
        Input("preset", "value"),
        prevent_initial_call=True,
    )
    def chosen(preset: Any) -> Any:
        if preset not in PRESETS:
            raise PreventUpdate
        return control_values(PRESETS[preset])

    @app.callback(
        Output("download", "data"),
        Input("save-csv", "n_clicks"),
        Held("client", "data"),
        Held("job", "data"),
        Held("saved", "value"),
        prevent_initial_call=True,
    )
    def download(clicks: Any, client: Any, token: Any, number: Any) -> Any:
        job, shown = jobs.get(str(client), str(token)), saved.show(number)
        if not clicks or (job is None and shown is None):
            raise PreventUpdate
        if shown is not None:
            text = as_csv(shown.view, shown.seeds)
        else:
            assert job is not None
            text = as_csv(theory_view(job.state), job.seeds)
        return {"filename": "iclflow.csv", "content": text, "type": "text/csv"}

    connect_saved(app, jobs, saved)
    connect_browser(app)


def read(settings: list[Any]) -> State:
    named = dict(zip(ALL, settings, strict=True))
    return State.read({**named, "eigenvalues": [named[name] for name in EIGEN_IDS]})


def notes_for(state: State, view: TheoryView, settings: list[Any]) -> list[str]:
    """What to know beside a control, in the order of `NOTED`."""
    asked = clamped("rank", dict(zip(ALL, settings, strict=True))["rank"], state.rank)
    notes = {
        "heads": room_for(state),
        "rank": f"at most D: {state.rank} is used" if asked > state.rank else "",
        "log_samples": "" if state.data == "population" else sampling_note(draw_seconds(state.experiment())),
        "rule": "a finite sample is trained by descent" if state.data == "sample" else "",
        "log_init": view.note if view.prediction is not None else "",
        "spectrum": view.note if view.prediction is None else "",
    }
    return [notes[name] for name in NOTED]


def room_for(state: State) -> str:
    if state.model == "merged":
        return "merged key and query have full rank: there is none to choose"
    places = state.heads * state.rank
    return f"room for {places} of {state.dim} components" if places < state.dim else ""


def sampling_note(seconds: float) -> str:
    if seconds <= TOO_LONG:
        return f"about {max(seconds, 0.1):.1f} s a seed to sample; theory is the population's"
    return f"would take about {seconds:.0f} s to sample, the page waits {TOO_LONG:.0f} s: fewer of them, or a smaller D"


def sent_of(job: Job, sent: Any) -> int:
    """How many seeds of this very job the page has."""
    known = isinstance(sent, list) and len(sent) == 2 and sent[0] == job.token and isinstance(sent[1], int)
    return sent[1] if known else 0


def news(job: Job, sent: int, log_time: bool) -> Any:
    """What has been simulated since `sent` seeds were sent."""
    done, seeds = job.done, list(job.seeds)  # in this order: what is done has all its seeds
    loss, gains, values, detail = (cast("Any", no_update) for _ in range(4))
    if job.detail is None:
        return loss, gains, values, detail, words(job), [job.token, 0], done, no_update
    view = theory_view(job.state)
    if len(seeds) > sent:
        loss = Patch()
        loss["data"] = loss_lines(view, seeds)
        show_times(loss, view, [seed["time"][-1] for seed in seeds], log_time)
    if sent <= 0:
        detail = job.detail
        gains, values = patch_gains(job.detail), patch_values(job.detail, view)
    if job.algorithms is not None:
        detail = {**job.detail, "algorithms": job.algorithms}
    return loss, gains, values, detail, words(job), [job.token, len(seeds)], done, FRESH


def words(job: Job) -> str:
    return job.words if job.done else f"{job.words} ({job.share:.0%})"


def patch_gains(detail: dict[str, Any]) -> Patch:
    patch, time = Patch(), detail["time"]
    patch["data"] = gain_lines(time, np.array(detail["gains"]), detail["learned"])
    patch["layout"]["xaxis"]["range"] = window(time, detail["learned"])
    return patch


def patch_values(detail: dict[str, Any], view: TheoryView) -> Patch:
    patch, time, seen = Patch(), detail["time"], np.array(detail["values"])
    patch["data"] = value_lines(time, seen, view.at(np.array(time), seen.shape[1]))
    patch["layout"]["xaxis"]["range"] = window(time, detail["learned"])
    return patch


def window(time: list[float], learned: list[int]) -> list[float]:
    """Logarithmic limits that begin a little before anything happens."""
    changes = [t for t, a, b in zip(time[1:], learned, learned[1:], strict=False) if a != b and t > 0]
    first = 0.1 * changes[0] if changes else next((t for t in time if t > 0), 1.0)
    return [float(np.log10(max(first, 1e-6))), float(np.log10(max(time[-1], 1e-5)))]


def as_csv(view: TheoryView, seeds: list[dict[str, Any]]) -> str:
    rows = ["curve,time,loss"]
    rows += [f"seed {seed['seed']},{t!r},{x!r}" for seed in seeds
             for t, x in zip(seed["time"], seed["loss"], strict=True)]  # fmt: skip
    if view.loss is not None:
        rows += [f"theory,{t!r},{x!r}" for t, x in zip(view.time.tolist(), view.loss.tolist(), strict=True)]
    return "\n".join(rows) + "\n"


def connect_saved(app: Dash, jobs: Jobs, saved: Saved) -> None:
    @app.callback(
        *(Output(name, "figure", allow_duplicate=True) for name in ("loss", "gains", "values")),
        *(Output(name, "data", allow_duplicate=True) for name in ("theory", "detail", "job")),
        *(Output(name, "children", allow_duplicate=True) for name in ("command", "python", "progress")),
        Output("tick", "disabled", allow_duplicate=True),
        Output("loss-box", "className", allow_duplicate=True),
        Input("saved", "value"),
        Held("axes", "value"),
        Held("client", "data"),
        prevent_initial_call=True,
    )
    def saved_chosen(number: Any, axes: Any, name: Any) -> Any:
        if number is None:  # nothing is chosen any more, since a control was moved
            raise PreventUpdate
        client, ticket = jobs.enter(str(name))
        shown = saved.show(number)
        if shown is None or client.ticket != ticket:
            raise PreventUpdate
        loss = patch_theory(shown.view, "time" in (axes or []), "loss" in (axes or []))
        loss["data"] = loss_lines(shown.view, shown.seeds)
        if shown.detail is None:
            gains, values = nothing(), nothing()
        else:
            gains, values = patch_gains(shown.detail), patch_values(shown.detail, shown.view)
        python = f"import iclflow as icl\n\n{shown.python}" if shown.python else ""
        told = (payload(shown.view), shown.detail, None, "", python, shown.words)
        return loss, gains, values, *told, True, FRESH


def nothing() -> Patch:
    patch = Patch()
    patch["data"] = []
    return patch


def connect_browser(app: Dash) -> None:
    """What the browser does alone: cursor, film, maps, clipboard, pictures to take away."""
    own = lambda name: ClientsideFunction("iclflow", name)
    app.clientside_callback(own("readouts"), *(Output(f"shown-{n}", "children") for n in READ),
                            *(Input(n, "value") for n in READ))  # fmt: skip
    app.clientside_callback(
        own("visible"),
        *(Output(f"box-{n}", "className") for n in HIDDEN),
        Output("free", "className"),
        *(Input(n, "value") for n in ("model", "spectrum", "rule", "data", "tasks", "dim")),
    )
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
        Held("map-first", "figure"),
        Held("map-second", "figure"),
    )
    app.clientside_callback(
        own("film"),
        Output("cursor", "value"),
        Input("film", "n_intervals"),
        Held("cursor", "value"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        own("play"),
        Output("film", "disabled"),
        Output("play", "children"),
        Input("play", "n_clicks"),
        Held("film", "disabled"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        own("clicked"),
        Output("cursor", "value", allow_duplicate=True),
        Input("loss", "clickData"),
        Held("detail", "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(own("address"), Output("ignored", "data"), Input("query", "data"))
    app.clientside_callback(
        own("axes"),
        Output("loss", "figure", allow_duplicate=True),
        Input("axes", "value"),
        Held("loss", "figure"),
        Held("theory", "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        own("copy"),
        Output("copied", "children"),
        *(Input(f"copy-{what}", "n_clicks") for what in ("link", "command", "python")),
        Held("command", "children"),
        Held("python", "children"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        own("picture"),
        Output("ignored", "data", allow_duplicate=True),
        *(Input(f"save-{kind}", "n_clicks") for kind in ("png", "svg")),
        prevent_initial_call=True,
    )
    app.clientside_callback(own("scheme"), Output("ignored", "data", allow_duplicate=True), Input("scheme", "n_clicks"),
                            prevent_initial_call=True)  # fmt: skip


READ = ("heads", "rank", "dim", "context", "exponent", "log_init", "log_lr", "noise", "task_exponent", "log_samples",
        "seeds", "seed")  # fmt: skip
HIDDEN = ("rank", "exponent", "log_lr", "log_samples", "task_exponent")
