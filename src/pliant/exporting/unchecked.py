"""Operators whose kernels do not check what they are given: places in memory, numbers of elements.

In:     a call of a file's graph: the operator and its arguments, tensors as nodes.
Out:    `may_leave_memory`: whether the kernel might read or write behind the memory of its tensors.
Holds:  what a derivative is given of its forward operator has to be that one's result, of the same tensors, or to have its size.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import fx

from pliant.torch_adapter import OpOverload

_aten = torch.ops.aten


def may_leave_memory(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    is_safe = _ROWS.get(target)
    return is_safe is not None and not is_safe(_by_name(target, args, kwargs))


def _by_name(target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict(zip([one.name for one in target._schema.arguments], args)), **kwargs}


def _checks_lengths(given: Mapping[str, Any]) -> bool:
    """`segment_reduce`: offsets are never checked."""
    return not given.get("unsafe") and given.get("offsets") is None


def _has_pairs(given: Mapping[str, Any]) -> bool:
    """`_cdist_backward`: distances and their gradients are those of all pairs of rows. It is called of transposed ones, too."""
    one, other, grad, found = (given[name].meta["val"].spec.size_key for name in ("x1", "x2", "grad", "cdist"))
    batches = zip_longest(reversed(one[:-2]), reversed(other[:-2]), fillvalue=1)
    batch = [b if a == 1 else a for a, b in batches]
    return bool(grad == found == (*reversed(batch), one[-2], other[-2]))


def _derivative(forward: OpOverload, result: str, item: int | None = None) -> Callable[[Mapping[str, Any]], bool]:
    """Whether the argument `result` is what `forward` gave of the tensors that the derivative is given under the same names, and
    the gradient has the size of it."""
    names = [one.name for one in forward._schema.arguments if "Tensor" in str(one.type)]

    def is_its_result(given: Mapping[str, Any]) -> bool:
        found, grad = given.get(result), given.get("grad_output", given.get("grad"))
        if not isinstance(found, fx.Node) or not isinstance(grad, fx.Node):
            return False
        made: Any = found
        same_size = made.meta["val"].spec.size_key == grad.meta["val"].spec.size_key
        if item is not None:
            if made.target is not operator.getitem or made.args[1] != item:
                return False
            made = made.args[0]
        if made.target is not forward:
            return False
        before = _by_name(forward, made.args, made.kwargs)
        return same_size and all(before.get(name) is given.get(name) for name in names)

    return is_its_result


_ROWS: dict[OpOverload, Callable[[Mapping[str, Any]], bool]] = {
    _aten.max_pool2d_with_indices_backward.default: _derivative(_aten.max_pool2d_with_indices.default, "indices", 1),
    _aten.max_pool3d_with_indices_backward.default: _derivative(_aten.max_pool3d_with_indices.default, "indices", 1),
    _aten.adaptive_max_pool2d_backward.default: _derivative(_aten.adaptive_max_pool2d.default, "indices", 1),
    _aten.adaptive_max_pool3d_backward.default: _derivative(_aten.adaptive_max_pool3d.default, "indices", 1),
    _aten._pdist_backward.default: _derivative(_aten._pdist_forward.default, "pdist"),
    _aten._cdist_backward.default: _has_pairs,
    _aten.segment_reduce.default: _checks_lengths,
    _aten._segment_reduce_backward.default: _derivative(_aten.segment_reduce.default, "output"),
}
