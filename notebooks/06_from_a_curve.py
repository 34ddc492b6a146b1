# %% [markdown]
# # From a curve back to what made it
#
# Install: `make install` in a clone of the repository, then `.venv/bin/pip install jupyterlab` and `.venv/bin/jupyter
# lab notebooks`. This notebook takes about half a minute.
#
# A loss curve with plateaus is all there is. Which spectrum, which context length, which initial weights made it?

# %%
import iclflow as icl

run = icl.train(icl.Task(spectrum=(0.5, 0.3, 0.15), context=20), icl.Separate(heads=5), init=3e-3, seed=7)
run

# %%
found = icl.infer(run.loss.values, time=run.time.values)  # from the loss alone
found

# %%
icl.predict(found.task, found.model, weights=found.weights)  # what was found makes the same drops

# %% [markdown]
# The other way: a staircase to order.

# %%
icl.design([1.0, 0.7, 0.5, 0.4], drop_times=[100, 300, 800])

# %% [markdown]
# ## Exercise
#
# Cut the curve in the middle of a plateau. Which numbers stay, and what do the notes say?
