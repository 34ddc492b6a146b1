r"""Update rules: $W \leftarrow W - \eta\,(u + \gamma W)$, $u$ made of the gradient $g$, $\gamma$ the weight decay.

| rule | $u$ |
| --- | --- |
| `sgd` | $g$ |
| `momentum` | $m$, where $m \leftarrow \beta m + g$ |
| `adam` | $\hat m/(\sqrt{\hat v} + 10^{-8})$, averages of $g$ (rate $\beta$) and $g^2$ (rate 0.999), bias-corrected |
| `muon` | $UV'$ from the singular value decomposition of $m$, one matrix per array or one per head |

optax is imported where a rule needs it, which `sgd` does not. Any other `optax.GradientTransformation` brings
constants of its own: what it returns is added to the weights.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from iclflow.config import Training
from iclflow.models import Weights

if TYPE_CHECKING:
    import optax

__all__ = ["Rule", "orthogonalised", "rule_of"]

RELATIVE_CUTOFF = 1e-12  # singular values below this share of the largest count as zero


@dataclass(frozen=True)
class Rule:
    """How a gradient becomes an update; equal rules share a compiled program."""

    name: str
    beta: float = 0.9
    per_head: bool = False  # of `muon`
    given: "optax.GradientTransformation | None" = None  # the user's own

    @property
    def transformation(self) -> "optax.GradientTransformation | None":
        """What optax calls it; none where the gradient is the update."""
        if self.given is not None:
            return self.given
        if self.name == "sgd":
            return None
        import optax

        if self.name == "momentum":
            return optax.trace(decay=self.beta)
        if self.name == "adam":
            return optax.scale_by_adam(b1=self.beta)
        return optax.chain(optax.trace(decay=self.beta), orthogonalise(self.per_head))

    def initial_state(self, trained: Weights) -> Any:
        """What the rule remembers before the first step."""
        return () if self.transformation is None else self.transformation.init(trained)

    def step(
        self, trained: Weights, gradient: Weights, state: Any, lr: Array, decay: Array | None, mask: Weights | None
    ) -> tuple[Weights, Any]:
        """The weights and the optimiser's state after one update; `mask` is 0 on weights that must not move."""
        update = gradient
        if self.transformation is not None:
            update, state = self.transformation.update(gradient, state, trained)
        if self.given is not None:
            free = lambda name: update[name] if mask is None else mask[name] * update[name]
            return {name: trained[name] + free(name) for name in trained}, state
        if decay is None:
            return {name: trained[name] - lr * update[name] for name in trained}, state
        held = lambda name: trained[name] if mask is None else mask[name] * trained[name]
        return {name: trained[name] - lr * (update[name] + decay * held(name)) for name in trained}, state


def rule_of(training: Training, given: "optax.GradientTransformation | None" = None) -> Rule:
    """The rule that a training asks for."""
    if given is not None:
        return Rule(training.optimizer, given=given)
    return Rule(training.optimizer, training.beta, training.muon == "heads")


def orthogonalise(per_head: bool) -> "optax.GradientTransformation":
    """The orthogonal factor of every array: of all heads stacked, or of each head alone."""
    import optax

    def update(gradient: Weights, state: Any, params: Any = None) -> tuple[Weights, Any]:
        return {name: orthogonalised(array, per_head) for name, array in gradient.items()}, state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def orthogonalised(array: Float[Array, "..."], per_head: bool) -> Float[Array, "..."]:
    """$UV'$ of an array (.., rows, columns): its leading axes stacked into the rows, or one matrix for each of them.

    A vector is divided by its norm; what is zero stays zero.
    """
    matrices = array if per_head and array.ndim > 2 else array.reshape(-1, array.shape[-1] if array.ndim > 1 else 1)
    u, s, vt = jnp.linalg.svd(matrices, full_matrices=False)
    kept = s > RELATIVE_CUTOFF * jnp.maximum(s[..., :1], jnp.finfo(array.dtype).tiny)
    return ((u * kept[..., None, :]) @ vt).reshape(array.shape)
