"""Attention is a network on the cubic feature: same outputs, same training."""

from functools import cache
from typing import Any

import numpy as np

import iclflow as icl
from iclflow.claims.registry import claim
from iclflow.models import equivalence
from iclflow.results.run import Run

__all__: list[str] = []

TASK = icl.Task(dim=4, context=31)
DESCENT: dict[str, Any] = {"lr": 0.1, "steps": 1500, "init": 0.05}


@cache
def merged_run(**options: Any) -> Run:
    return icl.train(TASK, icl.Merged(heads=8), **DESCENT, **options)


def gap_to_two_layer_network(sabotage: bool, **options: Any) -> float:
    """Largest gap between the losses of merged attention and of the network with the same initial weights."""
    attention = merged_run(**options)
    network = equivalence.to_two_layer(attention.initial_weights)
    if sabotage:
        network["second"] = network["second"] * 1.001
    samples = {name: value for name, value in options.items() if name in ("samples", "seed")}
    other = icl.train(TASK, icl.MLP(heads=8), weights=network, **DESCENT, **samples)
    return float(np.abs(attention.loss.values - other.loss.values).max())


@claim(
    "mlp-population",
    "On the population, merged attention trains exactly like a two-layer linear network on the cubic feature.",
    source="Eq. 6, 7",
    quantity="largest gap between the losses over 1500 steps",
    bound=1e-10,
    seeds="0",
    quick=True,
)
def mlp_on_the_population(sabotage: bool = False) -> float:
    return gap_to_two_layer_network(sabotage)


@claim(
    "mlp-sample-frozen",
    "The same holds on a sample of 5000 sequences while the vector blocks are kept at zero.",
    source="Eq. 6, 7",
    quantity="largest gap between the losses over 1500 steps",
    bound=1e-10,
    seeds="0",
    quick=True,
)
def mlp_on_a_sample_with_frozen_vectors(sabotage: bool = False) -> float:
    return gap_to_two_layer_network(sabotage, samples=5000, freeze_vectors=True)


@claim(
    "mlp-sample-free",
    "When all blocks are trained on a sample, the two runs differ slightly because the vector blocks drift from zero.",
    source="beyond the paper",
    quantity="largest gap between the losses over 1500 steps (reported; small, not zero)",
    bound=0.05,
    seeds="0",
)
def mlp_on_a_sample_with_all_blocks(sabotage: bool = False) -> float:
    gap = gap_to_two_layer_network(False, samples=5000)
    return gap if gap > 1e-6 and not sabotage else np.inf
