"""Predictions that were asked for lately: `predict`, `compare` and a figure of one run need the same one."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np

from iclflow.config import Task, Training
from iclflow.models import Model
from iclflow.prediction.result import Prediction
from iclflow.prediction.setting import Setting
from iclflow.system.digest import digest

__all__ = ["asked"]

KEPT = 32  # predictions; a forecast of several layers holds a megabyte
Make = Callable[[Setting], Prediction]


@dataclass(frozen=True)
class Question:
    """A setting, equal to others with the same numbers, and who answers it."""

    make: Make
    theory: str
    task: Task
    model: Model
    training: Training
    numbers: str
    setting: Setting = field(compare=False)


def asked(make: Make, setting: Setting) -> Prediction:
    """The prediction that `make` gives for a setting, made now or lately; its arrays are the caller's own."""
    if setting.draws is not None or not hashable(setting.model):  # draws are as large as the sample
        return make(setting)
    found = answer(
        Question(make, setting.theory, setting.task, setting.model, setting.training, numbers(setting), setting)
    )
    arrays = {name: part.copy() for name, part in vars(found).items() if isinstance(part, np.ndarray)}
    return replace(found, **cast("Any", arrays))


@lru_cache(KEPT)
def answer(question: Question) -> Prediction:
    """The answer to a question; threads with different questions do not wait for each other."""
    return question.make(question.setting)


def numbers(setting: Setting) -> str:
    """A digest of the weights, and of the sample if there is one."""
    arrays = {**setting.weights, **({} if setting.sample is None else vars(setting.sample))}
    parts = [(name, np.ascontiguousarray(array)) for name, array in sorted(arrays.items())]
    return digest(*(part for name, array in parts for part in (repr((name, array.shape, array.dtype)), array.data)))


def hashable(model: Model) -> bool:
    """Whether a model can be looked up; one of a user may have a list as a field."""
    try:
        hash(model)
    except TypeError:
        return False
    return True
