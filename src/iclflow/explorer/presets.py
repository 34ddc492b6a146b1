"""States to start from, named after the figures of the paper, with the settings of `iclflow reproduce`, and some
beyond it.
"""

from iclflow.explorer.state import State

__all__ = ["PRESETS", "preset_of"]

PRESETS: dict[str, State] = {
    "Fig. 1: one abrupt drop (merged)": State.read({"model": "merged", "heads": 8, "log_init": -3}),
    "Eq. 10: white tokens (merged)": State.read({"model": "merged", "heads": 8, "log_init": -3, "spectrum": "white"}),
    "Fig. 3: saddle to saddle, as published": State.read(
        {"data": "sample", "log_samples": 4.903, "log_lr": -1.699, "log_init": -2, "normalize": "none", "seed": 10,
         "seeds": 6}
    ),
    "Fig. 3: saddle to saddle, smaller weights": State.read({"log_init": -3}),
    "Fig. 4: rank two, D = 8": State.read({"dim": 8, "heads": 9, "rank": 2, "log_init": -2.301, "seeds": 1}),
    "Fig. 4: full rank, D = 8": State.read({"dim": 8, "heads": 9, "rank": 8, "log_init": -2.301, "seeds": 1}),
    "Fig. 6: larger weights, shorter plateaus": State.read({"heads": 20, "log_init": -1.301}),
    "Fig. 6: very large weights, no plateau": State.read({"heads": 20, "log_init": 0}),
    "Short context": State.read({"context": 4, "log_init": -2.523}),
    "Noisy labels": State.read({"noise": 1, "log_init": -2.699}),
    "Unequal tasks: another order of learning": State.read(
        {"log_init": -2.699, "tasks": "power", "task_exponent": -1.5, "spectrum": "power", "exponent": 0.5}
    ),
    "A finite sample": State.read({"data": "sample", "log_samples": 3.7, "log_init": -1.5, "log_lr": -0.7}),
    "Weight decay cuts the staircase off": State.read({"log_decay": -2.7, "log_length": 4}),
    "Momentum on the clock of the flow": State.read({"optimizer": "momentum", "log_lr": -2, "seeds": 1}),
    "Adam: no staircase": State.read({"optimizer": "adam", "log_lr": -2.5, "log_length": 3.5}),
    "Muon: all components together": State.read({"optimizer": "muon", "log_lr": -2.5, "log_length": 3}),
    "Two layers: a second staircase": State.read(
        {"dim": 2, "context": 20, "heads": 4, "layers": 2, "log_init": -1.7, "log_lr": -0.4, "log_length": 3.7,
         "seeds": 1}
    ),
}  # fmt: skip


def preset_of(state: State) -> str | None:
    """The name of the preset that a state is; None if it is another."""
    return next((name for name, preset in PRESETS.items() if preset == state), None)
