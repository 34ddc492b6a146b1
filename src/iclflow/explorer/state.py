"""What is on screen, as one record: from controls or a URL, clamped, and back to URL, command and Python.

Whatever arrives from a browser passes through `State.read`: unknown names are dropped, numbers that are none fall back
to the default, the rest is brought into its range. So every state is one that can be computed.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from iclflow.experiment import Experiment

__all__ = ["CHOICES", "EIGENVALUE", "RANGES", "State", "clamped", "falling"]

CHOICES = {
    "model": ("separate", "merged"),
    "spectrum": ("linear", "white", "power", "free"),
    "rule": ("flow", "descent"),
    "data": ("population", "sample"),
    "tasks": ("equal", "power"),
    "normalize": ("context", "tokens", "none"),
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
}
WHOLE = ("dim", "context", "heads", "rank", "seeds", "seed")
EIGENVALUE = (0.01, 1.0)
LONGEST_QUERY = 4000  # characters


@dataclass(frozen=True)
class State:
    model: str = "separate"
    heads: int = 5
    rank: int = 1
    dim: int = 4
    context: int = 31
    spectrum: str = "linear"
    exponent: float = 1.0
    eigenvalues: tuple[float, ...] = ()  # of the free spectrum, as many as `dim`
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

    # --- in ---------------------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, values: dict[str, Any]) -> "State":
        """Any mapping, clamped."""
        taken: dict[str, Any] = {}
        for field in fields(cls):
            value = values.get(field.name)
            if field.name in CHOICES:
                taken[field.name] = value if value in CHOICES[field.name] else field.default
            elif field.name in RANGES:
                taken[field.name] = clamped(field.name, value, field.default)
        taken["rank"] = min(taken["rank"], taken["dim"])
        taken["eigenvalues"] = read_eigenvalues(values.get("eigenvalues"), taken)
        if taken["data"] == "sample":
            taken["rule"] = "descent"  # the sample's flow would have to be compiled for every shape
        return cls(**taken)

    @classmethod
    def from_query(cls, query: str | None) -> "State":
        """From the part of a URL behind the question mark."""
        text = query if isinstance(query, str) else ""
        return cls.read(dict(parse_qsl(text.lstrip("?")[:LONGEST_QUERY], max_num_fields=60)))

    # --- out --------------------------------------------------------------------------------------------------------

    def to_query(self) -> str:
        """Only what differs from the defaults."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        if "eigenvalues" in told:
            told["eigenvalues"] = ",".join(f"{x:g}" for x in self.eigenvalues)
        return "?" + urlencode(told) if told else ""

    @property
    def init(self) -> float:
        return float(f"{10**self.log_init:.2g}")

    @property
    def lr(self) -> float:
        return float(f"{10**self.log_lr:.2g}")

    @property
    def samples(self) -> float:
        return int(float(f"{10**self.log_samples:.2g}")) if self.data == "sample" else math.inf

    def flat(self) -> dict[str, Any]:
        """The settings under the names of the command line, without those that have their default value."""
        told: dict[str, Any] = {"model": self.model, "heads": self.heads, "dim": self.dim, "context": self.context}
        if self.model == "separate":
            told["rank"] = self.rank
        told["spectrum"] = self.token_spectrum()
        if self.tasks == "power":
            told["task_spectrum"] = f"power:{self.task_exponent:g}"
        if self.noise > 0:
            told["label_noise"] = self.noise
        if self.normalize != "context":
            told["normalize"] = self.normalize
        told["init"] = self.init
        if self.rule == "descent":
            told["lr"] = self.lr
        if self.data == "sample":
            told["samples"] = self.samples
        return told | {"seed": self.seed, "seeds": self.seeds}

    def token_spectrum(self) -> str:
        if self.spectrum == "power":
            return f"power:{self.exponent:g}"
        return ",".join(f"{x:g}" for x in self.eigenvalues) if self.spectrum == "free" else self.spectrum

    def experiment(self, seed: int | None = None) -> Experiment:
        """What to run: all seeds, or one of them."""
        one = {} if seed is None else {"seed": seed, "seeds": 1}
        return Experiment.from_flat({**self.flat(), **one})

    def command(self) -> str:
        """The `iclflow train` line for what is on screen."""
        return "iclflow train " + " ".join(f"--{name.replace('_', '-')} {value}" for name, value in self.flat().items())

    def python(self) -> str:
        """The same in Python."""
        told = self.flat()
        kind = told.pop("model").capitalize()
        task = {n: told.pop(n) for n in list(told) if n in TASK_NAMES}
        model = {n: told.pop(n) for n in ("heads", "rank") if n in told}
        call = lambda values: ", ".join(f"{name}={value!r}" for name, value in values.items())
        return (
            "import iclflow as icl\n\n"
            f"task = icl.Task({call(task)})\n"
            f"model = icl.{kind}({call(model)})\n"
            f"run = icl.train(task, model, {call(told)})\n"
            "icl.compare(run)"
        )

    def with_(self, **changes: Any) -> "State":
        return State.read({**vars(replace(self)), **changes})


TASK_NAMES = ("dim", "context", "spectrum", "task_spectrum", "label_noise", "normalize")


def clamped(name: str, value: Any, default: Any) -> Any:
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
    """Exactly `dim` of them for the free spectrum, falling ones where too few were given; none otherwise."""
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
    return float(f"{(dim - number) / dim:.4g}")
