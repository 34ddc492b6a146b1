"""The layout: controls on the left, pictures on the right, one time cursor for all of them."""

import secrets
from typing import Any

from dash import dcc, html

from iclflow.explorer.pictures import empty_gains, empty_loss, empty_map, empty_values
from iclflow.explorer.presets import PRESETS
from iclflow.explorer.state import CHOICES, EIGENVALUE, RANGES, State, falling

__all__ = ["CONTROLS", "EIGEN_IDS", "control_values", "layout"]

CONTROLS = (*CHOICES, *RANGES)  # ids of the controls are the names of the state
EIGEN_IDS = tuple(f"eigenvalue-{i}" for i in range(int(RANGES["dim"][1])))
STEPS = {"exponent": 0.05, "log_init": 0.05, "log_lr": 0.05, "noise": 0.05, "task_exponent": 0.1, "log_samples": 0.1}
LABELS = {
    "model": "Key and query", "heads": "Heads H", "rank": "Rank R", "dim": "Dimension D", "context": "Context length N",
    "spectrum": "Token spectrum", "exponent": "Exponent", "log_init": "Initial scale", "rule": "Rule",
    "log_lr": "Learning rate", "noise": "Label noise (variance)", "tasks": "Task covariance",
    "task_exponent": "Its exponent", "data": "Data", "log_samples": "Sequences P", "seeds": "Seeds",
    "seed": "First seed", "normalize": "Scale of attention",
}  # fmt: skip
WORDS = {
    "separate": "separate", "merged": "merged", "linear": "linear", "white": "white", "power": "power law",
    "free": "free", "flow": "gradient flow", "descent": "descent", "population": "population", "sample": "sample",
    "equal": "identity", "context": "1/N", "tokens": "1/(N+1)", "none": "none",
}  # fmt: skip
GRAPH = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["lasso2d", "select2d"]}


def layout(saved: list[str]) -> html.Div:
    """Made anew for every visitor, with an id of its own."""
    return html.Div(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="client", data=secrets.token_hex(16)),
            *(dcc.Store(id=name) for name in ("job", "sent", "theory", "detail", "query", "ignored")),
            dcc.Interval(id="tick", interval=120, disabled=True),
            dcc.Interval(id="film", interval=90, disabled=True),
            dcc.Download(id="download"),
            header(),
            html.Div([controls(saved), pictures()], className="columns"),
        ],
        className="page",
    )


def header() -> html.Header:
    return html.Header(
        [
            html.H1("iclflow"),
            html.P(id="sentence", className="sentence", **{"aria-live": "polite"}),
            html.P(
                [html.Span("runs in context: ", className="soft"), html.Span(id="algorithm")], className="algorithm"
            ),
            html.P(id="progress", className="soft", role="status"),
        ]
    )


def controls(saved: list[str]) -> html.Aside:
    groups = [
        html.Fieldset([html.Legend("Start from"), preset_choice(), *saved_choice(saved)]),
        html.Fieldset([html.Legend("Model"), *map(control, ("model", "heads", "rank"))]),
        html.Fieldset(
            [
                html.Legend("Task"),
                *map(control, ("dim", "context", "spectrum", "exponent")),
                free_spectrum(),
                *map(control, ("noise", "tasks", "task_exponent")),
            ]
        ),
        html.Fieldset(
            [
                html.Legend("Training"),
                *map(control, ("log_init", "rule", "log_lr", "data", "log_samples", "seeds", "seed", "normalize")),
            ]
        ),
        share(),
    ]
    return html.Aside(groups, **{"aria-label": "Controls"})


def preset_choice() -> html.Div:
    options = [{"label": name, "value": name} for name in PRESETS]
    return html.Div(
        [html.Label("Figure of the paper", htmlFor="preset"), dcc.Dropdown(options, id="preset", placeholder="choose")]
    )


