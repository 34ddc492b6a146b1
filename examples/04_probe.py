# %% [markdown]
# Which algorithm do weights run in context? Along training: nothing, then regression on one, two, three principal
# components, then all of them. The same question can be put to any function from sequences to predictions.

# %%
import sys

import numpy as np

import iclflow as icl


def my_model(sequences):
    """Ridge regression in context: rows are tokens and their label, the query last with label 0."""
    x, y, query = sequences[:, :-1, :-1], sequences[:, :-1, -1], sequences[:, -1, :-1]
    normal = x.transpose(0, 2, 1) @ x + 3 * np.eye(x.shape[2])
    return np.einsum("pd,pd->p", np.linalg.solve(normal, np.einsum("pnd,pn->pd", x, y)[..., None])[..., 0], query)


def main(path="probe.png"):
    run = icl.train(icl.Task(dim=4, context=31), icl.Separate(heads=5), init=1e-2, seed=3)
    found = icl.probe(run)
    print(found)
    icl.figures.probe_distances(found).savefig(path)

    # Three lines for a model of your own.
    task = icl.Task(dim=4, context=31)
    mine = icl.probe(my_model, task)
    print(mine.algorithm, mine.last)
    return found, mine


# %%
if __name__ == "__main__":
    main(*sys.argv[1:])
