"""What the tests share: double precision, compiled programs, the golden runs where there are any, small helpers.

About half of a first session is compilation. Programs are kept in `.xla_cache` for the next one, one directory for each
worker of pytest-xdist, because JAX does not write them atomically. Processes that tests start compile for themselves:
whatever compares their bits with those of this process also compares cached programs with fresh ones.
"""

import json
import os
import warnings
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

from iclflow.models import Model
from iclflow.models.base import KNOWN

jax.config.update("jax_enable_x64", True)
PROGRAMS = Path(__file__).parents[1] / ".xla_cache" / os.environ.get("PYTEST_XDIST_WORKER", "alone")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    jax.config.update("jax_compilation_cache_dir", str(PROGRAMS))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

GOLDEN = Path(os.environ.get("ICLFLOW_GOLDEN", Path(__file__).parents[2] / "shared" / "golden"))
GOLDEN_NAMES = (
    "merged", "merged_icl0", "merged_icl60", "merged_out2", "merged_softmax", "merged_vary_len", "mlp",
    "deep_merged_l2", "deep_merged_l2_looped", "deep_separate_l2", "deep_separate_l3_rank2",
    "separate_rank1", "separate_rank1_out2", "separate_rank2", "separate_rank2_vary_len", "separate_softmax",
)  # fmt: skip


class Golden(NamedTuple):
    """A run of an independent implementation."""

    path: Path
    meta: dict
    arrays: dict[str, np.ndarray]

    @property
    def model(self) -> Model:
        record = KNOWN[self.meta["model"]]
        return record(**{name: self.meta[name] for name in record.model_fields if name in self.meta})

    @property
    def layers(self) -> int:
        return self.meta.get("layers", 1)

    @property
    def engines(self) -> list[str]:
        if self.layers > 1:
            return ["gram", "tokens"]
        return ["tokens"] if self.meta["softmax"] else ["moments", "tokens"]

    def weights(self, prefix: str = "weights.") -> dict[str, np.ndarray]:
        return {name[len(prefix) :]: a for name, a in self.arrays.items() if name.startswith(prefix)}


FIXTURES = sorted(path.stem for path in (Path(__file__).parent / "fixtures").glob("*.npz"))


@pytest.fixture(params=[*GOLDEN_NAMES, *(f"fixture-{name}" for name in FIXTURES)])
def golden(request) -> Golden:
    """The runs of an independent implementation where there are any, and small ones by the slow twin always."""
    path = GOLDEN / f"{request.param}.npz"
    if request.param.startswith("fixture-"):
        path = Path(__file__).parent / "fixtures" / f"{request.param.removeprefix('fixture-')}.npz"
    elif not path.is_file():
        pytest.skip(f"no golden runs at {GOLDEN}; set ICLFLOW_GOLDEN")
    with np.load(path) as file:
        arrays = dict(file)
    return Golden(path, json.loads(str(arrays.pop("meta"))), arrays)


@pytest.fixture
def quiet():
    """For runs whose warnings are not the point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
