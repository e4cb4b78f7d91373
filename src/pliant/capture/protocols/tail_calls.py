"""Operations that end in a call: of a function of the program's, or of a polyfill around several of these.

In:     what the steps of an operation give: its result, or a `TailCall`.
Out:    `ending(steps)`: the operation.
Holds:  the result of the call is the result of the operation. So a graph break in a call that is `linked` can cut the
        frames there: what calls and how is said once, for traces with breaks and without.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import field
from typing import Any, TypeGuard

from pliant.capture.signatures import Tracer
from pliant.records import dataclass

Operation = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class TailCall:
    """function(*args, **kwargs)"""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


def is_tail_call(result: Any) -> TypeGuard[TailCall]:
    return type(result) is TailCall


def ended(t: Tracer, result: Any, linked: bool = False) -> Any:
    """The result of an operation whose steps gave this."""
    return t.call(result.function, result.args, result.kwargs, linked) if is_tail_call(result) else result


def within(polyfill: Operation, result: Any, *rest: Any) -> Any:
    """A result as it is; a call of the polyfill with the call that is to be made: polyfill(function, args, *rest)."""
    return TailCall(polyfill, (result.function, result.args, *rest)) if is_tail_call(result) else result


def ending(steps: Operation) -> Operation:
    """The operation of these steps. `linked`: its caller does with the result what its form says (`bytecode.ops.FORMS`)."""

    @functools.wraps(steps)
    def operation(t: Tracer, *args: Any, linked: bool = False) -> Any:
        return ended(t, steps(t, *args), linked)

    return operation


def steps_of(operation: Operation) -> Operation:
    """The steps, for an operation that ends in this one."""
    return operation.__wrapped__  # type: ignore[attr-defined, no-any-return]
