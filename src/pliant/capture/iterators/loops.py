"""Loops that turn as often as something varies: what is made for one, and where the graph breaks before it.

In:     the frame whose operation makes what is iterated over.
Out:    whether a loop, or a comprehension, takes it; a break before a loop over the rows of a tensor of many numbers of rows.
Holds:  a graph that has all turns serves one number of them. Behind the break the turns are a graph of their own.
"""

from __future__ import annotations

from typing import Any

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.iterators.carried import CarriedItems, by_turn
from pliant.capture.iterators.standing_iterators import CHANGED, left_of, peek, place
from pliant.capture.iterators.suspended import Carry
from pliant.capture.signatures import Frame, Tracer
from pliant.capture.value_kinds import is_symbolic, is_tensor
from pliant.graph.fake_tensor import is_fake
from pliant.graph.unbacked import is_unbacked
from pliant.guards.sources import Source, held

# What stands between a comprehension's iterator and its first turn, from Python 3.12 on.
_PREPARING = frozenset(("LOAD_FAST_AND_CLEAR", "BUILD_LIST", "BUILD_SET", "BUILD_MAP", "SWAP"))
_FARTHEST = 24


def begins_next(frame: Frame) -> bool:
    """Whether the next operations let a loop begin that takes what is made now, or hand it to a comprehension."""
    return _begins([op.name for op in frame.program.ops[frame.ip : frame.ip + _FARTHEST]])


def _begins(names: list[str]) -> bool:
    if names[:1] != ["GET_ITER"]:
        return False
    return next((name for name in names[1:] if name not in _PREPARING), None) in ("FOR_ITER", "CALL")


def place_of(frame: Frame) -> Source:
    """What policies remember of a loop that is made here."""
    return held(frame.code, f"the loop at {frame.op.offset}")


def refuse_varying_rows(frame: Frame, *iterated: Any) -> None:
    """Break before a loop over a tensor whose number of rows has had several values."""
    names = [op.name for op in frame.program.ops[frame.ip - 1 : frame.ip + _FARTHEST]]
    called = next((i for i, name in enumerate(names) if name != "CALL"), len(names))  # zip and enumerate around it
    if not _begins(names[called:]):
        return
    for rows in iterated:
        if is_fake(rows) and rows.dim() and is_symbolic(rows.size_[0]) and not is_unbacked(rows.size_[0]):
            turns = rows.size_[0].node.require_hint()
            if frame.tracer.inputs.policy.turns_vary(place_of(frame), turns):
                raise GraphBreak("varying-length", "a loop over the rows of a tensor whose number varies")


def has_had_its_turn(t: Tracer, iterator: Any) -> bool:
    """Whether the trace breaks before the next item, since the number of items varies."""
    parts = by_turn(iterator)
    for part in parts:
        if part.turns is None and not (part.steps or part.is_new):
            part.turns = 1 if _is_one_of_many(t, part) else None
    return any(part.turns == part.steps for part in parts)


def _is_one_of_many(t: Tracer, iterator: CarriedItems) -> bool:
    """Whether the number of items that are left has often been another one here."""
    if peek(iterator.real, 0) is CHANGED:
        return False
    items, _, _ = place(iterator.real)
    policy = t.world.inputs.policy
    if isinstance(items, list):
        return bool(policy.length_varies(iterator.source, left_of(iterator.real)))
    # Rows of a tensor: how many are left tells where the graph broke. Of few numbers of them each has its graph.
    rows = isinstance(items, tuple) and all(map(is_tensor, items))
    return rows and bool(policy.turns_vary(iterator.source, len(items)))


def turns_left(carry: Carry) -> int | None:
    """What code behind the break may take: nothing where the break itself takes an item."""
    counted = any(part.turns is not None for part in by_turn(carry.value))
    return int(not carry.is_next) if counted else None
