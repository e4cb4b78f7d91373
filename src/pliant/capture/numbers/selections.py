"""Branches on a tensor's value of which both sides are cheap: both are recorded, and `torch.where` takes from one.

In:     a conditional jump on a tensor whose value only the running graph tells (`if x.isinf().any(): x = x.clamp(...)`).
Out:    the frame where both sides meet, or what it returns.
Holds:  a side changes nothing but the frame's own locals and stack, and records only calls that cannot fail and give no
        gradient where nothing is taken from them. What is taken is new memory, so
        a trace that writes it, or shows that it is not what came in, starts again and breaks at the branch.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import fx

from pliant.bytecode.cfg import live_locals, sides
from pliant.bytecode.decode import Op, Program
from pliant.capture.frame import Frame, Handler, Returned, Yielded
from pliant.capture.graph_breaks import BreakBefore, CannotCapture, GraphBreak, Raised, Stopped
from pliant.capture.numbers.number_domains import may_be_number
from pliant.capture.recording.nodes import nodes_behind
from pliant.capture.recording.regions import tensors_of, without_effects
from pliant.capture.recording.stand_ins import StandIn, versions_of
from pliant.capture.signatures import Tracer
from pliant.capture.structures import is_node, reached, several
from pliant.capture.trace import NULL, BreakReason
from pliant.capture.value_kinds import ByKind, exactly, is_fixed_number, is_int, is_same_constant
from pliant.capture.varying_values import TensorOrNumber
from pliant.graph.contracts import known_name
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.interruptions import pass_on
from pliant.records import dataclass
from pliant.source import SourceLocation
from pliant.torch_adapter import C_OPERATORS
from pliant.unpatched import BUILTINS

# What a side may do: it touches the frame's locals and stack alone. Calls are looked at one by one.
OPS = frozenset(
    """LOAD_FAST LOAD_CONST LOAD_GLOBAL LOAD_DEREF LOAD_ATTR LOAD_METHOD PUSH_NULL STORE_FAST POP_TOP COPY SWAP BINARY_OP
    COMPARE_OP IS_OP UNARY_NEGATIVE UNARY_INVERT UNARY_POSITIVE UNARY_NOT TO_BOOL BUILD_TUPLE CALL JUMP POP_JUMP_IF_TRUE
    POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE RETURN_VALUE""".split()
)
_LONGEST = 80  # operations of a side
_PURE = frozenset(
    (torch.finfo, torch.iinfo, float, int, bool, *map(vars(BUILTINS).get, "abs min max len isinstance".split()))
)
# Whether reading an item changes nothing.
STAYS: ByKind[bool] = ByKind(
    False,
    dict.fromkeys((list, tuple, dict, torch.Size, types.MappingProxyType, FakeTensor), True),
    {torch.nn.Module: True},
)
# Calls that are recorded. They cost next to nothing, and their gradients are zero where zero comes in, whatever the numbers.
_SELECTING = frozenset(
    """neg clamp clamp_min clamp_max clip nan_to_num where masked_fill relu to type_as float half double bfloat16 zeros_like
    ones_like full_like new_zeros new_ones new_full zeros ones full isfinite isinf isnan isneginf isposinf any all sum mean
    logical_not logical_and logical_or eq ne lt le gt ge and or invert scalar_tensor""".split()
)
# The same holds for the gradients of these.
_LINEAR = frozenset(
    """add sub getitem chunk split unbind select narrow view reshape flatten squeeze unsqueeze transpose permute t contiguous
    clone expand cat stack""".split()
)
# Of single floats that require no gradients these are as cheap, and cannot fail: division by zero is infinite.
_POINTWISE = frozenset(
    """add sub rsub mul div rdiv truediv true_divide pow square sqrt rsqrt reciprocal abs exp expm1 log log1p log2 sign sin cos tanh
    sigmoid silu minimum maximum floor ceil round lerp""".split()
)
# Calls that say in one of their results whether they failed, where they are not told to raise.
_TELLING = frozenset("linalg_cholesky_ex linalg_inv_ex linalg_lu_factor_ex linalg_ldl_factor_ex linalg_solve_ex".split())
_SHOWN = "a branch on the value of a tensor, and later it matters which tensor it gave"


class Refused(Exception):
    """What would be done in the graph, a branch or a loop, is left to a graph break."""


_is_either = exactly(TensorOrNumber)

STOPS = (Refused, GraphBreak, Raised, CannotCapture, Stopped)  # with which such an attempt ends


def can_be(frame: Frame, jump: Op, value: Any) -> bool:
    """Whether a jump on the value may be done so."""
    if not is_fake(value) or frame.generator is not None or frame.noticed:
        return False
    found = sides(frame.program, jump.index)
    fits = found is not None and all(_may_be_taken(frame, side) for side in found.between)
    return fits and _is_open(frame.tracer, value)  # asked last: of an input whose sizes vary it fixes them


def select(frame: Frame, jump: Op, value: FakeTensor) -> Returned | None:
    """Take both sides of a jump on `value`, in place of the frame's current operation."""
    t, before, found = frame.tracer, Before(frame), sides(frame.program, jump.index)
    assert found is not None
    where = t.location()
    try:
        condition = _condition(t, value)
        last = next(iter(reversed(t.graph.nodes)))
        taken = _Taking(t, before.step, where, condition, last)
        try:
            return _met(frame, taken, _ends(frame, jump, before, (found.meet, found.meet)), found.meet)
        except Refused:
            if found.copies is None:
                raise
            return _met(frame, taken, _ends(frame, jump, before, found.copies), found.copies[0])
    except STOPS as error:
        raise before.left(error, "a branch on the value of a tensor") from None


