"""The contract of a model: what every model offers, and what it may offer on top.

A model is a frozen record of settings with methods. Built-in models and a user's own go through the same door.

| offer | needed for |
| --- | --- |
| typed fields with defaults | files, sweeps, the command line |
| `shapes`, and `axes` if the axes have names | initial weights, files, labels |
| `predict`, one sequence | the tokens engine and the probe |
| optional: `theta` and `pull_back` | the moments engine and the flow |
| optional: `gram`, from a Gram matrix and a query | the gram engine, and the flow on it |
| optional: `reduced` | theory, the probe's table of heads, figures |
| optional: `balanced` | the default learning rate and the end of a run |
| optional: `aligned` and further `laws` | initial laws |
| optional: `theory`, a class of `prediction.regimes` | `predict` and `compare` |

What a model does not offer is refused by its name. Nothing here imports JAX.
"""

import difflib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from iclflow.config import Task, Training
from iclflow.config.record import Record
from iclflow.data.features import Blocks
from iclflow.errors import BadInput

if TYPE_CHECKING:
    from iclflow.models.reduced import Reduced
    from iclflow.prediction.regimes.regime import Regime

__all__ = ["KNOWN", "Model", "Unknown", "Weights", "check_order", "import_model", "model_named", "shape_complaints"]

Weights = dict[str, Any]  # arrays of NumPy or JAX by name
Where = dict[str, Any]  # an index into each of some arrays
Shapes = dict[str, tuple[int, ...]]

NEEDED = ("shapes", "predict")
PLAIN = (bool, int, float, str, list, tuple, dict)  # what a field may hold
TAKEN = ("model", "data", *Task.model_fields, *Training.model_fields)  # names of other settings
KNOWN: dict[str, type["Model"]] = {}  # every model class of this process, by its name in files


