"""What happens when a control moves: theory at once, simulation as it comes.

Whatever comes from the browser is any JSON value until it has been checked, hence `Any`.
"""

from typing import Any

import numpy as np
from dash import ClientsideFunction, Dash, Input, Output, Patch, no_update
from dash import State as DashState
from dash.exceptions import PreventUpdate

from iclflow.explorer.detail import Curve
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
FRESH, FADED = "wide", "wide faded"  # whether the curves belong to the state on screen or to the one before
NOTED = ("heads", "rank", "log_samples", "rule", "log_init", "spectrum")
ANSWERS = {  # the names under which callbacks return values: component and property
    "loss": ("loss", "figure"), "gains": ("gains", "figure"), "values": ("values", "figure"),
    "theory": ("theory", "data"), "detail": ("detail", "data"), "job": ("job", "data"), "query": ("query", "data"),
    "sent": ("sent", "data"), "command": ("command", "children"), "python": ("python", "children"),
    "progress": ("progress", "children"), "idle": ("tick", "disabled"), "look": ("loss-box", "className"),
}  # fmt: skip
MOVED = ("loss", "theory", "detail", "job", "query", "command", "python", "progress", "idle", "look")
NEWS = ("loss", "gains", "values", "detail", "progress", "sent", "idle", "look")
OPENED = ("loss", "gains", "values", "theory", "detail", "job", "command", "python", "progress", "idle", "look")


def outputs(names: tuple[str, ...], again: bool = True) -> dict[str, Output]:
    """The outputs of a callback by name; `again` allows those that another callback has as well."""
    return {name: Output(*ANSWERS[name], allow_duplicate=again) for name in names}


def connect(app: Dash, jobs: Jobs, saved: Saved) -> None:
    """Tie controls and pictures together."""
    every_control = [Output(name, "value", allow_duplicate=True) for name in ALL]

    @app.callback(
        output={
            **outputs(MOVED, again=False),
            "notes": {name: Output(f"note-{name}", "children") for name in NOTED},
        },
        inputs={
            "settings": {name: Input(name, "value") for name in ALL},
            "axes": DashState("axes", "value"),
            "name": DashState("client", "data"),
        },
    )
    def controls_moved(settings: dict[str, Any], axes: Any, name: Any) -> dict[str, Any]:
        client, ticket = jobs.enter(str(name))
        state = read(settings)
        with client.turn:
            if client.ticket != ticket:
                raise PreventUpdate
            view = theory_view(state)
        wait = draw_seconds(state.experiment())
        job = None if wait > TOO_LONG else jobs.start(client, ticket, state)
        return {
            "loss": patch_theory(view, "time" in (axes or []), "loss" in (axes or [])),
            "theory": payload(view),
            "detail": None,
            "job": None if job is None else job.token,
            "query": state.to_query(),
            "command": state.command(),
            "python": state.python(),
            "progress": "theory only" if job is None else "simulating",
            "idle": job is None,
            "look": FADED,
            "notes": notes_for(state, view, settings),
        }

    @app.callback(
        output=outputs(NEWS),
        inputs={
            "_": Input("tick", "n_intervals"),
            "client": DashState("client", "data"),
            "token": DashState("job", "data"),
            "sent": DashState("sent", "data"),
            "axes": DashState("axes", "value"),
        },
        prevent_initial_call=True,
    )
    def more_simulated(_: Any, client: Any, token: Any, sent: Any, axes: Any) -> dict[str, Any]:
        job = jobs.get(str(client), str(token))
        if job is None:
            raise PreventUpdate
        answer = news(job, sent_of(job, sent), "time" in (axes or []))
        if job.dropped:  # in the meantime
            raise PreventUpdate
        return answer

    # These are two callbacks because a second request to the same callback would void the answer to the first.
    @app.callback(output=every_control, inputs=[Input("url", "search")], prevent_initial_call="initial_duplicate")
    def opened(search: Any) -> list[Any]:
        return control_values(State.from_query(search))

    @app.callback(output=every_control, inputs=[Input("preset", "value")], prevent_initial_call=True)
    def chosen(preset: Any) -> list[Any]:
        if preset not in PRESETS:
            raise PreventUpdate
        return control_values(PRESETS[preset])

    @app.callback(
        Output("download", "data"),
        Input("save-csv", "n_clicks"),
        DashState("client", "data"),
        DashState("job", "data"),
        DashState("saved", "value"),
        prevent_initial_call=True,
    )
    def download(clicks: Any, client: Any, token: Any, number: Any) -> dict[str, str]:
        job, shown = jobs.get(str(client), str(token)), saved.show(number)
        if clicks and shown is not None:
            text = as_csv(shown.view, shown.seeds)
        elif clicks and job is not None:
            text = as_csv(theory_view(job.state), job.seeds)
        else:
            raise PreventUpdate
        return {"filename": "iclflow.csv", "content": text, "type": "text/csv"}

    connect_saved(app, jobs, saved)
    connect_browser(app)


