"""How rules for `vmap` and derivatives are called.

In:     the rule of each operator (`rows`).
Out:    `where_sizes_vary(values)`: a block in which they are taken, if sizes of the values are symbols.
Holds:  a rule for `vmap` is asked below the transforms inside the `vmap` (derivative formulas in C++ ask it too) and above
        those around it. What it calls is theirs. A rule that answers NotImplemented leaves the call to C++, which asks for
        the sizes that it wants.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from pliant import background, torch_adapter
from pliant.records import dataclass

Rule: TypeAlias = (
    "Callable[..., Any]"  # (size of the batch, *arguments): tensors as `Batched`, results with batches in front
)
Rows: TypeAlias = "dict[Any, Rule | PerSample | Differentiable]"


class Batched:
    """A tensor as rules see it. `value`: with the batch as dimension 0, if it has one. `rank`: of a sample."""

    __slots__ = ("has_batch", "rank", "value")

    def __init__(self, value: Tensor, has_batch: bool) -> None:
        self.value = value
        self.has_batch = has_batch
        self.rank = value.dim() - has_batch

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype

    def size(self, dim: int) -> Any:
        """Of a sample."""
        return self.value.size(dim % max(self.rank, 1) + self.has_batch)

    @property
    def sample(self) -> Sequence[Any]:
        """The sizes of a sample."""
        return self.value.shape[self.has_batch :]

    def whole(self, count: Any) -> Tensor:
        """With a batch of this size, be it one of equal samples."""
        return self.value if self.has_batch else self.value.expand(count, *self.value.shape)

    def of_rank(self, rank: int) -> Tensor:
        """With dimensions of 1 in front of a sample, for broadcasting."""
        if not self.has_batch or self.rank >= rank:
            return self.value
        return self.value.reshape(self.value.size(0), *[1] * (rank - self.rank), *self.sample)


def install(rows: Rows) -> None:
    """Have the rules asked in blocks of `where_sizes_vary`."""
    for op, rule in rows.items():
        if isinstance(rule, Differentiable):
            torch_adapter.give_differentiable_kernel(op, functools.partial(_differentiable, rule.composed))
            if rule.mapped is not None:
                _install_mapped(op, rule.mapped)
        else:
            _install_mapped(op, rule)


def _install_mapped(op: Any, rule: Rule | PerSample) -> None:
    kernel = (
        functools.partial(_composed, op, rule.composed)
        if isinstance(rule, PerSample)
        else functools.partial(_kernel, op, rule)
    )
    torch_adapter.give_batched_kernel(op, kernel)


def where_sizes_vary(values: Iterable[Any]) -> AbstractContextManager[Any]:
    """The block in which a `vmap` over these values, or closed over them, is called, or the engine for their derivatives."""
    return _taken() if any(isinstance(one, Tensor) and _varies(one) for one in values) else contextlib.nullcontext()


def for_derivatives_of(graph: fx.Graph) -> AbstractContextManager[Any]:
    """The block in which the engine is called for derivatives of operators that the graph records."""
    if any(graph.find_nodes(op="call_function", target=op) for op in _ASKING):
        return _taken()
    return torch_adapter.python_kernels() if _PRODUCTS_ASK else contextlib.nullcontext()


# Operators with derivatives in C++ that call compositions of `derivatives`.
_ASKING = (torch.ops.aten.convolution_backward.default,)
_PRODUCTS_ASK = torch_adapter.VERSION < "2.13"  # for plain sizes: `matmul` in C++, which formulas of derivatives call


def _taken() -> AbstractContextManager[Any]:
    with _installing:
        _installed()
    return torch_adapter.python_kernels()


_installing = background.lock()  # PyTorch refuses a second kernel for an operator


@functools.cache
def _installed() -> None:
    install(importlib.import_module("pliant.graph.map_rules.rows").ROWS)  # most processes never need it


def _varies(tensor: Tensor) -> bool:
    """Whether a size is a symbol, be it that of a batch."""
    return any(isinstance(size, torch.SymInt) for size in torch_adapter.below_transforms(tensor).shape)


def _any_varies(args: Any, kwargs: Any) -> bool:
    return any(isinstance(one, Tensor) and _varies(one) for one in tree_leaves((args, kwargs)))


def _composed(op: Any, composed: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    made = composed(*args, **kwargs) if _any_varies(args, kwargs) else NotImplemented
    return torch_adapter.batched_kernel_in_c(op, args, kwargs) if made is NotImplemented else made


def _differentiable(composed: Callable[..., Any], in_c: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    made = composed(*args, **kwargs) if _any_varies(args, kwargs) else NotImplemented
    return in_c(*args, **kwargs) if made is NotImplemented else made


def _kernel(op: Any, rule: Rule, *args: Any, **kwargs: Any) -> Any:
    level = torch_adapter.current_transform()
    if level is None or not _any_varies(args, kwargs):
        return torch_adapter.batched_kernel_in_c(op, args, kwargs)
    count: list[Any] = []

    def given(tensor: Tensor) -> Batched:
        value, place = torch_adapter.taken_apart(tensor, level)
        if place is None:
            return Batched(value, False)
        count.append(value.size(place))
        return Batched(value.movedim(place, 0) if place else value, True)

    with torch_adapter.below_batches():
        inner_args, inner_kwargs = tree_map_only(Tensor, given, (args, kwargs))
        if not count:  # the batch is that of a `vmap` further out
            return op(*args, **kwargs)
        result = rule(count[0], *inner_args, **inner_kwargs)
    if result is NotImplemented:
        return torch_adapter.batched_kernel_in_c(op, args, kwargs)
    return tree_map(lambda one: torch_adapter.with_batch(one, level) if isinstance(one, Tensor) else one, result)


@dataclass(frozen=True, slots=True)
class PerSample:
    """A rule that composes the operator from others, for one sample: of the operator's arguments as they are."""

    composed: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Differentiable:
    """A rule that composes the operator from others where derivatives are recorded: its own derivative, or a composition in
    C++, asks for plain sizes. `mapped`: its rule for `vmap`, where C++'s is none for symbolic sizes."""

    composed: Callable[..., Any]
    mapped: Rule | PerSample | None = None


def writes(functional: Callable[..., Any]) -> PerSample:
    """The rule of an operator that writes its first argument, made of the one that gives a new tensor."""

    def composed(written: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return written.copy_(functional(written, *args, **kwargs))

    return PerSample(composed)


def side_by_side(one: Tensor) -> Tensor:
    """[batch, n, channels, ...] as [n, batch * channels, ...]: a batch as further channels, or groups of them."""
    return one.transpose(0, 1).flatten(1, 2)


def apart_again(count: Any, one: Tensor) -> Tensor:
    """The contrary, for a batch of `count`."""
    return one.reshape(one.size(0), count, one.size(1) // count, *one.shape[2:]).transpose(0, 1)
