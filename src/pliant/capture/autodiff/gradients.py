"""`torch.autograd.grad` and `backward()` inside a program, and hooks that it registers on tensors it computes.

In:     traced tensors, whose fakes have autograd histories of their own; `tensor.register_hook(function)` and its relatives.
Out:    a node that computes gradients; for `backward`, stores into the leaves' `.grad` as the engine makes them; a node that
        registers the graph of a hook that only computes, else a break, behind which the hook is registered on the real tensor.
Holds:  a history that leads out of the program, and hooks on the tensors that receive gradients, break: only the engine on real
        tensors follows those. A hook whose handle is used, or whose tensor comes from outside, is registered for real.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch.utils.hooks import BackwardHook

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.handlers.table import Rows
from pliant.capture.recording.late_state import runs_later
from pliant.capture.recording.regions import (
    Region,
    are_tensors,
    grad_kept,
    grad_recorded,
    record_module,
)
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.gradients import gradients
from pliant.graph.tensor_hook import TensorHook
from pliant.graph.tensor_spec import dense_order, row_major_strides, same_sizes
from pliant.guards.kinds import Kind
from pliant.guards.sources import AttributeSource, StateSource
from pliant.guards.state import nan_checks
from pliant.torch_adapter import DisableTorchFunction

ROWS = Rows()
handles, takes = ROWS.handles, ROWS.takes

_OUTSIDE = "_IdentityBackward"  # the history of a fake whose real tensor was computed before the program


# ---- torch.autograd.grad
@takes(torch.autograd.grad)
def _grad_of(
    t: Tracer,
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    if not only_inputs:
        raise GraphBreak("unsupported-operator", "torch.autograd.grad with only_inputs=False")
    roots, wanted = _tensors(t, outputs), _tensors(t, inputs)
    given = _tensors(t, grad_outputs) if grad_outputs is not None else (None,) * len(roots)
    _need_own_history(t, roots, wanted)
    for one in wanted:
        _need_no_hooks(t, one, "_backward_hooks", "retains_grad")
    keep = create_graph if retain_graph is None else retain_graph
    unused = bool(allow_unused) or materialize_grads
    found = _record(t, roots, wanted, given, keep, create_graph, unused, is_grads_batched)
    if materialize_grads:
        found = tuple(
            torch.zeros_like(w, requires_grad=create_graph) if g is None else g for g, w in zip(found, wanted)
        )
    return found


def _tensors(t: Tracer, value: Any) -> tuple[Any, ...]:
    if is_fake(value):
        return (value,)
    found = tuple(t.sequence(value))
    if not are_tensors(one for one in found if one is not None):
        raise GraphBreak("unsupported-operator", "gradients with respect to something other than tensors")
    return found


_NOT_RECORDED = "compute it in the same compiled function, without a graph break between, or differentiate outside"
_UNCHECKED = (
    "enter torch.autograd.detect_anomaly around a backward() outside the compiled function, or with check_nan=False"
)


def _record(
    t: Tracer, roots: Any, wanted: Any, given: Any, keep: bool, create_graph: bool, unused: bool, batched: bool = False
) -> tuple[Any, ...]:
    if nan_checks():
        raise GraphBreak("unsupported-operator", "a gradient that torch.autograd.detect_anomaly checks", _UNCHECKED)
    t.world.guard(StateSource("nan_checks"), Kind.STATE, False)
    for one in wanted:
        t.world.note_differentiated(one)
    arguments = (list(roots), list(wanted), list(given), keep, create_graph, unused, batched)
    if not _fit(roots, given, batched):
        raise GraphBreak("tensor-error", "gradients of other sizes than the tensors have, or as many")
    try:
        with DisableTorchFunction():
            found: tuple[Any, ...] = t.native(gradients, *arguments)
    except Raised as raised:  # by the engine on fakes, which words it otherwise, and counts writes of `.data` too
        raise GraphBreak("tensor-error", str(raised.error).partition("\n")[0]) from None
    first = [t.recorder.histories.get(id(one), one) for one in wanted]  # data given later does not cut the history
    t.recorder.record(gradients, (arguments[0], first, *arguments[2:]), {}, found)
    return found


def _fit(roots: Sequence[Any], given: Sequence[Any], batched: bool) -> bool:
    """Whether each result is given a gradient as large, or None; the engine itself would broadcast it."""
    if len(roots) != len(given):
        return False
    pairs = [(root, gradient) for root, gradient in zip(roots, given) if gradient is not None]
    if any(gradient.dtype_.is_complex != root.dtype_.is_complex for root, gradient in pairs):
        return False
    return all(same_sizes(gradient.size_[int(batched) :], root.size_) for root, gradient in pairs)


# ---- where histories lead
def _history(roots: Sequence[FakeTensor]) -> Iterator[Any]:
    """Every node of autograd's graph behind the tensors."""
    queue = [root.grad_fn for root in roots if root is not None and root.grad_fn is not None]
    seen = set(queue)
    for node in queue:
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(following)