def _is_open(t: Tracer, value: Any) -> bool:
    """Whether only running the graph tells whether the value is true, and what is recorded is run as it is."""
    if not is_fake(value) or t.recorder.region is not None:
        return False
    has_one = all(is_int(size) and size == 1 for size in value.size_)
    return has_one and not t.recorder.elements.is_known(value) and t.mode.allow_unbacked


def _may_be_taken(frame: Frame, side: Iterable[int]) -> bool:
    ops = [frame.program.ops[index] for index in side]
    return len(ops) <= _LONGEST and all(
        op.name in OPS and not (op.name == "BINARY_OP" and str(op.arg).endswith("=")) for op in ops
    )


def _condition(t: Tracer, value: FakeTensor) -> FakeTensor:
    made = value if value.dtype_ is torch.bool else t.compare("!=", value, 0)
    if not is_fake(made) or made.subclass_ is not None:
        raise Refused("the value is of a class of its own")
    return t.call(torch.Tensor.reshape, (made, ()), {}) if made.size_ else made


# ---- one side
class Before:
    """What a frame is before its current operation."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.step = frame, frame.steps_at_op
        self.values = {name: getattr(frame, name) for name in ("op", "saved", "steps_at_op", "nodes_at_op", "ip")}
        self.stack, self.locals = frame.stack.copy(), frame.locals.copy()

    def restore(self) -> None:
        for name, value in self.values.items():
            setattr(self.frame, name, value)
        self.frame.stack[:] = self.stack
        self.frame.locals.clear()
        self.frame.locals.update(self.locals)

    def left(self, error: BaseException, what: str) -> GraphBreak:
        """The frame as it was, and the break to which the operation is left; where capture has failed, that goes on."""
        pass_on(error)
        t = self.frame.tracer
        if t.failure is not None:
            raise error
        self.restore()
        t.broken_frames, t.active = None, True
        t.steps += 1  # what was recorded is to be left out: the break is not before the operation yet
        return GraphBreak("data-dependent", f"{what} ({error})" if isinstance(error, Refused) else what)


@dataclass(slots=True)
class _End:
    """Where a side leads: what it returns, or the stack and locals with which it comes to the meeting place."""

    returned: Returned | None
    stack: list[Any]
    locals: dict[str, Any]


def _ends(frame: Frame, jump: Op, before: Before, meets: tuple[int | None, int | None]) -> tuple[_End, _End]:
    """Where the sides lead on which the value is true and false; `meets`: where they meet, of the next one and the target's."""
    one, other = (_side(frame, before, start, meet) for start, meet in zip((jump.index + 1, jump.target), meets))
    return (one, other) if "FALSE" in jump.name else (other, one)


def _side(frame: Frame, before: Before, start: int | None, meet: int | None) -> _End:
    assert start is not None
    t = frame.tracer
    before.restore()
    frame.ip = start
    handlers = checked(t.handlers(frame.program), frame.program, _CHECKS)
    last, done = t.last_node(), (t.mode.writes, t.mode.draws, len(t.draws))
    with without_effects(t, "a side of a branch"):
        returned = frame.go_on(handlers, meet)
    if isinstance(returned, Yielded) or (returned is None) != (meet is not None):
        raise Refused("it does not end where the other does")
    if frame.noticed or done != (t.mode.writes, t.mode.draws, len(t.draws)):
        raise Refused("a side does more than compute")
    _check_nodes(last)
    return _End(returned, frame.stack.copy(), frame.locals.copy())


