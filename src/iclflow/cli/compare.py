"""`iclflow compare`: loss curves of runs and files against theory and against each other."""

import io
import json as json_text
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from iclflow.cli.flags import Flags, given
from iclflow.errors import BadInput
from iclflow.experiment import Experiment

__all__ = ["compare"]


def compare(
    *curves: Annotated[
        str, Parameter(help="run directories, FILE.txt of the public code, FILE.csv with loss and time or step")
    ],
    flags: Annotated[Flags, Parameter(name="*")] = Flags(),  # noqa: B008
    weights: Annotated[
        str | None, Parameter(help="initial weights of the curves in files, to predict their drop times")
    ] = None,
    config: Annotated[str | None, Parameter(help="a TOML file with the same names; flags override it")] = None,
    out: Annotated[str, Parameter(help="the figure, .pdf, .png or .svg")] = "comparison.pdf",
    overwrite: Annotated[bool, Parameter(help="replace an existing figure", negative=())] = False,
    json: Annotated[bool, Parameter(help="print a JSON object", negative=())] = False,
) -> int:
    """Draw loss curves over theory and over each other, and print how far apart they are.

    Example: iclflow compare attnM_head8_D4_R1_P5000_N32_seed10.txt runs/mine --lr 0.001

    A run knows its settings. The name of a file of the public code gives most of them, and flags give the rest.
    """
    if not curves:
        raise BadInput("curve: needs at least one run directory, FILE.txt or FILE.csv")
    picture = Path(out)
    if picture.suffix not in (".pdf", ".png", ".svg"):
        raise BadInput(f"out: {out!r} must end in .pdf, .png or .svg")
    if picture.exists() and not overwrite:
        raise BadInput(f"out: {out!r} exists; choose another name or give --overwrite")
    if not picture.absolute().parent.is_dir():
        raise BadInput(f"out: {out!r} must be a file in an existing directory")
    settings = given(flags, None if config is None else Path(config))
    Experiment.from_flat(settings)
    from iclflow.comparison.curves import read_curves
    from iclflow.comparison.overlay import lay_over
    from iclflow.figures.overlay import overlay
    from iclflow.system.atomic import write_file

    overlaid = lay_over([curve for source in curves for curve in read_curves(source, settings)], weights)
    image = io.BytesIO()
    overlay(overlaid).savefig(image, format=picture.suffix[1:])
    write_file(picture, image.getvalue())
    print(json_text.dumps({**overlaid.to_dict(), "figure": out}, indent=1) if json else f"{overlaid}\nfigure: {out}")
    return 0