def _need_own_history(t: Tracer, roots: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Break if a gradient may flow through what was computed before the program."""
    outside = {node for node in _history(roots) if node.name() == _OUTSIDE}
    if not outside:
        return
    asked = [one for one in wanted if t.inputs.example_of(one) is not None]
    if len(asked) > 1 or len(outside) > 1 or (asked and asked[0].grad_fn not in outside):
        raise GraphBreak("unsupported-operator", "gradients of a tensor that was computed before this function", _NOT_RECORDED)


# ---- backward
@takes(torch.Tensor.backward)
def _tensor_backward(
    t: Tracer, tensor: Any, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None
) -> None:
    _backward(t, tensor, gradient, retain_graph, create_graph, None, inputs)


@takes(torch.autograd.backward)
def _backward(
    t: Tracer,
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """The engine's pass, with its stores."""
    if t.recorder.region is not None:
        raise GraphBreak("unsupported-operator", "backward() inside a function that is differentiated or transformed")
    roots = _tensors(t, tensors)
    given = (None,) * len(roots) if grad_tensors is None else _tensors(t, grad_tensors)
    if any(node.name() == _OUTSIDE for node in _history(roots)):
        raise GraphBreak("unsupported-operator", "backward() through what was computed before this function", _NOT_RECORDED)
    leaves = _leaves(roots) if inputs is None else list(_tensors(t, inputs))
    for leaf in leaves:
        if leaf.grad_fn is not None:
            raise GraphBreak("unsupported-operator", "backward() with inputs that are no leaves")
        _need_no_hooks(t, leaf, "_backward_hooks", "_post_accumulate_grad_hooks")
    keep = create_graph if retain_graph is None else retain_graph
    found = _record(t, roots, leaves, given, keep, create_graph, True)
    if inputs is None and not keep:
        walked = set(_history(roots))
        nodes = [node for node in t.graph.nodes if getattr(node.meta.get("val"), "grad_fn", None) in walked]
        t.recorder.used_up.update(nodes)
    made_elsewhere = {id(one) for one in given}
    for leaf, gradient in zip(leaves, found):
        if gradient is not None:
            _accumulate(t, leaf, gradient, create_graph, made_elsewhere)


def _leaves(roots: Sequence[FakeTensor]) -> list[FakeTensor]:
    """Tensors whose `.grad` the engine fills."""
    found = [root for root in roots if root.grad_fn is None and root.requires_grad]
    for node in _history(roots):
        leaf = getattr(node, "variable", None)
        if leaf is not None and not any(leaf is one for one in found):
            found.append(leaf)
    if not are_tensors(found):
        raise GraphBreak("unsupported-tensor", "backward() reaches a tensor that is not followed")
    return found


def _need_no_hooks(t: Tracer, tensor: FakeTensor, *names: str) -> None:
    example = t.inputs.example_of(tensor)
    source = t.world.source_of(tensor)
    if example is None or source is None:
        return
    for name in names:
        place, hooks = AttributeSource(source, name), getattr(example, name, None)
        if not hooks:
            t.world.guard(place, Kind.EMPTY)
            continue
        t.world.guard(place, Kind.TYPE, type(hooks))  # so that the break ends with the hooks
        if type(hooks) is not bool:
            t.world.guard(place, Kind.LENGTH, len(hooks))
        raise GraphBreak("unsupported-operator", "gradients asked for inside of a tensor that has hooks")


def _accumulate(t: Tracer, leaf: FakeTensor, gradient: FakeTensor, create_graph: bool, shared: set[int]) -> None:
    """`leaf.grad` after the pass: the first gradient itself where it lies as eager wants it and nobody else has it."""
    with grad_recorded(t, create_graph):
        current = t.get_attr(leaf, "grad")
        if current is None:
            # Strides are those of a leaf that is dense; of others, which have gaps or elements in one place, row-major.
            strides = leaf.stride_ if dense_order(leaf.spec) is not None else row_major_strides(leaf.size_)
            dims = zip(gradient.size_, gradient.stride_, strides, strict=True)
            if id(gradient) in shared or not all(bool(n == 1) or bool(a == b) for n, a, b in dims):
                like: dict[str, Any] = {"dtype": gradient.dtype, "device": gradient.device}
                gradient = cast(FakeTensor, torch.empty_strided(leaf.size(), strides, **like).copy_(gradient))
            shared.add(id(gradient))
            t.set_attr(leaf, "grad", gradient)
        elif create_graph:
            t.set_attr(leaf, "grad", current + gradient)
        else:
            current.add_(gradient)


# ---- hooks
@handles(torch.Tensor.register_hook)
def _register_hook(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    tensor, function = (*args, *kwargs.values())
    if t.inputs.example_of(tensor) is not None:
        raise GraphBreak("backward-hook", "a hook on a tensor from outside")
    if not tensor.requires_grad:
        raise GraphBreak("tensor-error", "a hook on a tensor that requires no gradient")
    if not _result_is_dropped(t):
        raise GraphBreak("backward-hook", "a hook whose handle is used")
    region = Region(t.recorder)
    with region.active(), runs_later(t, "a tensor hook", [function]):
        with grad_kept(False):
            found = t.call(function, (region.fresh(tensor),), {})
        if found is None:
            return None
        if not is_fake(found):
            raise GraphBreak("tensor-error", "a tensor hook returned something other than a tensor")
        body = region.close([found], "TensorHook")
    record_module(t, TensorHook(body), [tensor, *region.lifted[1:]], "hook")
    return None


def _result_is_dropped(t: Tracer) -> bool:
    """Whether the statement that called does nothing with the result."""
    frame = t.frames[-1]
    return frame.program.ops[frame.ip].name == "POP_TOP"


ROWS.refuses(
    (torch.Tensor.register_post_accumulate_grad_hook,), "backward-hook", "a hook behind the accumulation of a gradient"
)


def _tie(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """A module's inputs and outputs become those of a function of autograd's graph, which calls its hooks."""
    raise GraphBreak("backward-hook", f"a {type(args[0].module).__name__} with backward hooks")


for _method in (BackwardHook.setup_input_hook, BackwardHook.setup_output_hook):
    handles(_method)(_tie)
