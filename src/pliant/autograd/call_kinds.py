"""What each kind of ATen call becomes in a functional graph: a node, a view, a write, or other calls.

In:     an operator and its arguments, as they reach `FunctionalMode`.
Out:    `handler_of(func)`: `handler(mode, func, args, kwargs)` records the call and gives its results.
Holds:  a call that its schema does not describe whole has a handler of its own.
Reads on: `functionalize.py`, `functional_ops.py` (counterparts of writing operators).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.autograd import pooling
from pliant.autograd.aliases import COMPUTED, IDENTITY_VIEWS, Alias, alias_of
from pliant.autograd.functional_ops import FunctionalCall, UnsupportedMutation, functional_call
from pliant.autograd.scatter import placed
from pliant.autograd.views import ViewStep
from pliant.graph import collectives
from pliant.graph.call_plan import argument, decomposed, plan_of
from pliant.graph.concrete_sizes import QUESTIONS
from pliant.graph.fake_tensor import FakeTensor, counting_as
from pliant.graph.passes.purity import is_random
from pliant.graph.tensor_spec import certain, dense_order, same_known

if TYPE_CHECKING:
    from pliant.autograd.functionalize import FunctionalMode

_aten = torch.ops.aten
Handler = Callable[["FunctionalMode", Any, Sequence[Any], dict[str, Any]], Any]


def _pure(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    outputs = mode.compute(func, args, kwargs)
    node_args, node_kwargs = mode.lower_all(args, kwargs)
    mode.bind(mode.emit(func, node_args, node_kwargs, outputs), outputs)
    return outputs


def _clone(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """In an order of memory that the caller wants, it is made where C++ has seen that elements lie otherwise."""
    copy, source = _pure(mode, func, args, kwargs), args[0]
    if mode.in_doubt is not None and kwargs.get("memory_format") not in (None, torch.preserve_format):
        if not all(type(n) is int for n in source.spec.size_key):
            mode.in_doubt.note_copy_of(source, alias_of(copy).base)
    return copy


def _unsafe_view(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Of a copy that is not used otherwise: a tensor of its own."""
    found = _pure(mode, func, args, kwargs)
    if mode.in_doubt is not None:
        mode.in_doubt.note_other(alias_of(args[0]).base, alias_of(found).base)
    return found


