"""How far the tasks of a set of sequences are from being as likely as their negatives."""

import numpy as np
from jaxtyping import Float

from iclflow.data.sequences import Sequences, over_chunks

__all__ = ["asymmetry"]


def asymmetry(sequences: Sequences) -> float:
    r"""The size of an odd moment of the tasks, relative to its spread [`asymmetry`].

    $$\frac{|\langle y_q\,\bar{y^2}\,x_q\rangle|}{\sqrt{\langle|y_q\,\bar{y^2}\,x_q|^2\rangle}}$$

    It is 0 for tasks that are as likely as their negatives, about $K^{-1/2}$ for K tasks, and pushes the vector blocks
    away from zero.
    """
    dim = sequences.dim

    def sums(index: int) -> tuple[Float[np.ndarray, "O D"], float]:
        chunk = sequences.chunk(index)
        labels, query = chunk[:, :, dim:], chunk[:, -1, :dim]
        odd = (labels[:, -1] * np.mean(labels[:, :-1] ** 2, axis=1))[:, :, None] * query[:, None, :]
        return odd.sum(axis=0), float(np.sum(odd**2))

    sequences.prepare()
    total, squares = (sum(column) for column in zip(*over_chunks(sums, sequences), strict=True))
    size = np.sqrt(squares * sequences.count)
    return float(np.linalg.norm(total) / size) if size > 0 else 0.0
