"""`iclflow theory`: what theory predicts for a task and a model, without training."""

import json as json_text
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from iclflow.cli.flags import Flags, given
from iclflow.config import Training
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.experiment import Experiment

__all__ = ["theory"]


def theory(
    flags: Annotated[Flags, Parameter(name="*")] = Flags(),  # noqa: B008
    *,
    config: Annotated[str | None, Parameter(help="a TOML file with the same names; flags override it")] = None,
    json: Annotated[bool, Parameter(help="print a JSON object", negative=())] = False,
) -> int:
    """Print plateaus, minimum, escape rate and, with --init, the predicted drop times (t/tau).

    Example: iclflow theory --model separate --heads 5 --init 0.001
    """
    settings = given(flags, None if config is None else Path(config))
    if "data" in settings:
        raise BadInput(f"data: {settings['data']!r} does not go with theory, which knows only the population")
    decay = Training(weight_decay=settings.pop("weight_decay", 0.0)).weight_decay  # a length of training is not needed
    results = numbers(Experiment.from_flat(settings), "init" in settings, decay)
    print(json_text.dumps(results, indent=1) if json else table(results))
    return 0


def numbers(experiment: Experiment, with_init: bool, weight_decay: float = 0.0) -> dict[str, Any]:
    """The predictions as plain numbers, under the names of the JSON object."""
    from iclflow.theory.landscape import directions, landscape, plateau_losses
    from iclflow.theory.merged import escape_rate, escape_time

    task, model, training = experiment.task, experiment.model, experiment.training
    levels, quadratic = plateau_losses(task), landscape(task)
    visited = list(range(model.components(task) + 1)) if model.one_by_one else [0, task.dim]
    d = directions(task)
    results: dict[str, Any] = {
        "model": model.kind,
        "eigenvalues": covariances(task).eigenvalues.tolist(),
        "drive": d.drive.tolist(),
        "curvature": d.curvature.tolist(),
        "plateau_losses": levels.tolist(),
        "visited": visited,
        "minimum": float(levels[visited[-1]]),
        "escape_rate": float(d.drive.max()) if model.one_by_one else escape_rate(quadratic),
    }
    if with_init and model.theory(task) is not None:
        from iclflow.comparison.prediction import predict

        predicted = predict(
            task, model, init=training.init, init_law=training.init_law, seed=training.seed, weight_decay=weight_decay
        )
        first = next(iter(predicted.drop_times.tolist()), None)
        if not model.one_by_one and weight_decay == 0:
            first = escape_time(quadratic, training.init)
        results |= {
            "escape_time": first,
            "drop_times": predicted.drop_times.tolist(),
            "heads": predicted.heads.tolist(),
            "directions": [int(i) + 1 for i in predicted.directions],
            "never": [i + 1 for i in predicted.never],
            "decayed_losses": predicted.levels.tolist() if weight_decay > 0 else None,
        }
    return results


def table(results: dict[str, Any]) -> str:
    """The same as a table."""
    visited = set(results["visited"])
    lines = [
        f"{results['model']}: minimum {results['minimum']:.6f}, escape rate {results['escape_rate']:.5g} per t/tau"
    ]
    lines.append("  m   eigenvalue   drive g     loss L(M_m)")
    levels = results["plateau_losses"]
    for m, level in enumerate(levels):
        row = "" if m == 0 else f"{results['eigenvalues'][m - 1]:10.5f} {results['drive'][m - 1]:10.3e}"
        lines.append(f"  {m:<3d} {row:<21s} {level:14.8f}{'' if m in visited else '   (not visited)'}")
    if "drop_times" in results:
        first = "none" if results["escape_time"] is None else f"{results['escape_time']:.5g}"
        lines.append(f"  escape time {first}; predicted drops at t/tau:")
        for number, (time, head) in enumerate(zip(results["drop_times"], results["heads"], strict=True), 1):
            lines.append(f"    {number}: {time:.6g}" + ("" if head < 0 else f"   (head {head})"))
    if results.get("never"):
        lines.append(f"  never learned with this weight decay: components {', '.join(map(str, results['never']))}")
    if results.get("decayed_losses"):
        levels = ", ".join(f"{level:.6f}" for level in results["decayed_losses"])
        lines.append(f"  losses on the way with this weight decay: {levels}")
    return "\n".join(lines)
