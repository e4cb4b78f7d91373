"""`__torch_function__`: subclasses of tensors, other classes that have it, and modes of the program.

In:     calls of PyTorch functions that reach the recorder.
Out:    what the program's `__torch_function__`, which is interpreted, makes of them.
Holds:  a subclass tensor is a fake with a class; the graph sees plain tensors, and the entry gives its outputs their
        class. A trace that breaks while a mode of the program is on is cut before that mode was set.
Source: `torch/overrides.py` for the order in which overrides are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

import torch
from torch.overrides import get_default_nowrap_functions

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import is_list_or_tuple, made_like
from pliant.capture.value_kinds import has_method, is_class, is_parameter
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.guards.kinds import Kind
from pliant.guards.sources import StateSource
from pliant.records import dataclass
from pliant.torch_adapter import asks_overrides, dispatch_of_tensor, no_torch_function

_DISABLED = no_torch_function


@dataclass(slots=True)
class Overrides:
    """What of one trace overrides PyTorch functions. `step`: the operation that first set a mode, in a frame that can be
    cut.
    """

    modes: list[Any] = field(default_factory=list)
    disabled: int = 0  # blocks in which those of classes do not count
    begun_disabled: bool = False
    has_subclasses: bool = False
    devices: int = 0  # blocks of `with device:` that are open; their modes are real ones, above the recorder
    step: int | None = None

    def apply(self, args: Args, kwargs: Kwargs) -> bool:
        """Whether the program's code handles a call with these arguments."""
        return bool(self.modes) or bool(self.overloaded(args, kwargs))

    def overloaded(self, args: Args, kwargs: Kwargs) -> list[Any]:
        """One argument of each class that overrides, subclasses before their bases."""
        found: list[Any] = []
        for value in _each((*args, *kwargs.values())) if not self.disabled else ():
            cls = value.__class__
            if not _overrides(value, cls) or any(cls is one.__class__ for one in found):
                continue
            place = next((i for i, one in enumerate(found) if issubclass(cls, one.__class__)), len(found))
            found.insert(place, value)
        return found


def _each(values: Any) -> Iterator[Any]:
    return (one for value in values for one in (value if is_list_or_tuple(value) else (value,)))


def _overrides(value: Any, cls: type) -> bool:
    if is_fake(value) and value.subclass_ is None or is_class(value):
        return False
    return getattr(cls, "__torch_function__", _DISABLED) is not _DISABLED


def begin_overrides(t: Tracer) -> None:
    """A trace that begins inside a block of `DisableTorchFunctionSubclass` asks no class."""
    t.overrides.begun_disabled = not asks_overrides()
    if t.overrides.begun_disabled:
        t.overrides.disabled = 1
        note_disabled(t)


def note_disabled(t: Tracer) -> None:
    """What comes of the trace depends on whether such a block is around the call."""
    t.world.guard(StateSource("overrides"), Kind.STATE, not t.overrides.begun_disabled)


def call_override(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """The innermost mode, or else the classes one after the other, until one does not answer `NotImplemented`."""
    overrides = t.overrides
    owners = overrides.overloaded(args, kwargs)
    if owners:
        note_disabled(t)
    types = tuple(owner.__class__ for owner in owners)
    if overrides.modes:
        mode = overrides.modes.pop()
        try:
            result = t.call(t.get_attr(mode, "__torch_function__"), (function, types, args, kwargs), {})
        finally:
            overrides.modes.append(mode)
        if result is not NotImplemented:
            return result
    for owner in owners:
        result = t.call(t.get_attr(owner.__class__, "__torch_function__"), (function, types, args, kwargs), {})
        if result is not NotImplemented:
            return result
    name = getattr(function, "__name__", str(function))
    raise GraphBreak("unknown-call", f"no implementation found for '{name}' among {[one.__name__ for one in types]}")


def default_override(t: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Any:
    """A subclass' `__torch_function__(func, types, args, kwargs)` unless it has its own: the plain call; its result is of
    the class.
    """
    given = dict(zip(("func", "types", "args", "kwargs"), args)) | kwargs
    if not all(issubclass(cls, one) for one in given["types"]):
        return NotImplemented
    inputs = tuple(t.sequence(given.get("args") or ()))
    t.overrides.disabled += 1
    try:
        result = t.call(given["func"], inputs, dict(t.mapping(given.get("kwargs") or {})))
    finally:
        t.overrides.disabled -= 1
    if given["func"] in get_default_nowrap_functions():
        return result
    return _converted(t, result, cls, inputs)


def _converted(t: Tracer, value: Any, cls: type, inputs: tuple[Any, ...]) -> Any:
    if cls is torch.Tensor or isinstance(value, cls):
        return value
    if is_list_or_tuple(value) or has_method(type(value), "n_sequence_fields"):  # eager looks into nothing else
        return made_like(value, [_converted(t, one, cls, inputs) for one in value])
    if not is_fake(value):
        return value
    return t.recorder.as_class(value, cls) if any(value is one for one in _each(inputs)) else with_class(t, value, cls)


def with_class(t: Tracer, value: Any, cls: type) -> Any:
    """The fake, which is nobody else's, as an instance of the class."""
    value.subclass_ = None if cls is torch.Tensor else cls
    t.overrides.has_subclasses = True
    return value


# ---- modes
def note_mode(t: Tracer) -> None:
    """A mode is about to be set."""
    step = t.step_to_cut()
    if step is None:
        raise GraphBreak("mutated-global-state", "a torch function mode is set")
    if t.overrides.step is None:
        t.overrides.step = step


def push_mode(t: Tracer, mode: Any) -> None:
    note_mode(t)
    t.overrides.modes.append(mode)


def pop_mode(t: Tracer) -> Any:
    if not t.overrides.modes:
        raise GraphBreak("mutated-global-state", "a torch function mode that was set before is left")
    return t.overrides.modes.pop()


def is_program_subclass(value: torch.Tensor) -> bool:
    """Whether it is an ordinary tensor but for its class and its attributes."""
    cls = type(value)
    plain = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)
    return cls not in plain and not has_own_dispatch(cls) and not is_parameter(value)


def has_own_dispatch(cls: type[torch.Tensor]) -> bool:
    """Whether operators on such tensors run code of the class."""
    return getattr(cls, "__torch_dispatch__", None) is not dispatch_of_tensor


def enter_device(t: Tracer, name: str, method: Any, args: tuple[Any, ...]) -> Any:
    """`with device:` sets a mode of PyTorch, which changes calls before they are recorded."""
    if name == "__enter__":
        note_mode(t)
    elif not t.overrides.devices:
        raise GraphBreak("mutated-global-state", "a device that was set before is left")
    result = t.native(method, *args)
    t.overrides.devices += 1 if name == "__enter__" else -1
    return result
