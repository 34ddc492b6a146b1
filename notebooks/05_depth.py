# %% [markdown]
# # Depth: the second staircase
#
# Install: `make install` in a clone of the repository, then `.venv/bin/pip install jupyterlab` and `.venv/bin/jupyter
# lab notebooks`. This notebook takes about half a minute.
#
# With several layers of linear attention the loss goes down the staircase of one layer, and then a second one, far
# below the lowest loss of one layer: layers learn to take further steps of gradient descent in context.

# %%
import iclflow as icl

task, model = icl.Task(dim=2, context=20), icl.Separate(heads=2, layers=2)
icl.predict(task, model, init=0.02)  # from the initial weights alone; heads count through the layers

# %% [markdown]
# A sequence enters through its Gram matrix alone, so training costs the same for every length of the context. Here the
# label blocks are trained by descent on 512 Gram matrices from the exact law of the population.

# %%
run = icl.train(task, model, init=0.02, freeze_vectors=True, gram_samples=512, lr=0.4, steps=8000, records=100)
icl.compare(run)

# %% [markdown]
# ## Which algorithm?
#
# Zero, then regression on one component, then two steps of gradient descent. The last table of the printed probe says
# which layer holds which direction: one layer takes a shorter and one a longer step than a single layer would.

# %%
found = icl.probe(run, shifts=False)
found

# %%
print(found.layers.holds, found.layers.share.round(2))

# %% [markdown]
# ## What more layers can reach
#
# The lowest loss of one, two and three steps of preconditioned gradient descent in context.

# %%
from iclflow.theory import depth

for layers in (1, 2, 3):
    print(f"{layers} layers: {depth.lowest_loss(task, layers):.4f}, looped {depth.lowest_loss(task, layers, True):.4f}")

# %% [markdown]
# The second staircase needs a context of finite length: an empty layer learns a direction again with a drive that is
# smaller by about (D + 1)/N.

# %%
for context in (10, 31, 100, 1000):
    print(f"N = {context}: relearning drive {depth.white_drive(2, context):.4f} of the first one")

# %% [markdown]
# ## Exercise
#
# Train all blocks (leave out `freeze_vectors`) and probe the end again. Does the loss go below that of two steps? Look
# at `found.layers.token_power`: what do the tokens do between the two steps?
