"""Modules of one class that are called alike, as the layers of a network: one is followed, the nodes of the others are copied.

In:     a call of a module from outside, on tensors and plain constants, where nothing is recorded for autograd.
Out:    what following its code gives. The first call of a class from a place, with arguments of a form, is followed as any other. Of
        the second one it is kept what it asks of the outside (`World.log`), and what it records. The same is asked of the modules of all
        later ones; where all answers are the same, the nodes are copied, with a module's own parameters.
Holds:  the graph, its inputs, the guards and the order of all of them are those that following every call would give.

Why that is so. A call does what its code, its arguments, the settings and what it asks of the outside say.
- *Code, arguments, settings*: in the key, or compared, as of repeated calls (`repeated_calls.py`). A tensor that the trace made
  is known by its description where its elements are floating-point numbers that the trace does not know; all others by
  which they are.
- *The outside below the module*: each value that the first call read, and each fact that it relied on, has a source. Those
  that lead through the first module are asked of the second one in its place. A guard says what an entry relies on, so where all
  guards hold with the one module in place of the other, what was recorded for the one is right for the other. Constants have to be
  equal, objects of one class, tensors of one description; an object that was met before by another way has to be the same object.
- *The outside elsewhere* is what it was: it is under guards that hold for all of the trace, and the call, as all of the
  trace, changed nothing but dicts that were not asked. The module itself was not met by another way.
- *Results* are constants, arguments, and tensors in memory that the call made, views of it too, so that a later write changes what it
  would have. Writes into such memory are counted again.
- *The trace itself*: what a call may leave there beside values, guards and nodes is counted; where a count changes, or the call asks for
  what the trace itself did or which frames are around it, nothing is copied.

All is compared before anything is added. Where the first difference shows later, the call is followed: it has a few guards more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch import fx
from torch.autograd.graph import increment_version

from pliant import config
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.outside.origins import Asked
from pliant.capture.protocols.other_block import Differs, OtherBlock, is_constant_in_c, is_told
from pliant.capture.protocols.repeated_calls import copied, is_quiet, settings_now, state_of
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import leaves
from pliant.capture.value_kinds import (
    COMPARED_IN_C,
    ByKind,
    is_symbolic,
    is_tuple,
    own_dict,
)
from pliant.graph.fake_tensor import FakeTensor, is_fake, memory_of
from pliant.guards.kinds import Kind
from pliant.guards.sources import Source
from pliant.torch_adapter import DisableTorchFunction, below_python_dispatch

Follow = Callable[[Tracer, Any, Args, Kwargs, bool], Any]

_MOST_KEPT = 2  # calls of a kind of which it is noted what they ask: two, for blocks of two kinds in turn. The others are only followed
# Facts about one value, which say all that they rely on.
_FACTS = frozenset(
    (
        Kind.TYPE, Kind.IDENTITY, Kind.EQUALS, Kind.LENGTH, Kind.KEYS, Kind.HAS_KEY, Kind.NO_KEY, Kind.EMPTY, Kind.ALL_EMPTY,
        Kind.TYPE_LOOKUP, Kind.TENSOR,
    )
)  # fmt: skip


class RepeatedBlocks:
    """What one capture knows of modules' calls, by kind. `copied`: how many were not followed."""

    def __init__(self) -> None:
        self._known: dict[Hashable, _Kind] = {}
        self.copied = 0

    def forget(self) -> None:
        self._known.clear()

    def call(self, t: Tracer, follow: Follow, module: torch.nn.Module, args: Args, kwargs: Kwargs, linked: bool) -> Any:
        """What `follow` gives."""
        key = _key_of(t, module, args, kwargs)
        if key is None:
            return follow(t, module, args, kwargs, linked)
        kind = self._known.get(key)
        if kind is None:  # most kinds have one call: it costs no more than to be known
            self._known[key] = _Kind()
            return follow(t, module, args, kwargs, linked)
        if kind.blocks and (stored := t.world.only_stored_into()) is not None:
            for block in kind.blocks:
                with contextlib.suppress(Differs):
                    result = block.copied(t, module, stored, list(_tensors(args, kwargs)))
                    self.copied += 1
                    return result
        if kind.kept == _MOST_KEPT:
            return follow(t, module, args, kwargs, linked)
        kind.kept += 1
        return self._kept(t, follow, kind, (module, args, kwargs), linked)

    def _kept(self, t: Tracer, follow: Follow, kind: _Kind, call: tuple[Any, Args, Kwargs], linked: bool) -> Any:
        """Follow a call, and keep what it asks and records."""
        outer, stored = t.world.log, t.world.only_stored_into()
        log = t.world.log = [] if outer is None else outer
        asked, steps, last, before, writes = len(log), t.steps, _last_node(t), _state(t), t.mode.writes
        copies = t.world.counts_of_copies()
        drew, t.mode.draws = t.mode.draws, False
        try:
            result = follow(t, *call, linked)
        finally:
            drawn, t.mode.draws = t.mode.draws, drew or t.mode.draws
            t.world.log = outer
        end, writes = _last_node(t), t.mode.writes - writes
        written = _writes_of(last, end) if writes else []
        wholes = sum(one.what == "whole" for one in log[asked:])
        if writes != sum(count for _, count in written) or t.world.counts_of_copies() != (copies[0] + 2 * wholes, copies[1] + wholes):
            return result
        if stored is not None and not drawn and before == _state(t) and t.world.only_stored_into() == stored:
            kind.blocks.append(_Block(call, t.world.place_of(call[0]), result, stored, log[asked:], (last, end), t.steps - steps, written))
        return result


