"""What happens when a control moves: levels at once, simulation and forecast as they come.

Whatever comes from the browser is any JSON value until it has been checked, hence `Any`. A page asks for news of the
state that its controls show, so a request which comes in late changes nothing for long.
"""

from typing import Any, NamedTuple

from dash import Dash, Input, Output, Patch, no_update
from dash import State as DashState
from dash.exceptions import PreventUpdate

from iclflow.explorer.detail import SeedCurve
from iclflow.explorer.in_browser import connect_browser
from iclflow.explorer.jobs import Job, Jobs
from iclflow.explorer.notes import notes_for
from iclflow.explorer.page import CONTROLS, EIGEN_IDS, TICK, control_values
from iclflow.explorer.pictures import loss_lines, patch_gains, patch_theory, patch_values, show_times, times_shown
from iclflow.explorer.presets import PRESETS, preset_of
from iclflow.explorer.saved import Saved
from iclflow.explorer.state import State
from iclflow.explorer.theory_view import TheoryView

__all__ = ["connect"]

ALL = (*CONTROLS, *EIGEN_IDS)
PATIENCE = 0.15  # seconds that an answer waits for theory, which mostly takes less
PATIENT_TICK = 5_000  # milliseconds until a question is asked again that has got no answer
FRESH, FADED = "columns", "columns faded"  # whether the curves belong to the state on screen or to the one before
NOTED = ("heads", "rank", "layers", "log_samples", "rule", "optimizer", "log_lr", "data", "normalize", "log_length")
ANSWERS = {  # the names under which callbacks return values: component and property
    "loss": ("loss", "figure"), "gains": ("gains", "figure"), "values": ("values", "figure"),
    "theory": ("theory", "data"), "detail": ("detail", "data"), "job": ("job", "data"), "query": ("query", "data"),
    "sent": ("sent", "data"), "command": ("command", "children"), "python": ("python", "children"),
    "progress": ("progress", "children"), "look": ("pictures", "className"), "forecast": ("forecast", "children"),
}  # fmt: skip
NEWS = ("loss", "gains", "values", "theory", "detail", "progress", "look", "forecast", "sent")
OPENED = (*NEWS, "job", "command", "python")
MOVED = (*OPENED, "query")


def outputs(names: tuple[str, ...], again: bool = True) -> dict[str, Output]:
    """The outputs of a callback by name; `again` allows those that another callback has as well."""
    return {name: Output(*ANSWERS[name], allow_duplicate=again) for name in names}


def connect(app: Dash, jobs: Jobs, saved: Saved) -> None:
    """Tie controls and pictures together."""
    every_control = [Output(name, "value", allow_duplicate=True) for name in ALL]
    shown = {"axes": DashState("axes", "value"), "page": DashState("client", "data")}
    controls = {name: DashState(name, "value") for name in ALL}

    @app.callback(
        output={**outputs(MOVED), "notes": {name: Output(f"note-{name}", "children") for name in NOTED}},
        inputs={"settings": {name: Input(name, "value") for name in ALL}, **shown},
        prevent_initial_call="initial_duplicate",
    )
    def controls_moved(settings: dict[str, Any], axes: Any, page: Any) -> dict[str, Any]:
        state = read(settings)
        job = jobs.show(str(page), state)
        view = job.forecast.view(PATIENCE)
        return {
            **pictures(view, None, axes),
            "detail": None,
            "progress": "simulating",
            "look": FADED,
            "sent": None,
            "job": job.token,
            "query": {"query": state.to_query(), "preset": preset_of(state)},
            "command": state.command(),
            "python": state.python(),
            "notes": notes_for(state, settings),
        }

    @app.callback(
        output=outputs(NEWS),
        inputs={"_": Input("tick", "n_intervals"), "sent": DashState("sent", "data"), "settings": controls, **shown},
        running=[(Output("tick", "interval"), PATIENT_TICK, TICK)],  # the next question comes after the answer
        prevent_initial_call=True,
    )
    def more_simulated(_: Any, sent: Any, settings: dict[str, Any], axes: Any, page: Any) -> dict[str, Any]:
        job = jobs.show(str(page), read(settings))
        return news(job, sent_of(job, sent), axes)

    # These are two callbacks because a second request to the same callback would void the answer to the first.
    @app.callback(output=every_control, inputs=[Input("url", "search")], prevent_initial_call="initial_duplicate")
    def opened(search: Any) -> list[Any]:
        return control_values(State.from_query(search))

    @app.callback(
        output=every_control,
        inputs={"preset": Input("preset", "value"), "settings": controls},
        prevent_initial_call=True,
    )
    def chosen(preset: Any, settings: dict[str, Any]) -> list[Any]:
        if not isinstance(preset, str) or preset not in PRESETS or read(settings) == PRESETS[preset]:
            raise PreventUpdate
        return control_values(PRESETS[preset])

    @app.callback(
        output=outputs(OPENED), inputs={"number": Input("saved", "value"), **shown}, prevent_initial_call=True
    )
    def saved_chosen(number: Any, axes: Any, page: Any) -> dict[str, Any]:
        found = None if number is None else saved.show(number)  # a choice is cleared when a control is moved
        if found is None:
            raise PreventUpdate
        jobs.leave(str(page))
        forecast = found.view.prediction
        return {
            **pictures(found.view, found.seeds, axes),
            "gains": patch_gains(found.detail, found.view, times_shown(found.view, found.seeds), axes),
            "values": patch_values(found.detail, found.view, times_shown(found.view, found.seeds), axes),
            "detail": None if found.detail is None else found.detail.payload(forecast),
            "job": None,
            "sent": None,
            "command": "",
            "python": f"import iclflow as icl\n\n{found.python}" if found.python else "",
            "progress": found.words,
            "look": FRESH,
        }

    @app.callback(
        Output("download", "data"),
        Input("save-csv", "n_clicks"),
        DashState("client", "data"),
        DashState("saved", "value"),
        prevent_initial_call=True,
    )
    def download(clicks: Any, page: Any, number: Any) -> dict[str, str]:
        found, job = saved.show(number), jobs.pages.get(str(page))
        if clicks and found is not None:
            content = as_csv(found.view, found.seeds)
        elif clicks and job is not None:
            content = as_csv(job.forecast.view(), job.seeds)
        else:
            raise PreventUpdate
        return {"filename": "iclflow.csv", "content": content, "type": "text/csv"}

    connect_browser(app, ALL, EIGEN_IDS)


