"""Reading a covariance as people write it: a name, eigenvalues, a matrix, or a `.npy` file of either."""

import math
from typing import Any

import numpy as np

__all__ = ["SpectrumLike", "is_matrix", "load_array", "read_spectrum"]

SpectrumLike = str | tuple[float, ...] | tuple[tuple[float, ...], ...]


def read_spectrum(field: str, value: Any) -> Any:
    """Names stay names; `v1,v2,..`, arrays and `.npy` files become (nested) tuples of numbers."""
    if isinstance(value, str):
        if value.endswith(".npy"):
            value = load_array(field, value)
        elif "," in value:
            try:
                value = tuple(float(part) for part in value.split(","))
            except ValueError:
                raise ValueError(f"{field}: {value!r} must be numbers separated by commas") from None
        else:
            return named_spectrum(field, value)
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{field}: {value!r} must be a name, eigenvalues or a square matrix") from None
    return checked_spectrum(field, array)


def load_array(field: str, path: str) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{field}: cannot read {path!r} as a .npy array ({type(error).__name__})") from None


def named_spectrum(field: str, value: str) -> str:
    name, _, exponent = value.partition(":")
    if name in ("linear", "white") and not exponent:
        return value
    if name == "power" and exponent:
        try:
            if math.isfinite(float(exponent)):
                return value
        except ValueError:
            pass
    raise ValueError(
        f"{field}: {value!r} must be linear, white, power:A with a number A, eigenvalues v1,v2,.. or FILE.npy"
    )


def checked_spectrum(field: str, array: np.ndarray) -> Any:
    """Positive eigenvalues, or a symmetric positive semi-definite matrix with something in it."""
    if array.ndim not in (1, 2) or array.size == 0 or (array.ndim == 2 and array.shape[0] != array.shape[1]):
        raise ValueError(f"{field}: shape {array.shape} must be (D,) eigenvalues or a (D, D) matrix")
    if not np.isfinite(array).all():
        raise ValueError(f"{field}: holds NaN or infinity; every entry must be finite")
    if array.ndim == 1:
        if (array < 0).any() or not (array > 0).any():
            raise ValueError(f"{field}: {array.tolist()} must be non-negative eigenvalues, not all zero")
        return tuple(array.tolist())
    size = np.abs(array).max()
    if np.abs(array - array.T).max() > 1e-10 * size:
        raise ValueError(f"{field}: the matrix must be symmetric")
    if np.linalg.eigvalsh(array).min() < -1e-10 * size or size == 0:
        raise ValueError(
            f"{field}: the matrix must be positive semi-definite,"
            f" smallest eigenvalue is {np.linalg.eigvalsh(array).min():.3g}"
        )
    return tuple(tuple(row) for row in ((array + array.T) / 2).tolist())


def is_matrix(spectrum: SpectrumLike | None) -> bool:
    return isinstance(spectrum, tuple) and isinstance(spectrum[0], tuple)
