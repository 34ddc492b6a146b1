"""`iclflow theory`: what theory predicts for a task and a model, without training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from iclflow.cli.flags import Flags, given
from iclflow.cli.parameters import CONFIG, switch
from iclflow.config.settings import refuse_without_effect
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput, NoTheory
from iclflow.experiment import Setup, parts_by_name
from iclflow.results.card import Card, Table, as_json, as_text
from iclflow.training.cost import refuse_oversized

if TYPE_CHECKING:
    from iclflow.prediction.result import Prediction, Predictions
    from iclflow.theory.landscape import Directions, Landscape

__all__ = ["theory"]


def theory(
    flags: Annotated[Flags, Parameter(name="*")] = Flags(),  # noqa: B008
    *,
    config: Annotated[str | None, CONFIG] = None,
    scaling: Annotated[bool, switch("print the scaling laws of power-law spectra")] = False,
    json: Annotated[bool, switch("print a JSON object")] = False,
) -> int:
    """Print plateaus, minimum, escape rate and, with --init, the predicted drop times (t/tau).

    Example: iclflow theory --model separate --heads 5 --init 0.001

    --scaling prints exponents and amplitudes of the loss above its minimum instead, in time, heads and context, for
    --spectrum power:A and --task-spectrum power:B, and when it has fallen by how much.

    Example: iclflow theory --scaling --dim 1000 --spectrum power:1.5 --init 0.001
    """
    settings = given(flags, None if config is None else Path(config))
    refuse_without_effect(settings)
    if scaling:
        return show(scaling_card(Setup.from_flat(settings)), json)
    if "data" in settings or "seeds" in settings:
        return show(forecast(settings).card(), json)
    setup = Setup.from_flat(settings)
    if setup.model.theory(setup.task) is None and setup.model.linear_twin() is None:
        from iclflow.prediction.problem import no_theory

        raise NoTheory(no_theory(setup.task, setup.model))
    if setup.training.weight_decay > 0 and "init" not in settings:
        raise BadInput(
            f"weight_decay: {setup.training.weight_decay} needs init, without which there is nothing to decay"
        )
    return show(theory_card(setup, "init" in settings), json)


def show(card: Card, json: bool) -> int:
    """Print a card."""
    print(as_json(card) if json else as_text(card))
    return 0


def forecast(settings: dict[str, Any]) -> "Prediction | Predictions":
    """The forecast for own data or for several seeds."""
    from iclflow.prediction.predict import predict

    parts = parts_by_name(settings)
    explicit = {name: getattr(parts["training"], name) for name in parts["training"].model_fields_set}
    return predict(parts["task"], parts["model"], data=parts["data"], **explicit)


def theory_card(setup: Setup, with_init: bool) -> Card:
    """What the task says by itself, and what initial weights say of drops."""
    from iclflow.prediction.edges import edge_warning, stable_rates
    from iclflow.theory.landscape import directions, landscape, plateau_losses
    from iclflow.theory.merged import escape_rate, escape_time

    refuse_oversized(setup)
    task, model, training = setup.task, setup.model, setup.training
    levels, quadratic = plateau_losses(task), landscape(task)
    most = len(levels) - 1
    visited = list(range(min(model.components(task), most) + 1)) if model.one_by_one else [0, most]
    d, regime = directions(task), model.theory(task)
    lowest = None if regime is None else regime.minimum(task, model)
    minimum = float(levels[visited[-1]]) if lowest is None else lowest
    rate = top_drive(d, quadratic) if model.one_by_one else escape_rate(quadratic)
    fields: dict[str, Any] = {
        "model": model.kind,
        "eigenvalues": covariances(task).eigenvalues.tolist(),
        "drive": d.drive.tolist(),
        "curvature": d.curvature.tolist(),
        "plateau_losses": levels.tolist(),
        "visited": visited,
        "minimum": minimum,
        "escape_rate": rate,
    }
    more: list[str] = []
    if training.optimizer in ("sgd", "momentum"):
        beta = training.beta if training.optimizer == "momentum" else 0.0
        rates = stable_rates(task, model, beta)
        if rates is not None:
            fields["stable_lr"] = [float(rate) if np.isfinite(rate) else None for rate in rates]
            bounds = ", ".join("any" if bound is None else f"{bound:.4g}" for bound in fields["stable_lr"])
            more.append(f"largest stable lr on each plateau: {bounds}")
            if training.lr is not None:
                fields["edge"] = edge_warning(task, model, training.lr, beta)
                more += [fields["edge"]] if fields["edge"] else []
    if task.tasks is not None:
        from iclflow.theory.laws.task_sets import odd_drive, task_set_levels

        fields |= {"test_losses": task_set_levels(task).test.tolist(), "odd_drive": odd_drive(task).share}
    card = Card(
        f"{model.kind}: minimum {minimum:.6f}, escape rate {rate:.5g} per t/tau", [levels_table(fields)], fields
    )
    if fields.get("odd_drive"):
        card = card.with_parts(
            f"odd task moments drive the vector blocks {fields['odd_drive']:.2g} as hard as the label blocks;"
            " mirror_tasks removes them"
        )
    if regime is None:
        from iclflow.prediction.problem import no_theory

        note = f"{no_theory(task, model)}; these levels are those of its linear twin"
        fields |= {"reliable": False, "notes": [note]}
        return card.with_parts(note, *more)
    if with_init:
        from iclflow.prediction.card import drop_table, remarks
        from iclflow.prediction.predict import predict

        predicted = predict(task, model, training=training)
        first = next(iter(predicted.drop_times.tolist()), None)
        if not model.one_by_one and training.weight_decay == 0 and training.optimizer == "sgd":
            first = escape_time(quadratic, training.init)
        clock = "t/tau" if training.optimizer in ("sgd", "momentum") else "learning rate x step"
        decayed = predicted.levels.tolist() if training.weight_decay > 0 else None
        fields |= {"clock": clock, "escape_time": first, "decayed_losses": decayed, **predicted.to_dict()}
        card = card.with_parts(
            f"escape time {'none' if first is None else f'{first:.5g}'}",
            drop_table(predicted, 6, f"predicted {clock}"),
            *remarks(predicted),
        )
        if decayed is not None:
            more.append(f"losses on the way with this weight decay: {', '.join(f'{level:.6f}' for level in decayed)}")
    return card.with_parts(*more)


def levels_table(fields: dict[str, Any]) -> Table:
    """The levels, and what is known of the direction that is learned last on each."""
    levels, drive, tests = fields["plateau_losses"], fields["drive"], fields.get("test_losses")
    rows = []
    for m, level in enumerate(levels):
        force, seen = "" if m == 0 else f"{drive[m - 1]:.3e}", "" if m in fields["visited"] else "(not visited)"
        size = "" if m == 0 else f"{fields['eigenvalues'][m - 1]:.5f}"
        known = (size, force, f"{level:.8f}") if tests is None else (force, f"{level:.8f}", f"{tests[m]:.8f}")
        rows.append((m, *known, seen))  # the directions of K tasks are not eigenvectors of the tokens
    names = ("eigenvalue", "drive g", "loss L(M_m)") if tests is None else ("drive g", "loss L(M_m)", "on new tasks")
    return Table(("m", *names, ""), rows)


SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)  # of the loss that can be saved, whose times the scaling laws are asked for


def scaling_card(experiment: Setup) -> Card:
    """The scaling laws, and when the excess loss of the scalar equations has fallen to a share of its start."""
    from iclflow.theory.laws.scaling import merged_excess, scalar_modes, scaling_laws, separate_excess

    task, init = experiment.task, experiment.training.init
    laws, modes = scaling_laws(task), scalar_modes(task)
    slow = float(modes.drive.min())
    course = {
        "separate": lambda t: separate_excess(modes, init, t),
        "merged": lambda t: merged_excess(modes, init**2, t),
    }
    ends = {"separate": 3 / (slow * init), "merged": 30 / slow}
    start = 1e-3 / float(modes.drive.max())
    times = {}
    for name, excess in course.items():
        grid = np.geomspace(start, ends[name], 400)
        share = excess(grid) / modes.saved.sum()
        times[name] = [float(np.interp(-np.log(x), -np.log(np.maximum(share, 1e-300)), grid)) for x in SHARES]
    variables = {"separate": "init x t/tau", "merged": "t/tau", "components": "heads x rank", "context": "context N"}
    fields: dict[str, Any] = {
        "dim": task.dim,
        "a": laws.a,
        "b": laws.b,
        "init": init,
        "saved": float(modes.saved.sum()),
        "minimum": modes.minimum,
        "laws": {
            name: {"exponent": getattr(laws, name).exponent, "amplitude": getattr(laws, name).amplitude}
            for name in variables
        },
        "shares": list(SHARES),
        "times": times,
    }
    rows = [(name, variable, *fields["laws"][name].values()) for name, variable in variables.items()]
    return Card(
        f"spectrum d^-{laws.a:g}, tasks d^-{laws.b:g}, D = {task.dim}:"
        " loss above its minimum = amplitude x variable^exponent",
        [
            Table(("law", "variable", "exponent", "amplitude"), rows),
            Table(
                ("share", *times),
                list(zip(SHARES, *times.values(), strict=True)),
                f"t/tau until a share of {modes.saved.sum():.5g} is left,"
                f" if every direction has a head of size {init:g}",
                digits=4,
            ),
        ],
        fields,
    )


def top_drive(d: "Directions", quadratic: "Landscape") -> float:
    """The largest force on a head with small weights; where directions are oblique it lies between them."""
    return float(d.drive.max() if d.commuting else np.sqrt(d.outputs) * np.linalg.norm(quadratic.cross, 2))
