# %% [markdown]
# # A model of your own
#
# Install: `make install` in a clone of the repository, then `.venv/bin/pip install jupyterlab` and `.venv/bin/jupyter
# lab notebooks`. This notebook takes about fifteen seconds.
#
# A class with `shapes` and `predict` is enough. `predict` sees one sequence, tokens as rows `[x, y]`, the query last
# with its label set to 0.

# %%
import jax.numpy as jnp

import iclflow as icl


class Tanh(icl.Model):
    """Two matrices: attention whose scores go through a tanh."""

    sharpness: float = 1.0

    def shapes(self, task):
        return {"value": (1,), "key": (task.dim, task.dim), "query": (task.dim, task.dim)}

    def predict(self, weights, sequence, task):
        x, y = sequence[:, : task.dim], sequence[:, task.dim :]
        scores = (x @ weights["key"].T) @ (weights["query"] @ x[-1])
        return weights["value"] * (y.T @ jnp.tanh(self.sharpness * scores)) / (len(sequence) - 1)


task = icl.Task(dim=3, context=20)
run = icl.train(task, Tanh(sharpness=2.0), init=0.1, samples=1000, lr=0.2, steps=600)
run

# %% [markdown]
# No theory predicts its curve. `compare` shows the levels of linear attention under it, and how far its predictions
# are from those of linear attention at the end.

# %%
icl.compare(run)

# %%
icl.probe(run, shifts=False)

# %% [markdown]
# Its fields are axes of sweeps. A class from a notebook's cell is swept in this process (`workers=0`); put it into a
# file of its own to use all cores or a cluster.

# %%
settings = {"dim": 3, "context": 20, "init": 0.1, "samples": 500, "lr": 0.2, "steps": 200}
sweep = icl.sweep(
    {"base": {"model": "__main__:Tanh", **settings}, "axes": {"sharpness": [0.5, 1.0, 2.0]}, "seeds": 2},
    "sweep-of-tanh",
    workers=0,
    resume=True,
)
sweep

# %% [markdown]
# ## Exercise
#
# Replace the tanh by the scores themselves. The model is now linear attention with merged key and query of rank 3:
# does the distance to linear attention vanish as the steps grow? Then add `theta` and `pull_back`
# (`docs/how-to/new-model.md`) and follow the gradient flow with `icl.train(task, Mine(), init=0.01, time=500)`.
