"""Put a pattern's replacement where it matches.

In:     a `Pattern`, a match.
Out:    `finder_of(pattern)` for `rewriting.py`; `replacing(pattern, match)`: the replacement's graph, and how its results are laid out.
Holds:  the replacement is run on descriptions of what it will be given before anything is changed: its results have the
        pattern's sizes, dtypes, devices, layouts (they are copied where they lie otherwise) and gradients.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.debug import events
from pliant.errors import PatternError
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import dense_order, same_known, strides_in_order
from pliant.patterns.finding import Match, find
from pliant.patterns.recorded import Recorded
from pliant.patterns.rewriting import Finder, Found
from pliant.patterns.traced import Traced, trace

if TYPE_CHECKING:
    from pliant.patterns.pattern import Pattern

# How a result is laid out anew: its dimensions from the innermost outwards; None: it is as it is to be.
Order = tuple[int, ...] | None


def finder_of(pattern: Pattern) -> Finder:
    """What finds the pattern in a recorded program."""

    def found(recorded: Recorded) -> Iterator[Found]:
        for match in find(recorded.graph, pattern, recorded.kept, recorded.followed):
            try:
                if any(node.meta.get("origin") in recorded.cast for node in match.nodes):
                    raise LookupError("it is in a block of autocast, in which the replacement may compute in other types")
                orders = replacing(pattern, match, recorded.followed)[1]
            except LookupError as unfit:
                where = match.nodes[-1].meta["origin"].meta.get("origin")
                events.record("pattern_left", name=pattern.name, where=where, why=str(unfit))
                continue
            yield Found(pattern.name, match.inputs, match.outputs, match.nodes, call_of(pattern), {"orders": orders, **match.numbers})

    return found


def replacing(pattern: Pattern, match: Match, followed: Collection[fx.Node] = ()) -> tuple[Traced, tuple[Order, ...]]:
    """Raises `PatternError` where the replacement makes something else, LookupError where a result has no layout to be given."""
    fakes: list[FakeTensor] = [node.meta["val"] for node in match.inputs]
    follows = [node in followed for node in match.inputs]
    assert pattern.replacement is not None
    try:
        traced = trace(pattern.replacement, fakes, match.numbers, fakes[0].fake_mode.shape_env, follows)
    except PatternError:
        raise
    except Exception as error:
        raise PatternError(
            f"the replacement of `{pattern.name}` cannot be traced", kind="trace", why=f"{type(error).__name__}: {error}",
            do="give a function of the pattern's arguments",
        ) from error  # fmt: skip
    wanted = [node.meta["val"] for node in match.outputs]
    if len(traced.fakes) != len(wanted):
        raise _differs(pattern, "number of results", len(traced.fakes), len(wanted))
    for one, like, node in zip(traced.fakes, wanted, match.outputs):
        if len(one.size_) != len(like.size_) or not same_known(one.size_, like.size_):
            raise _differs(pattern, "sizes", list(one.size_), list(like.size_))
        if (one.dtype_, one.device_) != (like.dtype_, like.device_):
            raise _differs(pattern, "dtype and device", f"{one.dtype_} on {one.device_}", f"{like.dtype_} on {like.device_}")
        if one.requires_grad != (node in followed):
            raise _differs(pattern, "gradients", one.requires_grad, node in followed)
    return traced, tuple(map(_order, traced.fakes, wanted, traced.fresh))


def _differs(pattern: Pattern, what: str, found: object, wanted: object) -> PatternError:
    return PatternError(
        f"the replacement of `{pattern.name}` makes another result", kind="replacement", why=f"{what}: {found}, and the pattern's {wanted}",
        do="return tensors as the pattern's function does",
    )  # fmt: skip


def _order(one: FakeTensor, like: FakeTensor, fresh: bool) -> Order:
    if fresh and same_known(one.stride_, like.stride_):
        return None
    if (order := order_in_memory(like)) is None:
        raise LookupError("its result has gaps in memory, which no replacement's has")
    return order


def order_in_memory(like: FakeTensor) -> Order:
    """Its dimensions from the innermost outwards, if `laid_out` makes its layout of these."""
    rows = tuple(reversed(range(len(like.size_))))
    for order in (rows, dense_order(like.spec)):
        if order is not None and same_known(strides_in_order(like.size_, order), like.stride_):
            return order
    return None


def call_of(pattern: Pattern) -> Callable[..., Any]:
    """What a captured program calls in place of the pattern: one function for all matches, so that layers are alike."""
    known = _calls.get(pattern)
    if known is None:
        replacement = pattern.replacement
        assert replacement is not None

        def replaced(*tensors: Any, orders: tuple[Order, ...], **numbers: Any) -> Any:
            made = replacement(*tensors, **numbers)
            results = made if isinstance(made, (tuple, list)) else [made]
            results = [laid_out(one, order) for one, order in zip(results, orders)]
            return tuple(results) if len(results) > 1 else results[0]

        known = _calls[pattern] = replaced
    return known


_calls: weakref.WeakKeyDictionary[Pattern, Callable[..., Any]] = weakref.WeakKeyDictionary()


def laid_out(value: torch.Tensor, order: Order) -> torch.Tensor:
    """A copy of the tensor with its dimensions in this order in memory."""
    if order is None:
        return value
    outwards: Sequence[int] = order[::-1]
    dense = value.permute(*outwards).clone(memory_format=torch.contiguous_format)
    return dense.permute(*[outwards.index(d) for d in range(len(outwards))])
