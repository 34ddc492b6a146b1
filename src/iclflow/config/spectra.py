"""Reading a covariance as people write it: a name, eigenvalues, a matrix, or a `.npy` file of either."""

import math
from typing import Any

import numpy as np

from iclflow.config.record import shown
from iclflow.system.files import read_npy

__all__ = ["HUGE", "SpectrumLike", "is_matrix", "load_array", "power_of", "read_spectrum"]

HUGE = 1e40  # the largest number of a task, so that losses are numbers too
MOST_BYTES = 512 * 2**20  # of a covariance
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
                raise ValueError(f"{field}: {shown(value)} must be numbers separated by commas") from None
        else:
            return named_spectrum(field, value)
    try:
        if isinstance(value, list) and bool in map(type, np.asarray(value, dtype=object).ravel()):
            raise TypeError
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{field}: {shown(value)} must be a name, eigenvalues or a square matrix") from None
    return checked_spectrum(field, array)


def load_array(field: str, path: str) -> np.ndarray:
    """The numbers of a `.npy` file."""
    array = read_npy(path, field, MOST_BYTES)
    if not np.can_cast(array.dtype, float):
        raise ValueError(f"{field}: {path!r} holds {array.dtype}, must be real numbers")
    return array


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
        f"{field}: {shown(value)} must be linear, white, power:A with a number A, eigenvalues v1,v2,.. or FILE.npy"
    )


def power_of(spectrum: Any) -> float:
    """The A of `power:A`; 0 of all other spectra."""
    name, _, exponent = spectrum.partition(":") if isinstance(spectrum, str) else ("", "", "")
    return float(exponent) if name == "power" else 0.0


def checked_spectrum(field: str, array: np.ndarray) -> Any:
    """Positive eigenvalues, or a symmetric positive semi-definite matrix with something in it."""
    if array.ndim not in (1, 2) or array.size == 0 or (array.ndim == 2 and array.shape[0] != array.shape[1]):
        raise ValueError(f"{field}: shape {array.shape} must be (D,) eigenvalues or a (D, D) matrix")
    if not np.isfinite(array).all():
        raise ValueError(f"{field}: holds NaN or infinity; every entry must be finite")
    size = np.abs(array).max()
    if size > HUGE or 0 < size < 1 / HUGE:
        raise ValueError(f"{field}: its largest entry is {size:.3g}, must be from {1 / HUGE:.0e} to {HUGE:.0e}")
    if array.ndim == 1:
        if (array < 0).any() or not (array > 0).any():
            raise ValueError(f"{field}: {shown(array.tolist())} must be non-negative eigenvalues, not all zero")
        return tuple(array.tolist())
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
