"""The names of what is kept of every run, in order."""

__all__ = ["CURVES", "NUMBERED", "SCALARS", "columns"]

CURVES = ("curve_step", "curve_time", "loss", "loss_icl", "loss_iwl")
SCALARS = ("final_loss", "steps_done", "components", "drops")
NUMBERED = {"drop_times": "drop_number", "plateau_losses": "plateau_number"}  # `drop` is a method of xarray


def columns(slots: int) -> list[str]:
    """The names of a summary row with room for `slots` drops and the `slots + 1` plateaus around them."""
    drops = [f"drop_time_{i}" for i in range(1, slots + 1)]
    return [*SCALARS, *drops, *(f"plateau_loss_{i}" for i in range(1, slots + 2))]
