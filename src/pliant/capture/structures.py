"""Values in builtin containers: what is in them, and the same containers with other values in their places.

Holds:  a kind of container is a row here; nothing of the program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, TypeGuard

from torch import fx

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.value_kinds import COMPARED_IN_C, ByKind, exactly, is_same_constant, is_symbolic, is_tuple, tuple_of

_PARTS: ByKind[Callable[[Any], Iterable[Any]] | None] = ByKind(
    None,
    families={
        **{cls: cls.__iter__ for cls in (list, tuple, set, frozenset)},
        dict: dict.values,
        slice: lambda value: (value.start, value.stop, value.step),
    },
)
_MADE: ByKind[Callable[[Any, list[Any]], Any] | None] = ByKind(
    None,
    {
        list: lambda value, parts: parts,
        dict: lambda value, parts: dict(zip(value, parts, strict=True)),
        slice: lambda value, parts: slice(*parts),
    },
    {tuple: lambda value, parts: tuple_of(type(value), parts, value)},
)


def is_several(value: Any) -> bool:
    """Whether functions of PyTorch take it, or give it, for several values."""
    return isinstance(value, (tuple, list))


is_list_or_tuple = exactly(list, tuple)  # whose items can be read without methods of the program


def several(value: Any) -> tuple[Any, ...]:
    """The values of a tuple or list; any other value alone."""
    return tuple(value) if is_several(value) else (value,)


def as_tuple(value: Any) -> tuple[Any, ...]:
    """A tuple as it is, any other value alone in one: what a subscript names, what `except` catches, what a function returns."""
    return value if isinstance(value, tuple) else (value,)


def in_form_of(given: Any, values: Any) -> Any:
    """The values as the given one is: the tuple of them, or the one."""
    return tuple(values) if isinstance(given, tuple) else next(iter(values))


def parts_of(value: Any) -> Iterable[Any]:
    """The values in a container."""
    return _PARTS.of(value)(value)  # type: ignore[misc]


def is_container(value: Any) -> bool:
    """Whether `parts_of` looks into it."""
    return _PARTS.of(value) is not None


def leaves(*values: Any) -> Iterator[Any]:
    """What is no container, in the values and the containers among them."""
    for value in values:
        parts = _PARTS.of(value)
        if parts is None:
            yield value
        else:
            yield from leaves(*parts(value))


def reached(start: Any, behind: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
    """The value, what is behind it, what is behind that: each once, the nearest first."""
    found, seen = [start], {id(start)}
    for one in found:
        yield one
        new = {id(other): other for other in behind(one) if id(other) not in seen}
        seen.update(new)
        found += new.values()


def consists_of(value: Any, classes: Container[type]) -> bool:
    """Whether the value is of one of the classes, or a tuple of such values."""
    return all(consists_of(part, classes) for part in value) if is_tuple(value) else type(value) in classes


def are_same_constants(one: Any, other: Any) -> bool:
    """Whether one can stand for the other: constants, or tuples of such."""
    if is_tuple(one) and is_tuple(other):
        return len(one) == len(other) and all(map(are_same_constants, one, other))
    return is_same_constant(one, other)


def argument(given: Any) -> Any:
    """What an argument of a node is in the trace: the value of the node that computes it, or the constant."""
    return given.meta.get("val") if is_node(given) else given


def is_node(value: Any) -> TypeGuard[fx.Node]:
    return isinstance(value, fx.Node)


def has_symbols(*values: Any) -> bool:
    """Whether a symbolic number is among the values."""
    return any(map(is_symbolic, leaves(*values)))


def mapped(value: Any, leaf: Callable[[Any], Any], within: frozenset[int] = frozenset()) -> Any:
    """The structure with `leaf(v)` in place of each `v` that is no list, tuple, dict or slice; a sequence in which nothing is
    new is itself."""
    made = _MADE.of(value)
    if made is None:
        return leaf(value)
    if id(value) in within:
        raise GraphBreak("unknown-object", f"C code would look into a {type(value).__name__} that holds itself")
    before, inside = list(_PARTS.of(value)(value)), within | {id(value)}  # type: ignore[misc]
    after = [leaf(part) if type(part) in COMPARED_IN_C else mapped(part, leaf, inside) for part in before]
    if made in _SEQUENCES and all(a is b for a, b in zip(before, after, strict=True)):
        return value
    return made(value, after)


_SEQUENCES = [_MADE.of([]), _MADE.of(())]


def made_like(value: Any, parts: list[Any]) -> Any:
    """A list, a tuple, a dict or a slice of the value's class with these parts."""
    return _MADE.of(value)(value, parts)  # type: ignore[misc]
