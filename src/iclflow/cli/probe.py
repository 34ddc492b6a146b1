"""`iclflow probe`: which in-context algorithm do the weights implement?"""

import json as json_text
from dataclasses import field, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from iclflow.cli.flags import Flags, given
from iclflow.config import Task
from iclflow.errors import BadInput
from iclflow.models import Model

if TYPE_CHECKING:
    import iclflow.probing.result

__all__ = ["probe"]

FIGURES = ("distances", "gains", "alignment")


def make_flags() -> type:
    """The flags of the task, `--softmax` and `--data`, as in `train`."""
    wanted = {*Task.model_fields, "softmax", "data"}
    chosen = [(f.name, f.type, field(default=None)) for f in fields(Flags) if f.name in wanted]
    flags = make_dataclass("ProbeFlags", chosen, kw_only=True, frozen=True)
    flags.__module__ = __name__
    return flags


ProbeFlags: Any = make_flags()


def probe(
    source: str,
    flags: Annotated[ProbeFlags, Parameter(name="*")] = ProbeFlags(),  # noqa: B008
    *,
    figure: Annotated[
        str | None, Parameter(help="write FILE-distances.png, FILE-gains.png and FILE-alignment.png")
    ] = None,
    json: Annotated[bool, Parameter(help="print a JSON object", negative=())] = False,
) -> int:
    """Name the in-context algorithm that weights implement, at every saved time of a run.

    Example: iclflow probe runs/staircase

    SOURCE is a run directory, a folder of checkpoints, or FILE[:PREFIX] in safetensors or npz, also under the names of
    the public code (value.weight, kq.weight, ..). A run knows its task; for bare weights give the flags of the task, or
    sequences with --data.
    """
    settings = given(flags)
    data, softmax = settings.pop("data", None), settings.pop("softmax", None)
    task = Task(**settings) if settings else None
    model = refuse_early(source, task, data, softmax)
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


def refuse_early(source: str, task: Task | None, data: str | None, softmax: bool | None) -> Model | None:
    """The model if `--softmax` was given; whatever the files show to be wrong is refused before JAX is loaded."""
    path = Path(source)
    if (path / "summary.json").is_file():
        if softmax is not None:
            raise BadInput("softmax: a run knows its own model")
        return None
    from iclflow.results.weights import TO_PROBE, checkpoint_files, read_weights, with_sizes

    first = read_weights(checkpoint_files(path)[0][0] if path.is_dir() else source, TO_PROBE)
    if data is not None:
        from iclflow.data.own import read_own_data

        task = read_own_data(data, task)[1]
    model, _ = with_sizes(first, None, task)
    if softmax is None:
        return None
    if "softmax" not in type(model).model_fields:
        raise BadInput(f"softmax: does not apply to model {model.kind!r}")
    return type(model)(softmax=softmax)


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
