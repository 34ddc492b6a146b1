"""What the tests share: double precision, compiled programs, the golden runs where there are any, small helpers.

Compilation would be two thirds of a first session, so programs are compiled with few optimisations, here and in the
processes that tests start. They are kept in `.xla_cache`, for all workers of pytest-xdist and for the next session.
JAX does not write them atomically: one that is read half written is compiled again, with a warning that does not count.
Other processes compile for themselves: whatever compares their bits with those of this process also compares cached
programs with fresh ones.

Annotations are checked at run time (`tests/checked.py`), but not in tests of whole runs, which call little that others
do not and spend a third of their time on it.
"""

import compileall
import gc
import json
import os
import warnings
from pathlib import Path
from typing import NamedTuple

import jax
import jaxtyping
import numpy as np
import pytest
import threadpoolctl

import checked  # before the package: it decides how functions are checked
from iclflow.models import Model
from iclflow.models.base import KNOWN

QUICK = ("backend_optimization_level=0", "cpu_use_fusion_emitters=false", "cpu_parallel_codegen_split_count=1")
os.environ.setdefault("XLA_FLAGS", " ".join(f"--xla_{flag}" for flag in QUICK))  # read at the first program
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # there are as many workers as cores; for the processes they start
threadpoolctl.threadpool_limits(1, "blas")
jax.config.update("jax_enable_x64", True)
PROGRAMS = Path(__file__).parents[1] / ".xla_cache"
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    jax.config.update("jax_compilation_cache_dir", str(PROGRAMS))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # it would put the directory into every name

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


WHOLE_RUNS = ("studies", "explorer", "test_notebooks", "test_readme")


@pytest.fixture(autouse=True, scope="module")
def checks(request):
    """Check annotations at run time where parts are tested, and not where whole runs are."""
    whole = any(part in WHOLE_RUNS for part in (request.path.stem, request.path.parent.name))
    jaxtyping.config.update("jaxtyping_disable", whole)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def counted():
    """Annotations are checked at the first calls of every function in every test."""
    checked.CALLS.clear()


def pytest_configure(config):
    """Processes that tests start find the package's bytecode, as after an installation."""
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(__file__).parents[1] / "src", quiet=1)


def pytest_collection_finish():
    """What is there before the first test stays: looking through it for garbage takes a tenth of the time of tests."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture
def quiet():
    """For runs whose warnings are not the point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