Check = tuple[Callable[[Frame, Op], bool], str]  # whether an operation may be done, and what is refused


def checked(handlers: Iterable[Handler], program: Program, checks: Mapping[str, Check]) -> tuple[Handler, ...]:
    """How operations are done of which some are looked at."""

    def checking(handler: Handler, allows: Callable[[Frame, Op], bool], refused: str) -> Handler:
        def do(frame: Frame, op: Op) -> Any:
            if not allows(frame, op):
                raise Refused(refused)
            return handler(frame, op)

        return do

    pairs = zip(program.ops, handlers, strict=True)
    return tuple([checking(handler, *checks[op.name]) if op.name in checks else handler for op, handler in pairs])


def _may_call(frame: Frame, op: Op) -> bool:
    """Whether a call has no effect but on the graph."""
    function, _ = called(frame, op)
    return _IS_SAFE.of(function)(function) or is_fake(getattr(function, "__self__", None))


def called(frame: Frame, op: Op) -> tuple[Any, list[Any]]:
    """What a call calls, and the values that it is given."""
    shape: Any = op.arg
    low, high, *given = frame.stack[len(frame.stack) - shape.count - 2 :]
    return high if low is NULL else low, given


def is_operator(function: types.BuiltinFunctionType) -> bool:
    return any(getattr(space, function.__name__, None) == function for space in C_OPERATORS)


_IS_SAFE: ByKind[Callable[[Any], bool]] = ByKind(
    lambda function: False,
    {
        type: lambda function: function in _PURE,
        types.FunctionType: lambda function: function.__module__ == "torch.nn.functional",
        types.BuiltinFunctionType: lambda function: function in _PURE or is_operator(function),
    },
)
_CHECKS: dict[str, Check] = {"CALL": (_may_call, "a side calls what may have effects")}


def _check_nodes(last: fx.Node) -> None:
    """Look at what was recorded behind the node."""
    for node in nodes_behind(last):
        value = node.meta.get("val")
        name = name_of_call(node)
        if name in _TELLING and not node.kwargs.get("check_errors") and True not in node.args:
            continue
        if node.op not in ("call_function", "call_method") or not is_fake(value):
            raise Refused("a side does more than compute tensors")
        if name not in _SELECTING and not (name in _POINTWISE and _is_single_float(value)) and not _is_result(node):
            raise Refused(f"`{name}` is not known to be cheap and safe where it is not needed")


def _is_single_float(value: FakeTensor) -> bool:
    single = all(is_int(size) and size == 1 for size in value.size_)
    return single and value.dtype_.is_floating_point and not value.requires_grad


def _is_result(node: fx.Node) -> bool:
    """Whether it takes one of a call's several results."""
    given = node.args[0] if node.args else None
    return node.target is operator.getitem and is_node(given) and not is_fake(given.meta.get("val"))


def name_of_call(node: fx.Node) -> str:
    """What a node calls; of an operation its name without underscores."""
    name = known_name(node)
    return name[2:-2] if name.startswith("__") and name.endswith("__") else name


