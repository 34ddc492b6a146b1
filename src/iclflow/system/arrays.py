"""Arrays from other libraries, recognised by what they can do: none of these libraries is imported here."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["as_array", "is_torch_module", "torch_function"]


def as_array(value: Any) -> np.ndarray:
    """A NumPy array of a list, an array of any library, or a PyTorch tensor, which is copied and may be on a GPU."""
    if not hasattr(value, "detach"):
        return np.asarray(value)
    tensor = value.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":  # NumPy has no such type
        tensor = tensor.float()
    return np.array(tensor.numpy())  # a copy: training may go on in the tensor itself


def is_torch_module(value: Any) -> bool:
    """Whether a value is a PyTorch module."""
    return callable(value) and hasattr(value, "state_dict") and "torch" in sys.modules


def torch_function(module: Any) -> Callable[[np.ndarray], np.ndarray]:
    """A PyTorch module as a function of NumPy arrays, in the precision and on the device of its parameters."""
    torch = sys.modules["torch"]

    def call(sequences: np.ndarray) -> np.ndarray:
        parameter = next(iter(module.parameters()), None)
        like = {} if parameter is None else {"dtype": parameter.dtype, "device": parameter.device}
        with torch.no_grad():
            return as_array(module(torch.as_tensor(sequences, **like)))

    call.__name__ = type(module).__name__
    return call
