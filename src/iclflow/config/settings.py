"""The settings of a training as keywords of a verb, and an optimiser that is given as an object."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from iclflow.config.training import GIVEN, Training
from iclflow.errors import BadInput

if TYPE_CHECKING:
    import optax

__all__ = ["named_optimizer", "refuse_without_effect", "showing_settings"]

WITHOUT_EFFECT = ("test_samples", "gram_samples", "engine", "dtype", "tolerance", "records", "spacing")

Result = TypeVar("Result")


def showing_settings(verb: Callable[..., Result]) -> Callable[..., Result]:
    """Add every setting of `Training` to the signature and the help of a verb that takes them as keywords."""
    fields, signature = Training.model_fields, inspect.signature(verb)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    keyword = inspect.Parameter.KEYWORD_ONLY
    more = [inspect.Parameter(n, keyword, default=f.default, annotation=f.annotation) for n, f in fields.items()]
    verb.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]  # read by `inspect`
    lines = "".join(f"        {name}: {field.description}.\n" for name, field in fields.items())
    lines = lines.replace("adam or muon.", "adam, muon, or any `optax.GradientTransformation`.")
    head, mark, tail = (verb.__doc__ or "").partition("\n    Returns:")
    verb.__doc__ = head + lines + mark + tail
    return verb


def named_optimizer(settings: dict[str, Any]) -> tuple[dict[str, Any], "optax.GradientTransformation | None"]:
    """The settings with a name in place of an optax optimiser, and the optimiser itself."""
    given = settings.get("optimizer")
    if given is None or isinstance(given, str):
        return settings, None
    if not (callable(getattr(given, "init", None)) and callable(getattr(given, "update", None))):
        raise BadInput(f"optimizer: {given!r} must be a name or an optax.GradientTransformation")
    name = getattr(given.update, "__qualname__", "optimiser").partition(".")[0]
    return {**settings, "optimizer": f"{GIVEN}{name}"}, given


def refuse_without_effect(settings: dict[str, Any]) -> None:
    """Settings of how a run is carried out, on which a forecast cannot depend."""
    for name in WITHOUT_EFFECT:
        if name in settings and str(settings[name]) != str(Training.model_fields[name].default):
            raise BadInput(f"{name}: {settings[name]!r} has no effect on a forecast; leave it out")
