"""`iclflow compare`: loss curves of runs and files against theory and against each other."""

import io
import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from iclflow.cli.flags import Flags, given
from iclflow.cli.parameters import CONFIG, named, switch
from iclflow.config import Task, Training
from iclflow.errors import BadInput
from iclflow.experiment import parts_by_name

if TYPE_CHECKING:
    import iclflow.comparison.overlay

__all__ = ["compare"]

FEWEST = 30  # points of a curve, of which something can be inferred


def compare(
    *curves: Annotated[
        str, Parameter(help="run directories, FILE.txt of the public code, FILE.csv with loss and time or step")
    ],
    flags: Annotated[Flags, Parameter(name="*")] = Flags(),  # noqa: B008
    weights: Annotated[
        str | None, named("FILE", "initial weights of the curves in files, to predict their drop times")
    ] = None,
    config: Annotated[str | None, CONFIG] = None,
    out: Annotated[str, named("FILE", "the figure, .pdf, .png or .svg")] = "comparison.pdf",
    overwrite: Annotated[bool, switch("replace an existing figure")] = False,
    json: Annotated[bool, switch("print a JSON object")] = False,
) -> int:
    """Draw loss curves over theory and over each other, and print how far apart they are.

    Example: iclflow compare runs/staircase mine.csv --out comparison.pdf

    A run knows its settings. The name of a file of the public code gives most of them, and flags give the rest.
    """
    if not curves:
        raise BadInput("curve: needs at least one run directory, FILE.txt or FILE.csv")
    picture = Path(out)
    if picture.suffix not in (".pdf", ".png", ".svg"):
        raise BadInput(f"out: {out!r} must end in .pdf, .png or .svg")
    if not picture.absolute().parent.is_dir():
        raise BadInput(f"out: {out!r} must be a file in an existing directory")
    settings = given(flags, None if config is None else Path(config))
    from iclflow.comparison.compare import compare as compare_verb
    from iclflow.comparison.curves import read_curves
    from iclflow.comparison.overlay import Overlay, lay_over
    from iclflow.comparison.several import Comparisons
    from iclflow.results.loading import is_run

    parts = parts_by_name(settings)
    named = {*settings} - {*Training.model_fields, "data"}
    task = parts["task"] if parts["task"].model_fields_set else None
    model = parts["model"] if named - {*Task.model_fields} else None
    how = {name: getattr(parts["training"], name) for name in parts["training"].model_fields_set}
    subject = curves[0] if len(curves) == 1 else list(curves)
    if len(curves) == 1 and is_run(curves[0]) and named == {"model"}:
        model = None  # the flag only says where the class of the run is
    found = compare_verb(subject, task, model, weights=weights, data=parts["data"], **how)
    several = list(found) if isinstance(found, Comparisons) else [found]
    overlaid = found if isinstance(found, Overlay) else lay_over(read_curves(curves[0], {}))
    drawn, better = draw(overlaid, picture, overwrite), offers(overlaid)
    if json:
        runs = {} if found is overlaid else {"runs": [one.to_dict() for one in several]}
        figure = {"figure": out if drawn else None, **({"offers": better} if better else {})}
        print(json_text.dumps({**overlaid.to_dict(), **runs, **figure}, indent=1))
    else:
        print("\n".join([str(found), *(f"{name}: {words}" for name, words in better.items())]))
        print(f"figure: {out if drawn else f'not drawn, {out} exists (--overwrite replaces it)'}")
    return 0


def offers(overlaid: "iclflow.comparison.overlay.Overlay") -> dict[str, str]:
    """What made the curves whose levels are not those of the task that was given, where theory made them at all."""
    if overlaid.clock != "time" or not overlaid.strangers:
        return {}
    from iclflow.inference.infer import infer

    made = {}
    for curve in overlaid.curves:
        if curve.name in overlaid.strangers and len(curve.loss) > FEWEST:
            found = infer(curve.loss, time=curve.axis("time"))
            if found.fits is not False and len(found.to_dict().get("eigenvalues", ())):
                made[curve.name] = f"{overlaid.foreign(curve.name)}; this curve fits {found.in_words}"
    return made


def draw(overlaid: "iclflow.comparison.overlay.Overlay", picture: Path, overwrite: bool) -> bool:
    """Draw the figure, unless it would replace another one unasked; whether it was drawn."""
    if picture.exists() and not overwrite:
        return False
    from iclflow.figures.overlay import overlay
    from iclflow.system.atomic import write_file

    image = io.BytesIO()
    overlay(overlaid).savefig(image, format=picture.suffix[1:])
    write_file(picture, image.getvalue())
    return True
