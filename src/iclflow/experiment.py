"""A task, a model and a training that go together.

The three share no field name, so the command line, TOML files, `summary.json` and sweep axes all use one flat set of
names (`Experiment.flat`, `Experiment.from_flat`). Nothing here imports JAX: a wrong flag is refused in a fraction of a
second.
"""

import math
from collections.abc import Iterator
from typing import Any, Self

from pydantic import SerializeAsAny, model_validator

from iclflow.config import Task, Training
from iclflow.config.record import Record, unknown
from iclflow.config.spectra import is_matrix
from iclflow.config.training import GIVEN
from iclflow.errors import BadInput
from iclflow.models import Model, Separate
from iclflow.models.base import KNOWN, Unknown, model_named, shape_complaints

__all__ = ["Experiment", "Setup", "parts_by_name"]


class Setup(Record):
    """A task, a model and a training that go together, for however long; `data` names a user's own sequences."""

    task: Task
    model: SerializeAsAny[Model]
    training: Training
    data: str | None = None

    @model_validator(mode="after")
    def _together(self) -> Self:
        for complaint in self.complaints():
            raise ValueError(complaint)
        return self

    def complaints(self) -> Iterator[str]:
        """What contradicts itself, each in one line."""
        yield from model_complaints(self)
        yield from engine_complaints(self.training, self.data)

    @property
    def population(self) -> bool:
        """Whether training sees the law of the task itself, not a sample of it."""
        return self.data is None and self.training.samples == math.inf

    @property
    def on_grams(self) -> bool:
        """Whether Gram matrices of the contexts and the queries are all that training needs, and it may use them."""
        plain = not self.task.prefix_loss and self.task.icl_fraction == 1
        return self.model.has_gram and plain and self.training.engine != "tokens"

    def flat(self) -> dict[str, Any]:
        """Every setting under its one name, ready for JSON."""
        task, model, training = (part.model_dump(mode="json") for part in (self.task, self.model, self.training))
        kind = self.model.kind
        if isinstance(self.model, Unknown):
            kind, model = self.model.name, self.model.settings
        flat = {"model": kind, **task, **model, **training, "data": self.data}
        if self.training.samples == math.inf:
            flat["samples"] = "inf"
        if is_matrix(self.task.spectrum):
            flat["basis"] = None  # the matrix brings its own
        return flat

    @classmethod
    def from_flat(cls, settings: dict[str, Any], model: type[Model] | None = None) -> Self:
        """The inverse of `flat`; also takes only some of the names, the rest at their defaults.

        Args:
            settings: values by name; `None` counts as not given.
            model: the class of the model, where its name alone would not be enough to find it.
        """
        return cls(**parts_by_name(settings, model))

    @classmethod
    def from_file(cls, settings: dict[str, Any], model: type[Model] | None = None) -> Self:
        """As `from_flat`, but a model whose class is not known here is kept as `Unknown`: opening imports nothing."""
        kind = str(settings.get("model"))
        if model is not None or ":" not in kind or kind in KNOWN:
            return cls.from_flat(settings, model)
        others = {"model", "data", *Task.model_fields, *Training.model_fields}
        own = {name: value for name, value in settings.items() if name not in others}
        rest = cls.from_flat({name: value for name, value in settings.items() if name in others - {"model"}})
        return rest.replace(model=Unknown(name=kind, settings=own))


class Experiment(Setup):
    """A setup that says all that is needed to carry it out."""

    def complaints(self) -> Iterator[str]:
        """Also what is missing: a length, a rate, or sequences to draw."""
        yield from super().complaints()
        yield from length_complaints(self)


def parts_by_name(settings: dict[str, Any], model: type[Model] | None = None) -> dict[str, Any]:
    """Task, model, training and data from flat settings, each checked alone."""
    settings = {name: value for name, value in settings.items() if value is not None}
    kind = settings.pop("model", Separate.kind)
    record = model_named(kind) if model is None else model
    data = settings.pop("data", None)
    kinds = (Task, record, Training)
    known = {name: k for k in kinds for name in k.model_fields}
    parts: dict[type[Record], dict[str, Any]] = {k: {} for k in kinds}
    for name, value in settings.items():
        if name in known:
            parts[known[name]][name] = value
        elif any(name in other.model_fields for other in KNOWN.values()):
            raise BadInput(f"{name}: does not apply to model {kind!r}")
        else:
            raise BadInput(unknown(name, ("model", "data", *known)))
    task, training = Task(**parts[Task]), Training(**parts[Training])
    return {"task": task, "model": record(**parts[record]), "training": training, "data": data}


