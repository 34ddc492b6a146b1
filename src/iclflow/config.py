"""What to run: a task, a model and a training, as frozen records that refuse bad values at once.

The three share no field name, so the command line, TOML files, `summary.json` and sweep axes all use one
flat set of names (`Experiment.flat`, `Experiment.from_flat`). Nothing here imports JAX: a wrong flag is
refused in a fraction of a second.
"""

import difflib
import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from iclflow.errors import BadInput

__all__ = ["MLP", "Experiment", "Merged", "Model", "Separate", "Task", "Training"]

Numbers = tuple[float, ...]
Matrix = tuple[tuple[float, ...], ...]
SpectrumLike = str | Numbers | Matrix
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]

ALLOWED = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be greater than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_type": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "literal_error": "must be one of {expected}",
}


def one_line(error: ValidationError, names: tuple[str, ...] = ()) -> str:
    """The first complaint of pydantic as `field: value ... what is allowed`."""
    first = error.errors(include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        return unknown(field, names)
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    allowed = ALLOWED.get(first["type"], first["msg"][:1].lower() + first["msg"][1:])
    return f"{field}: {first['input']!r} {allowed.format(**first.get('ctx', {}))}"


def unknown(field: str, names: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(field, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"must be one of {', '.join(names)}"
    return f"{field}: unknown name; {hint}"


class Record(BaseModel):
    """A frozen record whose errors are one line."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise BadInput(one_line(error, tuple(type(self).model_fields))) from None

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated anew; the others keep whether they were given."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**given, **changes})


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


class Task(Record):
    r"""In-context linear regression: tokens $x \sim N(0, \Lambda)$, labels $y = w'x$, one $w$ a sequence.

    `spectrum` gives the token covariance $\Lambda$: `linear` (eigenvalues proportional to D..1, trace 1),
    `white` (I/D), `power:A` ($d^{-A}$, trace 1), eigenvalues, or a matrix. `task_spectrum` gives the
    covariance $\Omega$ of the task vectors in the same way; its named laws have mean eigenvalue 1.
    """

    dim: Count = Field(4, description="token dimension D")
    out_dim: Count = Field(1, description="number of labels O")
    context: Count = Field(31, description="in-context examples N")
    spectrum: SpectrumLike = Field(
        "linear", description="token covariance: linear, white, power:A, v1,v2,.. or FILE.npy"
    )
    basis: Literal["random", "identity"] = Field("random", description="eigenvectors of the covariance")
    task_spectrum: SpectrumLike | None = Field(None, description="task covariance, same forms (default identity)")
    label_noise: float = Field(0.0, ge=0, description="variance of the noise on context labels")
    query_noise: bool = Field(False, description="put the label noise on the query's target too")
    icl_fraction: float = Field(1.0, ge=0, le=1, description="fraction of sequences with a task of their own")
    prefix_loss: bool = Field(False, description="average the loss over all context lengths 1..N")
    normalize: Literal["context", "tokens", "none"] | None = Field(
        None, description="scale of attention: 1/N (default), 1/(N+1), or none"
    )
    task_seed: Seed = Field(0, description="draws the random basis and the in-weight task")

    @field_validator("spectrum", "task_spectrum", mode="before")
    @classmethod
    def _read_spectrum(cls, value: Any, info: Any) -> Any:
        return None if value is None else read_spectrum(info.field_name, value)

    @model_validator(mode="before")
    @classmethod
    def _dim_from_spectrum(cls, values: dict[str, Any]) -> dict[str, Any]:
        if values.get("dim") is None and "spectrum" in values:
            spectrum = read_spectrum("spectrum", values["spectrum"])
            if not isinstance(spectrum, str):
                values = {**values, "spectrum": spectrum, "dim": len(spectrum)}
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for field in ("spectrum", "task_spectrum"):
            value = getattr(self, field)
            if isinstance(value, tuple) and len(value) != self.dim:
                raise ValueError(f"{field}: has {len(value)} directions, must have dim = {self.dim}")
        if is_matrix(self.spectrum) and "basis" in self.model_fields_set:
            raise ValueError("basis: a full covariance matrix brings its own basis; give only one of them")
        if self.query_noise and self.label_noise == 0:
            raise ValueError("query_noise: True needs label_noise > 0")
        if self.prefix_loss and self.label_noise > 0 and not self.query_noise:
            raise ValueError("query_noise: must be on with prefix_loss and label_noise, where every token is a target")
        if self.prefix_loss and self.icl_fraction == 0:
            raise ValueError("prefix_loss: has no meaning with icl_fraction 0, where context labels are random")
        return self


def is_matrix(spectrum: SpectrumLike | None) -> bool:
    return isinstance(spectrum, tuple) and isinstance(spectrum[0], tuple)


class Merged(Record):
    """Attention with one key-query matrix a head."""

    kind: ClassVar[str] = "merged"
    degree: ClassVar[int] = 2
    heads: Count = Field(8, description="number of heads H")
    softmax: bool = Field(False, description="softmax over the tokens instead of a scale")


class Separate(Record):
    """Attention with separate key and query of rank R in every head."""

    kind: ClassVar[str] = "separate"
    degree: ClassVar[int] = 3
    heads: Count = Field(5, description="number of heads H")
    rank: Count = Field(1, description="rank R of key and query")
    softmax: bool = Field(False, description="softmax over the tokens instead of a scale")


class MLP(Record):
    """The two-layer linear network on the cubic feature that merged attention is equal to."""

    kind: ClassVar[str] = "mlp"
    degree: ClassVar[int] = 2
    softmax: ClassVar[bool] = False
    heads: Count = Field(8, description="hidden width H")


Model = Merged | Separate | MLP
MODELS: dict[str, type[Merged] | type[Separate] | type[MLP]] = {m.kind: m for m in (Merged, Separate, MLP)}


class Training(Record):
    """Which data, from which weights, by which rule, for how long."""

    samples: int | float = Field(math.inf, description="training sequences P, or inf for the population")
    whiten: bool = Field(True, description="whiten the sampled task vectors when icl_fraction is 1")
    test_samples: Annotated[int, Field(ge=0)] = Field(0, description="sequences in each test set")
    init: float = Field(1e-2, gt=0, description="scale of the initial weights")
    init_law: Literal["entry", "public", "norm", "aligned", "random"] = Field("entry", description="initial law")
    freeze_vectors: bool = Field(False, description="keep the vector blocks where they start")
    optimizer: Literal["sgd", "momentum", "adam"] = Field("sgd", description="update rule of descent")
    batch: Count | None = Field(None, description="sequences a step (default: all)")
    lr: float | None = Field(None, gt=0, description="learning rate (default: half the stable step)")
    steps: Count | None = Field(None, description="updates of gradient descent")
    time: float | None = Field(None, gt=0, description="length of the gradient flow in t/tau (default: until settled)")
    engine: Literal["auto", "moments", "tokens", "flow"] = Field("auto", description="how to train")
    dtype: Literal["float32", "float64"] = Field("float64", description="precision")
    tolerance: float = Field(1e-9, ge=1e-13, le=1e-3, description="relative tolerance of the flow")
    records: Annotated[int, Field(ge=2, le=100_000)] = Field(200, description="how many times the weights are kept")
    spacing: Literal["log", "even"] = Field("log", description="where they are kept along descent")
    seed: Seed = Field(0, description="draws sample and initial weights")
    seeds: Annotated[int, Field(ge=1, le=100_000)] = Field(1, description="runs: seed, seed+1, ..")
    data_seed: Seed | None = Field(None, description="draws the sample, whatever `seed` says")

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)

    @field_validator("samples", mode="before")
    @classmethod
    def _count_or_inf(cls, value: Any) -> Any:
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"samples: {value!r} must be a whole number of sequences, or inf") from None
        if number == math.inf:
            return math.inf
        if isinstance(value, bool) or not number >= 2 or number != int(number):
            raise ValueError(f"samples: {value!r} must be a whole number of at least 2 sequences, or inf")
        return int(number)

    @field_validator("init", "lr", "time", "tolerance")
    @classmethod
    def _finite(cls, value: float | None, info: Any) -> float | None:
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{info.field_name}: {value!r} must be a finite number")
        return value


class Experiment(Record):
    """A task, a model and a training that go together."""

    task: Task
    model: Merged | Separate | MLP
    training: Training
    data: str | None = None

    @model_validator(mode="after")
    def _together(self) -> Self:
        check_together(self.task, self.model, self.training, self.data)
        return self

    @property
    def population(self) -> bool:
        return self.data is None and self.training.samples == math.inf

    def flat(self) -> dict[str, Any]:
        """Every setting under its one name, ready for JSON."""
        parts = [part.model_dump(mode="json") for part in (self.task, self.model, self.training)]
        flat = {"model": self.model.kind, **parts[0], **parts[1], **parts[2], "data": self.data}
        if self.training.samples == math.inf:
            flat["samples"] = "inf"
        if is_matrix(self.task.spectrum):
            flat["basis"] = None  # the matrix brings its own
        return flat

    @classmethod
    def from_flat(cls, settings: dict[str, Any]) -> "Experiment":
        """The inverse of `flat`; also takes only some of the names, the rest at their defaults."""
        settings = {name: value for name, value in settings.items() if value is not None}
        kind = settings.pop("model", "separate")
        if kind not in MODELS:
            raise BadInput(f"model: {kind!r} must be one of {', '.join(MODELS)}")
        data = settings.pop("data", None)
        kinds = (Task, MODELS[kind], Training)
        known = {name: k for k in kinds for name in k.model_fields}
        parts: dict[type, dict[str, Any]] = {k: {} for k in kinds}
        for name, value in settings.items():
            if name in known:
                parts[known[name]][name] = value
            elif any(name in other.model_fields for other in MODELS.values()):
                raise BadInput(f"{name}: does not apply to model {kind!r}")
            else:
                raise BadInput(unknown(name, ("model", "data", *known)))
        task, model, training = (k(**parts[k]) for k in kinds)
        return cls(task=task, model=model, training=training, data=data)


def check_together(task: Task, model: Model, training: Training, data: str | None) -> None:
    """Refuse combinations that have no meaning, each in one line."""
    complaints = (*model_complaints(task, model, training, data), *engine_complaints(training, data))
    for complaint in complaints:
        raise ValueError(complaint)


def model_complaints(task: Task, model: Model, training: Training, data: str | None) -> Iterator[str]:
    fresh = data is None and training.samples == math.inf
    if isinstance(model, Separate) and model.rank > task.dim:
        yield f"rank: {model.rank} must be at most dim = {task.dim}"
    if model.kind == "mlp" and task.out_dim > 1:
        yield f"out_dim: {task.out_dim} must be 1 for the mlp, whose cubic feature holds one label"
    if model.softmax and training.engine in ("moments", "flow"):
        yield f"engine: {training.engine!r} must be 'tokens' or 'auto' with softmax, which moments cannot express"
    if model.softmax and training.time is not None:
        yield "time: belongs to the flow, which needs moments; softmax takes steps"
    if model.softmax and task.normalize == "context":
        yield "normalize: 'context' must be 'none' or 'tokens' with softmax, which has scale 1"
    if fresh and (training.engine == "tokens" or model.softmax) and training.batch is None:
        yield "batch: fresh samples for the tokens engine need a batch size; or give samples"


def engine_complaints(training: Training, data: str | None) -> Iterator[str]:
    engine = training.engine
    if training.steps is not None and training.time is not None:
        yield "time: belongs to the flow and steps to descent; give one of them"
    if training.time is not None and engine in ("moments", "tokens"):
        yield f"time: belongs to the flow; engine {engine!r} takes steps"
    if engine == "flow" and training.steps is not None:
        yield "steps: belongs to descent; the flow takes time"
    if training.lr is not None and (engine == "flow" or training.time is not None):
        yield "lr: belongs to descent; the flow has none"
    if engine == "flow" and training.optimizer != "sgd":
        yield f"optimizer: {training.optimizer!r} must be 'sgd' with the flow"
    if engine == "flow" and training.dtype == "float32":
        yield "dtype: 'float32' must be 'float64' with the flow"
    if engine in ("moments", "flow") and training.batch is not None:
        yield f"batch: needs engine 'tokens', not {engine!r}"
    if data is None and training.batch is not None and training.batch > training.samples:
        yield f"batch: {training.batch} must be at most samples = {training.samples}"
    if data is not None and training.samples != math.inf:
        yield "samples: come from the data file; do not give both"
    if data is not None and training.test_samples > 0:
        yield "test_samples: come from the data file; do not give both"
