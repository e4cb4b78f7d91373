"""The call that a program is exported with.

In:     a callable and its arguments.
Out:    `Example`: the same call on tensors of its own, without data where their sizes are others.
Holds:  each tensor of the call is an object of its own, dense, from the start of its memory; capture tells by it which
        argument an input of the graph is. Only where it matters to the model that one tensor was given twice is it one
        (`merged`). The caller's tensors are neither changed nor read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from numbers import Number
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pliant.entries.constants import is_constant
from pliant.errors import ExportError, Unsupported
from pliant.exporting.dims import TensorSizes, arguments_of, sizes_of
from pliant.exporting.symbols import Place, size_at
from pliant.graph.fake_tensor import check_supported
from pliant.graph.tensor_spec import TensorSpec, dense_order, strides_in_order
from pliant.records import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """`leaves` of `tree`, which is that of `(args, kwargs)`. `arguments`: by parameter names. `run`: what is followed: the
    model `fn`, or a function that calls it. `first`: for each leaf the place of the first that was the same object."""

    fn: Callable[..., Any]
    run: Callable[..., Any]
    leaves: Sequence[Any]
    tree: pytree.TreeSpec
    first: tuple[int, ...]

    @property
    def call(self) -> tuple[Sequence[Any], dict[str, Any]]:
        args, kwargs = pytree.tree_unflatten(self.leaves, self.tree)
        return args, kwargs

    @property
    def arguments(self) -> dict[str, Any]:
        return arguments_of(self.fn, *self.call)

    @property
    def tensors(self) -> list[torch.Tensor]:
        return list({id(leaf): leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)}.values())

    def said(self, dynamic_shapes: Any) -> dict[int, TensorSizes]:
        return sizes_of(self.arguments, dynamic_shapes)

    def resized(self, places: Sequence[Place], hints: Mapping[str, int]) -> Example:
        """The same call with other sizes where `hints` has others; tensors of unchanged sizes are the same objects."""
        wanted: dict[int, dict[int, int]] = {}
        for place in places:
            if size_at(place, hints) != place.now:
                wanted.setdefault(place.tensor, {})[place.dim] = size_at(place, hints)
        made = {id(one): _resized(one, wanted[id(one)]) for one in self.tensors if id(one) in wanted}
        return self.with_leaves([made.get(id(one), one) for one in self.leaves])

    def with_leaves(self, leaves: Sequence[Any]) -> Example:
        return Example(self.fn, self.run, leaves, self.tree, self.first)

    # ---- tensors that are given twice
    def alike(self) -> list[tuple[int, ...]]:
        """The places of each tensor that the call was given several times."""
        groups: dict[int, list[int]] = {}
        for place, leaf in enumerate(self.leaves):
            if isinstance(leaf, torch.Tensor):
                groups.setdefault(self.first[place], []).append(place)
        return [tuple(group) for group in groups.values() if len(group) > 1]

    def merged(self, groups: Sequence[tuple[int, ...]]) -> Example:
        """The call in which the tensors of each group are one, as the caller's are."""
        heads = {place: group[0] for group in groups for place in group}
        return self.with_leaves([self.leaves[heads.get(place, place)] for place in range(len(self.leaves))])

    def one(self) -> tuple[tuple[int, ...], ...]:
        """Those groups that are one tensor here, too."""
        return tuple(group for group in self.alike() if len({id(self.leaves[place]) for place in group}) == 1)


def example_of(fn: Callable[..., Any], run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Example:
    leaves, tree = pytree.tree_flatten((tuple(args), dict(kwargs)))
    leaves = [set(leaf) if type(leaf) is set else leaf for leaf in leaves]  # as it is now
    for leaf in leaves:
        if not _is_given(leaf):
            raise _refused(arguments_of(fn, args, kwargs), leaf)
    seen: set[int] = set()
    places: dict[int, int] = {}
    first = tuple(places.setdefault(id(leaf), place) for place, leaf in enumerate(leaves))
    return Example(fn, run, [_own(leaf, seen) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], tree, first)


def _is_given(leaf: Any) -> bool:
    """Whether an argument is a tensor or a constant: what another object holds may be something else at each call."""
    return isinstance(leaf, (torch.Tensor, Number, Enum, torch.Generator)) or callable(leaf) or is_constant(leaf)


def _refused(arguments: Mapping[str, Any], leaf: Any) -> ExportError:
    cls = type(leaf)
    way = f"register_dataclass({cls.__qualname__})" if is_dataclass(cls) else f"register_pytree_node({cls.__qualname__}, ...)"
    return ExportError(
        f"{_name_of(arguments, leaf)} is an object of {cls.__module__}.{cls.__qualname__}", kind="argument",
        why="a program takes tensors, constants, and trees of them; what an object holds may change from call to call",
        do=f"register its class, torch.utils._pytree.{way}, pass what it holds, or make it a part of the model",
    )  # fmt: skip


def _name_of(arguments: Mapping[str, Any], leaf: Any) -> str:
    try:
        path = next(path for path, one in pytree.tree_leaves_with_path(arguments) if one is leaf)
    except (ValueError, StopIteration):  # a class was registered without names of what it holds
        return "an argument"
    return f"the argument `{path[0].key}{pytree.keystr(path[1:])}`"  # type: ignore[attr-defined]  # a dict's


def _own(tensor: torch.Tensor, seen: set[int]) -> torch.Tensor:
    """A plain tensor for the argument, which shares no memory with another argument."""
    try:
        check_supported(tensor)
    except Unsupported as error:
        raise ExportError(
            f"an argument cannot be exported: {error.what}", kind="argument", why="it has other parts than dense memory",
            do="pass a plain tensor and make the other one of it in the model",
        ) from None  # fmt: skip
    memory = tensor.untyped_storage()._cdata
    if _order(tensor) is not None and not tensor.storage_offset() and memory not in seen:
        seen.add(memory)
        return tensor.detach()
    return _filled(tensor, tuple(tensor.shape))


def _order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The dimensions from the innermost outwards; None if there are gaps, or elements in one place."""
    if tensor.is_contiguous():
        return tuple(range(tensor.dim() - 1, -1, -1))
    return dense_order(TensorSpec(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device))


def _filled(tensor: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
    """A dense tensor like this one."""
    order = _order(tensor)
    strides = strides_in_order(sizes, range(len(sizes) - 1, -1, -1) if order is None else order)
    made = torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor.detach()) if sizes == tuple(tensor.shape) else made.zero_()


def _resized(tensor: torch.Tensor, sizes: Mapping[int, int]) -> torch.Tensor:
    return _filled(tensor, tuple(sizes.get(dim, size) for dim, size in enumerate(tensor.shape)))
