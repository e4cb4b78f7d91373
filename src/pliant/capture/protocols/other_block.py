"""A module in the place of another one of its class: whether it answers all that was asked of that one, and its answers.

In:     what a trace asked below a module that it followed (`repeated_calls.py`), and another module.
Out:    `check`: nothing, or `Differs`, and nothing was asked of the trace; `ask`: what stands for the first one's nodes and tensors.
Holds:  runs nothing of the program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import fx

from pliant.capture.outside.bringing import MADE_AGAIN, fixing_guard
from pliant.capture.outside.origins import Asked
from pliant.capture.signatures import Tracer
from pliant.capture.structures import is_list_or_tuple
from pliant.capture.value_kinds import (
    COMPARED_IN_C,
    exactly,
    is_any_dict,
    is_int,
    is_plain_dict,
    is_str,
    is_symbolic,
    is_tensor,
    is_tuple,
    own_dict,
)
from pliant.dispatch import markers
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.guards import facts
from pliant.guards.evaluate import holds
from pliant.guards.kinds import MISSING, Guard
from pliant.guards.sources import AttributeSource, DictAttributeSource, ItemSource, ModuleMemberSource, Source
from pliant.torch_adapter import DisableTorchFunction, below_python_dispatch


class Block(Protocol):
    """The call that was followed. `asked`: below the module, which is at `place`, and elsewhere; of each, whether it is below."""

    module: Any
    place: Source | None
    asked: list[tuple[Asked, bool]]

    def is_below(self, source: Source) -> bool: ...


class Differs(Exception):
    """Another module is not asked the same, or does not answer the same."""


class OtherBlock:
    """What stands for what, of one module, where another is in its place. `place`, `other`: their sources."""

    def __init__(self, t: Tracer, block: Block, module: Any) -> None:
        self.t, self.block, self.module = t, block, module
        self.place, self.other = block.place, t.world.place_of(module)
        self.values: dict[int, Any] = {id(block.module): module}
        self.taken: dict[int, int] = {id(module): id(block.module)}
        self._plain: dict[int, bool] = {}  # by id, of what `_read` holds
        self._read: dict[Source, Any] = {self.other: module}
        self._sources: dict[Any, Source] = {self.place: self.other}

    def source(self, source: Any) -> Source:
        """The source below the other module that is in the place of one below the first."""
        found = self._sources.get(source)
        if found is None:
            found = self._sources[source] = source.below(self.source(source.base))
        return found

    def read(self, source: Source) -> Any:
        """The value of a source below the other module."""
        found = self._read.get(source, MISSING)
        if found is MISSING:
            reader = _READERS.get(type(source))
            if reader is None:
                raise Differs
            found = self._read[source] = reader(self, self.read(source.base), source)  # type: ignore[arg-type]
        return found

    def item(self, table: Any, key: Any) -> Any:
        """An item of a container from outside that the trace did not change, and that finds it as plain ones do."""
        if self.t.world.has_changes(table):
            raise Differs
        if is_list_or_tuple(table):
            if not is_int(key) or not 0 <= key < len(table):
                raise Differs
            return table[key]
        if not is_any_dict(table) or not self._has_plain_keys(table) or not dict.__contains__(table, key):
            raise Differs
        return dict.__getitem__(table, key)

    def _has_plain_keys(self, value: Any) -> bool:
        """Whether looking for a key in it, if it is a dict, runs nothing of the program."""
        found = self._plain.get(id(value))
        if found is None:
            found = self._plain[id(value)] = not is_any_dict(value) or all(map(is_str, dict.keys(value)))
        return found

    def check(self) -> None:
        """That the other module answers all that was asked as the first did."""
        for one, is_below in self.block.asked:
            if not is_below:
                continue
            source = self.source(one.source)
            match one.what:
                case "value":
                    self._check_value(one, source)
                case "guard":
                    if not self._has_plain_keys(self.read(source)) or not holds(Guard(source, one.result, one.value, None), self.read):
                        raise Differs
                case "dict":
                    _dict_of(self.read(source))
                case "whole":
                    self._check_whole(one.value, self.read(source))

    def _check_value(self, one: Asked, source: Source) -> None:
        world, first, other = self.t.world, one.value, self.read(source)
        place = world.source_of(one.result if is_fake(one.result) else first)
        if place is not None and place != one.source and self.block.is_below(place):  # met before, in the block itself
            if self.values.get(id(first)) is not other:
                raise Differs
            return
        if is_told(first):
            if not facts.same(other, first):
                raise Differs
            return
        if first is other:
            if place is not None and self.block.is_below(place) and self.place is not self.other:
                raise Differs
            return
        if place != one.source or len({type(first), type(other)}) > 1 or not may_differ(first):
            raise Differs
        if is_tensor(first):
            self._check_tensor(first, other)
            known = self.t.inputs.places_of(other)
        else:
            known = [found] if (found := world.source_of(other)) is not None else []
        if any(found != source for found in known) or self.taken.setdefault(id(other), id(first)) != id(first):
            raise Differs
        if self.values.setdefault(id(first), other) is not other or _is_marked(first) or _is_marked(other):
            raise Differs
        if world.has_changes(other) or world.has_changes(own_dict(other)):
            raise Differs

    def _check_whole(self, first: Any, other: Any) -> None:
        """Of a container that is copied: what is in it is asked item by item."""
        if len({type(first), type(other)}) > 1 or len(first) != len(other) or self.t.world.has_changes(other):
            raise Differs

    @staticmethod
    def _check_tensor(first: torch.Tensor, other: torch.Tensor) -> None:
        with DisableTorchFunction(), below_python_dispatch():
            if _described(first) != _described(other):
                raise Differs

    def ask(self) -> tuple[dict[fx.Node, fx.Node], dict[int, FakeTensor]]:
        """Ask the other module in earnest: the nodes and the tensors that stand for the first one's."""
        world = self.t.world
        nodes: dict[fx.Node, fx.Node] = {}
        fakes: dict[int, FakeTensor] = {}
        location = world.location
        try:
            for one, is_below in self.block.asked:
                if not is_below:
                    world.log_again(one)
                    continue
                world.location = functools.partial(getattr, one, "where")
                source = self.source(one.source)
                match one.what:
                    case "value":
                        self._note(one, world.bring(self.read(source), source), nodes, fakes)
                    case "guard":
                        world.guard(source, one.result, one.value)
                    case "dict":
                        world.instance_dict(self.read(source))
                    case "whole":
                        world.adopt(self.read(source), one.result)
        finally:
            world.location = location
        return nodes, fakes

    def _note(self, one: Asked, found: Any, nodes: dict[fx.Node, fx.Node], fakes: dict[int, FakeTensor]) -> None:
        first = one.result
        if is_fake(first) is not is_fake(found) or is_symbolic(first) or is_symbolic(found):
            raise Differs
        if not is_fake(first):
            return
        with DisableTorchFunction():
            same = first.spec is found.spec and first.requires_grad is found.requires_grad
        if not same or (first.is_parameter_, first.subclass_) != (found.is_parameter_, found.subclass_):
            raise Differs
        if fakes.setdefault(id(first), found) is not found:
            raise Differs
        nodes[self.t.recorder.node_of(first)] = self.t.recorder.node_of(found)
        if id(first) in self.t.mode.viewed_unrecorded:
            self.t.mode.viewed_unrecorded.add(id(found))