class _Kind:
    """Calls of one key. `kept`: of how many of them it was noted what they ask."""

    def __init__(self) -> None:
        self.kept = 0
        self.blocks: list[_Block] = []


# ---- kinds of calls
def _key_of(t: Tracer, module: torch.nn.Module, args: Args, kwargs: Kwargs) -> Hashable | None:
    """Equal for calls that do the same, as far as it is not for the modules to say; None for one that has to be followed."""
    if not (own_dict(module) or {}).get("_modules"):  # a layer is followed in little more time than it is compared
        return None
    if torch.is_grad_enabled() or torch.is_inference_mode_enabled() or not t.frames:
        return None
    if not config.get().capture.repeated_blocks or not _is_plain(t) or not t.world.is_foreign(module):
        return None
    if t.world.place_of(module).is_held or t.world.has_changes(own_dict(module)):
        return None
    with DisableTorchFunction(), below_python_dispatch():
        parts = [_PART_OF.of(one)(t, one) for one in (*args, *kwargs.values())]
    if None in parts:
        return None
    frame, where, tensors = t.frames[-1], t.location(), list(_tensors(args, kwargs))
    first = {id(one): k for k, one in reversed([*enumerate(tensors)])}
    place = (id(frame.code), frame.ip, len(t.frames), where and (where.file, where.line))
    return (id(type(module)), place, len(args), *kwargs, *parts, tuple([first[id(one)] for one in tensors]))


def _is_plain(t: Tracer) -> bool:
    """Whether nothing is open that the code of a module could notice, or that notices it."""
    return is_quiet(t) and t.repeated.look is None and not t.standing and not t.revived


def _kind_of_tensor(t: Tracer, fake: FakeTensor) -> Hashable | None:
    if fake.subclass_ is not None:
        return None
    is_own = t.world.source_of(fake) is not None or not fake.dtype_.is_floating_point
    if is_own or t.recorder.elements.constants.is_noted(fake) or all(size == 1 for size in fake.size_ if not is_symbolic(size)):
        return id(fake)
    spec = fake.spec
    if is_symbolic(spec.offset):
        return id(fake)
    flags = fake.requires_grad, fake.is_leaf, fake.layout, fake.is_parameter_, memory_of(fake) is fake
    return (spec.size_key, spec.stride_key, spec.dtype, spec.device, spec.lazy, spec.offset, flags)


def _kind_of_tuple(t: Tracer, value: tuple[Any, ...]) -> Hashable | None:
    parts = [_PART_OF.of(one)(t, one) for one in value]
    return None if None in parts else (tuple, *parts)


