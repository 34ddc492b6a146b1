"""`iclflow design`: a task, and initial weights, for a wanted staircase."""

import json as json_text
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from iclflow.cli.parameters import named, switch
from iclflow.errors import BadInput

__all__ = ["design"]


def design(
    levels: Annotated[str, Parameter(help="the losses before the first drop and after each: 1,0.64,0.38")],
    /,
    *,
    context: Annotated[int | None, named("INT", "context length [default: the shortest that has these levels]")] = None,
    drop_times: Annotated[str | None, named("T1,T2,..", "t/tau at which half of each drop is done")] = None,
    out: Annotated[str | None, named("FILE.npz", "write the initial weights here, for train --weights")] = None,
    json: Annotated[bool, switch("print a JSON object")] = False,
) -> int:
    """Find a task, and initial weights, whose staircase has wanted levels and drop times.

    Example: iclflow design 1,0.7,0.5,0.4 --drop-times 100,300,800
    """
    if out is not None and (
        drop_times is None or Path(out).suffix != ".npz" or not Path(out).absolute().parent.is_dir()
    ):
        raise BadInput(f"out: {out!r} must be an .npz file in an existing directory, and needs drop_times")
    wanted, times = numbers(levels, "levels"), None if drop_times is None else numbers(drop_times, "drop_times")
    from iclflow.inference.design import design as design_verb

    found = design_verb(wanted, context=context, drop_times=times)
    if out is not None and found.weights is not None:
        import io

        import numpy as np

        from iclflow.system.atomic import write_file

        held = io.BytesIO()
        np.savez(held, **found.weights)
        write_file(Path(out), held.getvalue())
    print(json_text.dumps(found.to_dict(), indent=1) if json else found)
    return 0


def numbers(words: str, name: str) -> list[float]:
    """Numbers with commas between them."""
    try:
        return [float(word) for word in words.split(",")]
    except ValueError:
        raise BadInput(f"{name}: {words!r} must be numbers with commas between them") from None
