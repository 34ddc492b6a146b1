"""The order of the paper: where the equations, figures and sections stand that claims and figures refer to."""

import re

__all__ = ["BEYOND", "PLACES", "place_in_paper"]

BEYOND = "beyond the paper"
PLACES = (
    "Sec. 2", "Eq. 1", "Eq. 2", "Eq. 3", "Eq. 4", "Eq. 5",
    "Eq. 6", "Eq. 7", "Eq. 8", "Eq. 9", "Fig. 1", "Eq. 10", "Sec. 3", "Eq. 11", "Eq. 12", "Eq. 13", "Eq. 14", "Eq. 15",
    "Eq. 16", "Eq. 17", "Eq. 18", "Eq. 19", "Fig. 3", "Sec. 4", "Eq. 20",
    "Eq. 21", "Eq. 22", "Fig. 4", "Fig. 5", "Fig. 6", "Fig. 11", "Fig. 12", "Fig. 14",
)  # fmt: skip


def place_in_paper(source: str) -> int:
    """The number of the first place that a source names; what is beyond the paper comes last."""
    first = re.match(r"(Eq|Fig|Sec)\. \d+", source)
    return PLACES.index(first.group()) if first and first.group() in PLACES else len(PLACES)