_READERS: dict[type, Callable[[OtherBlock, Any, Any], Any]] = {
    DictAttributeSource: lambda copies, obj, source: copies.item(own_dict(obj), source.name),
    ModuleMemberSource: lambda copies, obj, source: copies.item(copies.item(own_dict(obj), source.table), source.name),
    ItemSource: lambda copies, obj, source: copies.item(obj, source.key),
    AttributeSource: lambda copies, obj, source: _dict_of(obj) if source.name == "__dict__" else _refused(),
}


def _dict_of(obj: Any) -> dict[str, Any]:
    found = own_dict(obj)
    if not is_plain_dict(found):
        raise Differs
    return found  # type: ignore[no-any-return]


def _refused() -> Any:
    raise Differs


def is_told(value: Any) -> bool:
    """Whether it is a constant, or a tuple of such, of which guards say all."""
    return all(map(is_told, value)) if _is_sequence(value) else is_constant_in_c(value)


_is_sequence = exactly(tuple, torch.Size)
is_constant_in_c = exactly(*COMPARED_IN_C)
_is_made_again = exactly(*MADE_AGAIN)


def may_differ(value: Any) -> bool:
    """Whether it is an object, a table or a tensor of which guards say all that is asked, and not which one it is."""
    return fixing_guard(value) is None and not _is_made_again(value) and not is_tuple(value)


def _is_marked(value: Any) -> bool:
    return markers.substitute_of(value) is not None or markers.mark_of(value) is not None or markers.original_of(value) is not value


def _described(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg() or tensor.is_nested:
        raise Differs
    flags = tensor.requires_grad, tensor.is_leaf, tensor._is_view(), tensor.is_inference()
    return (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, *flags)
