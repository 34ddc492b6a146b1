"""`iclflow theory`: what theory predicts for a task and a model, without training."""

import json as json_text
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
from iclflow.training.cost import refuse_oversized

if TYPE_CHECKING:
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
        laws = scaling_numbers(Setup.from_flat(settings))
        print(json_text.dumps(laws, indent=1) if json else scaling_table(laws))
        return 0
    if "data" in settings or "seeds" in settings:
        print(forecast(settings, json))
        return 0
    setup = Setup.from_flat(settings)
    if setup.model.theory(setup.task) is None and setup.model.linear_twin() is None:
        from iclflow.prediction.problem import no_theory

        raise NoTheory(no_theory(setup.task, setup.model))
    if setup.training.weight_decay > 0 and "init" not in settings:
        raise BadInput(
            f"weight_decay: {setup.training.weight_decay} needs init, without which there is nothing to decay"
        )
    results = numbers(setup, "init" in settings)
    print(json_text.dumps(results, indent=1) if json else table(results))
    return 0


def forecast(settings: dict[str, Any], json: bool) -> str:
    """The forecast for own data or for several seeds, as text or as a JSON object."""
    from iclflow.prediction.predict import predict

    parts = parts_by_name(settings)
    explicit = {name: getattr(parts["training"], name) for name in parts["training"].model_fields_set}
    found = predict(parts["task"], parts["model"], data=parts["data"], **explicit)
    return json_text.dumps(found.to_dict(), indent=1) if json else str(found)


def numbers(setup: Setup, with_init: bool) -> dict[str, Any]:
    """The predictions as plain numbers, under the names of the JSON object."""
    from iclflow.prediction.edges import edge_warning, stable_rates
    from iclflow.theory.landscape import directions, landscape, plateau_losses
    from iclflow.theory.merged import escape_rate, escape_time

    refuse_oversized(setup)
    task, model, training = setup.task, setup.model, setup.training
    levels, quadratic = plateau_losses(task), landscape(task)
    most = len(levels) - 1
    visited = list(range(min(model.components(task), most) + 1)) if model.one_by_one else [0, most]
    d = directions(task)
    results: dict[str, Any] = {
        "model": model.kind,
        "eigenvalues": covariances(task).eigenvalues.tolist(),
        "drive": d.drive.tolist(),
        "curvature": d.curvature.tolist(),
        "plateau_losses": levels.tolist(),
        "visited": visited,
        "minimum": float(levels[visited[-1]]),
        "escape_rate": top_drive(d, quadratic) if model.one_by_one else escape_rate(quadratic),
    }
    regime = model.theory(task)
    lowest = None if regime is None else regime.minimum(task, model)
    if lowest is not None:
        results["minimum"] = lowest
    beta = training.beta if training.optimizer == "momentum" else 0.0
    rates = stable_rates(task, model, beta) if training.optimizer in ("sgd", "momentum") else None
    if rates is not None:
        results["stable_lr"] = [float(rate) if np.isfinite(rate) else None for rate in rates]
    if training.lr is not None and rates is not None:
        results["edge"] = edge_warning(task, model, training.lr, beta)
    if task.tasks is not None:
        from iclflow.theory.laws.task_sets import odd_drive, task_set_levels

        results |= {"test_losses": task_set_levels(task).test.tolist(), "odd_drive": odd_drive(task).share}
    if model.theory(task) is None:
        from iclflow.prediction.problem import no_theory

        note = f"{no_theory(task, model)}; these levels are those of its linear twin"
        results |= {"reliable": False, "notes": [note]}
    elif with_init:
        from iclflow.prediction.predict import predict

        predicted = predict(task, model, training=training)
        first = next(iter(predicted.drop_times.tolist()), None)
        if not model.one_by_one and training.weight_decay == 0 and training.optimizer == "sgd":
            first = escape_time(quadratic, training.init)
        results |= {
            "clock": "t/tau" if training.optimizer in ("sgd", "momentum") else "learning rate x step",
            "escape_time": first,
            "decayed_losses": predicted.levels.tolist() if training.weight_decay > 0 else None,
            **predicted.to_dict(),
        }
    return results


SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)  # of the loss that can be saved, whose times the scaling laws are asked for


def scaling_numbers(experiment: Setup) -> dict[str, Any]:
    """The scaling laws, and when the excess loss of the scalar equations has fallen to a share of its start."""
    from iclflow.theory.laws.scaling import merged_excess, scalar_modes, scaling_laws, separate_excess

    task, init = experiment.task, experiment.training.init
    laws, modes = scaling_laws(task), scalar_modes(task)
    names = ("separate", "merged", "components", "context")
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
    return {
        "dim": task.dim,
        "a": laws.a,
        "b": laws.b,
        "init": init,
        "saved": float(modes.saved.sum()),
        "minimum": modes.minimum,
        "laws": {
            name: {"exponent": getattr(laws, name).exponent, "amplitude": getattr(laws, name).amplitude}
            for name in names
        },
        "shares": list(SHARES),
        "times": times,
    }


