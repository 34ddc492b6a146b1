"""A slow twin: the models, the loss and gradient descent by explicit loops over sequences, heads and tokens.

Shares no code with the package. Gradients by the complex step, which has no rounding error to speak of: the loss is
analytic in the weights, so its derivative along a coordinate is the imaginary part of the loss at a tiny imaginary
displacement, divided by that displacement.
"""

import cmath

import numpy as np

STEP = 1e-40


def scale(normalize, n):
    """n context tokens, the query not counted."""
    return {"context": 1 / n, "tokens": 1 / (n + 1), "none": 1.0}[normalize]


def head_score(weights, h, token, query):
    if "key_query" in weights:
        total = 0
        for a in range(len(token)):
            for b in range(len(query)):
                total += token[a] * weights["key_query"][h, a, b] * query[b]
        return total
    total = 0
    for r in range(weights["key"].shape[1]):
        asks = sum(weights["query"][h, r, b] * query[b] for b in range(len(query)))
        holds = sum(weights["key"][h, r, a] * token[a] for a in range(len(token)))
        total += asks * holds
    return total


def attention(weights, tokens, dim, factor, softmax):
    """Label entries of the output at the last token; tokens are rows, the last label already hidden."""
    query, width = tokens[-1], len(tokens[-1])
    out = [0] * (width - dim)
    for h in range(len(weights["value"])):
        scores = [head_score(weights, h, token, query) for token in tokens]
        if softmax:
            top = max(s.real for s in map(complex, scores))
            exponentials = [cmath.exp(s - top) for s in scores]
            scores = [e / sum(exponentials) for e in exponentials]
        for o in range(width - dim):
            for score, token in zip(scores, tokens, strict=True):
                out[o] += factor * score * sum(weights["value"][h, dim + o, a] * token[a] for a in range(width))
    return out


def network(weights, tokens, dim, factor):
    """The two-layer network on the cubic feature, rows of beta x_q' stacked."""
    query, total = tokens[-1], 0
    for h in range(len(weights["first"])):
        for d in range(dim):
            beta = factor * sum(token[dim] * token[d] for token in tokens)
            for e in range(dim):
                total += weights["second"][0, h] * weights["first"][h, d * dim + e] * beta * query[e]
    return [total]


def stream(weights, tokens, dim, factor, layers):
    """Minus the query's label entries after all layers; the query is neither key nor value, and a layer reads the
    stream as it was before the layer."""
    rows = [list(token) for token in tokens]
    width = len(rows[0])
    for number in range(layers):
        own = {name: array[number % len(array)] for name, array in weights.items()}
        moved = []
        for asking in rows:
            new = list(asking)
            for h in range(len(own["value"])):
                for token in rows[:-1]:
                    score = factor * head_score(own, h, token, asking)
                    for a in range(width):
                        new[a] -= score * sum(own["value"][h, a, b] * token[b] for b in range(width))
            moved.append(new)
        rows = moved
    return [-entry for entry in rows[-1][dim:]]


def predict(weights, sequence, dim, normalize, softmax=False, layers=1):
    tokens = np.array(sequence, dtype=float)
    tokens[-1, dim:] = 0
    factor = scale(normalize, len(tokens) - 1)
    if layers > 1:
        return stream(weights, tokens, dim, factor, layers)
    if "first" in weights:
        return network(weights, tokens, dim, factor)
    return attention(weights, tokens, dim, factor, softmax)


def loss(weights, sequences, dim, normalize, prefix_loss=False, softmax=False, layers=1):
    total, terms = 0, 0
    for sequence in sequences:
        last = len(sequence) - 1
        for n in range(1, last + 1) if prefix_loss else [last]:
            guess = predict(weights, sequence[: n + 1], dim, normalize, softmax, layers)
            for o, value in enumerate(guess):
                total += (value - sequence[n, dim + o]) ** 2
                terms += 1
    return total / terms


def gradient(weights, *arguments, **options):
    slopes = {}
    for name, array in weights.items():
        slopes[name] = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            moved = {key: value.astype(complex) for key, value in weights.items()}
            moved[name][index] += 1j * STEP
            slopes[name][index] = loss(moved, *arguments, **options).imag / STEP
    return slopes


def descend(weights, sequences, dim, normalize, lr, steps, **options):
    """Losses before every step and after the last, and the final weights."""
    losses = []
    for _ in range(steps):
        losses.append(loss(weights, sequences, dim, normalize, **options))
        slopes = gradient(weights, sequences, dim, normalize, **options)
        weights = {name: array - lr * slopes[name] for name, array in weights.items()}
    losses.append(loss(weights, sequences, dim, normalize, **options))
    return np.array([complex(x).real for x in losses]), weights
