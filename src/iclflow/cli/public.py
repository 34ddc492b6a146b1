"""The command of the public code: the same flags, laws, output and file names; the training is that of iclflow.

| flag | means here |
| --- | --- |
| `--seq_len` | context + 1: the query counts |
| `--epoch` | number of losses measured, one more than the number of updates |
| `--vary_len` | loss over all prefixes, attention divided by the number of tokens; without it attention is not scaled |
| `--white_cov` | all eigenvalues are 1/D; without it they are proportional to 1..D; the trace is 1 in both cases |
| `--init` | standard deviation of an entry; attnS: divided by the square root of the size of the stacked array |
| `--seed` | seed of the basis, the data and the initial weights |

The random numbers are those of iclflow, their laws are those of the public code. What runs there without much meaning
runs here too: `--lr 0`, `--init 0`, `--epoch 1`, a rank above `in_dim`, `--vary_len --icl 0`, an mlp with more outputs.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from jaxtyping import Float

from iclflow.cli.ending import complain, ended
from iclflow.config import Task, Training
from iclflow.errors import BadInput, IclflowError
from iclflow.experiment import Experiment
from iclflow.models import MLP, Merged, Model, Separate, Weights
from iclflow.models.base import KNOWN
from iclflow.models.parts import empty
from iclflow.system.atomic import write_file
from iclflow.system.garbage import searched_rarely

if TYPE_CHECKING:
    import iclflow.engines.outcome

__all__ = ["experiment_of", "file_name", "main", "table_of"]

MODELS = ("attnM", "attnS", "mlp")
Number = int | float
TELL = 2000  # epochs between two printed losses
STILL = 1e-300  # a learning rate that moves no weight by a single bit


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message.removeprefix("argument ").replace("--", "", 1))


def number(kind: type[Number], allowed: str, least: Number, most: Number = np.inf) -> Callable[[str], Number]:
    """A function that reads a number of a kind and range, or refuses it with what is allowed."""

    def read(text: str) -> Number:
        try:
            value: Number = kind(text)
        except ValueError:
            value = np.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} must be {allowed}")
        return value

    return read


def parser() -> Parser:
    """The parser with the flags of the public code."""
    count, scale = number(int, "a whole number of at least 1", 1), number(float, "a number of at least 0", 0, 1e308)
    flags = Parser(prog="train.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = flags.add_argument
    add("--epoch", type=count, default=6001, help="losses to measure")
    add("--lr", type=scale, default=0.001, help="learning rate")
    add("--seed", type=number(int, "a whole number of at least 0", 0), default=10)
    add("--icl", type=number(float, "a number between 0 and 1", 0, 1), default=1, help="share of in-context tasks")
    add("--trainset_size", type=number(int, "a whole number of at least 2", 2), default=5000)
    add("--testset_size", type=number(int, "a whole number of at least 0", 0), default=0)
    add("--white_cov", action="store_true", help="white tokens")
    add("--vary_len", action="store_true", help="loss over all prefixes")
    add("--seq_len", type=number(int, "a whole number of at least 2", 2), default=32, help="tokens, query included")
    add("--in_dim", type=count, default=4)
    add("--out_dim", type=count, default=1)
    add("--cubic_feat", action="store_true", help="cubic features, which --model mlp has in any case")
    add("--model", choices=MODELS, default="attnM")
    add("--softmax", action="store_true")
    add("--rank", "--KQ_dim", type=count, default=1, help="rank of key and query in attnS")
    add("--head_num", type=count, default=1)
    add("--init", type=scale, default=0.01)
    add("--show", action="store_true", help="show the loss curve instead of writing it")
    add("--track_value", action="store_true", help="write the value weights beside the loss")
    return flags


class AnyRank(Separate):
    """Separate key and query with more rows than the tokens have entries, which adds heads in all but name."""

    def complaints(self, task: Task) -> Iterator[str]:
        yield from ()


class LastLabelMLP(MLP):
    r"""The network on the cubic feature, for several outputs: the feature holds the last label, all outputs read it.

    $$\hat y_o = (W_2 W_1 z)_o,\qquad z = \operatorname{vec}\big(\textstyle\sum_n y_{n,O} x_n\, x_q'\big) .$$
    """

    def complaints(self, task: Task) -> Iterator[str]:
        yield from ()

    def network(self, weights: Weights, tokens: Any, query: Any, scale: Any) -> Any:
        dim = query.shape[0]
        return MLP.network(self, weights, tokens[:, [*range(dim), tokens.shape[1] - 1]], query, scale)

    def theta(self, trained: Weights) -> Any:
        import jax.numpy as jnp

        of_the_last = MLP.theta(self, trained)
        others = jnp.zeros((len(of_the_last), len(of_the_last) - 1, *of_the_last.shape[2:]), of_the_last.dtype)
        return jnp.concatenate([others, of_the_last], axis=1)

    def pull_back(self, trained: Weights, slope: Any) -> Weights:
        return MLP.pull_back(self, trained, slope[:, -1])

    def linear_twin(self) -> None:
        return None

    def theory(self, task: Task) -> None:
        return None


for own in (AnyRank, LastLabelMLP):
    del KNOWN[own.kind]  # they belong to this command alone


def experiment_of(args: argparse.Namespace) -> Experiment:
    """The experiment that these flags describe."""
    if args.cubic_feat and args.model != "mlp":
        raise BadInput(f"cubic_feat: belongs to --model mlp, not {args.model}")
    model: Model
    if args.model == "mlp":
        if args.softmax:
            raise BadInput("softmax: does not go with --model mlp")
        model = (MLP if args.out_dim == 1 else LastLabelMLP)(heads=args.head_num)
    elif args.model == "attnM":
        model = Merged(heads=args.head_num, softmax=args.softmax)
    else:
        attention = Separate if args.rank <= args.in_dim else AnyRank
        model = attention(heads=args.head_num, rank=args.rank, softmax=args.softmax)
    task = Task(
        dim=args.in_dim, out_dim=args.out_dim, context=args.seq_len - 1, icl_fraction=args.icl,
        spectrum="white" if args.white_cov else "linear", prefix_loss=args.vary_len,
        normalize="tokens" if args.vary_len else "none", task_seed=args.seed,
    )  # fmt: skip
    training = Training(
        samples=args.trainset_size, test_samples=args.testset_size, init=args.init or 1.0, init_law="public",
        lr=args.lr if args.lr > 0 and args.epoch > 1 else STILL, steps=max(args.epoch - 1, 1), seed=args.seed,
        dtype="float32" if args.softmax else "float64",
        **({"records": max(args.epoch, 2), "spacing": "even"} if args.track_value else {"records": 2}),
    )  # fmt: skip
    return Experiment(task=task, model=model, training=training)


def file_name(args: argparse.Namespace) -> str:
    """The file name of the public code."""
    name = f"{args.model}_head{args.head_num}_D{args.in_dim}_R{args.rank}"
    name += f"_P{args.trainset_size}_N{args.seq_len}_seed{args.seed}"
    icl = f"_icl{args.icl}" if args.testset_size else ""
    return name + icl + ("_value" if args.track_value else "") + ".txt"


def table_of(
    outcome: "iclflow.engines.outcome.Outcome", args: argparse.Namespace
) -> Float[np.ndarray, "epochs columns"]:
    """One row per epoch: the loss, then the value weights or, with a test set, the in-weight and in-context loss."""
    columns = [outcome.losses[:, 0]]
    if args.testset_size and not args.track_value:
        columns += [outcome.losses[:, 2], outcome.losses[:, 1]]
    if args.track_value:
        name, entry = ("second", (0,)) if args.model == "mlp" else ("value", (..., -1, -1))
        columns += list(np.stack([np.asarray(weights[name], dtype=float)[entry] for weights in outcome.snapshots]).T)
    return np.column_stack(columns)[: args.epoch]


def main(arguments: list[str] | None = None) -> None:
    """Train, and write or show the curve; bad input is reported in one line, with exit code 2."""
    ended("train.py", lambda: run(arguments), program=arguments is None)


def run(arguments: list[str] | None) -> int:
    """The same, with the exit code as its value."""
    try:
        args = parser().parse_args(arguments)
        experiment = experiment_of(args)
        where = Path(file_name(args))
        with searched_rarely():
            return run_and_keep(experiment, args, where)
    except IclflowError as error:
        return complain("train.py", str(error), error.exit_code)


def run_and_keep(experiment: Experiment, args: argparse.Namespace, where: Path) -> int:
    """Train, write or show the result, and return the exit code."""
    import warnings

    warnings.simplefilter("ignore")
    from iclflow.system.progress import progress_bar
    from iclflow.training.plan import Plan
    from iclflow.training.seeds import run_seeds

    print(args, "\n", flush=True)
    start = None if args.init > 0 else empty(experiment.model, experiment.task)
    with progress_bar(args.model) as report:
        plan = Plan(experiment, given=start, with_moments=False, with_stable_step=False)
        [outcome] = run_seeds(plan, [args.seed], report)
    table = table_of(outcome, args)
    for epoch in range(0, args.epoch, TELL):
        print(f"Epoch [{epoch}/{args.epoch}], Loss: {table[epoch, 0]:.4f}")
    if args.show:
        show(table, args, where.with_suffix(".png"))
    else:
        text = "\n".join(" ".join(f"{x:.18e}" for x in row) for row in table) + "\n"
        keep_former(where, text)
        write_file(where, text)
        print(where)
    if outcome.status in ("unstable", "diverged", "failed"):
        print(f"train.py: {outcome.status}: {outcome.why}", file=sys.stderr)
        return 1
    return 0


def keep_former(path: Path, text: str) -> None:
    """Rename an earlier file of the same name, which different runs can share, if it holds other numbers."""
    if not path.exists() or path.read_bytes() == text.encode():
        return
    number = 1
    while (aside := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    path.rename(aside)
    print(f"{path}: the earlier file of this name is now {aside}")


def show(table: Float[np.ndarray, "epochs columns"], args: argparse.Namespace, picture: Path) -> None:
    """Open the figure where there is a screen; write it to a file elsewhere."""
    import matplotlib

    if not matplotlib.rcParams["interactive"] and not has_screen():
        matplotlib.use("agg")
    import matplotlib.pyplot as plt

    from iclflow.figures.style import COLOURS, styled

    names = ["loss", "in-weight test", "in-context test"]
    with styled():
        figure, axes = plt.subplots(1, 2 if args.track_value else 1, squeeze=False)
        curves = axes[0, 0]
        for column in range(1 if args.track_value else table.shape[1]):
            curves.plot(table[:, column], color=COLOURS[column], label=names[column])
        curves.set(xlabel="epoch", ylabel="loss", ylim=(0, None))
        if table.shape[1] > 1:
            curves.legend()
        if args.track_value:
            axes[0, 1].plot(table[:, 1:])
            axes[0, 1].set(xlabel="epoch", ylabel="value weights")
        if matplotlib.get_backend().lower() == "agg":
            figure.savefig(picture)
            print(f"there is no screen; the figure is in {picture}")
        else:
            plt.show()
        plt.close(figure)


def has_screen() -> bool:
    """Whether windows can be opened."""
    import os

    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
