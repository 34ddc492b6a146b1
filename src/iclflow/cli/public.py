"""The command of the public code: the same flags, laws, output and file names; the training is that of iclflow.

| flag | means here |
| --- | --- |
| `--seq_len` | context + 1: the query counts |
| `--epoch` | number of losses measured, one more than the number of updates |
| `--vary_len` | loss over all prefixes, attention divided by the number of tokens; without it attention is not scaled |
| `--white_cov` | all eigenvalues are 1/D; without it they are proportional to 1..D; the trace is 1 in both cases |
| `--init` | standard deviation of an entry; attnS: divided by the square root of the size of the stacked array |
| `--seed` | seed of the basis, the data and the initial weights |

The random numbers are those of iclflow, their laws are those of the public code.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from jaxtyping import Float

from iclflow.config import Task, Training
from iclflow.errors import BadInput, IclflowError
from iclflow.experiment import Experiment
from iclflow.models import MLP, Merged, Model, Separate
from iclflow.system.atomic import write_file

if TYPE_CHECKING:
    import iclflow.results.run

__all__ = ["experiment_of", "file_name", "main", "table_of"]

MODELS = ("attnM", "attnS", "mlp")
Number = int | float
TELL = 2000  # epochs between two printed losses


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
    count, positive = number(int, "a whole number of at least 1", 1), number(float, "a number above 0", 5e-324)
    flags = Parser(prog="train.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = flags.add_argument
    add("--epoch", type=number(int, "a whole number of at least 2", 2), default=6001, help="losses to measure")
    add("--lr", type=positive, default=0.001, help="learning rate")
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
    add("--init", type=positive, default=0.01)
    add("--show", action="store_true", help="show the loss curve instead of writing it")
    add("--track_value", action="store_true", help="write the value weights beside the loss")
    return flags


def experiment_of(args: argparse.Namespace) -> Experiment:
    """The experiment that these flags describe."""
    if args.cubic_feat and args.model != "mlp":
        raise BadInput(f"cubic_feat: belongs to --model mlp, not {args.model}")
    model: Model
    if args.model == "mlp":
        if args.softmax:
            raise BadInput("softmax: does not go with --model mlp")
        model = MLP(heads=args.head_num)
    elif args.model == "attnM":
        model = Merged(heads=args.head_num, softmax=args.softmax)
    else:
        model = Separate(heads=args.head_num, rank=args.rank, softmax=args.softmax)
    task = Task(
        dim=args.in_dim, out_dim=args.out_dim, context=args.seq_len - 1, icl_fraction=args.icl,
        spectrum="white" if args.white_cov else "linear", prefix_loss=args.vary_len,
        normalize="tokens" if args.vary_len else "none", task_seed=args.seed,
    )  # fmt: skip
    training = Training(
        samples=args.trainset_size, test_samples=args.testset_size, init=args.init, init_law="public", lr=args.lr,
        steps=args.epoch - 1, seed=args.seed, dtype="float32" if args.softmax else "float64",
        **({"records": args.epoch, "spacing": "even"} if args.track_value else {"records": 2}),
    )  # fmt: skip
    return Experiment(task=task, model=model, training=training)


def file_name(args: argparse.Namespace) -> str:
    """The file name of the public code."""
    name = f"{args.model}_head{args.head_num}_D{args.in_dim}_R{args.rank}"
    name += f"_P{args.trainset_size}_N{args.seq_len}_seed{args.seed}"
    icl = f"_icl{args.icl}" if args.testset_size else ""
    return name + icl + ("_value" if args.track_value else "") + ".txt"


def table_of(run: "iclflow.results.run.Run", args: argparse.Namespace) -> Float[np.ndarray, "epochs columns"]:
    """One row per epoch: the loss, then the value weights or, with a test set, the in-weight and in-context loss."""
    columns = [run.loss.values]
    if args.testset_size and not args.track_value:
        columns += [run.loss_iwl.values, run.loss_icl.values]
    if args.track_value:
        last = run.weights["second"][:, 0] if args.model == "mlp" else run.weights["value"][:, :, -1, -1]
        columns += list(np.asarray(last.values, dtype=float).T)
    return np.column_stack(columns)


def main(arguments: list[str] | None = None) -> None:
    """Train, and write or show the curve; bad input is reported in one line, with exit code 2."""
    try:
        args = parser().parse_args(arguments)
        experiment = experiment_of(args)
        where = Path(file_name(args))
        code = run_and_keep(experiment, args, where)
    except IclflowError as error:
        print(f"train.py: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        print("train.py: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


def run_and_keep(experiment: Experiment, args: argparse.Namespace, where: Path) -> int:
    """Train, write or show the result, and return the exit code."""
    import warnings

    warnings.simplefilter("ignore")
    from iclflow.training.start import run_experiment

    print(args, "\n", flush=True)
    run = run_experiment(experiment)
    table = table_of(run, args)
    for epoch in range(0, args.epoch, TELL):
        print(f"Epoch [{epoch}/{args.epoch}], Loss: {table[epoch, 0]:.4f}")
    if args.show:
        show(table, args, where.with_suffix(".png"))
    else:
        text = "\n".join(" ".join(f"{x:.18e}" for x in row) for row in table) + "\n"
        keep_former(where, text)
        write_file(where, text)
        print(where)
    if run.status in ("unstable", "diverged", "failed"):
        print(f"train.py: {run.status}: {run.summary['runs'][0]['why']}", file=sys.stderr)
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