def saved_choice(saved: list[str]) -> list[Any]:
    """Only where a directory was given; the choice is a number, never a path."""
    options = [{"label": name, "value": number} for number, name in enumerate(saved)]
    box = html.Div(
        [html.Label("Saved, read only", htmlFor="saved"), dcc.Dropdown(options, id="saved", placeholder="choose")],
        className="" if saved else "hidden",
    )
    return [box]


def control(name: str) -> html.Div:
    default = getattr(State(), name)
    if name in CHOICES:
        options = [{"label": WORDS[value], "value": value} for value in CHOICES[name]]
        body: list[Any] = [
            html.Span(LABELS[name], id=f"label-{name}", className="label"),
            html.Div(dcc.RadioItems(options, default, id=name, inline=True), role="group",
                     **{"aria-labelledby": f"label-{name}"}),
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
    low, high = EIGENVALUE
    sliders = [
        html.Div(
            [
                dcc.Input(type="range", id=name, min=low, max=high, step=0.01, value=falling(i, len(EIGEN_IDS))),
                html.Label(f"{i + 1}", htmlFor=name, **{"aria-label": f"Eigenvalue {i + 1}"}),
            ]
        )
        for i, name in enumerate(EIGEN_IDS)
    ]
    return html.Div(sliders, id="free", className="free hidden", role="group", **{"aria-label": "Eigenvalues"})


def share() -> html.Fieldset:
    button = lambda words, name: html.Button(words, id=name, type="button")
    return html.Fieldset(
        [
            html.Legend("Take it with you"),
            html.Div(
                [
                    button("Copy link", "copy-link"),
                    button("Copy as command", "copy-command"),
                    button("Copy as Python", "copy-python"),
                    button("CSV", "save-csv"),
                    button("PNG", "save-png"),
                    button("SVG", "save-svg"),
                ],
                className="buttons",
            ),
            html.Pre(id="command", tabIndex="0", **{"aria-label": "Command"}),
            html.Pre(id="python", tabIndex="0", **{"aria-label": "Python"}),
            html.P(id="copied", className="soft", role="status"),
        ]
    )


def pictures() -> html.Main:
    graph = lambda name, figure, height=290: dcc.Graph(
        id=name, figure=figure, config=GRAPH, style={"height": f"{height}px"}
    )
    toggles = dcc.Checklist(
        [{"label": "log time", "value": "time"}, {"label": "log loss", "value": "loss"}],
        ["time"],
        id="axes",
        inline=True,
    )
    cursor = html.Div(
        [
            html.Button("Play", id="play", type="button", **{"aria-pressed": "false"}),
            html.Label(["Time cursor ", html.Output(id="shown-cursor")], htmlFor="cursor"),
            dcc.Input(type="range", id="cursor", min=0, max=1000, step=1, value=1000),
            toggles,
            html.Button("Dark or light", id="scheme", type="button"),
        ],
        className="cursor",
    )
    return html.Main(
        [
            html.Section(graph("loss", empty_loss(), 390), id="loss-box", className="wide", **named("Loss over time")),
            cursor,
            html.Div(
                [
                    html.Section(graph("gains", empty_gains()), **named("Components learned over time")),
                    html.Section(graph("values", empty_values()), **named("Value weights over time")),
                    html.Section(graph("map-first", empty_map("Keys")), **named("Keys at the cursor")),
                    html.Section(graph("map-second", empty_map("Queries")), **named("Queries at the cursor")),
                ],
                className="grid",
            ),
        ]
    )


def named(words: str) -> dict[str, str]:
    return {"aria-label": words}


def control_values(state: State) -> list[Any]:
    """In the order of `CONTROLS`, then the free eigenvalues."""
    eigen = [*state.eigenvalues, *(falling(i, len(EIGEN_IDS)) for i in range(len(state.eigenvalues), len(EIGEN_IDS)))]
    return [getattr(state, name) for name in CONTROLS] + eigen
