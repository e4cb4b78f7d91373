"""Views: which elements, in which strides.

Holds:  no view copies; a size that cannot be viewed raises, as in eager. Comparisons that decide strides guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.graph.shape_rules.registry import Rules
from pliant.graph.tensor_spec import (
    CONJUGATED,
    NEGATED,
    Dim,
    Sizes,
    TensorSpec,
    certain,
    holds,
    is_empty,
    is_row_major,
    key_of,
    keys_of,
    product,
    require,
    row_major_strides,
    same_dim,
    smaller,
    unlikely,
    with_known_sign,
    wrap_dim,
    wrap_dims,
)
from pliant.graph.unsupported import UnsupportedOperator
from pliant.symbolic.expr import ZERO
from pliant.symbolic.rules.division import divide

RULES = Rules()
rule = RULES.rule

_aten = torch.ops.aten


# -- same elements, other sizes ---------------------------------------------------------------------------------------
def infer_size(size: Sequence[Dim], numel: Dim) -> Sizes:
    """`size` with its -1 worked out; raises if it does not have `numel` elements."""
    size = with_known_sign(size)
    unknown = [d for d, extent in enumerate(size) if type(extent) is int and extent == -1]
    if not unknown:
        total = product(size)
        if key_of(total) != key_of(numel):
            require(total == numel, f"shape {list(size)} is invalid for input of size {numel}")
        return tuple(size)
    if len(unknown) > 1:
        raise RuntimeError("only one dimension can be inferred")
    at = unknown[0]
    rest = product([extent for d, extent in enumerate(size) if d != at])
    if certain(rest == 0):
        raise RuntimeError("cannot reshape: the size of -1 is ambiguous")
    found = numel if type(rest) is int and rest == 1 else _part(numel, rest)
    if key_of(found * rest) != key_of(numel):
        require(numel % rest == 0, f"shape {list(size)} is invalid for input of size {numel}")
    return (*size[:at], found, *size[at + 1 :])


def _part(numel: Dim, rest: Dim) -> Dim:
    """numel // rest, where rest is not 0: without what both are multiples of."""
    if type(numel) is int or type(rest) is int:
        return numel // rest
    env = numel.node.shape_env
    found, left = divide(env.expr_of(numel), env.expr_of(rest))
    return env.wrap(found) if left is ZERO else numel // rest


def view_strides(x: TensorSpec, size: Sizes) -> Sizes | None:
    """Strides that show the elements of `x` in another size, or None if a copy is needed.

    Each run of input dimensions that lie densely one in the other is split into output dimensions from its inner end.
    """
    if x.size_key == keys_of(size):
        return x.stride if is_empty(x) else _without_steps_of_one(x)
    if x.stride_key == keys_of(row_major_strides(x.size)) or is_empty(x):
        return row_major_strides(size)
    if (found := _split(x, size)) is not None:
        return found
    if is_row_major(x):
        return row_major_strides(size)
    strides: list[Dim] = [0] * len(size)
    at = len(size) - 1
    step: Dim = x.stride[-1] if x.stride else 1
    run: Dim = 1  # elements of the present run of input dimensions
    taken: Dim = 1  # elements of it that output dimensions use
    for d in range(x.ndim - 1, -1, -1):
        run = run * x.size[d]
        if d > 0 and (key_of(x.size[d - 1]) == 1 or same_dim(x.stride[d - 1], run * step)):
            continue
        while at >= 0 and (_fewer(taken, run) or key_of(size[at]) == 1):
            strides[at] = taken * step
            taken = taken * size[at]
            at -= 1
        if not same_dim(taken, run):
            return None
        if d > 0:
            step, run, taken = x.stride[d - 1], 1, 1
    return tuple(strides) if at == -1 else None


