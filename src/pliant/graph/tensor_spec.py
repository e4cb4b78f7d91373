"""Descriptions of tensors, which shape rules take and return.

In:     sizes and strides (int or `torch.SymInt`), dtype, device.
Out:    `TensorSpec`; one object for one description within an `Interner`, so that descriptions are dictionary keys.
Holds:  a spec is never changed once made; symbolic sizes are told apart by their interned expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from pliant.torch_adapter import current_gpu

Dim: TypeAlias = Any  # int | torch.SymInt: torch's stubs do not type the arithmetic of the latter
Sizes: TypeAlias = tuple[Dim, ...]


CONJUGATED, NEGATED = 1, 2  # bits of `TensorSpec.lazy`


class TensorSpec:
    """`size`, `stride`, `offset` in elements; `contiguous`: whether the layout was recognised as row-major. `lazy`: what is
    done to the elements in memory when they are read."""

    __slots__ = ("size", "stride", "dtype", "device", "offset", "size_key", "stride_key", "row_major", "lazy", "_bytes")
    row_major: bool | None

    def __init__(self, size: Sizes, stride: Sizes, dtype: torch.dtype, device: torch.device, offset: Dim = 0) -> None:
        self.size = size
        self.stride = stride
        self.dtype = dtype
        self.device = _PLACES.get(device) or _placed(device)
        self.offset = offset
        self.size_key = keys_of(size)
        self.stride_key = keys_of(stride)
        self.row_major = None
        self.lazy = 0
        self._bytes: Dim = None

    def storage_bytes(self) -> Dim:
        """Bytes from the start of the storage to the last element; kept, since C++ would ask for it per tensor."""
        if self._bytes is None:
            last = self.offset
            for extent, stride in zip(self.size, self.stride):
                last = last + (extent - 1) * stride
            self._bytes = 0 if 0 in self.size_key else (last + 1) * self.dtype.itemsize
        return self._bytes

    @property
    def ndim(self) -> int:
        return len(self.size)

    def key(self) -> tuple[Any, ...]:
        return (self.size_key, self.stride_key, self.dtype, self.device, key_of(self.offset), self.lazy)

    def read_as(self, lazy: int) -> TensorSpec:
        """The same memory, its elements conjugated or negated when they are read."""
        if lazy == self.lazy:
            return self
        spec = TensorSpec(self.size, self.stride, self.dtype, self.device, self.offset)
        spec.lazy = lazy
        return spec

    def like(
        self, size: Sizes | None = None, stride: Sizes | None = None, dtype: torch.dtype | None = None
    ) -> TensorSpec:
        """A fresh row-major tensor on the same device, unless strides are given."""
        size = self.size if size is None else size
        stride = row_major_strides(size) if stride is None else stride
        return TensorSpec(size, stride, self.dtype if dtype is None else dtype, self.device)

    def view(self, size: Sizes, stride: Sizes, offset: Dim | None = None) -> TensorSpec:
        """A view of the same elements."""
        seen = TensorSpec(size, stride, self.dtype, self.device, self.offset if offset is None else offset)
        seen.lazy = self.lazy
        return seen

    def __repr__(self) -> str:
        return f"TensorSpec({list(self.size)}, {list(self.stride)}, {self.dtype}, {self.device}, {self.offset})"


_PLACES = {torch.device("cpu"): torch.device("cpu"), torch.device("meta"): torch.device("meta")}  # named -> meant


def _placed(device: torch.device) -> torch.device:
    """There is one `cpu`. Of GPUs it is the current one, where the index is left out."""
    if device.index is None:
        return torch.device(device.type, current_gpu() if device.type == "cuda" else 0)
    bare = torch.device(device.type)
    return _PLACES.setdefault(device, bare if bare in _PLACES else device)


def key_of(dim: Dim) -> Any:
    """What tells a size from another: the number, or the interned expression."""
    if type(dim) is int:
        return dim
    expr = dim.node.expr
    number = expr.as_int()
    return expr if number is None else number


def keys_of(dims: Sequence[Dim]) -> tuple[Any, ...]:
    return tuple([dim if type(dim) is int else key_of(dim) for dim in dims])


def same_known(one: Sequence[Dim], other: Sequence[Dim]) -> bool:
    """Whether the numbers are the same, as far as can be seen without a guard."""
    return keys_of(one) == keys_of(other)


def row_major_strides(size: Sequence[Dim]) -> Sizes:
    """Strides of a fresh contiguous tensor; sizes 0 count as 1, as in ATen."""
    strides: list[Dim] = []
    step: Dim = 1
    for extent in reversed(size):
        strides.append(step)
        if type(extent) is not int:
            step = step * at_least_one(extent)
        elif extent > 1:
            step = step * extent
    strides.reverse()
    return tuple(strides)


def at_least_one(extent: Dim) -> Dim:
    """`max(extent, 1)`, without the `max` where the extent is known to be positive."""
    if type(extent) is int:
        return max(extent, 1)
    node = extent.node
    if node.shape_env.statically_known(node.expr.ge(1)) is True or node.shape_env.unbacked_symbols(node.expr):
        return extent
    return torch.sym_max(extent, 1)  # type: ignore[no-untyped-call]


def smaller(one: Dim, other: Dim) -> Dim:
    """The smaller of two sizes."""
    if type(one) is int and type(other) is int:
        return min(one, other)
    found = torch.sym_min(one, other)  # type: ignore[no-untyped-call]
    number = found.node.maybe_as_int() if isinstance(found, torch.SymInt) else None
    return found if number is None else number


def product(dims: Sequence[Dim]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


class Interner:
    """One spec object for one description."""

    def __init__(self) -> None:
        self._specs: dict[tuple[Any, ...], TensorSpec] = {}

    def __call__(self, spec: TensorSpec) -> TensorSpec:
        return self._specs.setdefault(spec.key(), spec)


def is_row_major(spec: TensorSpec) -> bool:
    """Whether ATen's `is_contiguous()` holds (guards where it depends on sizes)."""
    if spec.row_major is None:
        spec.row_major = _is_row_major(spec)
    return spec.row_major


