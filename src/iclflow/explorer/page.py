"""The layout: controls on the left, pictures on the right, one time cursor for all of them.

On a narrow screen the loss comes first, then its cursor, the controls and the other pictures: the order they have here.
"""

import secrets
from typing import Any, cast

from dash import dcc, html
from dash.development.base_component import Component

from iclflow.explorer.pictures import empty_gains, empty_loss, empty_map, empty_values
from iclflow.explorer.presets import PRESETS
from iclflow.explorer.state import CHOICES, EIGENVALUE, RANGES, State, falling

__all__ = ["CONTROLS", "EIGEN_IDS", "TICK", "control_values", "layout"]

TICK = 80  # milliseconds from an answer to the next question for news

CONTROLS = (*CHOICES, *RANGES)  # the id of a control is the name of the field of `State`
EIGEN_IDS = tuple(f"eigenvalue-{i}" for i in range(int(RANGES["dim"][1])))
STEPS = {"exponent": 0.05, "log_init": 0.05, "log_lr": 0.05, "noise": 0.05, "task_exponent": 0.1, "log_samples": 0.1,
         "log_decay": 0.05, "log_length": 0.1}  # fmt: skip
LABELS = {
    "model": "Key and query", "heads": "Heads H", "rank": "Rank R", "dim": "Dimension D", "context": "Context length N",
    "spectrum": "Token spectrum", "exponent": "Exponent", "log_init": "Initial scale", "rule": "Rule",
    "log_lr": "Learning rate", "noise": "Label noise (variance)", "tasks": "Task covariance",
    "task_exponent": "Its exponent", "data": "Data", "log_samples": "Sequences P", "seeds": "Seeds",
    "seed": "First seed", "normalize": "Scale of attention", "optimizer": "Optimiser", "layers": "Layers L",
    "log_decay": "Weight decay", "log_length": "Length of training",
}  # fmt: skip
WORDS = {
    "separate": "separate", "merged": "merged", "linear": "linear", "white": "white", "power": "power law",
    "free": "free", "flow": "gradient flow", "descent": "descent", "population": "population", "sample": "sample",
    "equal": "identity", "context": "1/N", "tokens": "1/(N+1)", "none": "none", "sgd": "plain", "momentum": "momentum",
    "adam": "Adam", "muon": "Muon",
}  # fmt: skip
BUTTONS = {
    "copy-link": "Copy link", "copy-command": "Copy as command", "copy-python": "Copy as Python",
    "save-csv": "CSV", "save-png": "PNG", "save-svg": "SVG",
}  # fmt: skip
GRAPH: dict[str, Any] = {
    "displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["lasso2d", "select2d", "sendChartToCloud"],
    "showSendToCloud": False, "plotlyServerURL": "",
}  # fmt: skip


def layout(saved: list[str]) -> html.Div:
    """The page, made anew for every visitor, with an id of its own."""
    return html.Div(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="client", data=secrets.token_hex(16)),
            *(dcc.Store(id=name) for name in ("job", "sent", "theory", "detail", "query", "ignored", "dark")),
            dcc.Interval(id="tick", interval=TICK, disabled=True),
            dcc.Interval(id="film", interval=90, disabled=True),
            dcc.Download(id="download"),
            header(),
            html.Main(
                [loss_picture(), cursor(), controls(saved), other_pictures()], id="pictures", className="columns"
            ),
        ],
        className="page",
    )


def header() -> html.Header:
    """The title, the progress of the simulation, the sentence at the cursor and the algorithm there."""
    label = html.Span("runs in context: ", className="soft")
    return html.Header(
        [
            html.H1("iclflow"),
            html.P(id="progress", className="soft progress", role="status"),
            html.P(id="sentence", className="sentence", **aria(live="polite")),
            html.P([label, html.Span(id="algorithm")], className="algorithm"),
        ]
    )


def group(title: str, *parts: Component) -> html.Fieldset:
    """Controls under a title."""
    return html.Fieldset([html.Legend(title), *parts])


def controls(saved: list[str]) -> html.Aside:
    """All controls, in groups."""
    task, more_task = ("dim", "context", "spectrum", "exponent"), ("noise", "tasks", "task_exponent")
    training = ("log_init", "rule", "optimizer", "log_lr", "log_decay", "log_length", "data", "log_samples", "seeds",
                "seed", "normalize")  # fmt: skip
    groups = [
        group("Start from", preset_choice(), saved_choice(saved)),
        group("Model", *map(control, ("model", "heads", "rank", "layers"))),
        group("Task", *map(control, task), free_spectrum(), *map(control, more_task)),
        group("Training", *map(control, training)),
        share(),
    ]
    return html.Aside(groups, **aria(label="Controls"))


def preset_choice() -> html.Div:
    """The list of presets."""
    options = [{"label": name, "value": name} for name in PRESETS]
    return html.Div(
        [
            html.Label("A figure of the paper, or beyond it", htmlFor="preset"),
            dcc.Dropdown(options, id="preset", placeholder="choose"),
        ]
    )


