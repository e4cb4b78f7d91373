"""Calls that a program makes again and again, as from the turns of a loop: followed once, their nodes copied after that.

In:     a call of a Python function from outside, on tensors and plain constants, where nothing is recorded for autograd.
Out:    what following its code gives. At its first call of a kind the code is followed as any other, at the second one
        it is looked at meanwhile, and where it only computes, all others copy the nodes that the second one recorded.
Holds:  the graph, the values and what is known of them are those that following every call would give.

Why that is so. What a call does is a function of its code, its arguments, what it reads elsewhere, and the settings.
- *Code*: the same function, called by the same operation of the same code, as many frames deep.
- *Arguments*: what a trace can ask of a tensor is its description and which other argument it is; both are in the key, as
  are constants by type and value. A tensor from outside, and a module, is in the key as itself, since what is asked of it
  is guarded. Memory offsets are left out: no view of an argument is made, so nothing depends on them. Elements are not asked
  for: a truth of a tensor, `item()` and their like are refused, and arguments of one element are too, which operators
  may take for a number.
- *Elsewhere*: the call changes nothing, as it may run the operations of `_OPS` alone, and call what `_IS_SAFE` says. When it is
  copied, the trace has changed nothing outside but dicts that it had changed before the call was looked at, which did not
  ask them. So what it read is as it was, and under guards that hold for all of the trace.
- *Settings* are compared; where others than these could matter (modes, casts, blocks that are open), calls are followed.

What it made is made again: each copy of a node has a tensor of its own, of the same description. A result must be a new
tensor, an argument or a constant, and no view, so that a later write changes what it would have.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from pliant.bytecode.decode import Op, Program
from pliant.capture.frame import Frame, Handler
from pliant.capture.handlers.table import find as find_row
from pliant.capture.handlers.table import find_special
from pliant.capture.numbers.selections import OPS, STAYS, called, is_operator
from pliant.capture.recording.nodes import nodes_behind
from pliant.capture.recording.torch_calls import is_torch_leaf
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import leaves, mapped
from pliant.capture.value_kinds import COMPARED_IN_C, ByKind, is_function, is_int, is_method, is_tuple, module_of
from pliant.graph.fake_tensor import FakeTensor, is_fake, memory_of
from pliant.guards.settings import Settings
from pliant.records import dataclass
from pliant.torch_adapter import DisableTorchFunction, append_node, below_python_dispatch

Inline = Callable[..., Any]
Call = tuple[types.FunctionType, Args, Kwargs]

# Operations that change nothing but locals. Those of `_LOOKING` are looked at.
_OPS = OPS | frozenset(
    """COPY_FREE_VARS DELETE_FAST BINARY_SUBSCR BINARY_SLICE BUILD_SLICE BUILD_LIST UNPACK_SEQUENCE JUMP_IF_TRUE_OR_POP
    JUMP_IF_FALSE_OR_POP NOP RESUME""".split()
)
# Attributes and methods of tensors that their description tells.
_TOLD = frozenset(
    """shape dtype device ndim size dim ndimension numel stride is_contiguous is_floating_point is_complex element_size
    T mT H mH""".split()
)
_PURE = (float, int, bool, str, min, max)  # of plain constants
_LEAF_MODULES = ("torch.nn.functional", "torch.functional")
_PLAIN = COMPARED_IN_C


def as_they_are(handlers: tuple[Handler, ...], program: Program) -> tuple[Handler, ...]:
    """How operations are done where nobody looks at them."""
    return handlers


class RepeatedCalls:
    """What one capture knows of calls, by kind. `copied`: how many were not followed. `look`: at the call that is looked at, as
    long as it only computes."""

    def __init__(self) -> None:
        self._known: dict[Hashable, _Template | _Known] = {}
        self.copied = 0
        self.look: _Look | None = None

    def forget(self) -> None:
        self._known.clear()

    def inline(self, t: Tracer, follow: Inline, function: Any, args: Args, kwargs: Kwargs, linked: bool) -> Any:
        """What `follow` gives."""
        key = _key_of(t, function, args, kwargs)
        if key is None:
            return follow(t, function, args, kwargs, linked)
        known = self._known.get(key)
        if known is None:
            self._known[key] = _Known((function, args, kwargs), is_refused=False)
        elif not known.is_refused and (stored := t.world.only_stored_into()) is not None:
            if not isinstance(known, _Template):
                if self.look is None:
                    return self._look(t, follow, key, stored, (function, args, kwargs), linked)
            elif stored <= known.stored and known.fits():
                self.copied += 1
                if self.look is not None:  # at a call around this one, whose nodes are that one's too
                    self.look.followed.add(function.__code__)
                return known.copied(t, _tensors(args, kwargs))
        return follow(t, function, args, kwargs, linked)

    def _look(self, t: Tracer, follow: Inline, key: Hashable, stored: frozenset[int], call: Call, linked: bool) -> Any:
        """Follow a call, and keep what it records if it only computes."""
        self._known[key] = _Known(call, is_refused=True)
        look, last, before = _Look(t), next(iter(reversed(t.graph.nodes))), state_of(t)
        drew, t.mode.draws = t.mode.draws, False
        try:
            with look.at():
                result = follow(t, *call, linked)
        finally:
            drawn, t.mode.draws = t.mode.draws, drew or t.mode.draws
        if look.is_pure and not drawn and before == state_of(t) and t.world.only_stored_into() == stored:
            made = _template(t, call, stored, last, result)
            if made is not None:
                self._known[key] = made
        return result


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """A call that was seen. `call`: it holds the objects that its key knows by their ids."""

    call: Call
    is_refused: bool


# ---- kinds of calls
def _key_of(t: Tracer, function: types.FunctionType, args: Args, kwargs: Kwargs) -> Hashable | None:
    """Equal for calls that do the same; None for one that has to be followed."""
    if torch.is_grad_enabled() or not t.frames or not is_quiet(t):
        return None
    if not t.world.is_foreign(function) or t.world.is_made(function) or "/torch/" in function.__code__.co_filename:
        return None
    given = (*args, *kwargs.values())
    if not any(map(is_fake, given)):
        return None
    parts = [_PART_OF.of(one)(t, one) for one in given]
    if None in parts:
        return None
    frame, first = t.frames[-1], {id(one): k for k, one in reversed([*enumerate(given)])}
    which = tuple([first[id(one)] for one in given if is_fake(one)])
    place = (id(function), id(function.__code__), id(frame.code), frame.ip, len(t.frames))
    return (*place, len(args), *kwargs, *parts, which)


def is_quiet(t: Tracer) -> bool:
    """Whether nothing is open that code which runs now could notice, or that notices it."""
    recorder = t.recorder
    if t.repeated.look is None and t.looked_at is not as_they_are or recorder.region is not None or recorder.checkpointed or recorder.marks:
        return False
    if t.overrides.modes or t.overrides.has_subclasses or recorder.assumes or t.warning_blocks:
        return False
    if any(one is not None for one in (t.current_exception, t.carrying, t.message, t.skipped, t.lock)):
        return False
    return not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"))


def _kind_of_tensor(t: Tracer, fake: FakeTensor) -> Hashable | None:
    if t.world.source_of(fake) is not None:
        return id(fake)
    if fake.subclass_ is not None or all(is_int(size) and size == 1 for size in fake.size_):
        return None
    spec = fake.spec
    with DisableTorchFunction(), below_python_dispatch():
        flags = fake.requires_grad, fake.is_leaf, fake.is_inference(), fake.layout, fake.is_parameter_
    return (spec.size_key, spec.stride_key, spec.dtype, spec.device, spec.lazy, flags)


def _as_itself(t: Tracer, value: Any) -> Hashable | None:
    return id(value) if t.world.is_foreign(value) else None


_PART_OF: ByKind[Callable[[Tracer, Any], Hashable | None]] = ByKind(
    lambda t, value: None,
    {
        **dict.fromkeys(_PLAIN, lambda t, value: (type(value), repr(value))),
        FakeTensor: _kind_of_tensor,
    },
    {torch.nn.Module: _as_itself, type: _as_itself},
)


def _tensors(args: Args, kwargs: Kwargs) -> list[FakeTensor]:
    return [one for one in (*args, *kwargs.values()) if is_fake(one)]


def state_of(t: Tracer, but_writes: bool = False) -> tuple[Any, ...]:
    """What a call that only computes leaves as it is. `but_writes`: it may write tensors."""
    counted: tuple[Any, ...] = (t.draws, t.answers, t.orders, t.stand_ins, t.released, t.questions, t.caches, t.results, t.generators)
    numbers = (t.world.changed_reads, but_writes or t.mode.writes, t.mode.unbacked_made, t.hook_ids, t.open_generators, t.process_bound, t.recorder.assumes)
    return (*map(len, counted), *numbers, settings_now())


def settings_now() -> tuple[Any, ...]:
    return (*Settings().values, torch.is_inference_mode_enabled(), torch.get_default_dtype())


# ---- looking at a call
class _Look:
    """`is_pure`: whether nothing was met yet that may do more than compute. `followed`: the codes that were interpreted."""

    def __init__(self, t: Tracer) -> None:
        self.t = t
        self.is_pure = True
        self.followed: set[types.CodeType] = set()

    @contextmanager
    def at(self) -> Iterator[None]:
        """A block in which the interpreter is looked at."""
        self.t.looked_at, self.t.repeated.look = self._handlers, self
        try:
            yield
        finally:
            if self.is_pure:
                self._end()

    def _end(self) -> None:
        self.t.looked_at, self.t.repeated.look = as_they_are, None

    def _refuse(self) -> None:
        """It does more than compute: from here on it is followed as any other, and calls in it may be looked at."""
        if self.is_pure:
            self.is_pure = False
            self._end()

    def _handlers(self, handlers: tuple[Handler, ...], program: Program) -> tuple[Handler, ...]:
        self.followed.add(program.code)
        if any(op.name not in _OPS for op in program.ops):
            self._refuse()
        if not self.is_pure:
            return handlers
        pairs = zip(program.ops, handlers, strict=True)
        return tuple([self._looking(op.name, handler) for op, handler in pairs])

    def _looking(self, name: str, handler: Handler) -> Handler:
        allows = _LOOKING.get(name)
        if allows is None:
            return handler

        def looking(frame: Frame, op: Op) -> Any:
            function = _called(frame, op)[0] if name == "CALL" else None
            if self.is_pure and not allows(frame, op):
                self._refuse()
            result = handler(frame, op)
            if is_function(function) and not is_torch_leaf(function) and function.__code__ not in self.followed:
                self._refuse()  # something else stood for it
            return result

        return looking


def _called(frame: Frame, op: Op) -> tuple[Any, list[Any]]:
    """The function that a call calls, of a method its function, and what it is given."""
    found, given = called(frame, op)
    is_bound = is_method(found) and not is_fake(found.__self__)
    return found.__func__ if is_bound else found, given


def _may_call(frame: Frame, op: Op) -> bool:
    function, given = _called(frame, op)
    if type(function) in _BOUND and is_fake(function.__self__):
        return _is_of_tensor(function.__name__)
    if function is isinstance or function is len:
        return True
    if any(function is one for one in _PURE):
        return all(type(one) in _PLAIN for one in given)
    return _IS_SAFE.of(function)(frame.tracer, function)


def _is_followed(t: Tracer, function: types.FunctionType) -> bool:
    """Whether it is a function of the program that is interpreted, or one of PyTorch's that is a node."""
    if find_row(function) is not None or find_special(function) is not None:
        return False
    if is_torch_leaf(function):
        return module_of(function) in _LEAF_MODULES
    return t.world.is_foreign(function) and not t.world.is_made(function)