class Model(Record):
    """A model that iclflow can train. Subclass it, or see `docs/how-to/new-model.md`.

    >>> class Bilinear(Model):
    ...     scale: float = 1.0
    ...     def shapes(self, task):
    ...         return {"U": (task.dim, task.dim)}
    ...     def predict(self, weights, sequence, task):
    ...         x, y = sequence[:, : task.dim], sequence[:, task.dim :]
    ...         return self.scale * y.T @ (x @ weights["U"] @ x[-1]) / len(x)
    >>> Bilinear(scale=2.0).shapes(Task(dim=3))
    {'U': (3, 3)}
    """

    kind: ClassVar[str] = "model"  # the name in files: of a user's own class its import path
    axes: ClassVar[dict[str, tuple[str, ...]]] = {}  # names of the axes of the arrays
    laws: ClassVar[tuple[str, ...]] = ("entry", "random")  # initial laws
    one_by_one: ClassVar[bool] = False  # whether directions are learned one after another

    def __init__(self, **values: Any) -> None:
        for name in NEEDED:
            if not self.offers(name):
                signature = "shapes(self, task) and predict(self, weights, sequence, task)"
                raise BadInput(f"model: {type(self).__name__!r} has no method {name}; a model needs {signature}")
        super().__init__(**values)

    def __init_subclass__(cls, **options: Any) -> None:
        typed = {name for base in cls.__mro__ for name in vars(base).get("__annotations__", {})}
        for name, value in vars(cls).items():
            if not isinstance(value, PLAIN) or name.startswith("_") or name in typed:
                continue
            if name in NEEDED:
                raise BadInput(f"{name}: must be a method of class {cls.__name__}, not {value!r:.60}")
            if hasattr(Model, name):
                continue
            written = f"{name}: {type(value).__name__} = {value!r:.40}"
            raise BadInput(f"{name}: a field of model {cls.__name__!r} needs a type; write {written}")
        super().__init_subclass__(**options)

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        for field in cls.model_fields:
            if field in TAKEN:
                raise BadInput(f"{field}: is a setting of its own and cannot be a field of model {cls.__name__!r}")
        if "kind" not in vars(cls):
            cls.kind = f"{cls.__module__}:{cls.__qualname__}"
        if all(cls.offers(name) for name in NEEDED):
            KNOWN[cls.kind] = cls

    @classmethod
    def offers(cls, name: str) -> bool:
        """Whether the class defines a method of the contract itself."""
        return getattr(cls, name) is not getattr(Model, name)

    # --- every model ------------------------------------------------------------------------------------------------

    def shapes(self, task: Task) -> Shapes:
        """The shape of every array of weights."""
        raise NotImplementedError

    def predict(self, weights: Weights, sequence: Any, task: Task) -> Any:
        """The labels (O,) of the last token of one sequence (n+1, D+O), whose own labels are 0."""
        raise NotImplementedError

    # --- what has a default -----------------------------------------------------------------------------------------

    def predict_prefixes(self, weights: Weights, sequence: Any, task: Task) -> Any:
        """The labels (N, O) of every token behind the first, each as the query of the tokens before it."""
        import jax.numpy as jnp

        prefixes = (sequence[: n + 1].at[n, task.dim :].set(0) for n in range(1, sequence.shape[0]))
        return jnp.stack([self.predict(weights, prefix, task) for prefix in prefixes])

    def trained(self, task: Task, blocks: Blocks) -> Where:
        """The part of each array that can reach the prediction; the rest has no gradient."""
        return dict.fromkeys(self.shapes(task), ...)

    def vectors(self, task: Task, last_only: bool = False) -> Where:
        """The vector blocks among these, which theory keeps at zero (`last_only`: those of the last output)."""
        return {}

    def normalize(self, task: Task) -> str:
        """The scale in front of the sum over tokens: context, tokens or none."""
        return task.normalize or "context"

    def components(self, task: Task) -> int:
        """How many directions the model can hold."""
        return task.dim

    def spans_all_blocks(self, task: Task) -> bool:
        """Whether some weights give any coefficients over all blocks."""
        return False

    def compiled_for(self, task: Task) -> Task:
        """The settings of the task that `predict` reads; runs that agree in them share a compiled program."""
        return task

    def complaints(self, task: Task) -> Iterator[str]:
        """Why the model cannot be trained on a task, one line each."""
        yield from ()

    def public_divisor(self, size: int) -> float:
        """By what the law `public` divides the scale of an array of so many entries."""
        return 1.0

    def axis_names(self) -> dict[str, tuple[str, ...]]:
        """The names of the axes of the arrays, where they have names."""
        return self.axes

    def head_axis(self, name: str) -> int | None:
        """Which axis of an array counts heads."""
        axes = self.axis_names().get(name, ())
        return axes.index("head") if "head" in axes else None

    def head_count(self, task: Task) -> int:
        """How many heads there are; 1 where the axes of the arrays name none."""
        shapes = self.shapes(task)
        counts = [shapes[name][axis] for name in shapes if (axis := self.head_axis(name)) is not None]
        return counts[0] if counts else 1

    def describe(self) -> str:
        """A few words for titles and tables."""
        return ", ".join([type(self).__name__, *(f"{name} {value}" for name, value in self)])

    def title(self) -> str:
        """The same with the sizes."""
        return self.describe()

    @property
    def degree(self) -> int | None:
        """The degree of a layer's output as a homogeneous function of its weights; `None` where it is not one."""
        return None

    @property
    def linear(self) -> bool:
        """Whether the prediction is linear in coefficients `theta`, so that moments of the data are enough."""
        return self.offers("theta") and self.offers("pull_back")

    @property
    def has_gram(self) -> bool:
        """Whether the prediction follows from the Gram matrix of the context and the query."""
        return self.offers("gram")

    # --- optional ---------------------------------------------------------------------------------------------------

    def theta(self, trained: Weights) -> Any:
        r"""The coefficients $\Theta$ (O, A, B, D) of a linear model, from the trained part of its weights."""
        raise self.lacks("moments", "use engine 'tokens'")

    def pull_back(self, trained: Weights, slope: Any) -> Weights:
        r"""The gradient of the weights from $\partial L/\partial\Theta$."""
        raise self.lacks("moments", "use engine 'tokens'")

    def gram(self, weights: Weights, gram: Any, query: Any, task: Task) -> Any:
        r"""The labels (O,) from $S = \sum_n z_nz_n'$ (E, E) over the context and the query (E,), whose labels are 0."""
        raise self.lacks("Gram form", "use engine 'tokens'")

    def reduced(self, weights: Weights, task: Task) -> "Reduced":
        """Value weights and key-query matrices of every head, in the units of the weights."""
        raise self.lacks("heads", "only models with `reduced` have them")

    def balanced(self, A: Float[np.ndarray, "D D"], task: Task) -> Weights:
        r"""Balanced weights that compute $\hat y_o = \beta_o' A x_q$, all else zero."""
        raise self.lacks("balanced weights", "give lr and steps")

    def aligned(
        self, task: Task, init: float, basis: Float[np.ndarray, "D D"], drive: Float[np.ndarray, "D D"]
    ) -> Weights:
        """Weights along the leading eigenvectors, balanced, all else zero."""
        raise self.lacks("aligned weights", f"init_law must be one of {', '.join(self.laws)}")

    def linear_twin(self) -> "Model | None":
        """The linear model of the same shape, which sizes learning rate and length of a run."""
        return self if self.linear and self.offers("balanced") else None

    def theory(self, task: Task) -> "type[Regime] | None":
        """The regime of theory that predicts the loss curve, or none."""
        return None

    def enlarged(self, heads: int, dim: int) -> "Model | None":
        """The model with room for so many heads and directions, if zeros around its weights leave it the same."""
        return None

    @classmethod
    def fields_of(cls, weights: Weights) -> dict[str, int]:
        """The fields that the shapes of the weights determine."""
        return {}

    @classmethod
    def dim_of(cls, weights: Weights, out_dim: int) -> int | None:
        """The token dimension that the shapes of the weights tell; `None` if they tell nothing."""
        return None

    def lacks(self, what: str, instead: str) -> BadInput:
        """The error for something that this model does not offer."""
        return BadInput(f"model: {self.kind!r} has no {what}; {instead}")


