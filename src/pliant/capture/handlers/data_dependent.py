"""Numbers and decisions that tensors' elements give: `item` in all its forms, checks of the program, branches that raise.

Holds:  a number read from a tensor is an unbacked symbol, whose value the graph computes. What the program states of it
        is learnt, and checked by the running graph with the program's own message.
        A branch on it is a break, unless one side only raises, or masks and ids say which is taken (`foreseen`): then that
        is recorded, and a call that would take the other runs eagerly.
"""

from __future__ import annotations

import builtins
from typing import Any

import torch

from pliant.bytecode.cfg import can_end
from pliant.bytecode.decode import Op, Program
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows
from pliant.capture.numbers.foreseen import foreseen, name_of
from pliant.capture.protocols.tail_calls import steps_of
from pliant.capture.signatures import Frame, Tracer
from pliant.capture.value_kinds import concrete, is_int, is_str, is_symbolic, varying
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.unbacked import check, is_unbacked, place
from pliant.polyfills import tensors
from pliant.symbolic.sym_node import wrap_node
from pliant.torch_adapter import CHECK, check_is_size, check_with
from pliant.torch_adapter import check as torch_check

ROWS = Rows()
handles, takes = ROWS.handles, ROWS.takes

_NO_MESSAGE = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an "
    "enhancement request to PyTorch.)"
)
_RAISING_OPS = 60  # operations that a side of a branch may have before its `raise`


# ---- numbers
def element(t: Tracer, tensor: FakeTensor) -> Any:
    """`tensor.item()`"""
    return t.native(torch.Tensor.item, tensor)


def to_int(t: Tracer, number: Any) -> Any:
    """`int(number)` of a symbolic number."""
    return number if varying(number) is int else _plain(wrap_node(number.node.sym_int()))


def to_float(t: Tracer, number: Any) -> Any:
    """`float(number)` of a symbolic number."""
    return number if varying(number) is float else _plain(wrap_node(number.node.sym_float()))


def _plain(number: Any) -> Any:
    """The number itself if it is a constant."""
    value = number.node.constant
    return number if value is None else value


@ROWS.instead(torch.nn.functional.one_hot)
def _one_hot(t: Tracer, input: Any, num_classes: Any = -1) -> Any:
    """On fakes the operator checks nothing, and it takes a plain number of classes."""
    if not is_fake(input) or input.dtype_ is not torch.int64:
        return None
    is_plain = is_int(num_classes)
    if is_plain and num_classes == -1 and t.mode.allow_unbacked:  # as many classes as the data has
        return tensors.classes_of_data, (input,)
    if is_plain and num_classes <= 0 and num_classes != -1:
        raise GraphBreak("tensor-error", "one_hot of no classes")
    known = is_symbolic(num_classes) and not is_unbacked(num_classes) and t.truth(num_classes > 0)
    fits = known or is_plain and num_classes > 0
    return (tensors.classes, (input, num_classes)) if fits else None


@takes(bool)
def _bool(t: Tracer, value: Any = False) -> Any:
    return steps_of(type(t).truth)(t, element(t, value) if _is_unknown(t, value) and is_fake(value) else value)


