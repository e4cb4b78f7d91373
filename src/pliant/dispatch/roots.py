"""What a capture starts from: a call of a callable, or a frame resumed in its middle."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant.guards.sources import ArgSource
from pliant.records import dataclass

if TYPE_CHECKING:
    from pliant.bytecode.resume import ResumePoint


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class CallableRoot:
    """`fn(*args, **kwargs)`; `fn` is any callable the user compiled."""

    fn: Callable[..., Any]

    @property
    def name(self) -> str:
        return str(getattr(self.fn, "__qualname__", type(self.fn).__qualname__))

    @property
    def called(self) -> Any:
        """What of the program runs."""
        return self.fn


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ResumeRoot:
    """A frame of `point.code` going on at `point`; the call's args are (cells, *stack values, *locals)."""

    point: ResumePoint
    globals: dict[str, Any]
    name: str

    @property
    def called(self) -> Any:
        """What of the program runs."""
        return self.point.code


def resume_sources(point: ResumePoint) -> list[tuple[str, ArgSource]]:
    """(slot or local, its source) for each value that a resume function gets, as the tracer reads them."""
    names = [f"stack{i}" for i, bound in enumerate(point.stack) if bound]
    names += ["exception"] * point.handled + list(point.locals)
    return [(name, ArgSource(i, name)) for i, name in enumerate(names, 1)]


Root = CallableRoot | ResumeRoot


def argument_sources(fn: Any, count: int) -> list[ArgSource]:
    """The sources of the first `count` positional arguments of a call, with the names of their parameters."""
    code = getattr(fn, "__code__", None) or getattr(getattr(fn, "__func__", None), "__code__", None)
    if isinstance(fn, torch.nn.Module):
        code = getattr(inspect.getattr_static(type(fn), "forward", None), "__code__", None)
    names = list(code.co_varnames[: code.co_argcount]) if code is not None else []
    if names and not isinstance(fn, types.FunctionType):
        names = names[1:]
    return [ArgSource(i, names[i] if i < len(names) else f"args[{i}]") for i in range(count)]
