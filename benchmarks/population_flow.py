"""(g) Population flow of rank-one heads at D 32, H 32 from entries of size 0.1, until all 32 drops are done.

Whole `icl.train` in a fresh process, compilation included, and once more in this process after a first run. A
direction counts as learned when its gain has passed half of the final one.
"""

import iclflow as icl
from benchmarks.child import train_in_child
from benchmarks.table import Row, say, seconds
from benchmarks.timing import first_call

__all__ = ["thirty_two_drops"]

SETTINGS = {"init": 0.1, "init_law": "entry"}
END = {8: 1e5, 32: 3e6}  # t/tau by which the last drop is over; "settled" would stop inside a drop of 1e-4


def thirty_two_drops(quick: bool) -> list[Row]:
    dim = 8 if quick else 32
    say(f"gradient flow at D = H = {dim}")
    settings = {**SETTINGS, "time": END[dim]}
    fresh = train_in_child({"dim": dim}, "Separate", {"heads": dim}, settings)

    def train() -> None:
        icl.train(icl.Task(dim=dim), icl.Separate(heads=dim), progress=False, **settings)

    first_call(train)
    warm = min(first_call(train) for _ in range(2))
    return [
        Row(f"flow at D {dim}, H {dim}, fresh process", seconds(fresh.training), fresh.training),
        Row("the same, compiled before", seconds(warm), warm),
        Row("drops done", f"{fresh.learned} of {dim}", fresh.learned, "all", fresh.learned == dim),
        Row(f"final loss ({fresh.status})", f"{fresh.final_loss:.5g}", fresh.final_loss),
    ]
