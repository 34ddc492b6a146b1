"""The task, as a record."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from iclflow.config.record import Record
from iclflow.config.spectra import HUGE, SpectrumLike, is_matrix, power_of, read_spectrum

__all__ = ["Count", "Seed", "Task"]

Count = Annotated[int, Field(ge=1, le=10**15)]  # sizes are arithmetic of whole numbers that floats can hold
Seed = Annotated[int, Field(ge=0, lt=2**63)]
WIDEST = 100  # decades of a spectrum, so that products of three eigenvalues are still numbers


class Task(Record):
    r"""In-context linear regression: tokens $x \sim N(0, \Lambda)$, labels $y = w'x$, one $w$ per sequence.

    `spectrum` gives the token covariance $\Lambda$: `linear` (eigenvalues proportional to D..1, trace 1),
    `white` (I/D), `power:A` ($d^{-A}$, trace 1), eigenvalues, or a matrix. `task_spectrum` gives the
    covariance $\Omega$ of the task vectors in the same way; its named laws have mean eigenvalue 1. With `tasks` = K the
    task vector of a sequence is one of K fixed vectors that `task_seed` draws from $N(0, \Omega)$.
    """

    dim: Count = Field(4, description="token dimension D")
    out_dim: Count = Field(1, description="number of labels O")
    context: Count = Field(31, description="in-context examples N")
    spectrum: SpectrumLike = Field(
        "linear", description="token covariance: linear, white, power:A, v1,v2,.. or FILE.npy"
    )
    basis: Literal["random", "identity"] = Field("random", description="eigenvectors of the covariance")
    task_spectrum: SpectrumLike | None = Field(None, description="task covariance, same forms (default identity)")
    label_noise: float = Field(0.0, ge=0, le=HUGE, description="variance of the noise on context labels")
    query_noise: bool = Field(False, description="put the label noise on the query's target too")
    tasks: Count | None = Field(None, description="train on K fixed task vectors (default: each sequence has its own)")
    mirror_tasks: bool = Field(False, description="each of the K task vectors also with the opposite sign")
    icl_fraction: float = Field(1.0, ge=0, le=1, description="fraction of sequences with a task of their own")
    prefix_loss: bool = Field(False, description="average the loss over all context lengths 1..N")
    normalize: Literal["context", "tokens", "none"] | None = Field(
        None, description="scale of attention: 1/N (default), 1/(N+1), or none"
    )
    task_seed: Seed = Field(0, description="draws the random basis, the K tasks and the in-weight task")

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
            if abs(power_of(value)) * math.log10(self.dim) > WIDEST:
                raise ValueError(f"{field}: {value!r} spans more than {WIDEST} decades with dim = {self.dim}")
        if is_matrix(self.spectrum) and "basis" in self.model_fields_set:
            raise ValueError("basis: a full covariance matrix brings its own basis; give only one of them")
        if self.tasks is not None and self.icl_fraction < 1:
            raise ValueError(f"tasks: {self.tasks} needs icl_fraction = 1, not {self.icl_fraction}")
        if self.mirror_tasks and self.tasks is None:
            raise ValueError("mirror_tasks: True needs tasks, the number of task vectors")
        if self.query_noise and self.label_noise == 0:
            raise ValueError("query_noise: True needs label_noise > 0")
        if self.prefix_loss and self.label_noise > 0 and not self.query_noise:
            raise ValueError("query_noise: must be on with prefix_loss and label_noise, where every token is a target")
        return self

    @property
    def new_tasks(self) -> "Task":
        """The same task where every sequence has a task vector of its own: what K fixed tasks were drawn from."""
        return self if self.tasks is None else self.replace(tasks=None, mirror_tasks=False)

    @property
    def has_other_tests(self) -> bool:
        """Whether training sees other task vectors than a test of in-context learning does."""
        return self.icl_fraction < 1 or self.tasks is not None

    @property
    def symmetric(self) -> bool:
        """Whether task vectors come with either sign equally often: vector blocks that are zero then stay zero."""
        return self.icl_fraction == 1 and (self.tasks is None or self.mirror_tasks)