def scaling_table(results: dict[str, Any]) -> str:
    """The same as a table."""
    laws = results["laws"]
    variable = {"separate": "init x t/tau", "merged": "t/tau", "components": "heads x rank", "context": "context N"}
    lines = [
        f"spectrum d^-{results['a']:g}, tasks d^-{results['b']:g}, D = {results['dim']}:"
        f" loss above its minimum = amplitude x variable^exponent",
        "  law          variable        exponent   amplitude",
    ]
    for name, text in variable.items():
        lines.append(f"  {name:<12s} {text:<14s} {laws[name]['exponent']:9.5f} {laws[name]['amplitude']:11.5g}")
    lines.append(
        f"  t/tau until a share of {results['saved']:.5g} is left, if every direction has a head of size"
        f" {results['init']:g}:"
    )
    lines.append("  share     separate       merged")
    for share, separate, merged in zip(results["shares"], *results["times"].values(), strict=True):
        lines.append(f"  {share:<6g} {separate:11.4g} {merged:12.4g}")
    return "\n".join(lines)


def top_drive(d: "Directions", quadratic: "Landscape") -> float:
    """The largest force on a head with small weights; where directions are oblique it lies between them."""
    return float(d.drive.max() if d.commuting else np.sqrt(d.outputs) * np.linalg.norm(quadratic.cross, 2))


def table(results: dict[str, Any]) -> str:
    """The same as a table."""
    visited = set(results["visited"])
    lines = [
        f"{results['model']}: minimum {results['minimum']:.6f}, escape rate {results['escape_rate']:.5g} per t/tau"
    ]
    tests = results.get("test_losses")
    header = (
        "  m   eigenvalue   drive g     loss L(M_m)"
        if tests is None
        else "  m   drive g     loss L(M_m)    on new tasks"
    )
    lines.append(header)
    levels = results["plateau_losses"]
    for m, level in enumerate(levels):
        drive, unseen = "" if m == 0 else f"{results['drive'][m - 1]:10.3e}", "" if m in visited else "   (not visited)"
        if tests is not None:  # the directions of K tasks are not eigenvectors of the tokens
            lines.append(f"  {m:<3d} {drive:<10s} {level:14.8f} {tests[m]:14.8f}{unseen}")
            continue
        row = "" if m == 0 else f"{results['eigenvalues'][m - 1]:10.5f} {drive}"
        lines.append(f"  {m:<3d} {row:<21s} {level:14.8f}{unseen}")
    if results.get("odd_drive"):
        lines.append(
            f"  odd task moments drive the vector blocks {results['odd_drive']:.2g} as hard as the label blocks;"
            " mirror_tasks removes them"
        )
    if "drop_times" in results:
        first = "none" if results["escape_time"] is None else f"{results['escape_time']:.5g}"
        lines.append(f"  escape time {first}; predicted drops at {results['clock']}:")
        names = ("drop_times", "drop_intervals", "heads", "directions", "head_shares")
        for number, (time, (low, high), *who) in enumerate(zip(*(results[name] for name in names), strict=True), 1):
            span = "" if low is None else f"   (95 %: {low:.6g} to {high:.6g})"
            lines.append(f"    {number}: {time:.6g}{span}{learner(*who)}")
    lines += [f"  {note}" for note in results.get("notes", ())]
    if "drop_times" in results and not results["reliable"]:
        lines.append("  This forecast is not reliable.")
    if results.get("stable_lr"):
        rates = ["any" if rate is None else f"{rate:.4g}" for rate in results["stable_lr"]]
        lines.append(f"  largest stable lr on each plateau: {', '.join(rates)}")
    if results.get("edge"):
        lines.append(f"  {results['edge']}")
    if results.get("never"):
        lines.append(f"  never learned with this weight decay: components {', '.join(map(str, results['never']))}")
    if results.get("floors"):
        floors = ", ".join(f"{floor:.3g}" for floor in results["floors"])
        lines.append(f"  minibatches keep the loss above the levels by: {floors}")
    if results.get("decayed_losses"):
        levels = ", ".join(f"{level:.6f}" for level in results["decayed_losses"])
        lines.append(f"  losses on the way with this weight decay: {levels}")
    return "\n".join(lines)


def learner(head: int, direction: int, share: float | None) -> str:
    """Which head learns which component, counted from 1, and how sure that is."""
    if head < 0:
        return ""
    from iclflow.prediction.notebook import confidence

    return f"   head {head} learns component {direction}{confidence(share)}"