_PART_OF: ByKind[Callable[[Tracer, Any], Hashable | None]] = ByKind(
    lambda t, value: None,
    {
        **dict.fromkeys(COMPARED_IN_C, lambda t, value: (type(value), repr(value))),
        FakeTensor: _kind_of_tensor,
        tuple: _kind_of_tuple,
    },
)


def _tensors(args: Args, kwargs: Kwargs) -> filter[FakeTensor]:
    return filter(is_fake, leaves((args, tuple(kwargs.values()))))


def _state(t: Tracer) -> tuple[Any, ...]:
    """What a call that only computes leaves as it is."""
    counted: tuple[Any, ...] = (t.computed, t.passed, t.put_off, t.standing, t.revived, t.recorder.constants)
    return (*state_of(t, but_writes=True), *t.world.counts(), *t.inputs.counts(), *map(len, counted))


# ---- copying
class _Block:
    """A call of a module that was followed.

    `stored`: by id, dicts that the trace had stored into, none of which it asked; `ends`: the last node before, and the last one
    that it recorded; `steps`: how many it took; `written`: what it made and wrote, and how often.
    """

    def __init__(
        self, call: tuple[Any, Args, Kwargs], place: Source, result: Any, stored: frozenset[int], log: list[Asked], ends: tuple[fx.Node, fx.Node],
        steps: int, written: list[tuple[FakeTensor, int]],
    ) -> None:  # fmt: skip
        self.call, self.module, self.result, self.stored, self.log, self.ends = call, call[0], result, stored, log, ends
        self.steps, self.written = steps, written
        self.settings, self.place = settings_now(), place
        self.asked: list[Asked] = []  # below the module
        self.nodes: list[fx.Node] = []
        self._below: dict[Source, bool] = {}
        self._is_sorted = self._is_usable = False

    def is_below(self, source: Source) -> bool:
        """Whether the source leads through the module."""
        found = self._below.get(source)
        if found is None:
            base = source.base
            found = self._below[source] = base is not None and self.is_below(base)
        return found

    def copied(self, t: Tracer, module: Any, stored: frozenset[int], given: list[FakeTensor]) -> Any:
        """The result of a call of another module with these tensors, whose nodes are appended to the graph."""
        if not stored <= self.stored or self.settings != settings_now() or t.steps < t.stop_at <= t.steps + self.steps:
            raise Differs
        if not self._is_sorted:
            self._is_sorted = True
            self._sort(t)
            self._is_usable = True
        if not self._is_usable:
            raise Differs
        if any(fake.node is not node or fake.spec is not spec for node, fake, spec in self.elsewhere):
            raise Differs
        copies = OtherBlock(t, self, module)
        copies.check()
        before = _state(t)
        try:
            nodes, fakes = copies.ask()
        except GraphBreak:  # which following the call meets where it is
            raise Differs from None
        if before != _state(t):
            raise Differs
        for first, other in zip(_tensors(*self.call[1:]), given, strict=True):
            nodes[self.node_of[id(first)]] = t.recorder.node_of(other)
            fakes[id(first)] = other
        result = copied(t, self.nodes, nodes, fakes, self.result)
        t.steps += self.steps
        for memory, count in self.written:
            increment_version([fakes[id(memory)]] * count)
            t.mode.writes += count
        return result

    # ---- what is to be copied
    def _sort(self, t: Tracer) -> None:
        """Find what was recorded, and what was asked below the module; Differs if it did more than compute."""
        self._below[self.place] = True
        self._sort_asked(t)
        self._sort_nodes(t)

    def _sort_asked(self, t: Tracer) -> None:
        known: set[Any] = set()
        elsewhere: list[Asked] = []
        wholes = {id(one.value) for one in self.log if one.what == "whole" and self.is_below(one.source)}  # type: ignore[arg-type]
        for one in self.log:
            if one.what == "unlike" and id(one.value) in wholes:
                continue
            if one.source is None or one.what == "guard" and not (one.result in _FACTS or self._is_elsewhere(one)):
                raise Differs
            if not self.is_below(one.source):
                elsewhere.append(one)
                continue
            if one.what == "value" and (one.source == self.place or is_symbolic(one.result)):
                raise Differs
            key = (one.what, one.source, one.result if one.what == "guard" else None, id(one.value))
            if key not in known:
                known.add(key)
                self.asked.append(one)
        own = {id(one.value) for one in self.asked if one.what == "value" and self._is_of_block(t, one)} | {id(self.module)}
        for one in (*elsewhere, *(one for one in self.asked if one.what == "guard")):
            if not own.isdisjoint(map(id, leaves(one.value))):  # met by another way, or as itself
                raise Differs

    def _is_elsewhere(self, one: Asked) -> bool:
        """Whether it says that objects are different ones, none of which is below the module."""
        return one.result is Kind.DISTINCT and not any(map(self.is_below, (one.source, *leaves(one.value))))

    def _is_of_block(self, t: Tracer, one: Asked) -> bool:
        """Whether it was met through the module."""
        place = t.world.source_of(one.result if is_fake(one.result) else one.value)
        return place is not None and self.is_below(place) and not is_told(one.value)

    def _sort_nodes(self, t: Tracer) -> None:
        given = list(_tensors(*self.call[1:]))
        self.nodes = list(_nodes_between(*self.ends))
        own = set(self.nodes)
        others = dict.fromkeys(one for node in self.nodes for one in node.all_input_nodes if one not in own)
        with DisableTorchFunction(), below_python_dispatch():
            taken = {id(memory_of(one)) for one in leaves(given, [node.meta.get("val") for node in others]) if is_fake(one)}
            if not all(map(_is_call, self.nodes)) or not _is_new(self.result, given, own, taken):
                raise Differs
        self.node_of = {id(one): t.recorder.node_of(one) for one in given}
        if len(set(self.node_of.values())) != len(self.node_of):
            raise Differs
        self.elsewhere = [(one, fake, fake.spec) for one in others if is_fake(fake := one.meta.get("val"))]


