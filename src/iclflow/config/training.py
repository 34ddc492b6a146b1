"""How to train, as a record."""

import math
import sys
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator

from iclflow.config.record import Record, shown
from iclflow.config.spectra import HUGE
from iclflow.config.task import Count, Seed

__all__ = ["GIVEN", "Training"]

RULES = ("sgd", "momentum", "adam", "muon")
MOST_SAMPLES = 10**12  # a month of drawing on a thousand cores
GIVEN = "optax:"  # begins the name of an optimiser that the user brings as an object


class Training(Record):
    """How to train: on which data, from which weights, by which rule, for how long."""

    samples: int | float = Field(math.inf, description="training sequences P, or inf for the population")
    whiten: bool = Field(True, description="whiten the sampled task vectors when icl_fraction is 1")
    test_samples: Annotated[int, Field(ge=0, le=MOST_SAMPLES)] = Field(0, description="sequences in each test set")
    init: float = Field(1e-2, gt=0, description="scale of the initial weights")
    init_law: Literal["entry", "public", "norm", "aligned", "random"] = Field("entry", description="initial law")
    freeze_vectors: bool = Field(False, description="keep the vector blocks where they start")
    optimizer: str = Field("sgd", description="update rule of descent: sgd, momentum, adam or muon")
    beta: float = Field(0.9, ge=0, lt=1, description="momentum of momentum, adam and muon")
    muon: Literal["stacked", "heads"] = Field("stacked", description="muon makes all heads orthogonal at once, or each")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay: W <- W - lr (u + weight_decay W)")
    gram_samples: Annotated[int, Field(ge=2, le=MOST_SAMPLES)] = Field(
        16384, description="Gram matrices that stand for the population on the gram engine"
    )
    batch: Count | None = Field(None, description="sequences per step (default: all)")
    lr: float | None = Field(None, gt=0, description="learning rate (default: half the stable step)")
    steps: Count | None = Field(None, description="updates of gradient descent")
    time: float | None = Field(None, gt=0, description="length of the gradient flow in t/tau (default: until settled)")
    engine: Literal["auto", "moments", "tokens", "gram", "flow"] = Field("auto", description="how to train")
    dtype: Literal["float32", "float64"] = Field("float64", description="precision")
    tolerance: float = Field(1e-9, ge=1e-13, le=1e-3, description="relative tolerance of the flow")
    records: Annotated[int, Field(ge=2, le=100_000)] = Field(200, description="how often the weights are kept")
    spacing: Literal["log", "even"] = Field("log", description="how these times are spaced along descent")
    seed: Seed = Field(0, description="draws sample and initial weights")
    seeds: Annotated[int, Field(ge=1, le=100_000)] = Field(1, description="runs: seed, seed+1, ..")
    data_seed: Seed | None = Field(None, description="draws the sample, whatever `seed` says")

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)

    @property
    def descends(self) -> bool:
        """Whether something that only descent has is asked for."""
        given = (self.lr, self.steps, self.batch)
        return any(value is not None for value in given) or self.optimizer != "sgd" or self.dtype == "float32"

    @field_validator("optimizer")
    @classmethod
    def _rule(cls, value: str) -> str:
        if value not in RULES and not value.startswith(GIVEN):
            raise ValueError(
                f"optimizer: {value!r} must be one of {', '.join(RULES)} (in Python also an optax optimiser)"
            )
        return value

    @field_validator("samples", mode="before")
    @classmethod
    def _count_or_inf(cls, value: Any) -> Any:
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"samples: {shown(value)} must be a whole number of sequences, or inf") from None
        except OverflowError:
            number = sys.float_info.max
        if number == math.inf and not any(digit.isdigit() for digit in str(value)):
            return math.inf
        if number > MOST_SAMPLES:
            raise ValueError(f"samples: {shown(value)} must be at most {MOST_SAMPLES:.0e} sequences, or inf")
        if isinstance(value, bool) or not number >= 2 or number != int(number):
            raise ValueError(f"samples: {shown(value)} must be a whole number of at least 2 sequences, or inf")
        return int(number)

    @field_validator("init", "lr", "time", "tolerance", "weight_decay", "beta")
    @classmethod
    def _finite(cls, value: float | None, info: Any) -> float | None:
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{info.field_name}: {value!r} must be a finite number")
        if value is not None and info.field_name != "time" and value > HUGE:
            raise ValueError(f"{info.field_name}: {value!r} must be at most {HUGE:.0e}")
        return value
