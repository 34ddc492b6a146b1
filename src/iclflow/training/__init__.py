"""The verb: from a task, a model and a few settings to a `Run`.

`start` reads what the user gave, `plan` holds what all seeds share, `by_descent` and `by_flow` walk one seed down,
`resuming` goes on from where a run stopped.
"""

import jax

jax.config.update("jax_enable_x64", True)

from iclflow.training.resuming import resume  # noqa: E402
from iclflow.training.start import train  # noqa: E402

__all__ = ["resume", "train"]