def saved_choice(saved: list[str]) -> html.Div:
    """The list of saved runs, hidden where there are none; the choice is a number, never a path."""
    options = [{"label": name, "value": number} for number, name in enumerate(saved)]
    return html.Div(
        [html.Label("Saved, read only", htmlFor="saved"), dcc.Dropdown(options, id="saved", placeholder="choose")],
        className="" if saved else "hidden",
    )


def control(name: str) -> html.Div:
    """A choice or a slider with its label, and room for a note."""
    default = getattr(State(), name)
    if name in CHOICES:
        options = [{"label": WORDS[value], "value": value} for value in CHOICES[name]]
        body: list[Component] = [
            html.Span(LABELS[name], id=f"label-{name}", className="label"),
            html.Div(dcc.RadioItems(options, default, id=name, inline=True), role="group",
                     **aria(labelledby=f"label-{name}")),
        ]  # fmt: skip
    else:
        low, high = RANGES[name]
        body = [
            html.Label([LABELS[name], html.Output(id=f"shown-{name}")], htmlFor=name),
            dcc.Input(type="range", id=name, min=low, max=high, step=STEPS.get(name, 1), value=default),
        ]
    return html.Div(
        [*body, html.Small(id=f"note-{name}", className="note", role="status")], className="control", id=f"box-{name}"
    )


def free_spectrum() -> html.Div:
    """A slider and a number for every eigenvalue of the free spectrum."""
    low, high = EIGENVALUE
    boxes: list[Component] = []
    for i, name in enumerate(EIGEN_IDS):
        bounds: dict[str, Any] = {"min": low, "max": high, "value": falling(i, len(EIGEN_IDS))}
        slider = dcc.Input(type="range", id=name, step=0.01, **bounds)
        number = dcc.Input(type="number", id=f"number-{name}", debounce=True, step="any", **bounds)
        label = html.Label(f"{i + 1}", htmlFor=name, **aria(label=f"Eigenvalue {i + 1}"))
        named = html.Label(number, **aria(label=f"Eigenvalue {i + 1} as a number"))
        boxes.append(html.Div([label, slider, named]))
    return html.Div(boxes, id="free", className="free hidden", role="group", **aria(label="Eigenvalues"))


def share() -> html.Fieldset:
    """Buttons to copy and download, and the command and the Python code of the run on screen."""
    buttons = [html.Button(words, id=name, type="button") for name, words in BUTTONS.items()]
    return group(
        "Take it with you",
        html.Div(buttons, className="buttons"),
        html.Pre(id="command", tabIndex="0", **aria(label="Command")),
        html.Pre(id="python", tabIndex="0", **aria(label="Python")),
        html.P(id="copied", className="soft", role="status"),
    )


def graph(name: str, figure: dict[str, Any], height: str = "plot") -> dcc.Graph:
    """An empty plot; heights are variables of the style sheet."""
    config = cast("dcc.Graph.Config", GRAPH)
    return dcc.Graph(id=name, figure=figure, config=config, style={"height": f"var(--{height})"})


def loss_picture() -> html.Section:
    """The loss, and below it what theory has to say about its forecast."""
    note = html.P(id="forecast", className="note", role="status")
    return html.Section([graph("loss", empty_loss(), "tall"), note], id="loss-box", **aria(label="Loss over time"))


def cursor() -> html.Div:
    """The time cursor, and how the axes are drawn."""
    axes = [{"label": "log time", "value": "time"}, {"label": "log loss", "value": "loss"}]
    return html.Div(
        [
            html.Button("Play", id="play", type="button", **aria(pressed="false")),
            html.Label(["Time cursor ", html.Output(id="shown-cursor")], htmlFor="cursor"),
            dcc.Input(type="range", id="cursor", min=0, max=1000, step=1, value=1000),
            dcc.Checklist(axes, ["time"], id="axes", inline=True),
            html.Button("Dark or light", id="scheme", type="button"),
        ],
        className="cursor",
    )


def other_pictures() -> html.Div:
    """What the weights of the first seed do, over time and at the cursor."""
    return html.Div(
        [
            html.Section(graph("gains", empty_gains()), **aria(label="Components learned over time")),
            html.Section(graph("values", empty_values()), **aria(label="Value weights over time")),
            html.Section(graph("map-first", empty_map("Keys"), "map"), **aria(label="Keys at the cursor")),
            html.Section(graph("map-second", empty_map("Queries"), "map"), **aria(label="Queries at the cursor")),
        ],
        className="grid",
    )


def aria(**attributes: str) -> dict[str, Any]:
    """Attributes for screen readers: `label="Keys"` becomes `aria-label`.

    The values are typed as `Any` because Dash declares no such keywords, so the type checker takes a `**` argument for
    every keyword that it does declare.
    """
    return {f"aria-{name}": value for name, value in attributes.items()}


def control_values(state: State) -> list[Any]:
    """The values of all controls, in the order of `CONTROLS`, then those of `EIGEN_IDS`."""
    eigen = [*state.eigenvalues, *(falling(i, len(EIGEN_IDS)) for i in range(len(state.eigenvalues), len(EIGEN_IDS)))]
    return [getattr(state, name) for name in CONTROLS] + eigen
