"""Blocks of `torch.inference_mode`, and blocks that set or switch off overrides of PyTorch functions.

In:     the object in C that such a block enters and leaves.
Out:    a block that changes whether gradients are recorded, which is a node of the graph.
Holds:  tensors made in the block require no gradient. Inside the program they are ordinary tensors, which it may use
        later where eager refuses; those that the caller gets are inference tensors.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch
from torch import fx

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.parameters import new_leaf
from pliant.capture.handlers.table import Rows, spread
from pliant.capture.recording.overrides import default_override, note_disabled, pop_mode, push_mode, with_class
from pliant.capture.recording.stand_ins import memory_of
from pliant.capture.signatures import Args, Kwargs, Statements, Tracer
from pliant.capture.structures import reached
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.guards.kinds import Kind
from pliant.guards.sources import MethodSource
from pliant.guards.state import READERS
from pliant.records import dataclass
from pliant.torch_adapter import (
    KEY_QUESTIONS,
    KEYS_OF_MODES,
    DeviceContext,
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    InferenceModeGuard,
    asks_for_modes,
    asks_no_modes,
    asks_overrides,
    count_function_modes,
    function_mode_at,
    make_subclass,
    override_of_tensor,
    pop_mode_object,
    push_mode_object,
    set_grad_enabled,
)

ROWS = Rows()
handles, CLASSES = ROWS.handles, ROWS.classes


@dataclass(eq=False)
class InferenceBlock:
    """Stands for what `torch.inference_mode` enters. Behind a break inside the block its place is taken by a real one."""

    mode: bool
    before: bool = True  # whether gradients were recorded outside
    outer: InferenceBlock | None = None
    open: bool = False

    def __enter__(self) -> None:
        raise AssertionError("entered by the handler")

    def __exit__(self, *error: Any) -> None:
        raise AssertionError("left by the handler")


def entered(outer: Any, mode: bool, before: bool, now: bool) -> Any:
    """A real block that a break is in, once the one around it (None: no other) has been entered. `now`: whether gradients are
    recorded where the break is."""
    set_grad_enabled(before)
    block = InferenceModeGuard(mode)
    block.__enter__()  # type: ignore[no-untyped-call]
    set_grad_enabled(now)
    return block


def real_block(b: Statements, block: InferenceBlock) -> str:
    if not block.open:
        return b.bind(block, f"{b.hold(InferenceModeGuard)}({block.mode})", hint="block")
    outer = "None" if block.outer is None else b.value(block.outer)
    return b.bind(block, f"{b.hold(entered)}({outer}, {block.mode}, {block.before}, {torch.is_grad_enabled()})", hint="block")


def _construct(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    mode = bool(t.truth(args[0]))
    if not mode and torch.is_inference_mode_enabled():  # the graph would run in the mode, and make inference tensors
        raise GraphBreak("mutated-global-state", "torch.inference_mode(False) within inference mode")
    return InferenceBlock(mode)


CLASSES[InferenceModeGuard] = _construct


@handles(InferenceBlock.__enter__)
def _enter(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    block = args[0]
    block.outer, block.open = t.inference[-1] if t.inference else None, True
    t.inference.append(block)
    t.recorder.marks["inference"] = block.mode
    block.before = torch.is_grad_enabled()
    t.call(set_grad_enabled, (not block.mode,), {})


@handles(InferenceBlock.__exit__)
def _exit(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    block = t.inference.pop()
    block.open = False
    if t.inference:
        t.recorder.marks["inference"] = t.inference[-1].mode
    else:  # as it is around the call
        t.recorder.marks.pop("inference", None)
    t.call(set_grad_enabled, (block.before,), {})


class OverridesOff:
    """Stands for a `DisableTorchFunctionSubclass` or `DisableTorchFunction`."""

    def __init__(self, cls: Any) -> None:
        self.real = cls()

    def __enter__(self) -> None:
        self.real.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.real.__exit__(*error)


for _cls in (DisableTorchFunctionSubclass, DisableTorchFunction):
    CLASSES[_cls] = lambda t, cls, args, kwargs: OverridesOff(cls)


def _switch(t: Tracer, _: Any, *error: Any, by: int = 1) -> None:
    t.overrides.disabled += by


def _asks_overrides(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    note_disabled(t)
    return not t.overrides.disabled


def _asks_no_modes(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    if t.overrides.disabled:
        raise GraphBreak("unknown-call", "whether overrides are switched off for modes, too")
    note_disabled(t)
    return False


def _count_modes(t: Tracer) -> int:
    """Those around the call, which every entry depends on, and those of the program; not the capture's own."""
    return count_function_modes() - 1 + len(t.overrides.modes)


