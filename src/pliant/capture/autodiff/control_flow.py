"""`torch.cond`, `while_loop`, `scan`, `map` and `associative_scan`: the bodies are graphs, the call is one node. `flex_attention`.

In:     their calls. What they are given may be any structure of tensors; bodies may close over tensors and sizes.
Out:    results in eager's structure; a module of `graph.control_flow` in the graph.
Holds:  bodies have no side effects and do not write what they are given. PyTorch's own versions compile their bodies
        where they are called, so none of them is ever run.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows
from pliant.capture.recording.regions import (
    Region,
    are_tensors,
    flat,
    grad_kept,
    record_module,
    refilled,
    tensors_of,
    versions,
    without_effects,
)
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.graph.control_flow import AssociativeScan, Branch, ControlFlow, Scan, While
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.polyfills import tensors
from pliant.records import dataclass
from pliant.torch_adapter import HIGHER_ORDER, PEER, DisableTorchFunction

ROWS = Rows()
handles, SPECIAL_MODULES = ROWS.handles, ROWS.modules

Handler = Callable[..., Any]


def find(function: types.FunctionType) -> Handler | None:
    """How a function of torch's control flow is called; None for those that are interpreted."""
    handler = _HANDLERS.get((function.__globals__["__name__"].rpartition(".")[2], function.__qualname__))
    if handler is None:
        return None

    def call(t: Tracer, function: types.FunctionType, args: Args, kwargs: Kwargs) -> Any:
        given = inspect.signature(function).bind(*args, **kwargs)
        given.apply_defaults()
        return handler(t, *given.args, **given.kwargs)

    return call


SPECIAL_MODULES[HIGHER_ORDER] = find


# ---- bodies
@dataclass(slots=True)
class _Body:
    """`values`: what the graph takes behind its own parameters. `leaves`: what it returns, flat."""

    module: fx.GraphModule
    values: list[Any]
    leaves: list[Any]
    spec: Any


def _trace(t: Tracer, function: Any, slices: list[Any], arrange: Callable[[list[Any]], tuple[Any, ...]]) -> _Body:
    """The graph of `function(*arrange(parameters))`, its parameters tensors like `slices`."""
    region = Region(t.recorder, differentiated=bool(slices))
    before = versions(region.readable)
    with region.active(), without_effects(t, "a body of control flow"):
        parameters = [region.fresh(one) for one in slices]
        before |= {id(one): one.writes_ for one in parameters}
        with grad_kept():
            result = t.call(function, arrange(parameters), {})
        leaves, spec = flat(t, result)
        if any(one.writes_ != before.get(id(one), 0) for one in tensors_of(region.lifted)):
            raise GraphBreak("tensor-error", "a body of control flow writes what it is given or closes over")
        module = region.close(tensors_of(leaves), "Body")
    if not {type(value) for value in region.lifted} <= {FakeTensor, torch.SymInt}:
        raise GraphBreak("unsupported-tensor", "a body of control flow closes over a symbolic number")
    return _Body(module, region.lifted[len(slices) :], leaves, spec)


def _tensors(t: Tracer, value: Any, what: str) -> tuple[list[FakeTensor], Any]:
    leaves, spec = flat(t, value)
    if not leaves or not are_tensors(leaves):
        raise GraphBreak("tensor-error", f"{what} that are not tensors only")
    return leaves, spec


def _joined(*bodies: _Body) -> tuple[list[Any], list[list[int]]]:
    """What the bodies close over, each value once, and where each body finds its own."""
    values: dict[int, Any] = {id(v): v for body in bodies for v in body.values}
    order = list(values)
    return list(values.values()), [[order.index(id(v)) for v in body.values] for body in bodies]


def _check_alike(some: list[Any], others: list[Any], what: str) -> None:
    """Tensors of the same sizes and dtypes, or the same constants."""
    alike = len(some) == len(others)
    for one, other in zip(some, others):
        if are_tensors((one, other)):
            alike = alike and tuple(one.shape) == tuple(other.shape) and one.dtype == other.dtype
        else:
            alike = alike and type(one) is type(other) and one == other
    if not alike:
        raise GraphBreak("tensor-error", f"{what} differ in sizes, dtypes or structure")


