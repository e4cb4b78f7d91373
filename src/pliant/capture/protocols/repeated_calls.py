"""Calls that a program makes again and again, as of the layers of a network, or in the turns of a loop: one is followed, the nodes
of the others are copied.

In:     a call of a module or of a Python function from outside, on tensors and plain constants.
Out:    what following its code gives. The first call of a kind is followed as any other. Of the second one it is kept what it asks of
        the outside (`World.log`), and what it records. Later ones copy the nodes: of a function as they are; of a module, which
        may be another one of its class, where that answers the same to all that was asked, with its own parameters.
Holds:  the graph, its inputs, the guards and the order of all of them are those that following every call would give.

Why that is so. A call does what its code, its arguments, the settings and what it asks of the outside say.
- *Code, arguments, settings*: in the key, or compared: the same function, or a module of the same class, called by the same operation of the
  same code, as many frames deep; constants by type and value; objects from outside by which they are. A tensor that the trace made
  is known by its description and which other argument it is, where there is nothing that the trace may know of its elements; all
  others by which they are. Where it begins in its memory counts where a call makes views of it; where it is asked, nothing is copied.
- *The outside below the module*: each value that the first call read, and each fact that it relied on, has a source. Those
  that lead through the first module are asked of the second one in its place. A guard says what an entry relies on, so where all
  guards hold with the one module in place of the other, what was recorded for the one is right for the other. Constants have to be
  equal, objects of one class, tensors of one description; an object that was met before by another way has to be the same object.
- *The outside elsewhere*, and all that a function asks, is what it was: it is under guards that hold for all of the trace, and the call, as
  all of the trace, changed nothing but dicts that were not asked. The module itself was not met by another way. A call
  around this one, of which it is kept what it asks, asks all of it, too.
- *Results* are constants, arguments, and tensors in memory that the call made, views of it too, so that a later write changes what it
  would have. Writes into such memory are counted again.
- *Histories*, where gradients are recorded: the operators are called again on the other tensors (`histories_again.py`), so each result
  has its own; it has to stand in autograd's graph as the first one did. Of operators that are PyTorch's own, with no rule of the
  program, no hooks, no checkpoint and no switch of the mode among them, that is all that following the call would do.
- *The trace itself*: what a call may leave there beside values, guards and nodes is counted; where a count changes, or the call asks for
  what the trace itself did or which frames are around it, nothing is copied.

All is compared before anything is added. Where the first difference shows later, the call is followed: it has a few guards more.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch import fx

from pliant import config
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.numbers.elements import FIRST
from pliant.capture.outside.origins import Asked
from pliant.capture.protocols.histories_again import make_again, may_be_called_again, told_of
from pliant.capture.protocols.other_block import Differs, OtherBlock, is_constant_in_c, is_told
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import leaves, mapped
from pliant.capture.value_kinds import COMPARED_IN_C, ByKind, is_function, is_symbolic, is_tuple, own_dict
from pliant.graph.fake_tensor import FakeTensor, is_fake, memory_of
from pliant.graph.tensor_spec import keys_of
from pliant.graph.writes import note_writes
from pliant.guards.kinds import Kind
from pliant.guards.settings import Settings
from pliant.guards.sources import Source
from pliant.torch_adapter import DisableTorchFunction, append_node, below_python_dispatch

Follow = Callable[[Tracer, Any, Args, Kwargs, bool], Any]

_MOST_KEPT = 2  # calls of a kind of which it is noted what they ask: two, for blocks of two kinds in turn. The others are only followed
# Facts about one value, which say all that they rely on.
_FACTS = frozenset(
    (
        Kind.TYPE, Kind.IDENTITY, Kind.EQUALS, Kind.LENGTH, Kind.KEYS, Kind.HAS_KEY, Kind.NO_KEY, Kind.EMPTY, Kind.ALL_EMPTY,
        Kind.TYPE_LOOKUP, Kind.TENSOR,
    )
)  # fmt: skip


class RepeatedCalls:
    """What one capture knows of calls, by kind."""

    def __init__(self) -> None:
        self._known: dict[Hashable, _Kind] = {}

    def forget(self) -> None:
        self._known.clear()

    def call(self, t: Tracer, follow: Follow, callee: Any, args: Args, kwargs: Kwargs, linked: bool) -> Any:
        """What `follow` gives."""
        key = _key_of(t, callee, args, kwargs)
        if key is None:
            return follow(t, callee, args, kwargs, linked)
        kind = self._known.get(key)
        if kind is None:  # most kinds have one call: it costs no more than to be known
            self._known[key] = _Kind()
            return follow(t, callee, args, kwargs, linked)
        if kind.calls and (stored := t.world.only_stored_into()) is not None:
            for call in kind.calls:
                with contextlib.suppress(Differs):
                    return call.copied(t, callee, stored, list(_tensors(args, kwargs)))
        if kind.kept == _MOST_KEPT:
            return follow(t, callee, args, kwargs, linked)
        kind.kept += 1
        return self._kept(t, follow, kind, (callee, args, kwargs), linked)

    def _kept(self, t: Tracer, follow: Follow, kind: _Kind, call: tuple[Any, Args, Kwargs], linked: bool) -> Any:
        """Follow a call, and keep what it asks and records."""
        outer, stored = t.world.log, t.world.only_stored_into()
        log = t.world.log = [] if outer is None else outer
        asked, steps, last, before, writes = len(log), t.steps, t.last_node(), _state(t), t.mode.writes
        copies = t.world.counts_of_copies()
        drew, t.mode.draws, filled = t.mode.draws, False, len(t.mode.drawn_into)
        try:
            result = follow(t, *call, linked)
        finally:
            drawn, t.mode.draws = t.mode.draws, drew or t.mode.draws
            t.world.log = outer
        end, writes = t.last_node(), t.mode.writes - writes
        written = _writes_of(last, end, t.mode.drawn_into[filled:]) if writes else []
        wholes = sum(one.what == "whole" for one in log[asked:])
        if writes and torch.is_inference_mode_enabled() or writes != sum(count for _, count in written):
            return result
        if t.world.counts_of_copies() != (copies[0] + 2 * wholes, copies[1] + wholes):
            return result
        if stored is not None and before == _state(t) and t.world.only_stored_into() == stored:
            place = None if is_function(call[0]) else t.world.place_of(call[0])
            kind.calls.append(_Call(call, place, result, stored, log[asked:], (last, end), t.steps - steps, written, drawn))
        return result


class _Kind:
    """Calls of one key. `kept`: of how many of them it was noted what they ask."""

    def __init__(self) -> None:
        self.kept = 0
        self.calls: list[_Call] = []


# ---- kinds of calls
def _key_of(t: Tracer, callee: Any, args: Args, kwargs: Kwargs) -> Hashable | None:
    """Equal for calls that do the same, as far as it is not for a module to say; None for one that has to be followed."""
    if not config.get().capture.repeated_blocks or not t.frames or not _is_quiet(t):
        return None
    which = (_function if is_function(callee) else _kind_of_module)(t, callee)
    if which is None:
        return None
    with DisableTorchFunction(), below_python_dispatch():
        parts = _parts(t, (*args, *kwargs.values()))
    tensors = [] if parts is None else list(_tensors(args, kwargs))
    if parts is None or not tensors and is_function(callee):
        return None
    frame, where = t.frames[-1], t.location()
    first = {id(one): k for k, one in reversed([*enumerate(tensors)])}
    place = (id(frame.code), frame.ip, len(t.frames), where and (where.file, where.line))
    return (which, place, len(args), *kwargs, *parts, tuple([first[id(one)] for one in tensors]))


def _function(t: Tracer, function: types.FunctionType) -> Hashable | None:
    if not t.world.is_foreign(function) or t.world.is_made(function) or "/torch/" in function.__code__.co_filename:
        return None
    return id(function), id(function.__code__)


def _kind_of_module(t: Tracer, module: torch.nn.Module) -> Hashable | None:
    if not (own_dict(module) or {}).get("_modules"):  # a layer is followed in little more time than it is compared
        return None
    if not t.world.is_foreign(module):
        return None
    if t.world.place_of(module).is_held or t.world.has_changes(own_dict(module)):
        return None
    return id(type(module))


def _is_quiet(t: Tracer) -> bool:
    """Whether nothing is open that code which runs now could notice, or that notices it."""
    recorder = t.recorder
    if t.looked_at is not None or recorder.region is not None or recorder.checkpointed or recorder.marks or t.standing or t.revived:
        return False
    if t.overrides.modes or t.overrides.has_subclasses or recorder.assumes or t.warning_blocks:
        return False
    if t.current_exception is not None or t.carrying is not None or t.message is not None or t.skipped is not None or t.lock is not None:
        return False
    return not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"))


def _kind_of_tensor(t: Tracer, fake: FakeTensor) -> Hashable | None:
    if fake.subclass_ is not None:
        return None
    if t.world.source_of(fake) is not None or t.recorder.elements.may_be_known(fake):
        return id(fake)
    spec = fake.spec
    flags = fake.requires_grad, fake.is_leaf, fake.is_inference(), fake.layout, fake.is_parameter_, memory_of(fake) is fake
    return (spec.size_key, spec.stride_key, spec.dtype, spec.device, spec.lazy, flags)


def _parts(t: Tracer, values: tuple[Any, ...]) -> list[Hashable] | None:
    """By what each of the values is known; None, and not a look at the others, where one is not."""
    parts = []
    for one in values:
        parts.append(_PART_OF.of(one)(t, one))
        if parts[-1] is None:
            return None
    return parts


def _kind_of_tuple(t: Tracer, value: tuple[Any, ...]) -> Hashable | None:
    parts = _parts(t, value)
    return None if parts is None else (tuple, *parts)


def _as_itself(t: Tracer, value: Any) -> Hashable | None:
    return id(value) if t.world.is_foreign(value) else None


_PART_OF: ByKind[Callable[[Tracer, Any], Hashable | None]] = ByKind(
    lambda t, value: None,
    {
        **dict.fromkeys(COMPARED_IN_C, lambda t, value: (type(value), repr(value))),
        FakeTensor: _kind_of_tensor,
        tuple: _kind_of_tuple,
    },
    {torch.nn.Module: _as_itself, type: _as_itself},
)


def _tensors(args: Args, kwargs: Kwargs) -> filter[FakeTensor]:
    return filter(is_fake, leaves((args, tuple(kwargs.values()))))


def _state(t: Tracer) -> tuple[Any, ...]:
    """What a call that only computes leaves as it is."""
    counted: tuple[Any, ...] = (
        t.draws, t.answers, t.orders, t.stand_ins, t.released, t.questions, t.caches, t.results, t.generators, t.computed, t.passed,
        t.put_off, t.late_states, t.standing, t.revived, t.recorder.constants,
    )  # fmt: skip
    histories = t.recorder.used_up, t.recorder.histories, t.mode.under_results, t.mode.apart
    numbers = (t.world.changed_reads, t.mode.unbacked_made, t.hook_ids, t.open_generators, t.process_bound, t.recorder.assumes)
    return (*map(len, (*counted, *histories)), *numbers, *_settings(), *t.world.counts(), *t.inputs.counts())


def _settings() -> tuple[Any, ...]:
    return (*Settings().values, torch.is_inference_mode_enabled(), torch.get_default_dtype())


# ---- copying
class _Call:
    """A call that was followed. `place`: of the module, other ones of which may be in its place; None of a function.

    `stored`: by id, dicts that the trace had stored into, none of which it asked; `ends`: the last node before, and the last one
    that it recorded; `steps`: how many it took; `written`: what it made and wrote, and how often.
    """

    def __init__(
        self, call: tuple[Any, Args, Kwargs], place: Source | None, result: Any, stored: frozenset[int], log: list[Asked],
        ends: tuple[fx.Node, fx.Node], steps: int, written: list[tuple[FakeTensor, int]], draws: bool,
    ) -> None:  # fmt: skip
        self.call, self.module, self.result, self.stored, self.log, self.ends = call, call[0], result, stored, log, ends
        self.steps, self.written, self.draws = steps, written, draws
        # Where gradients are recorded: what autograd knows of all that it made.
        self.told = told_of(_nodes_between(*ends)) if torch.is_grad_enabled() else None
        self.settings, self.place = _settings(), place
        self.asked: list[tuple[Asked, bool]] = []  # with whether it is below the module
        self.nodes: list[fx.Node] = []
        self._below: dict[Source, bool] = {} if place is None else {place: True}
        self._is_sorted = self._is_usable = False

    def is_below(self, source: Source) -> bool:
        """Whether the source leads through the module."""
        found = self._below.get(source)
        if found is None:
            base = source.base
            found = self._below[source] = base is not None and self.is_below(base)
        return found

    def copied(self, t: Tracer, callee: Any, stored: frozenset[int], given: list[FakeTensor]) -> Any:
        """The result of a call, maybe of another module, with these tensors, whose nodes are appended to the graph."""
        if not stored <= self.stored or self.settings != _settings() or t.steps < t.stop_at <= t.steps + self.steps:
            raise Differs
        if not self._is_sorted:
            self._is_sorted = True
            self._sort(t)
            self._is_usable = True
        if not self._is_usable:
            raise Differs
        if any(fake.node is not node or fake.spec is not spec for node, fake, spec in self.elsewhere):  # `p.data = other`
            raise Differs
        if self.offsets not in (None, keys_of([one.spec.offset for one in given])):
            raise Differs
        nodes, fakes = self._stand_ins(t, callee)
        for first, other in zip(_tensors(*self.call[1:]), given, strict=True):
            nodes[self.node_of[id(first)]] = t.recorder.node_of(other)
            fakes[id(first)] = other
        if self.told is not None:
            make_again(t, self.nodes, nodes, fakes, self.told)
        result = copied(t, self.nodes, nodes, fakes, self.result)
        t.steps += self.steps
        t.mode.draws |= self.draws
        for memory, count in self.written if self.told is None else ():
            t.mode.writes += count
            if id(memory) in fakes:  # else the operator's own
                note_writes([fakes[id(memory)]], count)
        return result

    def _stand_ins(self, t: Tracer, callee: Any) -> tuple[dict[fx.Node, fx.Node], dict[int, FakeTensor]]:
        """What stands for the nodes and tensors from outside."""
        if self.place is None:
            t.world.log_again(*[one for one, _ in self.asked])
            return {}, {}
        copies = OtherBlock(t, self, callee)
        copies.check()
        before = _state(t)
        try:
            found = copies.ask()
        except GraphBreak:  # which following the call meets where it is
            raise Differs from None
        if before != _state(t):
            raise Differs
        return found

    # ---- what is to be copied
    def _sort(self, t: Tracer) -> None:
        """Find what was recorded, and what was asked below the module; Differs if it did more than compute."""
        self._sort_asked(t)
        self._sort_nodes(t)

    def _sort_asked(self, t: Tracer) -> None:
        asked: dict[Any, Asked] = {}
        wholes = {id(one.value) for one in self.log if one.what == "whole" and one.source is not None and self.is_below(one.source)}
        for one in self.log:
            if one.what == "unlike" and id(one.value) in wholes:
                continue
            if one.source is None or one.what == "guard" and not (one.result in _FACTS or self._is_elsewhere(one)):
                raise Differs
            if one.what == "value" and self.is_below(one.source) and (one.source == self.place or is_symbolic(one.result)):
                raise Differs
            asked.setdefault((one.what, one.source, one.result if one.what == "guard" else None, id(one.value)), one)
        self.asked = [(one, one.source is not None and self.is_below(one.source)) for one in asked.values()]
        values = [one.value for one, is_below in self.asked if one.what == "guard" or not is_below]
        own = {id(one.value) for one in asked.values() if one.what == "value" and self._is_of_block(t, one)}
        if self.place is not None:
            own.add(id(self.module))
        if not own.isdisjoint(map(id, leaves(values))):  # met by another way, or as itself
            raise Differs

    def _is_elsewhere(self, one: Asked) -> bool:
        """Whether it says something of what is elsewhere alone, such as that objects are different ones."""
        return self.place is None or one.result is Kind.DISTINCT and not any(map(self.is_below, (one.source, *leaves(one.value))))

    def _is_of_block(self, t: Tracer, one: Asked) -> bool:
        """Whether it was met through the module."""
        place = t.world.source_of(one.result if is_fake(one.result) else one.value)
        return place is not None and self.is_below(place) and self.is_below(one.source) and not is_told(one.value)  # type: ignore[arg-type]

    def _sort_nodes(self, t: Tracer) -> None:
        given = list(_tensors(*self.call[1:]))
        self.nodes = list(_nodes_between(*self.ends))
        own = set(self.nodes)
        others = dict.fromkeys(one for node in self.nodes for one in node.all_input_nodes if one not in own)
        with DisableTorchFunction(), below_python_dispatch():
            taken = {id(memory_of(one)) for one in leaves(given, [node.meta.get("val") for node in others]) if is_fake(one)}
            if self.told is not None and not all(map(may_be_called_again, self.nodes)):
                raise Differs
            if not all(map(_is_call, self.nodes)) or not _is_new(self.result, given, own, taken):
                raise Differs
            mine = {id(memory_of(one)) for one in given}
            made = [one for node in self.nodes for one in leaves(node.meta.get("val")) if is_fake(one)]
            if self.told is None and any(one.requires_grad for one in made):
                raise Differs
            has_views = any(id(memory_of(one)) in mine for one in made)
        self.node_of = {id(one): t.recorder.node_of(one) for one in given}
        if len(set(self.node_of.values())) != len(self.node_of):
            raise Differs
        self.offsets = keys_of([one.spec.offset for one in given]) if has_views else None
        self.elsewhere = [(one, fake, fake.spec) for one in others if is_fake(fake := one.meta.get("val"))]


def _nodes_between(last: fx.Node, end: fx.Node) -> Iterator[fx.Node]:
    """What was recorded behind the one, up to the other."""
    while last is not end:
        last = last.next
        if last.op != "placeholder":
            yield last


def _writes_of(last: fx.Node, end: fx.Node, drawn_into: list[FakeTensor]) -> list[tuple[FakeTensor, int]]:
    """What the nodes made and wrote, and how often. `drawn_into`: memories that were filled with random numbers meanwhile: of those
    that operators made for themselves, as a dropout does, there are no nodes."""
    own = set(_nodes_between(last, end))
    with DisableTorchFunction(), below_python_dispatch():
        made = {id(fake): fake for node in own for fake in leaves(node.meta.get("val")) if is_fake(fake) and fake.node in own}
        given = (fake for node in own for one in node.all_input_nodes for fake in leaves(one.meta.get("val")) if is_fake(fake))
        seen = {id(memory_of(fake)) for fake in given}
        made.update((id(fake), fake) for fake in drawn_into if fake.node is None and id(fake) not in seen)
        return [(fake, fake.writes_) for fake in made.values() if memory_of(fake) is fake and fake.writes_]


def _is_call(node: fx.Node) -> bool:
    """Whether a node makes tensors, and tells no numbers; or is a constant."""
    if node.op == "get_attr":
        return "val" not in node.meta
    made = list(leaves(node.meta.get("val")))
    return node.op in ("call_function", "call_method") and bool(made) and all(map(is_fake, made)) and not {"made", "binds", FIRST} & node.meta.keys()


def _is_new(result: Any, given: list[FakeTensor], own: set[fx.Node], taken: set[int]) -> bool:
    """Whether a result is made of arguments, constants, and tensors in memory that the nodes made: none of `taken`."""
    if is_tuple(result):
        return all(_is_new(one, given, own, taken) for one in result)
    if not is_fake(result):
        return is_constant_in_c(result)
    if any(result is one for one in given):
        return True
    memory = memory_of(result)
    is_made = result.node in own and result.node.meta["val"] is result and id(memory) not in taken
    is_alike = (result.dtype_, result.spec.lazy) == (memory.dtype_, memory.spec.lazy)
    return is_made and is_alike and result.subclass_ is None and result.viewed is None


# ---- copying nodes
def copied(
    t: Tracer, recorded: list[fx.Node], nodes: dict[fx.Node, fx.Node], fakes: dict[int, FakeTensor], result: Any
) -> Any:
    """What `result` is once the recorded nodes are appended again, with others in place of those that `nodes` and `fakes` (by id)
    name."""
    graph, own = t.graph, set(recorded)

    def made_of(value: Any) -> Any:
        found = fakes.get(id(value))
        if found is None and (not is_fake(value) or value.node not in own):
            return value
        return _stands(t, value, t.mode.another(value), fakes) if found is None else found

    _view_again(t, result, fakes, own)
    with DisableTorchFunction(), below_python_dispatch():
        for node in recorded:
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda one: nodes.get(one, one))
            made = nodes[node] = append_node(graph, node.op, node.target, args, kwargs, node.name)
            value = node.meta.get("val")
            made.meta = {**node.meta, **({"val": mapped(value, made_of)} if "val" in node.meta else {})}
            if is_fake(value) and value.node is node:
                made.meta["val"].node = made
        t.recorder.count += len(recorded)
        return mapped(result, made_of)


def _stands(t: Tracer, value: FakeTensor, made: FakeTensor, fakes: dict[int, FakeTensor]) -> FakeTensor:
    """The tensor that was made to stand for the value; where its elements are known, so are the other's."""
    constants = t.recorder.elements.constants
    if constants.is_noted(value):
        constants.note(made)
    fakes[id(value)] = made
    return made


def _view_again(t: Tracer, result: Any, fakes: dict[int, FakeTensor], own: set[fx.Node]) -> None:
    """Views that are results lie in memory of their own: others could write into it."""
    for one in leaves(result):
        if is_fake(one) and id(one) not in fakes and one.node in own and (memory := memory_of(one)) is not one:
            base = fakes.get(id(memory))
            if base is None:
                base = _stands(t, memory, t.mode.another(memory), fakes)
            _stands(t, one, t.mode.view_as(base, one), fakes)