def _without_steps_of_one(x: TensorSpec) -> Sizes:
    """The strides of `x`, and for dimensions of size 1, whose stride leads nowhere, what the dimension within them takes."""
    strides = list(x.stride)
    for d in range(x.ndim - 2, -1, -1):
        if x.size_key[d] == 1:
            strides[d] = x.size[d + 1] * strides[d + 1]
    return tuple(strides)


def _split(x: TensorSpec, size: Sizes) -> Sizes | None:
    """The same where it is seen without a question that each run is split by itself: then it does not matter whether it
    lies densely in the next."""
    strides: list[Dim] = [0] * len(size)
    at = len(size) - 1
    step, run, taken = x.stride[-1] if x.stride else 1, 1, 1
    for d in range(x.ndim - 1, -1, -1):
        run = run * x.size[d]
        if d > 0 and (key_of(x.size[d - 1]) == 1 or x.stride_key[d - 1] == key_of(run * step)):
            continue
        while at >= 0 and (key_of(taken) != key_of(run) or key_of(size[at]) == 1):
            strides[at] = taken * step
            taken = taken * size[at]
            at -= 1
        if key_of(taken) != key_of(run):
            return None
        if d > 0:
            step, run, taken = x.stride[d - 1], 1, 1
    return tuple(strides) if at == -1 else None


def is_split(x: TensorSpec, size: Sequence[Dim]) -> bool:
    """Whether it is seen without a question that `x`, which may have gaps, is shown in another size without a copy."""
    if x.stride_key == keys_of(row_major_strides(x.size)) or all(type(stride) is int for stride in x.stride):
        return False
    try:
        return _split(x, infer_size(size, product(x.size))) is not None
    except RuntimeError:  # eager's error
        return False


def _fewer(taken: Dim, run: Dim) -> bool:
    return key_of(taken) != key_of(run) and not certain(taken == run)


@rule(_aten.view.default, _aten._unsafe_view.default)
def view(x: TensorSpec, size: Sequence[Dim]) -> TensorSpec:
    full = infer_size(size, product(x.size))
    stride = view_strides(x, full)
    if stride is None:
        raise RuntimeError("view size is not compatible with input tensor's size and stride; use .reshape(...)")
    return x.view(full, stride)


@rule(_aten.view_copy.default)
def view_copy(x: TensorSpec, size: Sequence[Dim]) -> TensorSpec:
    return x.like(infer_size(size, product(x.size)))


@rule(_aten._reshape_alias.default)
def reshape_alias(x: TensorSpec, size: Sequence[Dim], stride: Sequence[Dim]) -> TensorSpec:
    return x.view(tuple(size), tuple(stride))


