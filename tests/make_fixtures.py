"""Make `tests/fixtures/*.npz`: tiny training runs by the slow twin, in the format of the golden runs.

python tests/make_fixtures.py
"""

import json
from pathlib import Path

import numpy as np

import twin

FIXTURES = Path(__file__).parent / "fixtures"
DIM, CONTEXT, COUNT, STEPS = 2, 4, 6, 15
CASES = {
    "merged": {"model": "merged", "heads": 2, "lr": 0.001, "normalize": "none"},
    "merged_out2_context": {"model": "merged", "heads": 2, "out_dim": 2, "lr": 0.3, "normalize": "context"},
    "merged_softmax": {"model": "merged", "heads": 2, "lr": 0.2, "normalize": "none", "softmax": True},
    "separate_rank1": {"model": "separate", "heads": 3, "lr": 0.004, "normalize": "none"},
    "separate_rank2_prefix": {
        "model": "separate",
        "heads": 2,
        "rank": 2,
        "lr": 0.3,
        "normalize": "tokens",
        "prefix_loss": True,
    },
    "mlp": {"model": "mlp", "heads": 3, "lr": 0.05, "normalize": "none"},
    "separate_layers2": {"model": "separate", "heads": 2, "layers": 2, "lr": 0.3, "normalize": "context"},
    "merged_layers3_looped_out2": {
        "model": "merged",
        "heads": 1,
        "out_dim": 2,
        "layers": 3,
        "looped": True,
        "lr": 0.2,
        "normalize": "context",
    },
}


def draw(meta, rng):
    dim, out_dim, heads, rank = DIM, meta["out_dim"], meta["heads"], meta["rank"]
    width = dim + out_dim
    x = rng.standard_normal((COUNT, CONTEXT + 1, dim)) * [0.9, 0.5]
    w = rng.standard_normal((COUNT, dim, out_dim))
    sequences = np.concatenate([x, x @ w], axis=2)
    shapes = {
        "merged": {"value": (heads, width, width), "key_query": (heads, width, width)},
        "separate": {
            "value": (heads, width, width),
            "key": (heads, rank, width),
            "query": (heads, rank, width),
        },
        "mlp": {"first": (heads, dim * dim), "second": (out_dim, heads)},
    }[meta["model"]]
    if "layers" in meta:
        rows = 1 if meta.get("looped") else meta["layers"]
        shapes = {name: (rows, *shape) for name, shape in shapes.items()}
    return sequences, {name: 0.4 * rng.standard_normal(shape) for name, shape in shapes.items()}


def main():
    FIXTURES.mkdir(exist_ok=True)
    for number, (name, case) in enumerate(CASES.items()):
        meta = {
            "dim": DIM,
            "out_dim": 1,
            "context": CONTEXT,
            "rank": 1,
            "steps": STEPS,
            "prefix_loss": False,
            "softmax": False,
            **case,
        }
        sequences, weights = draw(meta, np.random.default_rng(number))
        losses, final = twin.descend(
            weights, sequences, DIM, meta["normalize"], meta["lr"], STEPS,
            prefix_loss=meta["prefix_loss"], softmax=meta["softmax"], layers=meta.get("layers", 1),
        )  # fmt: skip
        arrays = {"sequences": sequences, "loss": losses[:-1], "meta": np.array(json.dumps(meta))}
        arrays |= {f"weights.{key}": array for key, array in weights.items()}
        arrays |= {f"final_weights.{key}": array for key, array in final.items()}
        np.savez(FIXTURES / f"{name}.npz", **arrays)
        print(name, losses[0], "->", losses[-1])


if __name__ == "__main__":
    main()
