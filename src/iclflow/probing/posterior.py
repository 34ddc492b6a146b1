r"""The Bayes estimator of K fixed tasks, often called dMMSE: the mean of $w$ over the tasks, given the context.

$$\hat y = \sum_k p_k\,w_k'x_q,\qquad
  p_k \propto \exp\Big(-\frac1{2\sigma^2}\sum_n|y_n - w_kx_n|^2\Big) \qquad [\text{`task-posterior`}]$$

Without noise only the task that fits the context best counts.
"""

import numpy as np
from jaxtyping import Float

from iclflow.probing.contexts import Contexts, Predictions

__all__ = ["task_posterior_mean"]

FAINT = 1e-9  # of the mean square of the labels: a noise that is as good as none


def task_posterior_mean(contexts: Contexts, tasks: Float[np.ndarray, "K O D"], noise: float) -> Predictions:
    """The predictions of dMMSE on every context [`task-posterior`]."""
    power = np.einsum("poo->p", contexts.labels)
    fit = np.einsum("kod,pod->pk", tasks, contexts.beta)
    square = np.einsum("kod,pde,koe->pk", tasks, contexts.gram, tasks, optimize=True)
    misfit = contexts.length * (power[:, None] - 2 * fit + square)
    logits = -misfit / (2 * max(noise, FAINT * float(power.mean()), 1e-300))
    share = np.exp(logits - logits.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    return np.einsum("pk,kod,pd->po", share, tasks, contexts.query, optimize=True)
