# %% [markdown]
# # The staircase in ten lines
#
# Install: `make install` in a clone of the repository, then `.venv/bin/pip install jupyterlab` and `.venv/bin/jupyter
# lab notebooks`. This notebook takes about ten seconds.
#
# Linear attention with separate key and query learns to regress in context one principal component of the tokens at a
# time. Its loss rests on plateaus and drops from one to the next.

# %%
import iclflow as icl

task = icl.Task(dim=4, context=31, spectrum="linear")
run = icl.train(task, icl.Separate(heads=5), init=1e-2, seed=3)
run

# %% [markdown]
# Theory knows the height of every plateau from the task alone, and the time of every drop from the initial weights.

# %%
icl.theory.plateau_losses(task)

# %%
icl.compare(run)

# %%
icl.figures.loss_curve(run)

# %% [markdown]
# Which algorithm do the weights run at each plateau? The probe answers from their predictions: nothing at first, then
# regression on one, two, three principal components (`pcr`), in the end least squares on all of them.

# %%
icl.probe(run, shifts=False)

# %% [markdown]
# ## Exercise
#
# How long is the first plateau? Train with `init=1e-3` and with `init=1e-4`, and plot the time of the first drop,
# `icl.compare(run).drops[0].observed_time`, against the scale of the initial weights. Which power of it do you find,
# and does `icl.predict(task, icl.Separate(heads=5), init=1e-5).drop_times[0]` continue your line?
