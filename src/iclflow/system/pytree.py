"""Frozen dataclasses that JAX can look into."""

from dataclasses import fields
from typing import Any, TypeVar

import jax

__all__ = ["pytree"]

T = TypeVar("T")


def pytree(cls: type[T]) -> type[T]:
    """Register a frozen dataclass; fields with the metadata `static` are part of its structure.

    JAX rebuilds it without calling the constructor: inside `tree_map` the leaves may be anything.
    """
    static = tuple(field.name for field in fields(cls) if field.metadata.get("static"))  # type: ignore[arg-type]
    leaves = tuple(field.name for field in fields(cls) if field.name not in static)  # type: ignore[arg-type]

    def flatten(one: T) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        keyed = [(jax.tree_util.GetAttrKey(name), getattr(one, name)) for name in leaves]
        return keyed, tuple(getattr(one, name) for name in static)

    def unflatten(structure: tuple[Any, ...], values: Any) -> T:
        one = object.__new__(cls)
        vars(one).update(zip((*static, *leaves), (*structure, *values), strict=True))
        return one

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
    return cls