# ---- the calls
def _cond(t: Tracer, pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> Any:
    given = tuple(t.sequence(operands))
    if not is_fake(pred):
        return t.call(true_fn if t.truth(pred) else false_fn, given, {})
    if pred.numel() != 1:
        raise GraphBreak("tensor-error", "torch.cond needs a predicate of one element")
    bodies = [_trace(t, function, [], lambda _: given) for function in (true_fn, false_fn)]
    first, second = bodies
    if first.spec != second.spec:
        raise GraphBreak("tensor-error", "the branches of torch.cond return different structures")
    _check_alike(first.leaves, second.leaves, "the results of torch.cond's branches")
    values, reads = _joined(*bodies)
    program = Branch((first.module, second.module), (reads[0], reads[1]))
    made = record_module(t, ControlFlow(program), [pred, *values], "cond")
    return refilled(first.leaves, made, first.spec)


def _while_loop(t: Tracer, cond_fn: Any, body_fn: Any, carried_inputs: Any) -> Any:
    leaves, spec = _tensors(t, tuple(t.sequence(carried_inputs)), "carried values of while_loop")

    def arrange(parameters: list[Any]) -> tuple[Any, ...]:
        return tuple(pytree.tree_unflatten(parameters, spec))

    condition = _trace(t, cond_fn, leaves, arrange)
    body = _trace(t, body_fn, leaves, arrange)
    if len(condition.leaves) != 1 or not are_tensors(condition.leaves):
        raise GraphBreak("tensor-error", "the condition of while_loop must return one tensor")
    _check_alike(leaves, body.leaves, "what while_loop carries into and out of its body")
    values, reads = _joined(condition, body)
    program = While(condition.module, body.module, len(leaves), (reads[0], reads[1]))
    return _recorded(t, program, [*leaves, *values], "while_loop", spec)


def _recorded(t: Tracer, program: Any, values: list[Any], name: str, spec: Any) -> Any:
    return pytree.tree_unflatten(list(record_module(t, ControlFlow(program), values, name)), spec)


def _scanned(
    t: Tracer, name: str, function: Any, carried: tuple[list[Any], Any] | None, xs: Any, dim: int, program: Any, *args: Any
) -> Any:
    """A node for a body that gets what is carried, and one slice after the other. `carried` is None where that is a slice, too."""
    scanned, spec = _tensors(t, xs, f"values of {name}")
    dim = range(scanned[0].dim())[dim]
    with DisableTorchFunction(), torch.no_grad():
        slices = [t.native(torch.select, one, dim, 0) for one in scanned]
    before, before_spec = (slices, spec) if carried is None else carried
    count = len(before)

    def arrange(given: list[Any]) -> tuple[Any, ...]:
        first = (pytree.tree_unflatten(given[:count], before_spec),) if count else ()
        return *first, pytree.tree_unflatten(given[count:], spec), *args

    body = _trace(t, function, [*before, *slices], arrange)
    after = body.leaves if carried is None else body.leaves[:count]
    _check_alike(before, after, f"what {name} carries into and out of its body")
    if not are_tensors(body.leaves):
        raise GraphBreak("tensor-error", f"the body of {name} returns something other than tensors")
    own = [] if carried is None else before
    made = program(body.module, len(own), len(scanned), dim)
    return _recorded(t, made, [*own, *scanned, *body.values], name, body.spec)


def _scan(t: Tracer, combine_fn: Any, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
    carried = _tensors(t, init, "carried values of scan")
    return _scanned(t, "scan", combine_fn, carried, xs, dim, functools.partial(Scan, reverse=reverse))


def _map(t: Tracer, f: Any, xs: Any, *args: Any) -> Any:
    return _scanned(t, "map", f, ([], None), xs, 0, Scan, *args)


def _associative_scan(
    t: Tracer, combine_fn: Any, xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    program = functools.partial(AssociativeScan, reverse=reverse)
    return _scanned(t, "associative_scan", combine_fn, None, xs, dim, program)


@handles(ControlFlow.forward)
def _again(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """Of a captured graph that is captured itself, as a body that holds control flow is."""
    module, *values = args
    return tuple(record_module(t, module, values, "control_flow"))


# ---- `flex_attention`, the operator that PyTorch's own Python calls, written out as operators that fuse. Its functions see one
# score at a time. Rows without a place to attend to give zeros.
def _attention(t: Tracer, _: Any, *operands: Any) -> Any:
    """The result, and the logarithm of each row's sum and its greatest score, to base 2. All is computed in double precision for
    double inputs and in single precision otherwise."""
    return t.call(tensors.attend, operands[:6], {})


def _find_marker(function: types.FunctionType) -> Callable[..., Any] | None:
    """Sizes are what they are where a graph is recorded."""
    known = function.__name__ in ("mark_static", "mark_dynamic", "maybe_mark_dynamic")
    ours = known and function.__globals__["__name__"] == f"{PEER}.decorators"
    return (lambda t, function, args, kwargs: None) if ours else None


SPECIAL_MODULES[PEER] = _find_marker


_HANDLERS: dict[tuple[str, str], Handler] = {
    ("cond", "cond"): _cond,
    ("while_loop", "while_loop"): _while_loop,
    ("scan", "scan"): _scan,
    ("map", "map"): _map,
    ("associative_scan", "associative_scan"): _associative_scan,
    ("flex_attention", "FlexAttentionHOP.__call__"): _attention,
}
