"""Other regimes: large initial weights, and softmax in place of the linear sum."""

from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes

import iclflow as icl
from iclflow.comparison.comparing import compare_one, crossing
from iclflow.comparison.plateaus import count_main_drops, find_drops, find_plateaus
from iclflow.data.sequences import Law, fresh
from iclflow.data.spectrum import covariances
from iclflow.experiment import Experiment
from iclflow.figures.style import MODEL_COLOUR, THEORY, letters, log_time, plateau_lines, shades, theory_key
from iclflow.models import Model, Weights
from iclflow.models.initial import initial_weights
from iclflow.results.run import Run
from iclflow.studies.measures import each_seed, few, loss_table, panels, shifted, stacked, train
from iclflow.studies.study import Measured, Result, claim, figure
from iclflow.system.compiled import compiled
from iclflow.theory import landscape, minimum, plateau_losses
from iclflow.theory.laws import lazy

TASK = icl.Task(dim=4, context=31)
PAIRS, LARGE = 50, 0.8
SOFTMAX_TASK = icl.Task(dim=3, context=31)
CONTEXTS = (64, 256, 1024, 4096)
SCALES = (0.01, 0.02, 0.03, 0.05, 0.1)


def drawn(model: Model, task: icl.Task, scale: float, seed: int) -> Weights:
    """Random initial weights."""
    return initial_weights(model, task, "entry", scale, seed, covariances(task))


def lazy_gap(model: icl.Merged | icl.Separate, sabotage: bool, offset: int) -> float:
    """Largest gap between training and the frozen kernel, relative to the initial excess loss."""
    task = shifted(TASK, offset)
    half = drawn(model.replace(heads=PAIRS), task, LARGE, offset)
    signs = {"value": -1}  # pairs of heads with opposite values compute nothing at the start
    weights = {name: np.concatenate([array, signs.get(name, 1) * array]) for name, array in half.items()}
    run = train(task, model, weights=weights, time=30.0)
    kernel = mean_kernel(model) if sabotage else empirical_kernel(model, weights)
    nothing = np.zeros((TASK.dim, TASK.dim))
    frozen = lazy.frozen_loss(landscape(task), kernel, nothing, run.time.values)
    return float(np.abs(frozen - run.loss.values).max() / (run.loss.values[0] - minimum(TASK)))


def empirical_kernel(model: Model, weights: Weights) -> Float[np.ndarray, "DD DD"]:
    """The tangent kernel of the given weights."""
    v, U, K, Q = model.reduced(weights, TASK)[:4]
    return lazy.kernel_merged(v, U) if K is None or Q is None else lazy.kernel_separate(v, K, Q)


def mean_kernel(model: icl.Merged | icl.Separate) -> float:
    """The rate of the kernel averaged over random weights."""
    if model.one_by_one:
        return lazy.rate_separate(model.heads, 1, LARGE, LARGE, LARGE)
    return lazy.rate_merged(model.heads, LARGE, LARGE)


@claim(bound=4e-4, seeds="0", quick=True)
def lazy_merged(sabotage: bool = False, offset: int = 0) -> float:
    """Large initial weights of merged attention (100 heads in pairs with opposite values, 0.8 an entry) hardly move:
    the loss follows the initial kernel.
    Measured: largest gap of the loss, relative to the initial excess loss
    """
    return lazy_gap(icl.Merged(heads=2 * PAIRS), sabotage, offset)


@claim(bound=1.5e-3, seeds="0", quick=True)
def lazy_separate(sabotage: bool = False, offset: int = 0) -> float:
    """The same holds with separate key and query (100 heads of rank one in pairs with opposite values, 0.8 an entry).
    Measured: largest gap of the loss, relative to the initial excess loss
    """
    return lazy_gap(icl.Separate(heads=2 * PAIRS), sabotage, offset)


@claim(bound=2, source="Fig. 6", seeds="0-7", quick=True)
def larger_init_shorter_plateaus(sabotage: bool = False, offset: int = 0) -> float:
    """Larger initial weights (the same draw times .01, .02, .03, .05 and .1; 5 heads of rank one) bring the end of the
    last plateau forward, but for rare near ties; how many plateaus show may change.
    Measured: pairs of a seed and a step of the scale, out of 32, where the last drop does not come earlier
    """
    ends = np.array([last_drops(init, offset) for init in SCALES])
    steps = np.diff(ends[::-1] if sabotage else ends, axis=0)
    return float(np.sum(~(steps < 0)))


