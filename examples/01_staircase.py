# %% [markdown]
# A staircase of plateaus: separate key and query learn one eigenvector of the token covariance after another, and
# theory knows every drop from the initial weights alone.

# %%
import sys

import iclflow as icl


def main(path="staircase.png"):
    run = icl.train(icl.Task(dim=4, context=31), icl.Separate(heads=5), init=3e-3, seed=3)
    print(icl.compare(run))
    icl.figures.loss_curve(run).savefig(path)
    return run


# %%
if __name__ == "__main__":
    main(*sys.argv[1:])
