# %% [markdown]
# # Your own data, and weights from PyTorch
#
# Install: `make install` in a clone of the repository, then `.venv/bin/pip install jupyterlab torch` (torch is
# optional: without it this notebook uses NumPy arrays) and `.venv/bin/jupyter lab notebooks`. It takes about fifteen
# seconds.
#
# ## Your own sequences
#
# An array (P, N+1, D+1): tokens as rows `[x, y]`, the query last with its true label. These tokens have heavy tails,
# which no theory here was derived for.

# %%
import numpy as np

import iclflow as icl

rng = np.random.default_rng(0)
x = rng.standard_t(df=5, size=(4000, 21, 3)) * np.sqrt([0.5, 0.3, 0.2]) * np.sqrt(3 / 5)
w = rng.standard_normal((4000, 3))
sequences = np.concatenate([x, np.einsum("pnd,pd->pn", x, w)[..., None]], axis=2)

run = icl.train(data=sequences, model=icl.Separate(heads=4), init=3e-3, engine="moments", freeze_vectors=True)
icl.compare(run)  # theory from the moments of these very sequences

# %% [markdown]
# ## A model that was trained elsewhere
#
# A training loop has to record two things: the weights before the first step and the loss before every update. Here a
# few steps of gradient descent by hand stand for it; `docs/how-to/pytorch.md` has the loop in torch. The names are
# those of the paper's public code, as `model.state_dict()` returns them.

# %%
try:
    from torch import tensor
except ImportError:
    tensor = np.asarray

task = icl.Task(dim=3, context=20, normalize="none")
elsewhere = icl.train(task, icl.Separate(heads=4), init=1e-2, samples=4000, lr=0.004, steps=6000)
name = {"value": "value.weight", "key": "key.weight", "query": "query.weight"}
public = lambda weights: {name[key]: tensor(array.reshape(-1, 4)) for key, array in weights.items()}
start, end, losses = public(elsewhere.initial_weights), public(elsewhere.final_weights), elsewhere.loss.values.tolist()
{key: tuple(array.shape) for key, array in start.items()}

# %%
icl.compare(losses, icl.Task(dim=3, context=20), weights=start, lr=0.004)

# %%
icl.probe(end, icl.Task(dim=3, context=20), shifts=False)

# %% [markdown]
# ## Exercise
#
# Shuffle the labels of the context within each sequence of `sequences`, so that the context says nothing about the
# task. Train on them. Is there still a drop, and which algorithm does `icl.probe` find?