def last_drops(init: float, offset: int) -> list[float]:
    """For eight seeds the time at which the loss is halfway between the last two levels."""
    settings: dict[str, Any] = {"engine": "moments", "seed": offset, "seeds": 8}
    run = train(shifted(TASK, offset), icl.Separate(heads=5), init=init, **settings)
    middle = plateau_losses(TASK)[-2:].mean()
    times = [crossing(one.time.values, one.loss.values, middle) for one in each_seed(run)]
    return [np.nan if time is None else time for time in times]


@claim(bound=0, source="Fig. 6", seeds="0-2")
def large_init_no_plateau(sabotage: bool = False, offset: int = 0) -> float:
    """From very large initial weights (5 heads of rank one, 2 an entry), the loss shows no plateau at all.
    Measured: plateaus in three runs by the flow until t/tau = 3000
    """
    init = 0.1 if sabotage else 2.0
    run = train(shifted(TASK, offset), icl.Separate(heads=5), init=init, time=3000.0, seed=offset, seeds=3)
    return float(sum(len(find_plateaus(o.time.values, o.loss.values).levels) for o in each_seed(run)))


def softmax_distance(context: int, normalize: str, offset: int) -> float:
    """Root mean square distance between softmax and linear attention with the same weights, on the same tokens."""
    linear, task = icl.Merged(heads=4), shifted(SOFTMAX_TASK, offset).replace(context=context)
    weights = drawn(linear, task, 0.5, offset)
    sequences = fresh(Law.of(task), (offset,), 0, 400)
    sequences[:, -1, task.dim :] = 0  # the query's label is hidden
    predict = lambda model, task: jax.vmap(lambda sequence: model.predict(weights, sequence, task))
    scaled = task.replace(normalize=normalize)
    gap = compiled(lambda x: predict(linear.replace(softmax=True), task)(x) - predict(linear, scaled)(x))(sequences)
    return float(np.sqrt(np.mean(np.asarray(gap) ** 2)))


@claim(bound=0.088, seeds="0-4")
def softmax_long_contexts(sabotage: bool = False, offset: int = 0) -> float:
    """As the context N grows, softmax attention approaches linear attention with the same weights (merged, 4 heads, D =
    3, 0.5 an entry) as 1/sqrt(N).
    Measured: |a + 1/2| in distance ~ N^a, N = 64 .. 4096, 400 sequences, median over five draws of weights and tokens
    """
    normalize = "none" if sabotage else "context"  # sabotage: the linear sum without its 1/N
    distances = [
        [softmax_distance(n, normalize, offset + seed) for seed in range(1 if sabotage else 5)] for n in CONTEXTS
    ]
    return float(np.median(np.abs(np.polyfit(np.log(CONTEXTS), np.log(distances), 1)[0] + 0.5)))


def softmax_run(kind: str, offset: int, sabotage: bool) -> Run:
    Attention, steps = (icl.Merged, 1500) if kind == "merged" else (icl.Separate, 5000)
    model = Attention(heads=4, softmax=True)
    task, descent = shifted(SOFTMAX_TASK, offset), {"lr": 0.1, "steps": steps, "dtype": "float32"}
    return train(task, model, samples=1000, init=0.03, seed=offset, seeds=1 if sabotage else 2, **descent)


def drop_counts(kind: str, offset: int, sabotage: bool) -> list[int]:
    """How many drops every seed shows."""
    run = softmax_run(kind, offset, sabotage)
    return [count_main_drops(one.time.values, one.loss.values) for one in each_seed(run)]


@claim(bound=0, source="Fig. 5", seeds="0, 1")
def softmax_merged_one_drop(sabotage: bool = False, offset: int = 0) -> float:
    """Softmax attention with merged key and query (4 heads, D = 3, 0.03 an entry, 1000 sequences) falls in one drop,
    without a plateau on its way.
    Measured: seeds, out of two, whose loss shows more than one drop
    """
    run = softmax_run("separate" if sabotage else "merged", offset, sabotage)
    return float(sum(len(find_drops(o.time.values, o.loss.values).times) > 1 for o in each_seed(run)))


