"""Named arrays on disk: written as safetensors, read from safetensors or npz, never from a pickle.

The size of a file is checked before it is read, so that neither a long header nor an archive that unpacks to far more
than its own size takes up memory.
"""

import json
import struct
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy

from iclflow.errors import BadInput
from iclflow.system.files import first_line, read_npz, regular_file

__all__ = ["SUFFIXES", "read_metadata", "read_tensors", "write_tensors"]

SUFFIXES = (".safetensors", ".npz")
LONGEST_HEADER = 16 * 2**20  # bytes; the header of a file with thousands of tensors is far shorter
MOST_BYTES = 512 * 2**20  # of weights from a file of the user


def write_tensors(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> None:
    """Save arrays, made contiguous first, because the library silently mangles arrays that are not."""
    contiguous = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    path.write_bytes(safetensors.numpy.save(contiguous, metadata))  # the library's own files are unreadable to others


def read_metadata(path: Path) -> dict[str, str]:
    """What a safetensors file says of its arrays."""
    with safetensors.safe_open(str(path), "numpy") as file:
        return file.metadata() or {}


def read_tensors(path: str, most: int = MOST_BYTES) -> dict[str, np.ndarray]:
    """All arrays of a file of at most so many bytes."""
    if path.endswith(".npz"):
        return read_npz(path, "weights", most)
    check_header(regular_file(path, "weights", most))
    try:
        return safetensors.numpy.load_file(path)
    except Exception as error:  # a damaged file can raise almost anything
        raise BadInput(f"weights: cannot read {path!r} as safetensors ({first_line(error)})") from None


def check_header(path: Path) -> None:
    """Refuse a header that is too long, before memory is allocated for it, or that is not JSON."""
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(LONGEST_HEADER, path.stat().st_size - 8):
            raise BadInput(f"weights: {str(path)!r} is not a safetensors file (header of {length} bytes)")
        try:
            json.loads(file.read(length))
        except (ValueError, RecursionError):
            raise BadInput(f"weights: {str(path)!r} is not a safetensors file (unreadable header)") from None
