"""What happens when a control moves: levels at once, simulation and forecast as they come.

Whatever comes from the browser is any JSON value until it has been checked, hence `Any`.
"""

from typing import Any, NamedTuple

from dash import Dash, Input, Output, Patch, no_update
from dash import State as DashState
from dash.exceptions import PreventUpdate

from iclflow.explorer.detail import Curve
from iclflow.explorer.in_browser import connect_browser
from iclflow.explorer.jobs import Client, Job, Jobs, known
from iclflow.explorer.notes import TOO_LONG, notes_for
from iclflow.explorer.page import CONTROLS, EIGEN_IDS, TICK, control_values
from iclflow.explorer.pictures import blank, loss_lines, patch_gains, patch_theory, patch_values, show_times
from iclflow.explorer.presets import PRESETS, preset_of
from iclflow.explorer.saved import Saved
from iclflow.explorer.state import State
from iclflow.explorer.theory_view import TheoryView, is_formula, payload
from iclflow.training.cost import draw_seconds

__all__ = ["connect"]

ALL = (*CONTROLS, *EIGEN_IDS)
PATIENCE = 0.25  # seconds that an answer waits for a formula; other theory comes by itself
LONGEST = 20.0  # seconds that it waits where there is no job whose news could bring it later
PATIENT_TICK = 5_000  # milliseconds until a question is asked again that has got no answer
FRESH, FADED = "columns", "columns faded"  # whether the curves belong to the state on screen or to the one before
NOTED = ("heads", "rank", "layers", "log_samples", "rule", "optimizer", "log_lr", "data", "normalize", "log_length")
ANSWERS = {  # the names under which callbacks return values: component and property
    "loss": ("loss", "figure"), "gains": ("gains", "figure"), "values": ("values", "figure"),
    "theory": ("theory", "data"), "detail": ("detail", "data"), "job": ("job", "data"), "query": ("query", "data"),
    "sent": ("sent", "data"), "command": ("command", "children"), "python": ("python", "children"),
    "progress": ("progress", "children"), "look": ("pictures", "className"), "forecast": ("forecast", "children"),
}  # fmt: skip
SHOWN = ("job", "loss", "gains", "values", "theory", "detail", "progress", "look", "forecast")
MOVED = (*SHOWN, "query", "command", "python")
NEWS = (*SHOWN, "sent")
OPENED = (*SHOWN, "command", "python")


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
        log_time, log_loss = "time" in (axes or []), "loss" in (axes or [])
        return begin(jobs, client, ticket, state, log_time, log_loss) | {
            "query": {"query": state.to_query(), "preset": preset_of(state)},
            "command": state.command(),
            "python": state.python(),
            "notes": notes_for(state, settings),
        }

    @app.callback(
        output=outputs(NEWS),
        inputs={
            "_": Input("tick", "n_intervals"),
            "client": DashState("client", "data"),
            "token": DashState("job", "data"),
            "sent": DashState("sent", "data"),
            "axes": DashState("axes", "value"),
            "settings": {name: DashState(name, "value") for name in ALL},
        },
        running=[(Output("tick", "interval"), PATIENT_TICK, TICK)],  # the next question comes after the answer
        prevent_initial_call=True,
    )
    def more_simulated(
        _: Any, client: Any, token: Any, sent: Any, axes: Any, settings: dict[str, Any]
    ) -> dict[str, Any]:
        log_time, log_loss = "time" in (axes or []), "loss" in (axes or [])
        job = jobs.get(str(client), str(token))
        if job is None and jobs.lost(str(client)):  # begin again with what the controls show
            entered, ticket = jobs.enter(str(client))
            return dict.fromkeys(NEWS, no_update) | begin(jobs, entered, ticket, read(settings), log_time, log_loss)
        if job is None:
            raise PreventUpdate
        answer = news(job, sent_of(job, sent), log_time, log_loss)
        if job.dropped:  # in the meantime
            raise PreventUpdate
        return answer

    # These are two callbacks because a second request to the same callback would void the answer to the first.
    @app.callback(output=every_control, inputs=[Input("url", "search")], prevent_initial_call="initial_duplicate")
    def opened(search: Any) -> list[Any]:
        return control_values(State.from_query(search))

    @app.callback(
        output=every_control,
        inputs={"preset": Input("preset", "value"), "settings": {name: DashState(name, "value") for name in ALL}},
        prevent_initial_call=True,
    )
    def chosen(preset: Any, settings: dict[str, Any]) -> list[Any]:
        if not isinstance(preset, str) or preset not in PRESETS or read(settings) == PRESETS[preset]:
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
            text = as_csv(job.view, job.seeds)
        else:
            raise PreventUpdate
        return {"filename": "iclflow.csv", "content": text, "type": "text/csv"}

    connect_saved(app, jobs, saved)
    connect_browser(app)