def read(settings: dict[str, Any]) -> State:
    """The state that the controls show."""
    return State.read({**settings, "eigenvalues": [settings[name] for name in EIGEN_IDS]})


def notes_for(state: State, view: TheoryView, settings: dict[str, Any]) -> dict[str, str]:
    """The note beside each control that can have one."""
    asked = clamped("rank", settings["rank"], state.rank)
    return {
        "heads": room_for(state),
        "rank": f"at most D: {state.rank} is used" if asked > state.rank else "",
        "log_samples": "" if state.data == "population" else sampling_note(draw_seconds(state.experiment())),
        "rule": "a finite sample is trained by descent" if state.data == "sample" else "",
        "log_init": view.note if view.prediction is not None else "",
        "spectrum": view.note if view.prediction is None else "",
    }


def room_for(state: State) -> str:
    """Why the heads cannot learn all components, or why there is no rank to choose."""
    if state.model == "merged":
        return "merged key and query have full rank: there is no rank to choose"
    places = state.heads * state.rank
    return f"room for {places} of {state.dim} components" if places < state.dim else ""


def sampling_note(seconds: float) -> str:
    """How long it takes to sample, and what to do where that is too long."""
    if seconds <= TOO_LONG:
        return f"about {max(seconds, 0.1):.1f} s per seed to sample; theory is that of the population"
    return f"would take about {seconds:.0f} s to sample (limit {TOO_LONG:.0f} s): choose a smaller P or a smaller D"


def sent_of(job: Job, sent: Any) -> int:
    """How many seeds of this job the page already has."""
    known = isinstance(sent, list) and len(sent) == 2 and sent[0] == job.token and isinstance(sent[1], int)
    return sent[1] if known else 0


def news(job: Job, sent: int, log_time: bool) -> dict[str, Any]:
    """What has been simulated since `sent` seeds were sent."""
    done, seeds = job.done, list(job.seeds)  # in this order: a job that is done has all its seeds
    answer: dict[str, Any] = dict.fromkeys(NEWS, no_update)
    if job.detail is None:
        return answer | {"progress": words(job), "sent": [job.token, 0], "idle": done}
    view = theory_view(job.state)
    if len(seeds) > sent:
        answer["loss"] = loss = Patch()
        loss["data"] = loss_lines(view, seeds)
        show_times(loss, view, [seed["time"][-1] for seed in seeds], log_time)
    if sent <= 0:
        answer |= {"detail": job.detail, "gains": patch_gains(job.detail), "values": patch_values(job.detail, view)}
    if job.algorithms is not None:
        answer["detail"] = {**job.detail, "algorithms": job.algorithms}
    return answer | {"progress": words(job), "sent": [job.token, len(seeds)], "idle": done, "look": FRESH}


def words(job: Job) -> str:
    """What the job is doing, with the share that is done."""
    return job.words if job.done else f"{job.words} ({job.share:.0%})"


