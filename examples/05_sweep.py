# %% [markdown]
# How long do the plateaus last? A grid over the initial scale and the rank, several seeds each, with theory laid over
# the time of the first drop. The sweep survives being killed: run the script again and it goes on.

# %%
import sys
from pathlib import Path

import iclflow as icl

GRID = {
    "seeds": 2,
    "base": {"dim": 2, "context": 20, "heads": 3},
    "axes": {"init": {"from": 0.01, "to": 0.1, "count": 3, "log": True}, "rank": [1, 2]},
}


def main(out="sweep", workers=0):
    sweep = icl.sweep(GRID, out, workers=int(workers), resume=True)
    print(sweep.data[["final_loss", "drops"]].mean("seed").to_dataframe())
    icl.figures.along_axis(sweep, "init", "drop_times:1").savefig(Path(out).with_suffix(".png"))
    return sweep


# %%
if __name__ == "__main__":
    main(*sys.argv[1:])