@claim(bound=0, source="Fig. 5", seeds="0, 1")
def softmax_separate_drops(sabotage: bool = False, offset: int = 0) -> float:
    """Softmax attention with separate key and query of rank one (4 heads, D = 3, 0.03 an entry, 1000 sequences) shows
    several drops; not always as many as directions.
    Measured: seeds, out of two, with fewer than two drops in the loss smoothed by 0.1 in ln t
    """
    return float(sum(count < 2 for count in drop_counts("merged" if sabotage else "separate", offset, sabotage)))


TWENTY = icl.Separate(heads=20)
ALL_SCALES = (0.005, 0.02, 0.05, 0.15, 0.5, 1.0)
END = 20_000.0


@figure(source="Fig. 6")
def init_scale(fast: bool = False) -> Result:
    r"""Initial scale: from plateaus to the lazy regime.

    Separate key and query of rank one (flow on the population; one draw of 20 heads, scaled so that the standard
    deviation per entry, `init`, runs from 0.005 to 1). (a) Small weights show the whole staircase (dashed: predicted
    for the smallest scale); larger ones shorten its plateaus, then blur them, and with the largest the loss falls at
    once. (b) The loss above its minimum, relative to its initial value, of the two largest scales; it nearly follows
    the frozen kernel of their initial weights (dashed).
    """
    scales = ALL_SCALES[1::2] if fast else ALL_SCALES
    runs = {scale: train(TASK, TWENTY, init=scale, time=END, engine="flow") for scale in scales}
    small = compare_one(runs[scales[0]], None)
    tables, lazy_gap = {}, 0.0
    figure, (left, right) = panels(2.9, 1, 2)
    for colour, (scale, run) in zip(shades(len(runs)), runs.items(), strict=True):
        time = run.time.values
        left.plot(time[1:], run.loss.values[1:], color=colour, label=f"{scale:g}")
        theory = small.prediction.loss(time) if scale == scales[0] else None
        if scale >= 0.5:
            theory = frozen(run)
            excess, start = run.loss.values - minimum(TASK), run.loss.values[0] - minimum(TASK)
            right.plot(time[1:], excess[1:] / start, color=colour, label=f"{scale:g}")
            right.plot(time[1:], ((theory - minimum(TASK)) / start)[1:], **THEORY)
            if scale == scales[-1]:
                lazy_gap = float(np.abs(theory - run.loss.values).max() / start)
        elif theory is not None:
            left.plot(time[1:], theory[1:], **THEORY)
        tables[f"init {scale:g}"] = loss_table(run, theory)
    left.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 1.3), title="any scale")
    right.set(xlabel=r"time $t/\tau$", ylabel="relative excess loss", ylim=(0, 1.05), title="large: frozen kernel")
    log_time(left, 1e-1, END)
    log_time(right, 1e-3, 1e2)
    theory_key(left)
    letters(left, right)
    entries, names = left.get_legend_handles_labels()
    names = [name if name == "theory" else f"init {name}" for name in names]
    figure.legend(entries, names, loc="outside lower center", ncols=len(names), handlelength=1.6, columnspacing=1.4)
    plateau_lines(left, plateau_losses(TASK))
    gaps = (
        Measured(f"mean gap over time between the loss and the staircase, init {scales[0]:g}", small.mean_gap),
        Measured(f"largest gap between the excess loss and the frozen kernel, init {scales[-1]:g}", lazy_gap),
    )
    return Result(figure, {"": stacked(tables)}, gaps, {f"init {s:g}": r.experiment for s, r in runs.items()})


def frozen(run: Run) -> Float[np.ndarray, " T"]:
    """The loss if the tangent kernel kept its initial value."""
    heads = run.model.reduced(run.initial_weights, TASK)
    start = np.einsum("h,hde->de", heads.value, heads.key_query)
    kernel = lazy.kernel_separate(heads.value, *heads.keys_and_queries)
    return lazy.frozen_loss(landscape(TASK), kernel, start, run.time.values)