def patch_gains(detail: dict[str, Any]) -> Patch:
    """The picture of the components learned over time."""
    patch, time = Patch(), detail["time"]
    patch["data"] = gain_lines(time, np.array(detail["gains"]), detail["learned"])
    patch["layout"]["xaxis"]["range"] = window(time, detail["learned"])
    return patch


def patch_values(detail: dict[str, Any], view: TheoryView) -> Patch:
    """The picture of the value weights over time, simulated and predicted."""
    patch, time, simulated = Patch(), detail["time"], np.array(detail["values"])
    patch["data"] = value_lines(time, simulated, view.at(np.array(time), simulated.shape[1]))
    patch["layout"]["xaxis"]["range"] = window(time, detail["learned"])
    return patch


def window(time: list[float], learned: list[int]) -> list[float]:
    """Logarithmic limits of the time axis, from a little before the first component is learned."""
    changes = [t for t, a, b in zip(time[1:], learned, learned[1:], strict=False) if a != b and t > 0]
    first = 0.1 * changes[0] if changes else next((t for t in time if t > 0), 1.0)
    return [float(np.log10(max(first, 1e-6))), float(np.log10(max(time[-1], 1e-5)))]


def as_csv(view: TheoryView, seeds: list[Curve]) -> str:
    """The loss curves of all seeds and of theory, one row per time."""
    rows = ["curve,time,loss"]
    rows += [f"seed {seed['seed']},{t!r},{x!r}" for seed in seeds
             for t, x in zip(seed["time"], seed["loss"], strict=True)]  # fmt: skip
    if view.loss is not None:
        rows += [f"theory,{t!r},{x!r}" for t, x in zip(view.time.tolist(), view.loss.tolist(), strict=True)]
    return "\n".join(rows) + "\n"


def connect_saved(app: Dash, jobs: Jobs, saved: Saved) -> None:
    """Show a saved run or sweep when it is chosen."""

    @app.callback(
        output=outputs(OPENED),
        inputs={
            "number": Input("saved", "value"),
            "axes": DashState("axes", "value"),
            "name": DashState("client", "data"),
        },
        prevent_initial_call=True,
    )
    def saved_chosen(number: Any, axes: Any, name: Any) -> dict[str, Any]:
        if number is None:  # the choice was cleared because a control was moved
            raise PreventUpdate
        client, ticket = jobs.enter(str(name))
        shown = saved.show(number)
        if shown is None or client.ticket != ticket:
            raise PreventUpdate
        loss = patch_theory(shown.view, "time" in (axes or []), "loss" in (axes or []))
        loss["data"] = loss_lines(shown.view, shown.seeds)
        return {
            "loss": loss,
            "gains": nothing() if shown.detail is None else patch_gains(shown.detail),
            "values": nothing() if shown.detail is None else patch_values(shown.detail, shown.view),
            "theory": payload(shown.view),
            "detail": shown.detail,
            "job": None,
            "command": "",
            "python": f"import iclflow as icl\n\n{shown.python}" if shown.python else "",
            "progress": shown.words,
            "idle": True,
            "look": FRESH,
        }


def nothing() -> Patch:
    """A picture without lines."""
    patch = Patch()
    patch["data"] = []
    return patch


def connect_browser(app: Dash) -> None:
    """Tie together what the browser does alone: cursor, film, maps, clipboard, downloaded pictures."""
    own = lambda name: ClientsideFunction("iclflow", name)  # of assets/explorer.js
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
    app.clientside_callback(own("address"), Output("ignored", "data"), Input("query", "data"))
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
    app.clientside_callback(own("scheme"), Output("ignored", "data", allow_duplicate=True), Input("scheme", "n_clicks"),
                            prevent_initial_call=True)  # fmt: skip


READ = ("heads", "rank", "dim", "context", "exponent", "log_init", "log_lr", "noise", "task_exponent", "log_samples",
        "seeds", "seed")  # fmt: skip
HIDDEN = ("rank", "exponent", "log_lr", "log_samples", "task_exponent")
