r"""Training on K fixed task vectors: what is learned, how well it serves new tasks, and what sees that there are few.

On the label blocks only the second moment $S_K = \frac1K\sum_k w_kw_k'$ matters: the loss is that of `landscape` with
$\Omega = S_K$, and separate attention rests at the best matrices $A_m$ of rank $m \le \min(K, D)$. New tasks have the
covariance $\Omega$ that the K were drawn from, so the same matrix has another loss on them [`task-set-levels`]:

$$L_K(A_m) = \operatorname{tr}\Lambda S_K - \sum_{d\le m}T_d^2,\qquad
  L_{new}(A_m) = \operatorname{tr}\Lambda\Omega - 2\operatorname{tr}A_m'C_1 + \operatorname{tr}A_m'BA_m\Lambda$$

with $C_1, B$ of $\Omega$. One layer of linear attention cannot be the Bayes estimator of the K tasks (dMMSE), which is
not linear in second moments of the context.

The third moment and the mean of the tasks vanish if every task comes with either sign (`mirror_tasks`). Otherwise they
drive the vector blocks, which then learn in weights [`odd-drive`].
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.spectrum import covariances, task_vectors
from iclflow.theory.landscape import block_force, component_count, landscape
from iclflow.theory.separate import rank_optimum

__all__ = ["OddDrive", "TaskSetLevels", "odd_drive", "task_set_levels"]


class TaskSetLevels(NamedTuple):
    """The plateaus of training on K tasks, from the zero function to the minimum."""

    train: Float[np.ndarray, " levels"]  # on the K tasks
    test: Float[np.ndarray, " levels"]  # on new tasks
    matrices: Float[np.ndarray, "levels D D"]  # A_m


def task_set_levels(task: Task) -> TaskSetLevels:
    r"""Training loss and loss on new tasks on every plateau [`task-set-levels`].

    Args:
        task: The task; without `tasks` both losses are the same.

    Returns:
        The losses, and the matrices that have them.

    Raises:
        BadInput: If `icl_fraction` < 1, or K fixed tasks have several outputs.
    """
    seen, new = landscape(task), landscape(task.new_tasks)
    matrices = np.array([rank_optimum(seen, m) for m in range(component_count(task) + 1)])
    return TaskSetLevels(
        np.array([seen.loss(A) for A in matrices]), np.array([new.loss(A) for A in matrices]), matrices
    )


class OddDrive(NamedTuple):
    """Sizes (Frobenius norms) of the force at zero weights, by the blocks that it acts on."""

    label: float  # value label-label, key-query token-token: learns in context
    squared_labels: float  # value label-label, key-query label-token: learns in weights
    tokens: float  # value label-token, key-query token-token: learns in weights

    @property
    def share(self) -> float:
        """The larger of the two in-weight forces, relative to the in-context one."""
        return max(self.squared_labels, self.tokens) / self.label


def odd_drive(task: Task) -> OddDrive:
    r"""The force of odd task moments on the vector blocks, beside that on the label blocks [`odd-drive`].

    The Frobenius norms of the blocks of `theory.landscape.block_force`.

    Args:
        task: The task; the last two are zero if tasks have either sign equally often.

    Returns:
        The three norms. Those of odd moments fall as $1/\sqrt K$.

    Raises:
        BadInput: If `icl_fraction` < 1, or K fixed tasks have several outputs.
    """
    label = float(np.linalg.norm(landscape(task).cross))
    if task.symmetric:
        return OddDrive(label, 0.0, 0.0)
    b, D = block_force(task, covariances(task).token, task_vectors(task)[:, 0]), task.dim
    return OddDrive(label, float(np.linalg.norm(b[D, D])), float(np.linalg.norm(b[:D, :D])))
