"""Numbers that vary, given to functions that take them only as they are: NumPy's, those of `math` without expressions.

In:     such a function and its arguments, some of them symbolic.
Out:    a break where the call has been captured with many numbers.
Holds:  the function's result is known of these very numbers alone, so each is a graph. After a few the function is called
        between two graphs, which serve all.
"""

from __future__ import annotations

from typing import Any

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.numbers.numpy_scalars import plain_number
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import leaves
from pliant.capture.value_kinds import is_symbolic
from pliant.guards.sources import held


def refuse_many(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> None:
    """Break if this call has been captured with many numbers that vary."""
    numbers = [number for number in map(plain_number, leaves(args, kwargs)) if is_symbolic(number)]
    if not numbers or not all(number.node.has_hint() for number in numbers):
        return
    frame = t.frames[-1]
    place = held(frame.code, f"the call at {frame.op.offset}")
    if t.inputs.policy.keys_vary(place, tuple(number.node.hint for number in numbers)):
        name = getattr(function, "__name__", "a function")
        raise GraphBreak("varying-number", f"{name} of a number that varies")
