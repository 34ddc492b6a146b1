# %% [markdown]
# Four models that people ask about, each a class of ten-odd lines: tanh on the scores, normalised linear attention, an
# MLP after attention, and causal attention with a position code. They train, and are compared with linear attention.

# %%
import jax
import jax.numpy as jnp
import numpy as np

import iclflow as icl


class TanhScores(icl.Model):
    """Attention with separate key and query, and a tanh on every score."""

    heads: int = 3

    def shapes(self, task):
        return {"value": (self.heads,), "key": (self.heads, task.dim), "query": (self.heads, task.dim)}

    def predict(self, weights, sequence, task):
        x, y = sequence[:, : task.dim], sequence[:, task.dim :]
        scores = jnp.tanh((x @ weights["key"].T) * (weights["query"] @ x[-1]))  # (n+1, H)
        return y.T @ scores @ weights["value"] / (len(sequence) - 1)


class NormalisedAttention(icl.Model):
    """Linear attention on positive features, whose scores are divided by their sum."""

    features: int = 8

    def shapes(self, task):
        return {"value": (1,), "key": (self.features, task.dim), "query": (self.features, task.dim)}

    def predict(self, weights, sequence, task):
        x, y = sequence[:, : task.dim], sequence[:, task.dim :]
        keys, query = jax.nn.softplus(x[:-1] @ weights["key"].T), jax.nn.softplus(weights["query"] @ x[-1])
        scores = keys @ query
        return weights["value"] * (y[:-1].T @ scores) / jnp.sum(scores)


class AttentionThenMLP(icl.Model):
    """Heads of linear attention, and a network of one hidden layer on what they say, beside their sum."""

    heads: int = 3
    width: int = 8

    def shapes(self, task):
        size = self.heads * task.out_dim
        return {
            "U": (self.heads, task.dim, task.dim),
            "first": (self.width, size),
            "second": (task.out_dim, self.width),
        }

    def predict(self, weights, sequence, task):
        x, y = sequence[:, : task.dim], sequence[:, task.dim :]
        beta = y.T @ x / (len(sequence) - 1)
        said = jnp.einsum("od,hde,e->ho", beta, weights["U"], x[-1])
        return said.sum(0) + weights["second"] @ jax.nn.relu(weights["first"] @ said.ravel())


class CausalAttention(icl.Model):
    """Layers in which every token attends to those before it, with a learned factor for each distance."""

    depth: int = 2

    def shapes(self, task):
        square = (self.depth, task.dim + task.out_dim, task.dim + task.out_dim)
        return {"U": square, "V": square, "position": (self.depth, task.context + 1)}

    def predict(self, weights, sequence, task):
        count, stream = len(sequence), sequence
        back = jnp.arange(count)[:, None] - jnp.arange(count)  # how far one token is behind another
        for U, V, position in zip(weights["U"], weights["V"], weights["position"], strict=True):
            code = jnp.where(back > 0, 1 + position[jnp.abs(back)], 0)
            stream = stream + (code * (stream @ U @ stream.T)) @ stream @ V.T / (count - 1)
        return stream[-1, task.dim :]


MODELS = (TanhScores(), NormalisedAttention(), AttentionThenMLP(), CausalAttention())


def main(path="own_models.csv"):
    task, rows = icl.Task(dim=2, context=20), []
    for model in MODELS:
        run = icl.train(task, model, init=0.2, samples=1000, lr=0.05, steps=1000, records=50)
        found = icl.compare(run)
        print(f"{type(model).__name__}\n{found}\n")
        rows.append((run.loss.values[0], run.loss.values[-1], found.levels[-1], found.distances[-1]))
    np.savetxt(path, rows, delimiter=",", header="first loss,last loss,lowest level,distance", comments="")
    return rows


# %%
if __name__ == "__main__":
    main()
