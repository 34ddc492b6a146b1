"""`iclflow infer`: from a loss curve to what made it."""

import json as json_text
from dataclasses import field, fields, make_dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from iclflow.cli.flags import Flags, given
from iclflow.cli.parameters import switch
from iclflow.experiment import parts_by_name

__all__ = ["infer"]

CLOCK = ("model", "lr", "optimizer", "beta", "context", "normalize", "out_dim", "label_noise")


def make_flags() -> type:
    """The flags on which the clock and the drive of a curve depend, as in `train`."""
    chosen = [(f.name, f.type, field(default=None)) for f in fields(Flags) if f.name in CLOCK]
    flags = make_dataclass("InferFlags", chosen, kw_only=True, frozen=True)
    flags.__module__ = __name__
    return flags


InferFlags: Any = make_flags()


def infer(
    curve: Annotated[str, Parameter(help="a run directory, FILE.csv with loss and time or step, or FILE.txt")],
    /,
    flags: Annotated[InferFlags, Parameter(name="*")] = InferFlags(),  # noqa: B008
    *,
    json: Annotated[bool, switch("print a JSON object")] = False,
) -> int:
    """Infer eigenvalues, context length and initial sizes from a loss curve.

    Example: iclflow infer mine.csv

    It also says whether this theory made the curve at all. A run and a column `time` bring the clock t/tau, steps need
    --lr.
    """
    words = given(flags)
    model = words.pop("model", "separate")
    parts = parts_by_name(words)
    given_parts = (parts["task"], parts["training"])
    settings = {name: getattr(part, name) for part in given_parts for name in part.model_fields_set}
    from iclflow.inference.infer import infer as infer_verb

    found = infer_verb(curve, model=model, **settings)
    print(json_text.dumps(found.to_dict(), indent=1, allow_nan=False) if json else found)
    return 0