# ---- both
@dataclass(slots=True)
class _Taking:
    """What a condition takes of pairs of values, from the step and line of the program at which it is asked."""

    t: Tracer
    step: int
    where: SourceLocation | None
    condition: FakeTensor
    last: fx.Node  # before either side

    def of(self, one: Any, other: Any) -> Any:
        if one is other:
            return one
        if {type(one), type(other)} == {tuple} and len(one) == len(other):
            return tuple([self.of(*pair) for pair in zip(one, other, strict=True)])
        if is_fake(one) and is_fake(other) and _are_alike(one, other, self.condition):
            return self.tensor(one, other)
        for value, number in ((one, other), (other, one)):
            if is_fixed_number(number) and _is_either(value):  # of a branch on this side
                return self.of(*[value.tensor if side is value else side for side in (one, other)])
            if is_fixed_number(number) and is_fake(value):
                return self.tensor_or_number(value, one, other)
        if not is_same_constant(one, other):
            raise Refused("its sides give results that `torch.where` cannot choose between")
        return one

    def tensor_or_number(self, tensor: FakeTensor, one: Any, other: Any) -> TensorOrNumber:
        plain = tensor.subclass_ is None and not tensor.requires_grad and may_be_number(tensor, other if tensor is one else one)
        if not plain or tensor.device_ != self.condition.device_ or any(not is_int(n) or n != 1 for n in tensor.size_):
            raise Refused("they give a tensor and a number")
        why = BreakReason("data-dependent", "a branch on the value of a tensor gives a tensor or a number", self.where)
        made: FakeTensor = self.t.call(torch.where, (self.condition, one, other), {})
        if made.dtype_ is not tensor.dtype_:
            raise Refused("they give numbers of different types")
        self.t.stand_ins.append(StandIn(self.step, why, made, (tensor,)))
        return TensorOrNumber(made, lambda: BreakBefore(why, self.step))

    def tensor(self, one: FakeTensor, other: FakeTensor) -> FakeTensor:
        t = self.t
        node_of = t.recorder.node_of
        if one.requires_grad and not _lead_to_the_same(node_of(one), node_of(other), self.last):
            raise Refused("they give gradients to different tensors, or infinite ones to what was not taken")
        made: FakeTensor = t.call(torch.where, (self.condition, one, other), {})
        if not _are_alike(made, one, self.condition):
            raise Refused("what is taken would be laid out otherwise")
        why = BreakReason("data-dependent", _SHOWN, self.where)
        t.stand_ins.append(StandIn(self.step, why, made, (one, other)))
        return made


def _met(frame: Frame, taken: _Taking, ends: tuple[_End, _End], meet: int | None) -> Returned | None:
    """The frame where both sides come together, with what the condition takes."""
    yes, no = ends
    if yes.returned is not None and no.returned is not None:
        return Returned(taken.of(yes.returned.value, no.returned.value))
    assert meet is not None
    live = live_locals(frame.program, meet)
    frame.stack[:] = [taken.of(*pair) for pair in zip(yes.stack, no.stack, strict=True)]
    frame.locals.clear()
    for name in {**yes.locals, **no.locals}:
        one, other = yes.locals.get(name, NULL), no.locals.get(name, NULL)
        if one is other or name in live:
            frame.locals[name] = taken.of(one, other)
    frame.ip = meet
    return None


def _are_alike(one: FakeTensor, other: FakeTensor, condition: FakeTensor) -> bool:
    def facts(tensor: FakeTensor) -> tuple[Any, ...]:
        spec = tensor.spec
        return spec.size_key, spec.stride_key, spec.dtype, spec.device, tensor.requires_grad, tensor.subclass_

    plain = one.subclass_ is None and one.layout is torch.strided and not (one.is_parameter_ or other.is_parameter_)
    return plain and facts(one) == facts(other) and one.device_ == condition.device_


def _lead_to_the_same(one: fx.Node, other: fx.Node, last: fx.Node) -> bool:
    """Whether gradients of both get to the same tensors, on ways that pass zeros on as zeros: a tensor that eager gives
    no gradient must not get zeros, and where a derivative is infinite, zeros come out as NaN."""
    recorded = set(nodes_behind(last))
    found = [_sources(node, recorded) for node in (one, other)]
    order = {node: k for k, node in enumerate(last.graph.nodes)}
    while differing := found[0] ^ found[1]:
        latest = max(differing, key=order.__getitem__)
        if not _passes_zeros(latest):
            return False
        for sources in found:
            if latest in sources:
                sources.remove(latest)
                sources.update(filter(has_gradient, latest.all_input_nodes))
    return True


def _passes_zeros(node: fx.Node) -> bool:
    """Whether zeros as the gradient of what the node gives are zeros for what it takes, whatever the numbers."""
    is_call = node.op in ("call_function", "call_method")
    return is_call and name_of_call(node) in _SELECTING | _LINEAR and not any(versions_of(_values(node)))


def _sources(start: fx.Node, recorded: set[fx.Node]) -> set[fx.Node]:
    """Where gradients come to from a node: at nodes that are not among the recorded ones."""

    def behind(node: fx.Node) -> list[fx.Node]:
        return list(filter(has_gradient, node.all_input_nodes)) if node in recorded else []

    return {node for node in reached(start, behind) if not behind(node)}


def _values(node: fx.Node) -> list[FakeTensor]:
    value = node.meta.get("val")
    return tensors_of(several(value))


def has_gradient(node: fx.Node) -> bool:
    return any(tensor.requires_grad for tensor in _values(node))
