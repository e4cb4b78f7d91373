"""Strides that eager operators give their results.

In:     specs of the operands, in the order of the operator's arguments.
Out:    strides of the result of elementwise operators (TensorIterator) and of `preserve_format`.
Source: the rules are ATen's (TensorIterator.cpp: fast setup, reorder_dimensions, allocate_or_resize_outputs;
        TensorProperties, infer_dense_strides), stated anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from pliant.graph.tensor_spec import (
    Dim,
    Sizes,
    TensorSpec,
    certain,
    channels_last_strides,
    dense_order,
    is_channels_last,
    is_empty,
    is_row_major,
    key_of,
    keys_of,
    known,
    row_major_strides,
    strides_in_order,
)
from pliant.symbolic.expr import ZERO, Symbol
from pliant.symbolic.rules.division import divide


def elementwise_strides(out: Sizes, operands: Sequence[TensorSpec]) -> Sizes:
    """Strides of a fresh elementwise result of size `out`."""
    out_key = keys_of(out)
    rank = len(out)
    # Every operand row-major within its own size: no pair of dimensions is ever swapped, unless the result is empty.
    if all(spec.stride_key == keys_of(row_major_strides(spec.size)) for spec in operands) and 0 not in out_key:
        return row_major_strides(out)
    if all(spec.size_key == out_key for spec in operands):
        if all(map(_lies_in_order, operands)):
            return row_major_strides(out)
        if all(is_row_major(spec) for spec in operands):
            return row_major_strides(out)
        if rank == 4 and all(is_channels_last(spec) for spec in operands):
            return channels_last_strides(out)
        first = operands[0]
        if all(spec.stride_key == first.stride_key for spec in operands) and dense_order(first) is not None:
            return first.stride
    return _iterated(out, operands)


def _lies_in_order(spec: TensorSpec) -> bool:
    """Whether a step along each dimension is known to lead over the rows of the next, or at least over one of their steps:
    then it does not matter whether there are gaps."""
    places = [*zip(spec.size, spec.stride)]
    return bool(places) and all(
        known(outer > inner) or _leads_over(outer, inner, extent)
        for (_, outer), (extent, inner) in itertools.pairwise(places)
    )


def _leads_over(step: Dim, other: Dim, extent: Dim) -> bool:
    """Whether a step is known to be no shorter than a row of others: without what both are multiples of."""
    if type(step) is int or type(other) is int:
        return known(step >= other * extent)
    env = step.node.shape_env
    common = env.expr_of(other)
    if len(common.terms) != 1 or common.const or env.statically_known(common.ge(1)) is not True:
        return False
    (one, left), (two, more) = (divide(env.expr_of(e), common.terms[0][0]) for e in (step, other * extent))
    return left is ZERO and more is ZERO and env.statically_known(one.ge(two)) is True


def _iterated(out: Sizes, operands: Sequence[TensorSpec]) -> Sizes:
    """The general path: sort dimensions by the operands' strides, the first operand that can tell deciding."""
    strides = [_broadcast_strides(spec, out) for spec in operands]
    order = _sorted_dims(out, strides)
    if order == list(range(len(out) - 1, -1, -1)):
        return row_major_strides(out)
    return strides_in_order(out, order)


def _broadcast_strides(spec: TensorSpec, out: Sizes) -> list[Dim]:
    skip = len(out) - spec.ndim
    found: list[Dim] = [0] * skip
    for extent, stride, wanted in zip(spec.size, spec.stride, out[skip:]):
        stretched = key_of(extent) == 1 and key_of(wanted) != 1
        found.append(0 if stretched else stride)
    return found


def _sorted_dims(out: Sizes, strides: list[list[Dim]]) -> list[int]:
    """Dimensions from the innermost outwards; ties keep their order."""
    order = list(range(len(out) - 1, -1, -1))
    for i in range(1, len(order)):
        at = i
        for before in range(i - 1, -1, -1):
            verdict = _compare(order[before], order[at], out, strides)
            if verdict > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif verdict < 0:
                break
    return order


def _compare(inner: int, outer: int, out: Sizes, strides: list[list[Dim]]) -> int:
    """1 if the two dimensions must be swapped, -1 if they must not, 0 if nothing tells."""
    for operand in strides:
        a, b = operand[inner], operand[outer]
        if key_of(a) == 0 or key_of(b) == 0:
            continue
        if key_of(a) == key_of(b):
            if _more(out[inner], out[outer]):
                return 1
        elif _encloses(b, a, out[inner]) or _more(b, a):
            return -1
        elif _encloses(a, b, out[outer]) or _more(a, b):
            return 1
    return 0


def _encloses(step: Dim, other: Dim, extent: Dim) -> bool:
    """Whether a step leads over whole rows of a dimension with another step. It is the larger one unless the dimension has
    size 1, whose place tells nothing: no guard is needed."""
    if type(step) is int:
        return False
    row, env = other * extent, step.node.shape_env
    if key_of(step) == key_of(row):
        return True
    return env.statically_known(env.expr_of(row).ge(1)) is True and key_of(step % row) == 0


def _more(a: Dim, b: Dim) -> bool:
    return a is not b and certain(a > b)


def preserved_strides(spec: TensorSpec) -> Sizes:
    """Strides of `empty_like(x)` and `clone(x)`: the same if dense, else dense in the same order."""
    if is_empty(spec):  # all of its elements lie one after the other
        return spec.stride
    row_major = row_major_strides(spec.size)
    if spec.stride_key == keys_of(row_major):
        return spec.stride
    if lies_in_rows(spec) and _may_be_dense(spec) and _are_many(spec.size):
        return row_major
    return spec.stride if dense_order(spec) is not None else _iterated(spec.size, [spec])


def lies_in_rows(spec: TensorSpec) -> bool:
    """Whether rows follow one another, gaps between them or not, whatever its sizes: a part of each row, say."""
    if not spec.ndim or key_of(spec.stride[-1]) != 1 or 1 in spec.size_key:
        return False
    rows = zip(spec.stride, spec.stride[1:], spec.size[1:])
    return all(known(outer >= inner * n) for outer, inner, n in rows)


def _may_be_dense(spec: TensorSpec) -> bool:
    """Whether only a guard could tell: no row is known to have a gap behind it."""
    return not any(known(outer > inner * n) for outer, inner, n in zip(spec.stride, spec.stride[1:], spec.size[1:]))


def _are_many(size: Sizes) -> bool:
    """Whether no size is 1. A guard is on what is computed of sizes alone: a size itself may be 1."""
    plain = [isinstance(key_of(n), Symbol) for n in size]
    return all(known(n > 1) for n, one in zip(size, plain) if one) and all(certain(n > 1) for n in size)


def format_strides(spec: TensorSpec, memory_format: torch.memory_format | None) -> Sizes:
    """Strides of a fresh tensor of this size in a memory format; none means preserve."""
    if memory_format is None or memory_format is torch.preserve_format:
        return preserved_strides(spec)
    return strides_of_format(spec.size, memory_format)


def strides_of_format(size: Sizes, memory_format: torch.memory_format | None) -> Sizes:
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        if len(size) != (4 if memory_format is torch.channels_last else 5):
            raise RuntimeError(f"required rank {4 if memory_format is torch.channels_last else 5} tensor")
        return channels_last_strides(size)
    return row_major_strides(size)