def _nodes_between(last: fx.Node, end: fx.Node) -> Iterator[fx.Node]:
    """What was recorded behind the one, up to the other."""
    while last is not end:
        last = last.next
        if last.op != "placeholder":
            yield last


def _last_node(t: Tracer) -> fx.Node:
    last: fx.Node = next(iter(reversed(t.graph.nodes)))
    return last


def _writes_of(last: fx.Node, end: fx.Node) -> list[tuple[FakeTensor, int]]:
    """What the nodes made and wrote, and how often."""
    own = set(_nodes_between(last, end))
    with DisableTorchFunction(), below_python_dispatch():
        made = {id(fake): fake for node in own for fake in leaves(node.meta.get("val")) if is_fake(fake) and fake.node in own}
        return [(fake, fake.writes_) for fake in made.values() if memory_of(fake) is fake and fake.writes_]


def _is_call(node: fx.Node) -> bool:
    """Whether a node makes tensors, and tells no numbers; or is a constant."""
    if node.op == "get_attr":
        return "val" not in node.meta
    made = list(leaves(node.meta.get("val")))
    return node.op in ("call_function", "call_method") and bool(made) and all(map(is_fake, made)) and not {"made", "binds"} & node.meta.keys()


def _is_new(result: Any, given: list[FakeTensor], own: set[fx.Node], taken: set[int]) -> bool:
    """Whether a result is made of arguments, constants, and tensors of numbers in memory that the nodes made: none of `taken`."""
    if is_tuple(result):
        return all(_is_new(one, given, own, taken) for one in result)
    if not is_fake(result):
        return is_constant_in_c(result)
    if any(result is one for one in given):
        return True
    memory = memory_of(result)
    is_made = result.node in own and result.node.meta["val"] is result and id(memory) not in taken
    is_alike = (result.dtype_, result.spec.lazy) == (memory.dtype_, memory.spec.lazy)
    return is_made and is_alike and result.dtype_.is_floating_point and result.subclass_ is None and result.viewed is None