def _is_row_major(spec: TensorSpec) -> bool:
    if spec.stride_key == keys_of(row_major_strides(spec.size)) or is_empty(spec):
        return True
    return packed_in_order(spec, range(spec.ndim - 1, -1, -1))


def packed_in_order(spec: TensorSpec, inner_to_outer: Sequence[int]) -> bool:
    """Whether elements are dense with these dimensions from the innermost outwards; sizes 1 have any stride."""
    step: Dim = 1
    for d in inner_to_outer:
        extent, extent_key = spec.size[d], spec.size_key[d]
        if extent_key == 1 or (type(extent_key) is not int and certain(extent == 1)):
            continue
        if spec.stride_key[d] != key_of(step) and not certain(spec.stride[d] == step):
            return False
        step = step * extent
    return True


def is_empty(spec: TensorSpec) -> bool:
    """Whether a size is 0; sizes made of others may be."""
    return any(key == 0 if type(key) is int else certain(size == 0) for size, key in zip(spec.size, spec.size_key))


def holds(condition: Any) -> bool:
    """The truth of a condition on sizes: a guard where needed, False where only running could tell."""
    if type(condition) is bool:
        return condition
    node = condition.node
    return bool(node.shape_env.evaluate(node.expr, fallback=False))


def certain(condition: Any) -> bool:
    """The same, asked where False is right for every value: memory that is copied, layouts that are not assumed, sizes that
    are required to be equal. Exported programs make no guard of a False."""
    if type(condition) is bool:
        return condition
    node = condition.node
    return bool(node.shape_env.certain(node.expr))


def known(condition: Any) -> bool:
    """Whether it is true of all values, without a guard."""
    return condition if type(condition) is bool else condition.node.shape_env.statically_known(condition.node.expr) is True


def unlikely(condition: Any) -> bool:
    """The truth of a condition that is taken to be false, and checked at run time, where only running could tell."""
    if type(condition) is bool:
        return condition
    node = condition.node
    env, expr = node.shape_env, node.expr
    if env.unbacked_symbols(env.simplify(expr)) and env.statically_known(expr) is None:
        return bool(env.expect(expr, likely=False))
    return holds(condition)


def require(condition: Any, message: str = "sizes do not match", error: type[Exception] = RuntimeError) -> None:
    """Raise as eager would unless the condition holds; learnt, and checked at run time, where only running tells."""
    if type(condition) is not bool:
        condition = condition.node.shape_env.expect_true(condition.node.expr)
    if not condition:
        raise error(message)


def require_floats(x: TensorSpec, what: str) -> None:
    """Raise as eager's kernels do that integers and truth values are not implemented for."""
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise NotImplementedError(f"{what} is not implemented for {x.dtype}")


def same_dim(one: Dim, other: Dim) -> bool:
    return one is other or key_of(one) == key_of(other) or certain(one == other)


def same_sizes(one: Sequence[Dim], other: Sequence[Dim]) -> bool:
    return len(one) == len(other) and all(map(same_dim, one, other))


