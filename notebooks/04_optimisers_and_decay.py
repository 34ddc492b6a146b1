# %% [markdown]
# # Optimisers and weight decay
#
# Install: `make install` in a clone of the repository, then `.venv/bin/pip install jupyterlab` and `.venv/bin/jupyter
# lab notebooks`. This notebook takes about twenty seconds.
#
# The levels of the plateaus belong to the task: no optimiser changes them. When the drops come, and in which order,
# does depend on the optimiser.

# %%
import iclflow as icl

task, model = icl.Task(dim=3, context=31), icl.Separate(heads=4)
descent = icl.train(task, model, init=0.03, lr=0.1, steps=4000)
momentum = icl.train(task, model, init=0.03, lr=0.01, steps=4000, optimizer="momentum", beta=0.9)
icl.compare([descent, momentum])  # one clock: momentum of 0.9 is ten times as fast

# %%
adam = icl.train(task, model, init=0.03, lr=0.003, steps=2000, optimizer="adam")
icl.compare(adam)

# %% [markdown]
# Any optimiser of optax works too; its state is saved and resumed with the run.

# %%
import optax

lion = icl.train(task, model, init=0.03, steps=2000, optimizer=optax.lion(1e-3))
icl.compare(lion)

# %% [markdown]
# ## Weight decay
#
# Decay slows every drop, lowers the strength at which a component rests, and beyond a threshold keeps the weakest
# components from being learned at all. Theory says which.

# %%
for decay in (0.0, 1e-3, 3e-3, 1e-2):
    predicted = icl.predict(task, model, init=0.03, weight_decay=decay)
    never = [d + 1 for d in predicted.never]
    print(f"decay {decay:g}: drops at {predicted.drop_times.round(1)}, never learned {never}")

# %%
icl.compare(icl.train(task, model, init=0.03, time=600.0, weight_decay=3e-3))

# %% [markdown]
# ## Exercise
#
# Find by `icl.predict` the decay at which the last component is just not learned any more. Train with slightly less
# and slightly more, and see the last drop disappear.
