"""Write through a view: the value of a tensor after one of its views was given a new value.

In:     a view step, the viewed tensor's old value (fetched only if needed) and the view's new value.
Out:    the node of the viewed tensor's new value.
Holds:  applying the step to the result gives the new value back; other elements are unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import fx

from pliant.autograd.aliases import COMPUTED, Alias, Base, is_identity
from pliant.autograd.functional_ops import UnsupportedMutation
from pliant.autograd.views import ViewStep, steps_overlap

if TYPE_CHECKING:
    from pliant.graph.fake_tensor import FakeTensor

_aten = torch.ops.aten


class Emitter(Protocol):
    """Records operators on nodes."""

    def call(self, func: Any, *args: Any, **kwargs: Any) -> fx.Node: ...

    def read(self, alias: Alias) -> fx.Node: ...


Undo = Callable[[Emitter, ViewStep, Alias, fx.Node], fx.Node]


def write_through(emit: Emitter, step: ViewStep, viewed: Alias, value: fx.Node) -> fx.Node:
    """The new value of `viewed`, given the new value of its view by `step`."""
    if is_identity(step):
        return value
    undo = _UNDO.get(step.func)
    if undo is None:
        raise UnsupportedMutation(f"a write through `{step.func}` is not supported", kind="write-through-view")
    return undo(emit, step, viewed, value)


def _argument(step: ViewStep, position: int, name: str, default: Any = None) -> Any:
    return step.args[position] if position < len(step.args) else step.kwargs.get(name, default)


def _scatter(func: Any) -> Undo:
    """The scatter takes the viewed tensor, the value and the view's own arguments."""

    def undo(emit: Emitter, step: ViewStep, viewed: Alias, value: fx.Node) -> fx.Node:
        if step.func is _aten.as_strided.default:
            if steps_overlap(*step.args[:2]):
                raise UnsupportedMutation("elements are reached twice by a written view", kind="write-through-view")
            if viewed.base.input is not None:
                _check_within(viewed.base.fake, *step.args)  # these alone are written behind the graph
        room = emit.read(viewed)
        return emit.call(func, room, value, *placed(step.func, step.args, viewed.base, room), **step.kwargs)

    return undo


def _check_within(tensor: FakeTensor, size: Any, stride: Any, offset: Any) -> None:
    """Refuse a view of the caller's memory outside the elements of the tensor."""
    expected: Any = 1
    for step, count in sorted(zip(tensor.stride_, tensor.size_), key=lambda one: _hint(one[0])):
        if not (count == 1 or step == expected):
            raise UnsupportedMutation("memory between a written input's elements may be viewed", kind="write-through-view")
        expected = expected * count
    start = offset - tensor.offset_
    last = start + sum((count - 1) * step for count, step in zip(size, stride))
    if not (start >= 0 and last < expected):
        raise UnsupportedMutation("memory outside a written input's elements is viewed", kind="write-through-view")


def _hint(number: Any) -> int:
    return number if type(number) is int else int(number.node.hint or 0)


def placed(func: Any, args: tuple[Any, ...], base: Base, value: fx.Node) -> tuple[Any, ...]:
    """A view's arguments for the value that the base has now: `as_strided` says where in the memory of the base's own tensor,
    and values that were computed begin elsewhere in theirs, which holds nothing but their elements, as a rule."""
    if func is not _aten.as_strided.default:
        return args
    size, stride, offset = args
    if base.input is not None and not _has_all_memory(value):
        _check_within(base.fake, size, stride, offset)
    return size, stride, offset + (value.meta["val"].offset_ - base.fake.offset_)


def _has_all_memory(value: Any) -> bool:
    """Whether it is an input, or one of which such views were written: these copy what lies beside its elements, too."""
    while value.target is _aten.as_strided_scatter.default:
        value = value.args[0]
    return bool(value.op == "placeholder")


def _reshaped(emit: Emitter, step: ViewStep, viewed: Alias, value: fx.Node) -> fx.Node:
    return reshape(emit, value, viewed.fake.size_)


