"""What a capture starts from: a call of a callable, or a frame resumed in its middle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pliant.capture.bytecode.resume import ResumePoint


@dataclass(frozen=True, slots=True, eq=False)
class CallableRoot:
    """`fn(*args, **kwargs)`; `fn` is any callable the user compiled."""

    fn: Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class ResumeRoot:
    """A frame of `point.code` going on at `point`; the call's args are (cells, *stack values, *locals)."""

    point: ResumePoint
    globals: dict[str, Any]
    name: str


Root = CallableRoot | ResumeRoot