def _asks_for_modes(t: Tracer) -> bool:
    return not _asks_no_modes(t, (), {}) and _count_modes(t) > 0


def _mode_at(t: Tracer, level: int) -> Any:
    inside = level - (count_function_modes() - 1)
    if inside == -1 and (device := READERS["default_device"].read()) is not None:  # no other modes are around a capture
        return t.call(DeviceContext, (device,), {})
    if not 0 <= inside < len(t.overrides.modes):
        raise GraphBreak("unknown-call", "a torch function mode around the call is asked for")
    return t.overrides.modes[inside]


def _asks_key(asks: Any, t: Tracer, key: Any) -> bool:
    if key in KEYS_OF_MODES:
        raise GraphBreak("unknown-call", "whether a dispatch mode is on, of which the capture is one")
    return bool(asks(key))


ROWS.callables |= {
    asks_overrides: _asks_overrides,
    asks_no_modes: _asks_no_modes,
    asks_for_modes: spread(_asks_for_modes),
    count_function_modes: spread(_count_modes),
    function_mode_at: spread(_mode_at),
    **{asks: spread(functools.partial(_asks_key, asks)) for asks in KEY_QUESTIONS},
    OverridesOff.__enter__: spread(_switch),
    OverridesOff.__exit__: spread(functools.partial(_switch, by=-1)),
    override_of_tensor: lambda t, args, kwargs: default_override(t, args[0], args[1:], kwargs),
    torch.Tensor.as_subclass: spread(lambda t, tensor, cls: t.recorder.as_class(tensor, cls)),
    push_mode_object: spread(push_mode),
    pop_mode_object: spread(pop_mode),
}


@ROWS.takes(make_subclass)
def _make_subclass(t: Tracer, cls: Any, data: Any, require_grad: Any = False, *more: Any, **named: Any) -> Any:
    if issubclass(cls, (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer)):
        raise GraphBreak("unknown-object", "a parameter whose shape is not known yet")
    made = new_leaf(t, data, bool(require_grad), issubclass(cls, torch.nn.Parameter))
    return made if cls in (torch.Tensor, torch.nn.Parameter) else with_class(t, made, cls)


@handles(torch.is_inference_mode_enabled)
def _is_enabled(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    if t.inference:
        return bool(t.inference[-1].mode)
    return torch.is_inference_mode_enabled()  # which every entry depends on


@handles(torch.Tensor.is_inference, torch.is_inference)
def _is_inference(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    """What all that a tensor was made of have in common: a view is one if what it shows is, other results if the mode
    is on where they are made."""
    (asked,) = args or kwargs.values()
    behind = reached(t.recorder.node_of(asked), lambda node: node.all_input_nodes)
    answers = {_answer_of_one(t, node) for node in behind} - {None}
    if len(answers) != 1:
        answers = {_answer_of_memory(t, asked)}
    return bool(answers.pop())


def _answer_of_memory(t: Tracer, asked: FakeTensor) -> bool:
    """What the call that made its memory says."""
    memory = memory_of(asked)
    graph = t.recorder.node_of(memory).graph
    node = next(n for n in graph.nodes if n.meta.get("val") is memory)  # what writes it later comes behind
    while node.target is operator.getitem:
        node = node.args[0]
    answer = _answer_of_one(t, node)
    if answer is None or node.op == "call_module":  # which may return a view of what it was given
        raise GraphBreak("unsupported-tensor", "whether a tensor is an inference tensor that may be a view of another")
    return answer


def _answer_of_one(t: Tracer, node: fx.Node) -> bool | None:
    """Whether an input is an inference tensor, or the mode is on where the node is; None: it is about no tensor."""
    fake = node.meta.get("val")
    example = t.inputs.example_of(fake) if is_fake(fake) else None
    if example is not None:
        with DisableTorchFunction():
            answer = example.is_inference()
        t.world.guard(MethodSource(t.world.place_of(fake), "is_inference"), Kind.EQUALS, answer)
        return answer
    if is_fake(fake) and node.op == "placeholder" and any(one.fake is fake for one in t.inputs.inputs):
        return torch.is_inference_mode_enabled()  # a tensor that each call makes before the graph runs
    made = node.op in ("call_function", "call_method", "call_module")
    return bool(node.meta.get("inference", torch.is_inference_mode_enabled())) if made else None