def _is_operator(t: Tracer, function: Any) -> bool:
    """Whether it is an operator of PyTorch that makes tensors."""
    return find_row(function) is None and _makes_tensors(function.__name__) and is_operator(function)


_BOUND = (types.BuiltinMethodType, types.MethodType)


def _is_from_outside(t: Tracer, value: Any, name: Any = None) -> bool:
    return bool(t.world.is_foreign(value))


_IS_SAFE: ByKind[Callable[[Tracer, Any], bool]] = ByKind(
    lambda t, function: False,
    {types.FunctionType: _is_followed, types.BuiltinFunctionType: _is_operator},
    {torch.nn.Module: _is_from_outside},
)


@functools.lru_cache(maxsize=4096)
def _makes_tensors(name: str) -> bool:
    """Whether the operator of a name makes tensors, writes none, and says nothing else."""
    packet = None if name.endswith("_") else getattr(torch.ops.aten, name, None)
    schemas = [getattr(packet, one)._schema for one in packet.overloads()] if packet is not None else []
    return any(
        schema.returns and not schema.is_mutable and all(str(one.type) in ("Tensor", "List[Tensor]") for one in schema.returns)
        for schema in schemas
    )


def _is_of_tensor(name: str) -> bool:
    """Whether a tensor's attribute depends on its description alone, or makes tensors."""
    return name in _TOLD or name not in _OF_MEMORY and _makes_tensors(name)


