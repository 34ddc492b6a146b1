"""A group of arrays in the format Zarr 3, each array as one chunk: the bytes that `xarray.Dataset.to_zarr` writes.

The library takes longer to import than such a file takes to write, so it only reads them.
"""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
from numcodecs.zstd import Zstd

from iclflow.results.labelled import Labelled, Variable

__all__ = ["write_group"]

NAN = base64.standard_b64encode(np.array(np.nan, "<f8").tobytes()).decode()
GROUP = {"attributes": {}, "zarr_format": 3, "node_type": "group"}


def write_group(store: Path, name: str, group: Labelled) -> None:
    """Write a group into a store, which is made where there is none."""
    for folder in (store, store / name):
        folder.mkdir(exist_ok=True)
        (folder / "zarr.json").write_text(json.dumps(GROUP, indent=2))
    for key, variable in group.variables.items():
        along = [c for c, v in group.coords.items() if c not in v.dims and set(v.dims) <= set(variable.dims)]
        described = {} if key in group.coords or not along else {"coordinates": " ".join(sorted(along))}
        write_array(store / name / key, Variable(variable.dims, variable.values, {**variable.attrs, **described}))


def write_array(folder: Path, variable: Variable) -> None:
    """Write an array; one in which every number is the fill value has no chunk."""
    dims, values, attrs = variable
    real = values.dtype.kind == "f"
    chunk = {"name": "regular", "configuration": {"chunk_shape": [max(size, 1) for size in values.shape]}}
    about: dict[str, Any] = {
        "shape": values.shape,
        "data_type": values.dtype.name,
        "chunk_grid": chunk,
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": "NaN" if real else 0,
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "zstd", "configuration": {"level": 0, "checksum": False}},
        ],
        "attributes": {**attrs, **({"_FillValue": NAN} if real else {})},
        **({"dimension_names": dims} if dims else {}),
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
    folder.mkdir()
    (folder / "zarr.json").write_text(json.dumps(about, indent=2))
    if not (np.isnan(values) if real else values == 0).all():
        file = folder.joinpath("c", *("0" for _ in dims))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(Zstd(level=0, checksum=False).encode(np.ascontiguousarray(values)))
