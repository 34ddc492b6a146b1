"""What is really in a file, read by hand: these share no code with the package's readers, and forgive nothing."""

import ast
import csv
import io
import json
import struct
import tomllib
import zipfile
from pathlib import Path

import numpy as np

Numbers = dict[str, np.ndarray]
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1", "I8": "i1", "U64": "<u8"}


def array(content: bytes) -> np.ndarray:
    """An array as NumPy's format describes it."""
    length = struct.unpack("<H", content[8:10])[0] if content[6] == 1 else struct.unpack("<I", content[8:12])[0]
    begin = 10 if content[6] == 1 else 12
    header = ast.literal_eval(content[begin : begin + length].decode("latin1"))
    numbers = np.frombuffer(content[begin + length :], dtype=np.dtype(header["descr"]))
    return numbers.reshape(header["shape"], order="F" if header["fortran_order"] else "C")


def archive(path: Path) -> Numbers:
    """The arrays of an `.npz` file."""
    with zipfile.ZipFile(path) as found:
        return {name.removesuffix(".npy"): array(found.read(name)) for name in found.namelist()}


def tensors(path: Path) -> Numbers:
    """The arrays of a safetensors file."""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    data, found = content[8 + length :], {}
    for name, about in header.items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            found[name] = np.frombuffer(data[begin:end], TYPES[about["dtype"]]).reshape(about["shape"])
    return found


def weights(path: Path) -> Numbers:
    """What training starts from: the arrays under `weights.`, or else all of them."""
    every = archive(path) if path.suffix == ".npz" else tensors(path)
    named = {name.removeprefix("weights."): a for name, a in every.items() if name.startswith("weights.")}
    return named if "value" in named else every


def spectrum(path: Path) -> Numbers:
    """Eigenvalues, or the symmetric part of a matrix."""
    found = array(path.read_bytes()).astype(float)
    return {"spectrum": found if found.ndim == 1 else (found + found.T) / 2}


def table(path: Path) -> Numbers:
    """The columns of a CSV file, as Python reads numbers."""
    rows = list(csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")))
    names, rows = rows[0], [row for row in rows[1:] if row]
    return {name: np.array([float(row[i]) for row in rows]) for i, name in enumerate(names)}


def rows(path: Path) -> Numbers:
    """The first column of a text file, one row per epoch, after comments."""
    lines = path.read_bytes().decode().splitlines()
    while lines and lines[0].lstrip().startswith("#"):
        lines.pop(0)
    return {"loss": np.array([float(line.split()[0]) for line in lines if line.strip()])}


def settings(path: Path) -> dict[str, object]:
    """What a file of settings states."""
    return tomllib.loads(path.read_bytes().decode())


def same(read: object, stated: object) -> bool:
    """Whether a setting means what a file states; true is no number."""
    if isinstance(read, list | tuple) and isinstance(stated, list | tuple):
        return len(read) == len(stated) and all(map(same, read, stated))
    if isinstance(stated, bool) and not isinstance(read, bool):
        return False
    try:
        return float(read) == float(stated)
    except (TypeError, ValueError):
        return read == stated
