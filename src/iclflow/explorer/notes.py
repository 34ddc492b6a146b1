"""The notes beside controls: what is used instead of what was asked for, and what a choice entails."""

from typing import Any

from iclflow.explorer.state import DEEP_DIM, DEEP_HEADS, GRAMS, LARGEST_SMALL, SMALL_STEPS, State, clamped
from iclflow.training.cost import draw_seconds

__all__ = ["TOO_LONG", "notes_for"]

TOO_LONG = 4.0  # seconds of sampling that the page is willing to wait for


def notes_for(state: State, settings: dict[str, Any]) -> dict[str, str]:
    """The note beside each control that can have one; `settings` are the values that were asked for."""
    asked = {
        name: clamped(name, settings[name], getattr(state, name)) for name in ("heads", "rank", "layers", "log_lr")
    }
    deep, chosen = state.layers > 1, settings.get
    largest = f"at most {10**LARGEST_SMALL:g} with {state.optimizer}, which moves weights by it in every step"
    return {
        "heads": f"at most {DEEP_HEADS} with several layers" if asked["heads"] > state.heads else room_for(state),
        "rank": f"at most D: {state.rank} is used" if asked["rank"] > state.rank else "",
        "layers": layers_note(state, asked["layers"]),
        "log_samples": "" if state.data == "population" else sampling_note(draw_seconds(state.experiment())),
        "rule": rule_note(state),
        "optimizer": "time is learning rate × step, not t/τ" if state.optimizer in SMALL_STEPS else "",
        "log_lr": largest if asked["log_lr"] > state.log_lr else "",
        "data": "several layers are trained on the population" if deep and chosen("data") == "sample" else "",
        "normalize": "1/(N+1) has no meaning with several layers" if deep and chosen("normalize") == "tokens" else "",
        "log_length": ("steps" if state.rule == "descent" else "t/τ") if state.has_length else "",
    }


def room_for(state: State) -> str:
    """Why the heads cannot learn all components, or why there is no rank to choose."""
    if state.model == "merged":
        return "merged key and query have full rank: there is no rank to choose"
    places = state.heads * state.rank
    return f"room for {places} of {state.dim} components" if places < state.dim else ""


def layers_note(state: State, asked: int) -> str:
    """What several layers entail, or why there is only one."""
    if asked > state.layers:
        return f"several layers only up to D = {DEEP_DIM}: one is used"
    return f"label blocks only; {GRAMS} Gram matrices stand for the population" if state.layers > 1 else ""


def rule_note(state: State) -> str:
    """Why the rule is descent, where that was not a choice."""
    if state.data == "sample":
        return "a finite sample is trained by descent"
    if state.layers > 1:
        return "several layers are trained by descent"
    return f"{state.optimizer} takes steps: descent" if state.optimizer != "sgd" else ""


def sampling_note(seconds: float) -> str:
    """How long it takes to sample, and what to do where that is too long."""
    if seconds <= TOO_LONG:
        return f"about {max(seconds, 0.1):.1f} s per seed to sample; theory is that of the population"
    return f"would take about {seconds:.0f} s to sample (limit {TOO_LONG:.0f} s): choose a smaller P or a smaller D"
