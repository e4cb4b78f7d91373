"""Guards that a program leaves out, at its own risk: `compile(f, options={"guard_filter_fn": which})`.

In:     the guards of a capture, the call it was made for, the program's function.
Out:    those that it keeps.
Holds:  the function is shown what `torch.compile` shows: an object a guard, with the same names; it answers with as many
        truth values. One that raises, or answers otherwise, is the program's mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pliant.errors import ConfigError
from pliant.guards.explain import describe_guard
from pliant.guards.kinds import Guard, Kind
from pliant.guards.sources import Source, value_of
from pliant.interruptions import pass_on
from pliant.records import dataclass
from pliant.source import SourceLocation

GuardFilter = Callable[[Sequence["GuardEntry"]], Sequence[bool]]

_UNREAD: Any = object()
# What PyTorch calls kinds of guards; others have our names.
_TYPES = {
    Kind.TENSOR: "TENSOR_MATCH", Kind.TYPE: "TYPE_MATCH", Kind.IDENTITY: "ID_MATCH", Kind.EQUALS: "EQUALS_MATCH",
    Kind.LENGTH: "SEQUENCE_LENGTH",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GuardEntry:
    """A guard as the program's function is shown it."""

    name: str  # of the value, in words: `x`, `self.scale`
    text: str  # the whole fact
    guard_type: str
    is_global: bool  # whether the value is found by way of a global variable
    has_value: bool
    value: Any  # None if it cannot be read
    origin: SourceLocation | None  # the line of the program that needs the fact


def filtered(guards: Sequence[Guard], keeps: GuardFilter, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Guard]:
    """The guards that the program's function keeps."""
    try:
        kept = [bool(keep) for keep in keeps([_entry(guard, args, kwargs) for guard in guards])]
    except Exception as error:
        pass_on(error)
        raise _mistake(f"it raised {type(error).__name__}: {error}") from error
    if len(kept) != len(guards):
        raise _mistake(f"it returned {len(kept)} values for {len(guards)} guards")
    return [guard for guard, keep in zip(guards, kept, strict=True) if keep]


def _mistake(why: str) -> ConfigError:
    return ConfigError(
        "guard_filter_fn does not say which guards to keep", kind="guard-filter", why=why,
        do="return a list with True or False for each guard",
    )  # fmt: skip


def _entry(guard: Guard, args: Sequence[Any], kwargs: Mapping[str, Any]) -> GuardEntry:
    source, value = guard.source, _read(guard.source, args, kwargs)
    return GuardEntry(
        name=source.describe() if source is not None else "",
        text=describe_guard(guard),
        guard_type=_TYPES.get(guard.kind, guard.kind.name),
        is_global=_is_global(source),
        has_value=value is not _UNREAD,
        value=None if value is _UNREAD else value,
        origin=guard.origin,
    )


def _is_global(source: Source | None) -> bool:
    """A namespace of globals has no name of its own."""
    while source is not None and source.base is not None:
        source = source.base
    return source is not None and source.is_held and source.describe() == ""


def _read(source: Source | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        return _UNREAD if source is None else value_of(source, args, kwargs)
    except Exception as error:
        pass_on(error)
        return _UNREAD