# ---- statements
class Message:
    """Formats the message of a check with marks in place of numbers that are not known yet."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def mark(self, value: Any, spec: str) -> str:
        self.values.append(value)
        return place(len(self.values) - 1, spec)


def in_message(t: Tracer, value: Any, spec: Any) -> str | None:
    """The text of a number in the message of a check; None for other values and elsewhere."""
    if t.message is None or not is_str(spec) or not is_unbacked(value):
        return None
    return t.message.mark(value, spec)


@takes(check_with)
def _check_with(t: Tracer, error_type: Any, cond: Any, message: Any = None) -> None:
    if varying(cond) is not bool or not is_unbacked(cond):
        _check_now(t, error_type, concrete(cond), message)
        return
    marks = t.message = Message()
    try:
        text = _message(t, message)
    finally:
        t.message = None
    name = error_type.__name__
    known = getattr(builtins, name, None) is error_type
    t.recorder.state(check, cond, name if known else error_type, text, *marks.values)


def _message(t: Tracer, message: Any) -> str:
    if message is None:
        return _NO_MESSAGE
    text = t.call(str, (t.call(message, (), {}),), {})
    if varying(text) is not str or t.message is None:
        return text  # type: ignore[no-any-return]
    return "".join([part.marked(t.message.mark) for part in text.parts])


def _check_now(t: Tracer, error: Any, condition: Any, message: Any) -> None:
    if condition is True:
        return
    if condition is not False:
        raise GraphBreak("bad-call", f"{CHECK} of a {type(condition).__name__}")
    t.raise_(error(_message(t, message)))


@takes(check_is_size)
def _check_is_size(t: Tracer, i: Any, message: Any = None, *, max: Any = None) -> None:
    _check_bounds(t, i, 0, max, message)
    if is_symbolic(i):
        t.shape_env.mark_size_like(t.shape_env.expr_of(i))


@takes(torch.sym_constrain_range_for_size, torch.sym_constrain_range)
def _check_bounds(t: Tracer, size: Any, min: Any = None, max: Any = None, message: Any = None) -> None:
    for bound, symbol in ((min, ">="), (max, "<=")):
        if bound is not None:
            t.call(torch_check, (t.compare(symbol, size, bound), message), {})


def take_for_granted(t: Tracer, condition: Any, *refusal: str) -> None:
    """Go on as if a condition on data held, which the graph checks; break with `refusal` where it is known not to."""
    holds = t.recorder.assume(condition) if is_unbacked(condition) else concrete(condition)
    if not holds:
        raise GraphBreak(*refusal)


# ---- branches
def decide(frame: Frame, op: Op, value: Any) -> bool:
    """The truth of what a conditional jump tests."""
    t = frame.tracer
    assumed, seen = (_side_that_returns(frame.program, op) if _is_unknown(t, value) else None), ""
    if assumed is None and _is_unknown(t, value) and op.target is not None:
        assumed = foreseen(frame, op, value)
        seen = name_of(frame, op, assumed is True)
    tested = element(t, value) if assumed is not None and is_fake(value) else value
    condition = t.truth(tested, linked=True)
    if assumed is None or not is_unbacked(condition):
        return bool(concrete(condition))
    if not t.recorder.assume(condition if assumed else torch.sym_not(condition), seen):  # type: ignore[no-untyped-call]
        return not assumed
    return assumed


def for_test(frame: Frame, jump: Op, value: Any) -> Any:
    """What a conditional jump is to test: the number in a tensor, if the jump is no break."""
    is_unknown = is_fake(value) and _is_unknown(frame.tracer, value)
    if not is_unknown or jump.target is None:
        return value
    if _side_that_returns(frame.program, jump) is None and foreseen(frame, jump, value) is None:
        return value
    return element(frame.tracer, value)


def _is_unknown(t: Tracer, value: Any) -> bool:
    """Whether only running the graph tells the truth of the value."""
    if is_fake(value):
        return not value.size_ and t.mode.allow_unbacked and t.recorder.elements.constants.of(value) is None
    return is_unbacked(value)


def _side_that_returns(program: Program, op: Op) -> bool | None:
    """The outcome of a conditional jump whose other side only raises, and does not end an endless loop."""
    assert op.target is not None
    jumps = "TRUE" in op.name
    if _raises(program, op.target):
        return not jumps if can_end(program, op.index + 1, op.target) else None
    if _raises(program, op.index + 1):
        return jumps if can_end(program, op.target, op.index + 1) else None
    return None


def _raises(program: Program, start: int) -> bool:
    """Whether the operations from here lead straight to a `raise`."""
    for op in program.ops[start : start + _RAISING_OPS]:
        if op.name == "RAISE_VARARGS":
            return True
        if op.target is not None or op.name in ("RETURN_VALUE", "YIELD_VALUE", "RERAISE"):
            return False
    return False
