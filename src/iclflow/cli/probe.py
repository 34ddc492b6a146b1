"""`iclflow probe`: which in-context algorithm do the weights implement?"""

import json as json_text
from dataclasses import field, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from iclflow.cli.flags import Flags, given
from iclflow.cli.parameters import named, switch
from iclflow.config import Task
from iclflow.errors import BadInput
from iclflow.models import Model

if TYPE_CHECKING:
    import iclflow.probing.result

__all__ = ["probe"]

FIGURES = ("distances", "gains", "alignment")
OF_THE_MODEL = ("softmax", "layers")  # what arrays do not tell; of layers only where they are looped


def make_flags() -> type:
    """The flags of the task, `--model`, `--softmax`, `--layers` and `--data`, as in `train`."""
    wanted = {*Task.model_fields, *OF_THE_MODEL, "model", "data"}
    chosen = [(f.name, f.type, field(default=None)) for f in fields(Flags) if f.name in wanted]
    flags = make_dataclass("ProbeFlags", chosen, kw_only=True, frozen=True)
    flags.__module__ = __name__
    return flags


ProbeFlags: Any = make_flags()


def probe(
    source: Annotated[str, Parameter(help="a run directory, a folder of checkpoints, or FILE[:PREFIX]")],
    /,
    flags: Annotated[ProbeFlags, Parameter(name="*")] = ProbeFlags(),  # noqa: B008
    *,
    figure: Annotated[
        str | None, named("FILE", "write FILE-distances.png, FILE-gains.png and FILE-alignment.png")
    ] = None,
    json: Annotated[bool, switch("print a JSON object")] = False,
) -> int:
    """Name the in-context algorithm that weights implement, at every saved time of a run.

    Example: iclflow probe runs/staircase

    FILE is .safetensors or .npz, also under the names of the public code (value.weight, kq.weight, ..). A run knows its
    task; for bare weights give the flags of the task, or sequences with --data, and --layers for looped weights.
    A run of a model of your own needs --model module:Class.
    """
    settings = given(flags)
    data = settings.pop("data", None)
    settings.pop("model", None)  # a class of your own: it is imported now, so that the run finds it
    of_the_model = {name: settings.pop(name) for name in OF_THE_MODEL if name in settings}
    task = Task(**settings) if settings else None
    model = refuse_early(source, task, data, of_the_model)
    if figure is not None and Path(figure).suffix not in ("", ".png", ".pdf", ".svg"):
        raise BadInput(f"figure: {figure!r} must end in .png, .pdf or .svg")
    from iclflow.probing import probe as probe_verb

    results = probe_verb(source, task, model=model, data=data)
    several = results if isinstance(results, list) else [results]
    written = [] if figure is None else draw(several[0], Path(figure))
    if json:
        first = several[0].to_dict()
        more = {"seeds": [one.to_dict() for one in several]} if isinstance(results, list) else {}
        print(json_text.dumps({**first, **more}, indent=1, allow_nan=False))
    else:
        print("\n".join([*(str(one) for one in several), *(f"  drawn: {path}" for path in written)]))
    return 0


def refuse_early(source: str, task: Task | None, data: str | None, settings: dict[str, Any]) -> Model | None:
    """The model if its flags were given; whatever the files show to be wrong is refused before JAX is loaded."""
    path = Path(source)
    if (path / "summary.json").is_file():
        for name in settings:
            raise BadInput(f"{name}: a run knows its own model")
        return None
    from iclflow.results.weights import TO_PROBE, checkpoint_files, infer_model, read_weights, with_sizes

    first = read_weights(checkpoint_files(path)[0][0] if path.is_dir() else source, TO_PROBE)
    if data is not None:
        from iclflow.data.own import read_own_data

        task = read_own_data(data, task)[1]
    record = type(infer_model(first.weights))
    for name in settings:
        if name not in record.model_fields:
            raise BadInput(f"{name}: does not apply to model {record.kind!r}")
    given_model = record(**settings) if settings else None
    model, task = with_sizes(first, given_model, task)
    for complaint in model.complaints(task):
        raise BadInput(complaint)
    return given_model


def draw(result: "iclflow.probing.result.Probe", path: Path) -> list[Path]:
    """Write one file per figure; the alignment map needs heads."""
    from iclflow import figures

    suffix, written = path.suffix or ".png", []
    for name in FIGURES:
        if name == "alignment" and result.heads is None:
            continue
        target = path.with_name(f"{path.stem}-{name}{suffix}")
        try:
            getattr(figures, f"probe_{name}")(result).savefig(target)
        except OSError as error:
            raise BadInput(f"figure: cannot write {str(target)!r} ({error.strerror})") from None
        written.append(target)
    return written
