"""Attributes that a call stores, as programs may leave them: a call behind it would do the same.

In:     the effects of a trace.
Out:    those that store a constant or a size in an attribute; the program's objects as they are behind the call, for a while.
Holds:  a model may set an attribute at each call, or once. Where it is as the call leaves it, a second capture must give the
        same graph and leave the same: then so does every later call, and the exported program, which has no such attribute,
        is right for all of them. A counter is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from pliant.capture.trace import DELETED, Effect, SetItem, Trace
from pliant.entries.constants import is_constant
from pliant.exporting.differences import difference
from pliant.exporting.program import Program
from pliant.guards.sources import AttributeSource
from pliant.symbolic.printer import to_python

_MISSING = object()


def attributes_stored(traced: Trace) -> list[SetItem]:
    """The effects that store a constant, or a size, in an attribute. Not of attributes that are left as they were: set and set
    back, or set to what they are."""
    found = [one for one in traced.effects if isinstance(one, SetItem) and _is_attribute(one, traced)]
    changed = {(id(one.obj), one.key) for one in found if one.obj.get(one.key, _MISSING) is not one.value}
    return [one for one in found if (id(one.obj), one.key) in changed]


def _is_attribute(effect: SetItem, traced: Trace) -> bool:
    _, source = traced.origins.get(id(effect.obj), (None, None))
    own = isinstance(source, AttributeSource) and source.name == "__dict__"
    kept = effect.value is not DELETED and (is_constant(effect.value) or isinstance(effect.value, torch.SymInt))
    return own and type(effect.key) is str and kept


def stores_alike(later: Sequence[SetItem], first: Sequence[SetItem]) -> bool:
    """Whether what a later call stores is what the first one did."""
    known = {(id(one.obj), one.key): one.value for one in first}
    return all(_same(known.get((id(one.obj), one.key), _MISSING), one.value) for one in later)


def _same(found: object, value: object) -> bool:
    if isinstance(found, torch.SymInt) and isinstance(value, torch.SymInt):
        return to_python(found.node.expr) == to_python(value.node.expr)
    return type(found) is type(value) and repr(found) == repr(value)


def is_same(one: Program, other: Program) -> bool:
    """Whether two captures of a model are one program: constants may have been made of an attribute."""
    if difference(one, other) or one.state.keys() != other.state.keys():
        return False
    return all(_is_one(tensor, other.state[name]) for name, tensor in one.state.items())


def _is_one(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return tensor.data_ptr() == other.data_ptr() or torch.equal(tensor, other)


@contextmanager
def as_stored(effects: Sequence[SetItem], more: int) -> Iterator[None]:
    """Have the attributes these values within. `more`: added to sizes, which are other ones behind another call."""
    before = [(one.obj, one.key, one.obj.get(one.key, _MISSING)) for one in effects]
    try:
        for one in effects:
            one.obj[one.key] = int(one.value.node.hint) + more if isinstance(one.value, torch.SymInt) else one.value
        yield
    finally:
        for obj, key, value in reversed(before):
            if value is _MISSING:
                obj.pop(key, None)
            else:
                obj[key] = value


def tried(effects: Sequence[SetItem]) -> tuple[int, ...]:
    """What to add to sizes, in turn: nothing, and what makes others of them."""
    return (0, 1009) if any(isinstance(one.value, torch.SymInt) for one in effects) else (0,)


def told(effect: Effect, traced: Trace) -> str:
    """What is said of an attribute that the program leaves alone."""
    assert isinstance(effect, SetItem)
    owner = traced.origins[id(effect.obj)][1].describe().removesuffix(".__dict__")
    return f"`{owner}.{effect.key}` is not set"