def reshape(emit: Emitter, value: fx.Node, size: tuple[Any, ...]) -> fx.Node:
    """The value in another shape; copied first where its strides do not allow a view."""
    try:
        return emit.call(_aten.view.default, value, list(size))
    except (RuntimeError, ValueError):
        dense = emit.call(_aten.clone.default, value, memory_format=torch.contiguous_format)
        return emit.call(_aten.view.default, dense, list(size))


def _squeezed(emit: Emitter, step: ViewStep, viewed: Alias, value: fx.Node) -> fx.Node:
    return emit.call(_aten.squeeze.dim, value, step.args[0])


def _transposed(emit: Emitter, step: ViewStep, viewed: Alias, value: fx.Node) -> fx.Node:
    return emit.call(step.func, value, *step.args, **step.kwargs)


def _permuted(emit: Emitter, step: ViewStep, viewed: Alias, value: fx.Node) -> fx.Node:
    dims = [d % len(step.args[0]) for d in step.args[0]]
    return emit.call(_aten.permute.default, value, [dims.index(i) for i in range(len(dims))])


def _expanded(emit: Emitter, step: ViewStep, viewed: Alias, value: fx.Node) -> fx.Node:
    size = value.meta["val"].size_
    old = viewed.fake.size_
    extra = len(size) - len(old)
    if all(type(a) is int and a == 1 for a in size[:extra]) and all(
        a is b or a == b for a, b in zip(size[extra:], old)
    ):
        return reshape(emit, value, old)
    raise UnsupportedMutation("a write through an expanded view reaches elements twice", kind="write-through-view")


def _split(emit: Emitter, step: ViewStep, viewed: Alias, value: fx.Node) -> fx.Node:
    dim = _argument(step, 1, "dim", 0)
    assert step.index is not None
    start = step.args[0] * step.index
    return emit.call(
        _aten.slice_scatter.default, emit.read(viewed), value, dim, start, start + value.meta["val"].size_[dim]
    )


def _split_with_sizes(emit: Emitter, step: ViewStep, viewed: Alias, value: fx.Node) -> fx.Node:
    dim = _argument(step, 1, "dim", 0)
    assert step.index is not None
    start = sum(step.args[0][: step.index])
    stop = start + step.args[0][step.index]
    return emit.call(_aten.slice_scatter.default, emit.read(viewed), value, dim, start, stop)


def _unbound(emit: Emitter, step: ViewStep, viewed: Alias, value: fx.Node) -> fx.Node:
    dim = _argument(step, 0, "dim", 0)
    return emit.call(_aten.select_scatter.default, emit.read(viewed), value, dim, step.index)


def _inverse(func: Any) -> Undo:
    return lambda emit, step, viewed, value: emit.call(func, value)


def _retyped(emit: Emitter, step: ViewStep, viewed: Alias, value: fx.Node) -> fx.Node:
    return emit.call(_aten.view.dtype, value, viewed.fake.dtype_)


_UNDO: dict[Any, Undo] = {
    _aten.view.default: _reshaped,
    _aten._reshape_alias.default: _reshaped,
    _aten._unsafe_view.default: _reshaped,
    _aten.squeeze.default: _reshaped,
    _aten.squeeze.dim: _reshaped,
    _aten.squeeze.dims: _reshaped,
    _aten.unsqueeze.default: _squeezed,
    _aten.t.default: _transposed,
    _aten.transpose.int: _transposed,
    _aten.permute.default: _permuted,
    _aten.expand.default: _expanded,
    _aten.select.int: _scatter(_aten.select_scatter.default),
    _aten.slice.Tensor: _scatter(_aten.slice_scatter.default),
    _aten.diagonal.default: _scatter(_aten.diagonal_scatter.default),
    _aten.as_strided.default: _scatter(_aten.as_strided_scatter.default),
    _aten.split.Tensor: _split,
    _aten.split_with_sizes.default: _split_with_sizes,
    _aten.unbind.int: _unbound,
    _aten.view_as_real.default: _inverse(_aten.view_as_complex.default),
    _aten.view_as_complex.default: _inverse(_aten.view_as_real.default),
    _aten.view.dtype: _retyped,
    **{view: _inverse(func) for view, func in COMPUTED.items()},
}