def model_complaints(experiment: Setup) -> Iterator[str]:
    """What a model cannot be asked for, each in one line."""
    task, model, training = experiment.task, experiment.model, experiment.training
    if isinstance(model, Unknown):
        return
    yield from model.complaints(task)
    yield from shape_complaints(model, task)
    grams, engine = experiment.on_grams, training.engine
    if not model.linear and (engine == "moments" or (engine == "flow" and not grams)):
        others = "'gram', 'tokens'" if grams else "'tokens'"
        yield f"engine: {engine!r} must be {others} or 'auto' with {model.describe()}, which has no moments"
    if engine == "gram" and not model.has_gram:
        yield f"engine: 'gram' has no meaning with {model.describe()}, which has no Gram form"
    if engine == "gram" and not grams:
        yield "engine: 'gram' needs sequences with tasks of their own and the loss of the full context; use 'tokens'"
    if not model.linear and not grams and training.time is not None:
        yield f"time: belongs to the flow, which needs moments; {model.describe()} takes steps"
    if training.init_law not in model.laws:
        yield f"init_law: {training.init_law!r} must be one of {', '.join(model.laws)} for model {model.kind!r}"
    if training.optimizer == "muon" and all(len(shape) < 2 for shape in model.shapes(task).values()):
        yield f"optimizer: 'muon' needs matrices, which model {model.kind!r} does not have"


def engine_complaints(training: Training, data: str | None) -> Iterator[str]:
    engine = training.engine
    if training.steps is not None and training.time is not None:
        yield "time: belongs to the flow and steps to descent; give one of them"
    if training.time is not None and engine in ("moments", "tokens"):
        yield f"time: belongs to the flow; engine {engine!r} takes steps"
    if engine == "flow" and training.steps is not None:
        yield "steps: belongs to descent; the flow takes time"
    if training.time is not None and training.batch is not None:
        yield "batch: belongs to descent; the flow sees all sequences"
    if training.lr is not None and (engine == "flow" or training.time is not None):
        yield "lr: belongs to descent; the flow has none"
    if (engine == "flow" or training.time is not None) and training.optimizer != "sgd":
        yield f"optimizer: {training.optimizer!r} must be 'sgd' with the flow"
    if training.optimizer.startswith(GIVEN) and training.lr is not None:
        yield "lr: belongs to the optimiser that was given, which brings its own"
    if training.optimizer.startswith(GIVEN) and training.weight_decay > 0:
        yield "weight_decay: belongs to the optimiser that was given; use optax.add_decayed_weights"
    if training.beta != Training.model_fields["beta"].default and training.optimizer == "sgd":
        yield "beta: belongs to momentum, adam and muon; sgd has none"
    if (engine == "flow" or training.time is not None) and training.dtype == "float32":
        yield "dtype: 'float32' must be 'float64' with the flow"
    if engine in ("moments", "flow") and training.batch is not None:
        yield f"batch: needs engine 'tokens' or 'gram', not {engine!r}"
    if data is None and training.batch is not None and training.batch > training.samples:
        yield f"batch: {training.batch} must be at most samples = {training.samples}"
    if data is not None and training.samples != math.inf:
        yield "samples: come from the data file; do not give both"
    if data is not None and training.test_samples > 0:
        yield "test_samples: come from the data file; do not give both"


def length_complaints(experiment: Experiment) -> Iterator[str]:
    """What a training needs beyond a forecast of it."""
    task, model, training = experiment.task, experiment.model, experiment.training
    grams, engine = experiment.on_grams, training.engine
    if isinstance(model, Unknown):
        return
    if experiment.population and (engine == "tokens" or not (model.linear or grams)) and training.batch is None:
        yield "batch: fresh samples for the tokens engine need a batch size; or give samples"
    if experiment.population and task.prefix_loss and task.icl_fraction == 0:
        yield "samples: must be given for prefix_loss with icl_fraction 0, where context labels are random targets"
    if model.linear_twin() is None:
        forecast = model.theory(task) is not None and not training.descends  # the flow then knows when to end
        if training.time is None and training.steps is None and not forecast:
            yield f"steps: must be given for model {model.kind!r}, of which no theory says when it has settled"
        if training.time is None and training.lr is None and not forecast and training.optimizer in ("sgd", "momentum"):
            yield f"lr: must be given for model {model.kind!r}, whose stable step is not known"
    descends = training.descends or training.batch is not None or engine in ("moments", "tokens")
    if training.weight_decay > 0 and training.steps is None and descends:
        yield "steps: must be given with weight_decay (or time for the flow), whose end no lowest loss marks"
    if training.optimizer.startswith(GIVEN) and training.steps is None:
        yield "steps: must be given with an optimiser of your own"
