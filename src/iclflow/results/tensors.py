"""Named arrays on disk: written as safetensors, read from safetensors or npz, never from a pickle.

The size of a file is checked before it is read, so that neither a long header nor an archive that unpacks to far more
than its own size takes up memory.
"""

import json
import math
import struct
import zipfile
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
from safetensors import SafetensorError

from iclflow.data.own import first_line, open_npz
from iclflow.errors import BadInput

__all__ = ["SUFFIXES", "read_metadata", "read_tensors", "refuse_oversized", "write_tensors"]

SUFFIXES = (".safetensors", ".npz")
LONGEST_HEADER = 16 * 2**20  # bytes; the header of a file with thousands of tensors is far shorter
LONGEST_ARRAY_HEADER = 10_000  # bytes, of an array in an npz file
MOST_BYTES = 512 * 2**20  # of weights from a file of the user


def write_tensors(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> None:
    """Save arrays, made contiguous first, because the library silently mangles arrays that are not."""
    contiguous = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    path.write_bytes(safetensors.numpy.save(contiguous, metadata))  # the library's own files are unreadable to others


def read_metadata(path: Path) -> dict[str, str]:
    """What a safetensors file says of its arrays."""
    with safetensors.safe_open(str(path), "numpy") as file:
        return file.metadata() or {}


def read_tensors(path: str) -> dict[str, np.ndarray]:
    """All arrays of a file."""
    if path.endswith(".npz"):
        return open_npz(path, "weights")
    if not Path(path).is_file():
        raise BadInput(f"weights: {path!r} must be an existing .safetensors or .npz file")
    check_header(Path(path))
    try:
        return safetensors.numpy.load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
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


def refuse_oversized(path: Path) -> None:
    """Refuse a file that states a size above `MOST_BYTES`, before it is unpacked."""
    if not path.is_file():
        raise BadInput(f"weights: {str(path)!r} must be an existing file")
    size = path.stat().st_size
    if path.suffix == ".npz":
        try:
            with zipfile.ZipFile(path) as archive:
                size = max(size, sum(entry.file_size for entry in archive.infolist()))
                if size <= MOST_BYTES:
                    for entry in archive.infolist():
                        refuse_false_header(archive, entry)
        except BadInput as error:
            raise BadInput(f"weights: {str(path)!r} {error}") from None
        except Exception as error:  # a damaged archive can raise almost anything
            raise BadInput(f"weights: cannot read {str(path)!r} as npz ({type(error).__name__})") from None
    if size > MOST_BYTES:
        raise BadInput(f"weights: {str(path)!r} holds {size / 2**20:.0f} MiB, must be at most {MOST_BYTES // 2**20}")


def refuse_false_header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Refuse an array whose size differs from that in its header, or whose header is long or names Python objects."""
    with archive.open(entry) as member:
        start = member.read(12)
        major, length = start[6:7], int.from_bytes(start[8:10] if start[6:7] == b"\x01" else start[8:12], "little")
    if start[:6] != b"\x93NUMPY" or major not in (b"\x01", b"\x02") or length > LONGEST_ARRAY_HEADER:
        raise BadInput(f"has {entry.filename!r}, which is not an array")
    with archive.open(entry) as member:
        np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if major == b"\x01" else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(member)
        if dtype.hasobject:
            raise BadInput(f"has {entry.filename!r} of Python objects, which are never loaded")
        if member.tell() + math.prod(shape) * dtype.itemsize != entry.file_size:
            raise BadInput(f"has {entry.filename!r}, whose size is not that of its shape {shape}")
