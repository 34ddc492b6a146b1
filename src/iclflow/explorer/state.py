"""What is on screen, as one record: read from controls or a URL, written as a URL, a command and Python code.

Whatever arrives from a browser passes through `State.read`: unknown names are dropped, values that are not numbers
become the default, and numbers are clamped to their range. So every state can be computed.
"""

import math
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import parse_qsl, urlencode

from iclflow.experiment import Experiment

__all__ = ["CHOICES", "DEEP_DIM", "DEEP_HEADS", "EIGENVALUE", "GRAMS", "LARGEST_SMALL", "RANGES", "SMALL_STEPS",
           "State", "clamped", "falling"]  # fmt: skip

CHOICES = {
    "model": ("separate", "merged"),
    "spectrum": ("linear", "white", "power", "free"),
    "rule": ("flow", "descent"),
    "data": ("population", "sample"),
    "tasks": ("equal", "power"),
    "normalize": ("context", "tokens", "none"),
    "optimizer": ("sgd", "momentum", "adam", "muon"),
}
RANGES: dict[str, tuple[float, float]] = {
    "dim": (2, 16),
    "context": (1, 512),
    "heads": (1, 20),
    "rank": (1, 16),
    "exponent": (0, 3),
    "log_init": (-4, 0.5),
    "log_lr": (-4, 1),
    "noise": (0, 4),
    "task_exponent": (-2, 2),
    "log_samples": (2, 5),
    "seeds": (1, 20),
    "seed": (0, 10_000),
    "layers": (1, 3),
    "log_decay": (-5, 0),
    "log_length": (2, 5),
}
WHOLE = ("dim", "context", "heads", "rank", "seeds", "seed", "layers")
EIGENVALUE = (0.01, 1.0)
DEEP_DIM, DEEP_HEADS = 3, 6  # the largest for which several layers are trained in seconds
GRAMS = 256  # Gram matrices that stand for the population of several layers
SMALL_STEPS = ("adam", "muon")  # rules that move weights by the learning rate itself
LARGEST_SMALL = -2.0  # the largest `log_lr` of these
LONGEST_QUERY = 4000  # characters