def read(settings: dict[str, Any]) -> State:
    """The state that the controls show."""
    return State.read({**settings, "eigenvalues": [settings[name] for name in EIGEN_IDS]})


def begin(jobs: Jobs, client: Client, ticket: int, state: State, log_time: bool, log_loss: bool) -> dict[str, Any]:
    """Begin with a state: what is known of its theory, and a job, unless its sample would take too long to draw."""
    forecast = jobs.think(client, ticket, state)
    if forecast is None:
        raise PreventUpdate
    too_long = draw_seconds(state.experiment()) > TOO_LONG
    job = None if too_long else jobs.start(client, ticket, state, forecast)
    if job is None:
        client.first.set()
    view = known(forecast, state, LONGEST if job is None else PATIENCE if is_formula(state) else 0.0)
    if not jobs.answer(client, ticket):
        raise PreventUpdate
    loss = patch_theory(view, log_time, log_loss)
    if job is None:  # nothing will take the place of the former run
        loss["data"] = loss_lines(view, [])
    return {
        "loss": loss,
        "gains": blank() if job is None else no_update,
        "values": blank() if job is None else no_update,
        "theory": payload(view),
        "detail": None,
        "job": None if job is None else job.token,
        "progress": "theory only" if job is None else "simulating",
        "look": FRESH if job is None else FADED,
        "forecast": view.note,
    }


class Sent(NamedTuple):
    """What the page has of a job. The browser stops asking when it has everything of the job that it shows."""

    token: str
    seeds: int = 0
    forecast: bool = False
    algorithms: bool = False
    everything: bool = False


def sent_of(job: Job, sent: Any) -> Sent:
    """What the page says that it has of this job."""
    mine = isinstance(sent, dict) and sent.get("token") == job.token and isinstance(sent.get("seeds"), int)
    had = [sent.get(name) is True for name in Sent._fields[2:]] if mine else []
    return Sent(job.token, sent["seeds"] if mine else 0, *had)


def news(job: Job, sent: Sent, log_time: bool, log_loss: bool) -> dict[str, Any]:
    """What has been simulated or computed since the last answer."""
    done, seeds, view = job.done, list(job.seeds), job.view  # in this order: a job that is done has all its seeds
    detail, algorithms = job.detail, job.algorithms
    answer: dict[str, Any] = dict.fromkeys(NEWS, no_update)
    new_forecast = view.complete and not sent.forecast
    if new_forecast:
        answer |= {"theory": payload(view), "forecast": view.note}
        answer["loss"] = patch_theory(view, log_time, log_loss)
    if seeds and (new_forecast or len(seeds) > sent.seeds):
        answer["loss"] = loss = patch_theory(view, log_time, log_loss) if new_forecast else Patch()
        loss["data"] = loss_lines(view, seeds)
        show_times(loss, view, [seed["time"][-1] for seed in seeds], log_time)
    if detail is not None:
        answer["look"] = FRESH
        new = sent.seeds <= 0 or new_forecast
        if new:
            answer |= {"gains": patch_gains(detail, view.clock), "values": patch_values(detail, view)}
        if new or (algorithms is not None and not sent.algorithms):
            answer["detail"] = detail.payload(view.prediction, algorithms)
    shown = len(seeds) if detail is not None else 0
    now = Sent(job.token, shown, view.complete, shown > 0 and algorithms is not None, done and view.complete)
    return answer | {"progress": words(job), "sent": now._asdict()}


def words(job: Job) -> str:
    """What the job is doing, with the share that is done."""
    return job.words if job.done else f"{job.words} ({job.share:.0%})"


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
        if shown is None or not jobs.answer(client, ticket):
            raise PreventUpdate
        loss = patch_theory(shown.view, "time" in (axes or []), "loss" in (axes or []))
        loss["data"] = loss_lines(shown.view, shown.seeds)
        detail = shown.detail
        return {
            "loss": loss,
            "gains": blank() if detail is None else patch_gains(detail, shown.view.clock),
            "values": blank() if detail is None else patch_values(detail, shown.view),
            "theory": payload(shown.view),
            "detail": None if detail is None else detail.payload(shown.view.prediction, shown.algorithms),
            "job": None,
            "command": "",
            "python": f"import iclflow as icl\n\n{shown.python}" if shown.python else "",
            "progress": shown.words,
            "look": FRESH,
            "forecast": shown.view.note,
        }