class Unknown(Model):
    """A model whose class this process does not know: its curves and weights can be read, nothing more."""

    name: str
    settings: dict[str, Any]

    def describe(self) -> str:
        """Its name; its settings are not understood here."""
        return self.name

    def shapes(self, task: Task) -> Shapes:
        raise self.missing()

    def predict(self, weights: Weights, sequence: Any, task: Task) -> Any:
        raise self.missing()

    def missing(self) -> BadInput:
        return BadInput(not_known(self.name))


del KNOWN[Unknown.kind]


def not_known(name: str) -> str:
    """Why a model's class cannot be had, and what to do."""
    module, _, attribute = name.partition(":")
    if module == "__main__":
        return f"model: {name!r} was defined in a script or notebook; put class {attribute} into a file of its own"
    here = f"import {module} first, or give the class, model={attribute} (command line: --model {name})"
    return f"model: {name!r} is not known here; {here}"


def shape_complaints(model: Model, task: Task) -> Iterator[str]:
    """What is wrong with the shapes that a model states, in one line."""
    example = f"must return shapes by name, such as {{'U': ({task.dim}, {task.dim})}}"
    try:
        shapes = model.shapes(task)
    except Exception as error:  # a user's method can raise anything
        yield f"model: {model.kind!r} cannot say its shapes ({type(error).__name__}: {error!s:.100})"
        return
    if not isinstance(shapes, dict) or not shapes:
        yield f"model: shapes of {model.kind!r} are {shapes!r:.60}, {example}"
        return
    for name, shape in shapes.items():
        if not isinstance(shape, tuple) or not all(isinstance(n, int | np.integer) and n > 0 for n in shape):
            yield f"model: {model.kind!r} gives {name!r} the shape {shape!r:.60}, {example}"


def check_order(task: Any, model: Any) -> None:
    """Refuse what is not a task or not a model, in a line that says what to write instead.

    Args:
        task: a `Task`, or `None`.
        model: a model, or `None`.

    Raises:
        BadInput: one of them is something else.
    """
    if isinstance(task, Model):
        raise BadInput(f"task: {type(task).__name__}(..) is a model; the task comes first, then the model")
    if task is not None and not isinstance(task, Task):
        raise BadInput(f"task: {task!r:.60} must be an icl.Task, such as icl.Task(dim=4, context=31)")
    if model is None or isinstance(model, Model):
        return
    if isinstance(model, type) and issubclass(model, Model):
        raise BadInput(f"model: {model.__name__} is a class; write {model.__name__}()")
    if isinstance(model, str) and (names := difflib.get_close_matches(model.lower(), KNOWN, n=1)):
        raise BadInput(f"model: {model!r} must be a model; write icl.{KNOWN[names[0]].__name__}()")
    if callable(model):
        name = getattr(model, "__name__", type(model).__name__)
        wrap = "wrapped into a class Mine(icl.Model) with methods shapes and predict (docs/how-to/new-model.md)"
        raise BadInput(f"model: {name!r} must be {wrap}")
    raise BadInput(f"model: {model!r:.60} must be a model, such as icl.Separate(heads=5)")


def model_named(name: Any) -> type[Model]:
    """The class with this name, among those that were imported; nothing is imported here."""
    found = KNOWN.get(str(name))
    if found is not None:
        return found
    if ":" in str(name):
        raise BadInput(not_known(str(name)))
    built_in = [kind for kind in KNOWN if ":" not in kind]
    raise BadInput(f"model: {name!r} must be one of {', '.join(built_in)}, or module:Class of your own")


def import_model(name: str, here: str | None = None) -> type[Model]:
    """The class `module:Class`, imported from `here`, the working directory by default, or from the path.

    Built-in models, and classes that are known already, need no import.
    """
    module, colon, attribute = name.partition(":")
    if not colon or name in KNOWN or module == "__main__":
        return model_named(name)
    here = str(Path.cwd()) if here is None else here
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        raise BadInput(f"model: cannot import {name!r} ({' '.join(str(error).split())[:150]})") from None
    if not (isinstance(found, type) and issubclass(found, Model)):
        raise BadInput(f"model: {name!r} must be a subclass of iclflow.Model")
    return found