_OF_MEMORY = frozenset(("data", "grad", "as_strided", "detach", "alias", "real", "imag"))


def _may_read(frame: Frame, op: Op) -> bool:
    obj = frame.stack[-1]
    return _READS.of(obj)(frame.tracer, obj, op.arg)


# What attributes of a value may be read.
_READS: ByKind[Callable[[Tracer, Any, Any], bool]] = ByKind(
    lambda t, obj, name: False,
    {FakeTensor: lambda t, obj, name: _is_of_tensor(name), types.ModuleType: lambda t, obj, name: True},
    {torch.nn.Module: _is_from_outside, type: _is_from_outside},
)


def _is_no_tensor(frame: Frame, op: Op) -> bool:
    """A truth of a tensor asks for its elements."""
    return not is_fake(frame.stack[-1])


_TRUTHS = "POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE TO_BOOL UNARY_NOT JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP".split()
_LOOKING: dict[str, Callable[[Frame, Op], bool]] = {
    "CALL": _may_call,
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), _may_read),
    "BINARY_OP": lambda frame, op: not str(op.arg).endswith("="),
    "BINARY_SUBSCR": lambda frame, op: STAYS.of(frame.stack[-2]) and not is_fake(frame.stack[-1]),
    "UNPACK_SEQUENCE": lambda frame, op: STAYS.of(frame.stack[-1]),
    **dict.fromkeys(_TRUTHS, _is_no_tensor),
}