def _view(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The first argument is what is viewed."""
    source = args[0] if type(args[0]) is FakeTensor else mode.constant(args[0])
    alias = alias_of(source)
    with counting_as(source):
        outputs = mode.compute(func, (source, *args[1:]), kwargs)
    if outputs is source:
        return outputs
    if func is _aten.as_strided.default:  # it looks at the storage, whatever view it is called on
        size, stride = args[1], args[2]
        args, kwargs, alias = (source, size, stride, outputs.offset_), {}, _storage(source, alias)
    rest, grad = tuple(args[1:]), torch.is_grad_enabled()
    if func in IDENTITY_VIEWS:
        mode.view(outputs, alias, ViewStep(func, rest, kwargs, None, grad), mode.read(alias))
        return outputs
    if func in COMPUTED or source.spec.lazy:  # a node's value is the elements as they are read
        node = mode.call(COMPUTED.get(func, func), mode.read(alias), *rest, **kwargs)
    else:
        viewed = mode.read(alias)
        node = mode.emit(func, (viewed, *placed(func, rest, alias.base, viewed)), kwargs, outputs)
    if type(outputs) is FakeTensor:
        mode.view(outputs, alias, ViewStep(func, rest, kwargs, None, grad), node)
        return outputs
    for index, output in enumerate(outputs):
        item = mode.item(node, index, node.meta["val"][index])
        mode.view(output, alias, ViewStep(func, rest, kwargs, index, grad), item)
    return outputs


def _storage(source: FakeTensor, alias: Alias) -> Alias:
    """All that a tensor's memory holds, detached from its history if the tensor is, and counting writes as it does."""
    root, counted = alias.root(), all(step.counted for step in alias.steps())
    if root.fake.dtype_ is not source.dtype_:  # which autograd does not count as a view: capture does not know
        raise UnsupportedMutation("`as_strided` of memory that holds another type", kind="memory-of-another-type")
    if counted and (source.requires_grad or not root.fake.requires_grad):
        return root
    step = ViewStep(_aten.detach.default, (), {}, None, True, counted)
    return Alias(root.base, root, step, source, root.node, root.version)


def _write(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    call = functional_call(func)
    targets = [argument(key, args, kwargs) for key in call.plan.written]
    given_args, given_kwargs = _arguments(call, args, kwargs)
    outputs = mode.compute(call.func, given_args, given_kwargs)
    if is_random(func) and not call.keeps_written:
        _refuse_other_order(targets, outputs)
    node_args, node_kwargs = mode.lower_all(given_args, given_kwargs)
    node = mode.emit(call.func, node_args, node_kwargs, outputs)
    results = [(node, outputs)]
    if len(call.func._schema.returns) > 1:
        results = [(mode.item(node, i, output), output) for i, output in enumerate(outputs)]
    for result, output in results[: call.fresh]:
        mode.bind(result, output)
    for target, (result, output) in zip(targets, results[call.fresh :]):
        _write_result(mode, target, result, output, call.counted)
    return _returned(call, args, kwargs, [output for _, output in results[: call.fresh]])


def _refuse_other_order(targets: list[Any], outputs: Any) -> None:
    """Random numbers are drawn in the order of the memory that they are for, which a result of its own does not have."""
    for target, drawn in zip(targets, outputs if isinstance(outputs, (list, tuple)) else [outputs], strict=False):
        if type(target) is FakeTensor and same_known(target.size_, drawn.size_) and not same_known(target.stride_, drawn.stride_):
            raise UnsupportedMutation("random numbers are drawn into memory of another order", kind="mutable-operator")


def _normal(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Eager draws sixteen numbers or more in another way where memory has gaps, which results of a graph have not."""
    spec = args[0].spec if type(args[0]) is FakeTensor else None
    if spec is not None and spec.device.type == "cpu" and dense_order(spec) is None and not certain(math.prod(spec.size) < _FEW_NUMBERS):
        raise UnsupportedMutation("normal numbers are drawn into memory with gaps", kind="mutable-operator")
    return _write(mode, func, args, kwargs)


_FEW_NUMBERS = 16


def _write_result(mode: FunctionalMode, target: Any, result: fx.Node, output: Any, counted: bool) -> None:
    if target is None:
        return
    if isinstance(target, (list, tuple)):
        for index, (one, value) in enumerate(zip(target, output)):
            if one is not None:
                mode.write(one, mode.item(result, index, value), counted)
    else:
        mode.write(target if type(target) is FakeTensor else mode.constant(target), result, counted)


def _arguments(
    call: FunctionalCall, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the functional operator is given: everything, or everything but the tensors to write."""
    for position, name, default in call.defaults:
        if position >= len(args) and name not in kwargs:
            kwargs = {**kwargs, name: default}
    if call.keeps_written:
        if call.computes_in_dtype and kwargs.get("dtype") is None:
            kwargs = {**kwargs, "dtype": args[0].dtype}
        return tuple(args), kwargs
    positions = {position for position, _ in call.plan.written}
    names = {name for _, name in call.plan.written}
    return (
        tuple(a for i, a in enumerate(args) if i not in positions),
        {k: v for k, v in kwargs.items() if k not in names},
    )


def _returned(call: FunctionalCall, args: Sequence[Any], kwargs: dict[str, Any], fresh: list[Any]) -> Any:
    """What the program gets back: fresh results, and the written arguments themselves."""
    rest = iter(fresh)
    found = [next(rest) if key is None else argument(key, args, kwargs) for key in call.plan.returned]
    if not found:
        return None
    return found[0] if len(found) == 1 else tuple(found)


def _composite(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    with mode:
        outputs = decomposed(func, args, kwargs)
    return _by_schema(func)(mode, func, args, kwargs) if outputs is NotImplemented else outputs


# ---- calls of which the schema does not say all


def _copy(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`target.copy_(source)`: the source is the new value, cast and expanded."""
    target, source = args[0], args[1]
    if type(source) is not FakeTensor:
        source = mode.constant(source)
    value = mode.read(alias_of(source))
    if source.dtype_ != target.dtype_ or source.device_ != target.device_:
        value = mode.call(_aten._to_copy.default, value, dtype=target.dtype_, device=target.device_)
    if not same_known(source.size_, target.size_):
        value = mode.call(_aten.expand.default, value, list(target.size_))
    base = alias_of(target).base
    if source.requires_grad and base.input is None and same_known(target.size_, base.fake.size_):  # it is all of its memory
        value = mode.call(_aten.clone.default, value)  # the caller may write one of the two, if the other is saved
    mode.write(target, value)
    return target


def _lift_fresh(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`torch.tensor(...)`: a number becomes `full`, larger data an input of the graph."""
    tensor = args[0]
    if type(tensor) is FakeTensor:
        return _view(mode, func, args, kwargs)
    if tensor.numel() != 1 or tensor.device.type != "cpu":
        return _view(mode, func, (mode.constant(tensor),), kwargs)
    output = mode.compute(func, args, kwargs)
    described = {"dtype": tensor.dtype, "device": tensor.device}
    mode.bind(mode.emit(_aten.full.default, (list(tensor.shape), tensor.item()), described, output), output)
    return output


def _batch_norm(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`native_batch_norm` writes its running statistics although its schema does not say so, and PyTorch does not count it."""
    if args[3] is None or not args[5]:
        return _pure(mode, func, args, kwargs)
    functional = _aten._native_batch_norm_legit_functional.default
    outputs = mode.compute(functional, args, kwargs)
    node_args, node_kwargs = mode.lower_all(args, kwargs)
    node = mode.emit(functional, node_args, node_kwargs, outputs)
    mode.bind(node, outputs)
    for target, output in zip(args[3:5], outputs[3:]):
        mode.write(target, output.node.node, counted=False, is_kept=False)
    return outputs[:3]


def _cudnn_batch_norm(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A library's form of the same: it keeps what its own backward wants, which is not used here."""
    with mode:
        room = torch.empty(0, dtype=torch.uint8, device=args[0].device_)
    return (*_batch_norm(mode, _aten.native_batch_norm.default, args, kwargs), room)


def _cudnn_batch_norm_backward(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x, grad, weight, _, _, mean, inverse_deviation, eps, _ = args
    asked = [True, weight is not None, weight is not None]
    given = (grad, x, weight, None, None, mean, inverse_deviation, True, eps, asked)
    return _batch_norm_backward(mode, _aten.native_batch_norm_backward.default, given, kwargs)


def _batch_norm_backward(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """In training the running statistics are not read: passing none of them saves copies of what the forward wrote."""
    if args[7]:
        args = (*args[:3], None, None, *args[5:])
    return _pure(mode, func, args, kwargs)


def _bernoulli(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Drawn in the order of positions, where `bernoulli_`, which becomes the same operator, draws in that of memory."""
    like = args[0]
    with mode:
        rowmajor = torch.empty(like.size_, dtype=like.dtype_, device=like.device_)
    return _pure(mode, func, (rowmajor, *args[1:]), kwargs)


def _max_pool_backward(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Positions that the pooling itself did not find may lie outside their windows, where kernels do not look for them."""
    if not kwargs and pooling.finds(mode.read(alias_of(args[-1])), args[1], list(args[2:-1])):
        return _pure(mode, func, args, kwargs)
    like = mode.compute(func, args, kwargs)
    with mode:
        return pooling.gradient(args[0], args[-1], like)


def _restride(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`t_`, `as_strided_`...: an intermediate becomes the view that the operator's pure form gives."""
    tensor = args[0]
    if func is _aten.resize_.default and len(args) == 2 and not kwargs and tuple(args[1]) == tuple(tensor.size_):
        return tensor
    if type(tensor) is not FakeTensor or alias_of(tensor).base.input is not None:
        raise UnsupportedMutation(f"`{func}` changes the shape of an input in place", kind="metadata-mutation")
    seen = _view(mode, _pure_form(func), args, kwargs)
    _keep_description(mode, tensor)
    tensor.node = seen.node
    seen.node.fake = tensor  # whose history the view has: the other one was made below autograd
    return mode.restrided(tensor, seen.spec)


def _keep_description(mode: FunctionalMode, tensor: FakeTensor) -> None:
    """The node that made a tensor, which later writes may have left behind, keeps the description of its own result."""
    before = mode.new(tensor.size_, tensor.stride_, tensor.dtype_, tensor.device_, offset=tensor.offset_)
    for node in mode.graph.nodes:
        value = node.meta.get("val")
        if value is tensor:
            node.meta["val"] = before
        elif isinstance(value, (tuple, list)) and any(one is tensor for one in value):
            node.meta["val"] = type(value)([before if one is tensor else one for one in value])


def _pure_form(func: Any) -> Any:
    packet, _, overload = func.name().removeprefix("aten::").partition(".")
    pure = getattr(_aten, packet.removesuffix("_"))
    # `transpose_` has one overload, `transpose` has one for dimensions by number and one by name.
    return getattr(pure, overload or ("default" if "default" in pure.overloads() else "int"))


def _zeros(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Zeros without memory, which forward derivatives start from: kernels want memory."""
    return _pure(mode, _aten.zeros.default, args, kwargs)


# Operators whose results share memory though their schemas say nothing of it.
_DISGUISED_VIEWS = {
    _aten.unsafe_split.Tensor: _aten.split.Tensor,
    _aten.unsafe_split_with_sizes.default: _aten.split_with_sizes.default,
}


def _disguised_view(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return _view(mode, _DISGUISED_VIEWS[func], args, kwargs)


def _lazy_view(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if isinstance(args[0], torch.Tensor):
        return _view(mode, func, args, kwargs)
    # A number in a derivative's formula; the engine casts what it makes of it.
    number = -args[0] if func is _aten._neg_view.default else args[0].conjugate()
    return _pure(mode, _aten.full.default, ([], number), {"dtype": torch.complex128})


def _collective(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A functional collective: in the graph it has ended when it returns."""
    return _pure(mode, collectives.blocking(func), args, kwargs)


def _wait(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What this program sent for has arrived; what fills an input may still be under way."""
    tensor = args[0]
    if type(tensor) is FakeTensor and alias_of(tensor).base.input is not None:
        mode.write(tensor, mode.call(collectives.waited(), mode.read(alias_of(tensor))), counted=False)
    return tensor


def _masked_store(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The gradient of what is stored has as many elements as the mask: they are counted where the store runs, since a number
    that only the backward tells could not be checked before."""
    masks = [one for one in args[1] if one is not None]
    values = args[2]
    if len(masks) == 1 and masks[0].dtype is torch.bool and values.requires_grad and values.dim():
        _count_elements(mode, masks[0])
    return _by_schema(func)(mode, func, args, kwargs)


def _count_elements(mode: FunctionalMode, mask: Any) -> None:
    """Have the graph tell how many elements the mask has, a number that the capture had no need of."""
    env: Any = mode.shape_env
    outer, env.replayed = env.replayed, None
    try:
        _pure(mode, _aten.nonzero.default, (mask,), {})
    finally:
        env.replayed = outer


def _question(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return QUESTIONS[func](args[0])


_handlers: dict[Any, Handler] = {
    **dict.fromkeys(QUESTIONS, _question),
    **dict.fromkeys(_DISGUISED_VIEWS, _disguised_view),
    **dict.fromkeys(COMPUTED, _lazy_view),
    **dict.fromkeys((_aten.index_put.default, _aten.index_put_.default), _masked_store),
    _aten._efficientzerotensor.default: _zeros,
    _aten.clone.default: _clone,
    _aten._unsafe_view.default: _unsafe_view,
    _aten.copy_.default: _copy,
    _aten.lift_fresh.default: _lift_fresh,
    _aten.bernoulli.p: _bernoulli,
    _aten.normal_.default: _normal,
    _aten.native_batch_norm.default: _batch_norm,
    _aten.native_batch_norm_backward.default: _batch_norm_backward,
    _aten.max_pool2d_with_indices_backward.default: _max_pool_backward,
    _aten.cudnn_batch_norm.default: _cudnn_batch_norm,
    _aten.cudnn_batch_norm_backward.default: _cudnn_batch_norm_backward,
}


def handler_of(func: Any) -> Handler:
    """What to do for a call of the operator."""
    found = _handlers.get(func)
    if found is None:
        found = _handlers[func] = _composite if plan_of(func).composite else _by_schema(func)
    return found


def _by_schema(func: Any) -> Handler:
    if collectives.described(func) is not None:
        return _wait if func._schema.name == collectives.WAIT else _collective
    if torch.Tag.inplace_view in func.tags:
        return _restride
    if plan_of(func).written:
        return _write
    aliased = any(value.alias_info is not None for value in func._schema.returns)
    return _view if aliased else _pure