def with_known_sign(dims: Sequence[Dim]) -> Sizes:
    """Wanted sizes with a symbolic one that is negative (-1: whatever fits) as the number, under a guard."""
    return tuple([d if type(d) is int or not holds(d < 0) else int(d) for d in dims])


def require_same(one: Sequence[Dim], other: Sequence[Dim], message: str = "sizes do not match") -> None:
    if len(one) != len(other):
        raise RuntimeError(message)
    for a, b in zip(one, other):
        if a is not b and key_of(a) != key_of(b):
            require(a == b, message)


DENSE_ORDERS = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}  # channels last, innermost dimension first


def is_channels_last(spec: TensorSpec) -> bool:
    """Whether `is_contiguous(memory_format=channels_last[_3d])` holds."""
    order = DENSE_ORDERS.get(spec.ndim)
    return order is not None and packed_in_order(spec, order)


def suggests_channels_last(x: TensorSpec) -> bool:
    """ATen's `suggest_memory_format()`: strides as of channels last, dense or not; ambiguous ones are row-major."""
    order = DENSE_ORDERS.get(x.ndim)
    if order is None or key_of(x.stride[1]) == 0:
        return False
    least: Dim = 0
    for d in order:
        if key_of(x.size[d]) == 0 or certain(x.stride[d] < least) or (d == 0 and key_of(least) == x.stride_key[1]):
            return False
        least = x.stride[d]
        if key_of(x.size[d]) != 1:
            least = least * x.size[d]
    return True


def channels_last_strides(size: Sequence[Dim]) -> Sizes:
    return strides_in_order(size, DENSE_ORDERS[len(size)])


def strides_in_order(size: Sequence[Dim], inner_to_outer: Sequence[int]) -> Sizes:
    """Strides of a dense tensor whose dimensions lie in this order, sizes 0 counting as 0 (as ATen does here)."""
    strides: list[Dim] = [0] * len(size)
    step: Dim = 1
    for d in inner_to_outer:
        strides[d] = step
        extent = size[d]
        step = step * extent if type(extent) is not int or extent != 1 else step
    return tuple(strides)


def dense_order(spec: TensorSpec) -> tuple[int, ...] | None:
    """The dimensions from the innermost outwards if the layout is non-overlapping and dense, else None.

    Sizes 1 come last; None also where that cannot be seen from the expressions or by guards.
    """
    left = [d for d in range(spec.ndim) if spec.size_key[d] != 1]
    ones = [d for d in range(spec.ndim) if spec.size_key[d] == 1]
    order: list[int] = []
    step: Dim = 1
    while left:
        key = key_of(step)
        found = next((d for d in left if spec.stride_key[d] == key), None)
        if found is None and type(key) is not int:
            found = next((d for d in left if certain(spec.stride[d] == step)), None)
        if found is None:
            return None
        left.remove(found)
        order.append(found)
        step = step * spec.size[found]
    return tuple(order + ones)


def wrap_dim(dim: int, ndim: int) -> int:
    """A dimension counted from the front; `IndexError` as eager raises."""
    dim = int(dim)
    limit = max(ndim, 1)
    if not -limit <= dim < limit:
        raise IndexError(f"dimension out of range (expected to be in [{-limit}, {limit - 1}], but got {dim})")
    return dim + limit if dim < 0 else dim


def wrap_dims(dims: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Several dimensions from the front; none means all."""
    if dims is None:
        return tuple(range(ndim))
    if isinstance(dims, int):
        dims = (dims,)
    found = tuple([wrap_dim(d, ndim) for d in dims])
    if len(set(found)) != len(found):
        raise RuntimeError("a dimension appears twice in the list of dims")
    return found


def broadcast(*sizes: Sequence[Dim]) -> Sizes:
    """The size that all broadcast to."""
    out = tuple(sizes[0])
    for size in sizes[1:]:
        if len(size) == len(out) and all(a is b for a, b in zip(out, size)):
            continue
        if len(size) > len(out):
            out, size = tuple(size), out
        skip = len(out) - len(size)
        out = out[:skip] + tuple([_broadcast_dim(a, b) for a, b in zip(out[skip:], size)])
    return out


def _broadcast_dim(a: Dim, b: Dim) -> Dim:
    if a is b or type(b) is int and b == 1:
        return a
    if type(a) is int and a == 1:
        return b
    if key_of(a) == key_of(b):
        return a
    if type(a) is not int and certain(a == 1):
        return b
    if type(b) is not int and certain(b == 1):
        return a
    require(a == b, f"the sizes {a} and {b} do not broadcast")
    return a if type(a) is int else b