def read(settings: dict[str, Any]) -> State:
    """The state that the controls show."""
    return State.read({**settings, "eigenvalues": [settings[name] for name in EIGEN_IDS]})


def pictures(view: TheoryView, seeds: list[SeedCurve] | None, axes: Any) -> dict[str, Any]:
    """Theory in all pictures, with the curves of these seeds; `None` leaves the curves that are there."""
    loss, gains, values = patch_theory(view, axes), Patch(), Patch()
    if seeds is not None:
        loss["data"] = loss_lines(view, seeds)
    for patch in (loss, gains, values):
        show_times(patch, view, times_shown(view, seeds or []), axes)
    return {"loss": loss, "gains": gains, "values": values, "theory": view.payload(), "forecast": view.note}


class Sent(NamedTuple):
    """What the page has of a job. The browser stops asking when it has everything of the job that it shows."""

    token: str
    seeds: int = 0
    forecast: bool = False
    stage: int = 0  # of the detail: 1 the weights of the first seed, 2 its algorithms too, or that there is none
    everything: bool = False


def sent_of(job: Job, sent: Any) -> Sent:
    """What the page says that it has of this job."""
    nothing = Sent(job.token)
    kinds = {"token": str, "seeds": int, "forecast": bool, "stage": int, "everything": bool}
    if not isinstance(sent, dict) or any(type(sent.get(name)) is not kind for name, kind in kinds.items()):
        return nothing
    return Sent(**{name: sent[name] for name in kinds}) if sent["token"] == nothing.token else nothing


def news(job: Job, sent: Sent, axes: Any) -> dict[str, Any]:
    """What has been simulated or computed since the last answer."""
    done, seeds, detail, view = job.done, list(job.seeds), job.detail, job.forecast.view()  # in this order
    stage = 2 if done or (detail is not None and detail.algorithms is not None) else 0 if detail is None else 1
    answer: dict[str, Any] = dict.fromkeys(NEWS, no_update)
    new_theory, bounds = view.complete and not sent.forecast, times_shown(view, seeds)
    if new_theory or len(seeds) > sent.seeds or stage > sent.stage:
        answer |= pictures(view, seeds if seeds or done else None, axes)
        if stage:
            answer["gains"] = patch_gains(detail, view, bounds, axes)
            answer["values"] = patch_values(detail, view, bounds, axes)
            answer["detail"] = None if detail is None else detail.payload(view.prediction)
            answer["look"] = FRESH
    now = Sent(sent.token, len(seeds), view.complete, stage, done and view.complete)
    return answer | {"progress": job.words if done else f"{job.words} ({job.share:.0%})", "sent": now._asdict()}


def as_csv(view: TheoryView, seeds: list[SeedCurve]) -> str:
    """The loss curves of all seeds and of theory, one row per time."""
    curves = [(f"seed {seed['seed']}", seed["time"], seed["loss"]) for seed in seeds]
    curves += [] if view.loss is None else [("theory", view.time.tolist(), view.loss.tolist())]
    rows = [f"{name},{t!r},{x!r}" for name, time, loss in curves for t, x in zip(time, loss, strict=True)]
    return "\n".join(["curve,time,loss", *rows]) + "\n"