@dataclass(frozen=True)
class State:
    """The values of all controls."""

    model: str = "separate"
    heads: int = 5
    rank: int = 1
    dim: int = 4
    context: int = 31
    spectrum: str = "linear"
    exponent: float = 1.0
    eigenvalues: tuple[float, ...] = ()  # of the free spectrum, `dim` of them
    log_init: float = -2.0
    rule: str = "flow"
    log_lr: float = -1.0
    noise: float = 0.0
    tasks: str = "equal"
    task_exponent: float = 0.5
    data: str = "population"
    log_samples: float = 3.7
    seeds: int = 3
    seed: int = 0
    normalize: str = "context"
    optimizer: str = "sgd"
    layers: int = 1
    log_decay: float = -5.0  # its lowest value means none
    log_length: float = 4.0  # of runs whose end no lowest loss marks

    # --- in ---------------------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, values: dict[str, Any]) -> "State":
        """The state nearest to the given values, whatever they are."""
        taken: dict[str, Any] = {}
        for field in fields(cls):
            value = values.get(field.name)
            if field.name in CHOICES:
                taken[field.name] = value if value in CHOICES[field.name] else field.default
            elif field.name in RANGES:
                taken[field.name] = clamped(field.name, value, field.default)
        taken["rank"] = min(taken["rank"], taken["dim"])
        taken["eigenvalues"] = read_eigenvalues(values.get("eigenvalues"), taken)
        if taken["dim"] > DEEP_DIM:
            taken["layers"] = 1
        if taken["layers"] > 1:
            taken |= {"data": "population", "heads": min(taken["heads"], DEEP_HEADS)}
            taken["normalize"] = "context" if taken["normalize"] == "tokens" else taken["normalize"]
        if taken["optimizer"] in SMALL_STEPS:
            taken["log_lr"] = min(taken["log_lr"], LARGEST_SMALL)
        # The flow of a sample would have to be compiled for every shape, and that of several layers takes minutes.
        if taken["data"] == "sample" or taken["layers"] > 1 or taken["optimizer"] != "sgd":
            taken["rule"] = "descent"
        return cls(**taken)

    @classmethod
    def from_query(cls, query: object) -> "State":
        """The state in the query part of a URL."""
        text = query if isinstance(query, str) else ""
        return cls.read(dict(parse_qsl(text.lstrip("?")[:LONGEST_QUERY], max_num_fields=60)))

    # --- out --------------------------------------------------------------------------------------------------------

    def to_query(self) -> str:
        """The query part of a URL, with the fields that differ from their defaults."""
        changed = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        if "eigenvalues" in changed:
            changed["eigenvalues"] = ",".join(f"{x:g}" for x in self.eigenvalues)
        return "?" + urlencode(changed) if changed else ""

    @property
    def init(self) -> float:
        """The initial scale, in two digits."""
        return float(f"{10**self.log_init:.2g}")

    @property
    def lr(self) -> float:
        """The learning rate, in two digits."""
        return float(f"{10**self.log_lr:.2g}")

    @property
    def samples(self) -> int | float:
        """The number of sequences, infinite for the population."""
        return int(float(f"{10**self.log_samples:.2g}")) if self.data == "sample" else math.inf

    @property
    def weight_decay(self) -> float:
        """The weight decay, in two digits."""
        return float(f"{10**self.log_decay:.2g}") if self.log_decay > RANGES["log_decay"][0] else 0.0

    @property
    def has_length(self) -> bool:
        """Whether the run takes the steps or the time that it is given, because no lowest loss marks its end."""
        return self.weight_decay > 0 or self.layers > 1 or self.optimizer in SMALL_STEPS

    @property
    def length(self) -> int:
        """Steps of descent or t/tau of the flow, in two digits."""
        return int(float(f"{10**self.log_length:.2g}"))

    @property
    def clock(self) -> str:
        """What the time axis counts."""
        return "learning rate × step" if self.optimizer in SMALL_STEPS else "t/τ"

    def flat(self) -> dict[str, Any]:
        """The settings under the names of the command line, without those that have no effect."""
        settings: dict[str, Any] = {"model": self.model, "heads": self.heads, "dim": self.dim, "context": self.context}
        if self.model == "separate":
            settings["rank"] = self.rank
        if self.layers > 1:
            settings |= {"layers": self.layers, "freeze_vectors": True, "gram_samples": GRAMS}
        settings["spectrum"] = self.token_spectrum()
        if self.tasks == "power":
            settings["task_spectrum"] = f"power:{self.task_exponent:g}"
        if self.noise > 0:
            settings["label_noise"] = self.noise
        if self.normalize != "context":
            settings["normalize"] = self.normalize
        settings["init"] = self.init
        if self.optimizer != "sgd":
            settings["optimizer"] = self.optimizer
        if self.weight_decay > 0:
            settings["weight_decay"] = self.weight_decay
        if self.rule == "descent":
            settings["lr"] = self.lr
        if self.has_length:
            settings |= {"steps": self.length} if self.rule == "descent" else {"time": float(self.length)}
        if self.data == "sample":
            settings["samples"] = self.samples
        return settings | {"seed": self.seed, "seeds": self.seeds}

    def token_spectrum(self) -> str:
        """The setting `spectrum`."""
        if self.spectrum == "power":
            return f"power:{self.exponent:g}"
        return ",".join(f"{x:g}" for x in self.eigenvalues) if self.spectrum == "free" else self.spectrum

    def experiment(self, seed: int | None = None) -> Experiment:
        """The experiment on screen, with all seeds or with one of them."""
        one = {} if seed is None else {"seed": seed, "seeds": 1}
        return Experiment.from_flat({**self.flat(), **one})

    def command(self) -> str:
        """The `iclflow train` command for what is on screen."""
        flag = lambda name, value: f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        return "iclflow train " + " ".join(flag(name, value) for name, value in self.flat().items())

    def python(self) -> str:
        """The same as Python code."""
        settings = self.flat()
        kind = settings.pop("model").capitalize()
        task = {n: settings.pop(n) for n in list(settings) if n in TASK_NAMES}
        model = {n: settings.pop(n) for n in ("heads", "rank", "layers") if n in settings}
        call = lambda values: ", ".join(f"{name}={value!r}" for name, value in values.items())
        return (
            "import iclflow as icl\n\n"
            f"task = icl.Task({call(task)})\n"
            f"model = icl.{kind}({call(model)})\n"
            f"run = icl.train(task, model, {call(settings)})\n"
            "icl.compare(run)"
        )

    def with_(self, **changes: Any) -> "State":
        """The state with some values changed."""
        return State.read({**vars(self), **changes})


TASK_NAMES = ("dim", "context", "spectrum", "task_spectrum", "label_noise", "normalize")


def clamped(name: str, value: Any, default: Any) -> Any:
    """The value as a number within the range of a field, or the default if it is not a number."""
    low, high = RANGES[name]
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return default
    if not math.isfinite(number):
        return default
    number = min(max(number, low), high)
    return round(number) if name in WHOLE else float(f"{number:.6g}")


def read_eigenvalues(value: Any, taken: dict[str, Any]) -> tuple[float, ...]:
    """Exactly `dim` eigenvalues for the free spectrum, those of `falling` where none is given; none otherwise."""
    if taken["spectrum"] != "free":
        return ()
    given = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []
    dim, numbers = taken["dim"], []
    for number, part in enumerate(given[:dim]):
        try:
            x = float(part)
        except (TypeError, ValueError, OverflowError):
            x = math.nan
        numbers.append(
            float(f"{min(max(x, EIGENVALUE[0]), EIGENVALUE[1]):.4g}") if math.isfinite(x) else falling(number, dim)
        )
    return tuple(numbers + [falling(i, dim) for i in range(len(numbers), dim)])


def falling(number: int, dim: int) -> float:
    """Eigenvalue `number` (from 0) of the default for the free spectrum."""
    return float(f"{(dim - number) / dim:.4g}")