# ---- copying what it recorded
def _template(t: Tracer, call: Call, stored: frozenset[int], last: fx.Node, result: Any) -> _Template | None:
    """The nodes behind `last` as what other calls copy; None if they do more than compute new tensors."""
    given = _tensors(*call[1:])
    nodes = [node for node in nodes_behind(last) if node.op not in ("placeholder", "get_attr")]
    if any(node.op not in ("call_function", "call_method") for node in nodes):
        return None
    own, returned = set(nodes), {one.node for one in leaves(result) if is_fake(one)}
    with DisableTorchFunction(), below_python_dispatch():
        if not _can_be_copied(result, given, own) or not all(_is_computed(node, own - returned) for node in nodes):
            return None
        if len({t.recorder.node_of(one) for one in given}) != len(set(map(id, given))):
            return None
    return _Template(call, stored, nodes, result, [t.recorder.node_of(one) for one in given])


def _is_computed(node: fx.Node, kept: set[fx.Node]) -> bool:
    """Whether a node makes new tensors, in memory that no argument and no result has, or views of such ones."""
    made = list(leaves(node.meta.get("val")))
    if not made or not all(map(is_fake, made)) or "made" in node.meta or "binds" in node.meta:
        return False
    return all(memory_of(fake) is fake or memory_of(fake).node in kept for fake in made)


def _can_be_copied(result: Any, given: list[FakeTensor], own: set[fx.Node]) -> bool:
    """Whether a result is made of what these nodes made, arguments and constants."""
    if is_tuple(result):
        return all(_can_be_copied(one, given, own) for one in result)
    if not is_fake(result):
        return type(result) in _PLAIN
    is_made = result.node in own and result.node.meta["val"] is result and memory_of(result) is result
    return is_made or any(result is one for one in given)


class _Template:
    """A call whose nodes others copy. `given`: the nodes of its tensors; `stored`: the dicts that the trace had stored into, none
    of which it asked."""

    is_refused = False

    def __init__(self, call: Call, stored: frozenset[int], nodes: list[fx.Node], result: Any, given: list[fx.Node]) -> None:
        self.call, self.stored, self.nodes, self.result, self.given = call, stored, nodes, result, given

        own = {*nodes, *given}
        others = dict.fromkeys(one for node in nodes for one in node.all_input_nodes if one not in own)
        self.settings = settings_now()
        self.elsewhere = [(one, one.meta["val"], one.meta["val"].spec) for one in others if is_fake(one.meta.get("val"))]

    def fits(self) -> bool:
        """Whether the settings are what they were, and so are the tensors that it found elsewhere: `p.data = other` makes them others."""
        return self.settings == settings_now() and all(fake.node is node and fake.spec is spec for node, fake, spec in self.elsewhere)

    def copied(self, t: Tracer, given: list[FakeTensor]) -> Any:
        """The result of a call with these tensors, whose nodes are appended to the graph."""
        nodes = dict(zip(self.given, [t.recorder.node_of(one) for one in given]))
        fakes: dict[int, FakeTensor] = dict(zip(map(id, _tensors(*self.call[1:])), given))
        return copied(t, self.nodes, nodes, fakes, self.result)


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