MODELS = {"merged": icl.Merged(heads=8), "separate": icl.Separate(heads=5)}
SETTINGS = {"merged": {"init": 0.03, "lr": 0.1, "steps": 1500}, "separate": {"init": 0.02, "lr": 0.2, "steps": 6000}}
LONGER = {"merged": 2, "separate": 5}  # times the steps, for linear attention
EXPECTED = {"merged": (1,), "separate": (2, 3, 4)}  # one drop against several


@figure(source="Fig. 5")
def softmax(fast: bool = False) -> Result:
    r"""Softmax attention: one drop with merged, several with separate key and query.

    Softmax attention in place of linear attention, otherwise the setting of the linear figures ($D = 4$, $N = 31$). The
    published number of steps is too small to show all drops, so these runs have settings of their own: 2000 sequences;
    (a) merged, 8 heads, scale 0.03, 1500 steps at learning rate 0.1; (b) separate, 5 heads of rank one, scale 0.02,
    6000 steps at learning rate 0.2. There is no closed theory of softmax attention, and neighbouring drops can merge:
    most seeds show three or four, so there are several drops and not always as many as directions. Thin: linear
    attention from the same initial weights on the same sequences, trained until it has learned all directions, with its
    theory (dashed) and its plateaus (dotted). Softmax attention approaches it as the context grows.
    """
    samples = 300 if fast else 2000
    tables: dict[str, pd.DataFrame] = {}
    experiments: dict[str, Experiment] = {}
    weights: dict[str, Weights] = {}
    counts, ends = {}, []
    figure, axes = panels(2.8, 1, 2)
    for ax, (name, model) in zip(axes, MODELS.items(), strict=True):
        settings: dict[str, Any] = {**SETTINGS[name], "samples": samples, "seed": 10}
        run = train(TASK, model.replace(softmax=True), dtype="float32", **settings)
        longer = {**settings, "steps": LONGER[name] * settings["steps"]}
        linear = train(TASK, model, weights=run.initial_weights, **longer)
        beside(ax, name, run, linear)
        counts[name] = count_main_drops(run.time.values, run.loss.values)
        ax.set(title=f"{name}: {counts[name]} drop{'s' if counts[name] > 1 else ''}")
        ends.append(abs(float(run.loss[-1]) - minimum(TASK)) / float(run.loss[0]))
        tables |= {f"{name}, softmax": loss_table(run), f"{name}, linear": loss_table(linear)}
        experiments |= {f"{name}, softmax": run.experiment, f"{name}, linear": linear.experiment}
        weights[f"{name}, linear"] = run.initial_weights
    plateau_lines(axes[0], plateau_losses(TASK)[[0, -1]], ["zero", "min."])
    plateau_lines(axes[1], plateau_losses(TASK))
    letters(*axes)
    wrong = sum(counts[name] not in EXPECTED[name] for name in MODELS)
    gaps = (
        Measured("models without the expected drops (merged one, separate two to four)", float(wrong)),
        Measured("largest distance of the last loss from the linear minimum, relative to the initial loss", max(ends)),
    )
    return Result(figure, {"": stacked(tables)}, gaps, experiments, weights)


def beside(ax: Axes, name: str, run: Run, linear: Run) -> None:
    """Draw the losses of softmax and linear attention, and theory of the latter."""
    styles = ((run, MODEL_COLOUR["softmax"], 2.2, "softmax"), (linear, MODEL_COLOUR[name], 1.2, "linear"))
    for one, colour, width, label in styles:
        kept = few(len(one.time))[1:]
        ax.plot(one.time.values[kept], one.loss.values[kept], label=label, color=colour, lw=width)
    time = linear.time.values[few(len(linear.time))[1:]]
    ax.plot(time, compare_one(linear, None).prediction.loss(time), label="theory of linear", **THEORY)
    ax.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 1.1))
    log_time(ax, np.sqrt(run.time.values[-1]) / 4, linear.time.values[-1])
    ax.legend(loc="upper right", bbox_to_anchor=(1.0, 0.9))