@rule(_aten.view.dtype)
def view_dtype(x: TensorSpec, dtype: torch.dtype) -> TensorSpec:
    old, new = x.dtype.itemsize, dtype.itemsize
    if x.lazy:
        raise UnsupportedOperator("memory that is conjugated or negated when it is read, in another dtype", kind="lazy-view")
    if old == new:
        return TensorSpec(x.size, x.stride, dtype, x.device, x.offset)
    if not x.size:
        raise RuntimeError("a 0-d tensor cannot be viewed in a dtype of another size")
    require(x.stride[-1] == 1, "self.stride(-1) must be 1 to view as a dtype of another size")
    if new < old:
        many = old // new
        stride = (*[s * many for s in x.stride[:-1]], 1)
        return TensorSpec((*x.size[:-1], x.size[-1] * many), stride, dtype, x.device, x.offset * many)
    many = new // old
    for value in (x.size[-1], x.offset, *x.stride[:-1]):
        require(value % many == 0, "sizes, offset and strides must be divisible to view as a wider dtype")
    stride = (*[s // many for s in x.stride[:-1]], 1)
    return TensorSpec((*x.size[:-1], x.size[-1] // many), stride, dtype, x.device, x.offset // many)


@rule(_aten.expand.default)
def expand(x: TensorSpec, size: Sequence[Dim], *, implicit: bool = False) -> TensorSpec:
    size = with_known_sign(size)
    skip = len(size) - x.ndim
    if skip < 0:
        raise RuntimeError("expand: the number of sizes must be at least the number of dimensions")
    sizes: list[Dim] = list(size[:skip])
    strides: list[Dim] = [0] * skip
    for outer in size[:skip]:
        require(outer >= 0, "expand: a new dimension cannot be -1")
    for wanted, extent, stride in zip(size[skip:], x.size, x.stride):
        kept = key_of(wanted) in (-1, key_of(extent))
        if not kept and (key_of(extent) == 1 or not same_dim(wanted, extent)):
            kept = key_of(extent) != 1 and not unlikely(extent != wanted)  # what only running tells is rather kept than repeated
            require(kept or extent == 1, f"expand: size {extent} cannot become {wanted}")
        else:
            kept = True
        sizes.append(extent if kept else wanted)
        strides.append(stride if kept else 0)
    for dim in reversed(range(skip)):
        if key_of(sizes[dim]) == 1 and dim + 1 < len(sizes):  # nothing is repeated
            strides[dim] = sizes[dim + 1] * strides[dim + 1]
    return x.view(tuple(sizes), tuple(strides))


# -- order and number of dimensions -----------------------------------------------------------------------------------
@rule(_aten.permute.default)
def permute(x: TensorSpec, dims: Sequence[int]) -> TensorSpec:
    order = wrap_dims(list(dims), x.ndim)
    if len(order) != x.ndim:
        raise RuntimeError("permute: the number of dims does not match the number of dimensions")
    return x.view(tuple([x.size[d] for d in order]), tuple([x.stride[d] for d in order]))


@rule(_aten.transpose.int)
def transpose(x: TensorSpec, dim0: int, dim1: int) -> TensorSpec:
    a, b = wrap_dim(dim0, x.ndim), wrap_dim(dim1, x.ndim)
    if not x.size:
        return x
    size, stride = list(x.size), list(x.stride)
    size[a], size[b] = size[b], size[a]
    stride[a], stride[b] = stride[b], stride[a]
    return x.view(tuple(size), tuple(stride))


@rule(_aten.t.default)
def t(x: TensorSpec) -> TensorSpec:
    if x.ndim > 2:
        raise RuntimeError("t() expects a tensor with at most 2 dimensions")
    return x.view(x.size[::-1], x.stride[::-1])


@rule(_aten.unsqueeze.default)
def unsqueeze(x: TensorSpec, dim: int) -> TensorSpec:
    d = wrap_dim(dim, x.ndim + 1)
    stride = x.size[d] * x.stride[d] if d < x.ndim else 1
    return x.view((*x.size[:d], 1, *x.size[d:]), (*x.stride[:d], stride, *x.stride[d:]))


def _squeezed(x: TensorSpec, dims: Sequence[int]) -> TensorSpec:
    gone = {d for d in dims if x.size and (key_of(x.size[d]) == 1 or holds(x.size[d] == 1))}
    kept = [d for d in range(x.ndim) if d not in gone]
    return x.view(tuple([x.size[d] for d in kept]), tuple([x.stride[d] for d in kept]))


@rule(_aten.squeeze.default)
def squeeze(x: TensorSpec) -> TensorSpec:
    return _squeezed(x, range(x.ndim))


@rule(_aten.squeeze.dim)
def squeeze_dim(x: TensorSpec, dim: int) -> TensorSpec:
    return _squeezed(x, (wrap_dim(dim, x.ndim),))


@rule(_aten.squeeze.dims)
def squeeze_dims(x: TensorSpec, dims: Sequence[int]) -> TensorSpec:
    return _squeezed(x, wrap_dims(list(dims), x.ndim))


# -- parts ------------------------------------------------------------------------------------------------------------
def _clamped(index: Dim, extent: Dim, lowest: Dim) -> Dim:
    """A slice bound counted from the front and clamped to [lowest, extent]; conditions on sizes are guarded."""
    if type(index) is int and type(extent) is int:
        return min(max(index + extent if index < 0 else index, lowest), extent) if type(lowest) is int else index
    if unlikely(index < 0):
        index = index + extent
    if unlikely(index < lowest):
        return lowest
    return extent if unlikely(index > extent) else index


_FAR = 2**63 - 1


@rule(_aten.slice.Tensor)
def slice_(x: TensorSpec, dim: int = 0, start: Dim | None = None, end: Dim | None = None, step: Dim = 1) -> TensorSpec:
    if not x.size:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor")
    d = wrap_dim(dim, x.ndim)
    require(step > 0, "slice step must be positive")
    extent = x.size[d]
    first = 0 if start is None or key_of(start) == 0 else _clamped(start, extent, 0)
    if end is None or key_of(end) == _FAR or key_of(end) == key_of(extent):
        last = extent
        if type(first) is not int or type(extent) is not int:
            last = first if unlikely(first > extent) else extent
    else:
        last = _clamped(end, extent, first)
        if type(last) is int and type(first) is int:
            last = max(last, first)
    length = last - first
    if key_of(step) != 1:
        length = (length + step - 1) // step
    size = (*x.size[:d], length, *x.size[d + 1 :])
    stride = (*x.stride[:d], x.stride[d] * step, *x.stride[d + 1 :])
    return x.view(size, stride, x.offset + first * x.stride[d])


@rule(_aten.select.int)
def select(x: TensorSpec, dim: int, index: Dim) -> TensorSpec:
    if not x.size:
        raise IndexError("select() cannot be applied to a 0-dim tensor")
    d = wrap_dim(dim, x.ndim)
    extent = x.size[d]
    if not holds_in_range(index, extent):
        raise IndexError(f"select(): index {index} out of range for a dimension of size {extent}")
    index = index + extent if unlikely(index < 0) else index
    return x.view(x.size[:d] + x.size[d + 1 :], x.stride[:d] + x.stride[d + 1 :], x.offset + index * x.stride[d])


def holds_in_range(index: Dim, extent: Dim) -> bool:
    """Whether `-extent <= index < extent`; for what only running tells it is required there."""
    for condition in (index < extent, index >= -extent):
        if type(condition) is bool:
            if not condition:
                return False
        elif not condition.node.shape_env.expect_true(condition.node.expr):
            return False
    return True


@rule(_aten.narrow.default)
def narrow(x: TensorSpec, dim: int, start: Dim, length: Dim) -> TensorSpec:
    return slice_(x, dim, start, start + length)


@rule(_aten.split.Tensor)
def split(x: TensorSpec, split_size: Dim, dim: int = 0) -> list[TensorSpec]:
    d = wrap_dim(dim, x.ndim)
    extent = x.size[d]
    if key_of(split_size) == 0:
        require(extent == 0, "split_size can only be 0 if the dimension size is 0")
        return [x]
    many = max(int((extent + split_size - 1) // split_size), 1)  # which fixes what was read from data, before it is looked at
    require(split_size >= 0, "split expects split_size be non-negative")
    sizes = [split_size] * (many - 1) + [extent - split_size * (many - 1)]
    return split_sizes(x, sizes, dim)


@rule(_aten.split_with_sizes.default)
def split_sizes(x: TensorSpec, sizes: Sequence[Dim], dim: int = 0) -> list[TensorSpec]:
    d = wrap_dim(dim, x.ndim)
    require(sum(sizes) == x.size[d], "split_with_sizes: the sizes must sum to the dimension's size")
    parts = []
    at: Dim = 0
    for length in sizes:
        require(length >= 0, "split_with_sizes: the sizes must not be negative")
        size = (*x.size[:d], length, *x.size[d + 1 :])
        parts.append(x.view(size, x.stride, x.offset + at * x.stride[d]))
        at = at + length
    return parts


@rule(_aten.unbind.int)
def unbind(x: TensorSpec, dim: int = 0) -> list[TensorSpec]:
    d = wrap_dim(dim, x.ndim)
    return [select(x, d, i) for i in range(int(x.size[d]))]


@rule(_aten.diagonal.default)
def diagonal(x: TensorSpec, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorSpec:
    a, b = wrap_dim(dim1, x.ndim), wrap_dim(dim2, x.ndim)
    if a == b:
        raise RuntimeError("diagonal dimensions cannot be identical")
    rows, columns = (x.size[a], x.size[b] - offset) if offset >= 0 else (x.size[a] + offset, x.size[b])
    length = smaller(rows, columns)
    length = length if holds(length >= 0) else 0
    start = x.offset
    if key_of(length) != 0:
        start = start + (offset * x.stride[b] if offset >= 0 else -offset * x.stride[a])
    kept = [d for d in range(x.ndim) if d not in (a, b)]
    size = (*[x.size[d] for d in kept], length)
    return x.view(size, (*[x.stride[d] for d in kept], x.stride[a] + x.stride[b]), start)


@rule(_aten.unfold.default)
def unfold(x: TensorSpec, dim: int, size: Dim, step: Dim) -> TensorSpec:
    d = wrap_dim(dim, x.ndim)
    extent, stride = (x.size[d], x.stride[d]) if x.size else (1, 1)
    require(size <= extent, "unfold: maximum size exceeded")
    require(step > 0, "unfold: step must be positive")
    if not x.size:
        return x.view((size,), (1,))
    sizes = (*x.size[:d], (extent - size) // step + 1, *x.size[d + 1 :], size)
    return x.view(sizes, (*x.stride[:d], stride * step, *x.stride[d + 1 :], stride))


@rule(_aten.as_strided.default)
def as_strided(
    x: TensorSpec, size: Sequence[Dim], stride: Sequence[Dim], storage_offset: Dim | None = None
) -> TensorSpec:
    if len(size) != len(stride):
        raise RuntimeError("as_strided: sizes and strides must have the same length")
    if x.lazy:
        raise UnsupportedOperator("memory that is conjugated or negated when it is read, by strides", kind="lazy-view")
    return x.view(tuple(size), tuple(stride), storage_offset)


@rule(_aten._conj.default)
def conj(x: TensorSpec) -> TensorSpec:
    return x.read_as(x.lazy ^ CONJUGATED)


@rule(_aten._neg_view.default)
def neg_view(x: TensorSpec) -> TensorSpec:
    return x.read_as(x.lazy ^ NEGATED)


@rule(_aten.view_as_real.default)
def view_as_real(x: TensorSpec) -> TensorSpec:
    require(x.dtype.is_complex, "view_as_real is only supported for complex tensors")
    require(not x.lazy, "view_as_real doesn't work on unresolved conjugated tensors. To resolve the conjugate tensor use resolve_conj()")
    stride = (*[s * 2 for s in x.stride], 1)
    return TensorSpec((*x.size, 2), stride, x.dtype.to_real(), x.device, x.offset * 2)


@rule(_aten.view_as_complex.default)
def view_as_complex(x: TensorSpec) -> TensorSpec:
    require(bool(x.size) and x.size[-1] == 2, "view_as_complex: the last dimension must have size 2")
    require(x.stride[-1] == 1, "view_as_complex: the last dimension must have stride 1")
    stride = tuple([s // 2 for s in x.stride[:-1]])
    return TensorSpec(x.size[:-1], stride, x.dtype.to_complex(), x.device, x.offset // 2)


METADATA_WRITES: dict[Any, Any] = {
    _aten.t_.default: t,
    _aten.transpose_.default: transpose,
    _aten.squeeze_.default: squeeze,
    _aten.squeeze_.dim: squeeze_dim,
    _aten.squeeze_.dims: squeeze_dims,
    _aten.unsqueeze_.default: unsqueeze,
    _aten.as_strided_.default: as_strided,
}
