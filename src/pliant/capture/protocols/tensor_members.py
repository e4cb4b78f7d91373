"""What a tensor of the program holds beside its elements: attributes, a gradient, its class's own members.

In:     a fake tensor, or the program's class of one.
Out:    the traced value, MISSING where there is none.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.signatures import Tracer
from pliant.graph.fake_tensor import FakeTensor
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.parts import dict_of
from pliant.guards.sources import AttributeSource, DictAttributeSource, GradSource
from pliant.torch_adapter import DisableTorchFunction


def own_attribute(t: Tracer, fake: FakeTensor, example: torch.Tensor, name: str) -> Any:
    """What the program stored in the `__dict__` of a tensor from outside, or MISSING."""
    source = t.world.place_of(fake)
    if name in example.__dict__:
        return t.world.bring(example.__dict__[name], DictAttributeSource(source, name))
    t.world.guard(dict_of(source), Kind.NO_KEY, name)
    return MISSING


def has_attributes(t: Tracer, fake: FakeTensor) -> bool:
    """Whether the program stored something in a tensor, before the call or in it; else that it stays so."""
    example = t.inputs.example_of(fake)
    if t.world.has_changed_slots(fake) or (example is not None and example.__dict__):
        return True
    if example is not None:
        t.world.guard(dict_of(t.world.place_of(fake)), Kind.EMPTY, None)
    return False


# What no entry depends on: how often its inputs were written, and where they lie.
_UNTOLD = {
    "__dict__": ("unknown-object", "the __dict__ of a tensor"),
    "_cdata": ("data-dependent", "Tensor._cdata"),
    "_version": ("data-dependent", "Tensor._version"),
}
# What autograd keeps of a tensor, and fakes do not have.
OF_AUTOGRAD = frozenset(
    ("_backward_hooks", "_base", "_grad", "_post_accumulate_grad_hooks", "_python_dispatch", "grad_dtype", "output_nr", "retains_grad", *_UNTOLD)
)
_ANSWERS = (types.NoneType, bool, int, torch.dtype)


def of_autograd(t: Tracer, fake: FakeTensor, example: torch.Tensor | None, name: str) -> Any:
    """One of these of a tensor from outside, if it says no more than whether there is something, or which."""
    if name in _UNTOLD:
        raise GraphBreak(*_UNTOLD[name])
    if example is None:
        return False if name == "_python_dispatch" else MISSING
    try:
        with DisableTorchFunction():
            value = getattr(example, name)
    except (AttributeError, RuntimeError):  # of no leaf, or of an older PyTorch
        return t.native(getattr, fake, name)
    if type(value) not in _ANSWERS:
        raise GraphBreak("unknown-object", f"`{name}` of a tensor")
    t.world.guard(AttributeSource(t.world.place_of(fake), name), Kind.EQUALS, value)
    return value


def own_member(t: Tracer, cls: type, name: str) -> Any:
    """What the program's subclass of tensors has under the name, MISSING if that is PyTorch's."""
    found = t.world.type_lookup(cls, name)
    owner = next((base for base in cls.__mro__ if name in base.__dict__), None)
    ours = owner is None or owner in torch.Tensor.mro() or name == "__torch_function__"
    return MISSING if ours else found


def grad_of_input(t: Tracer, fake: FakeTensor, example: torch.Tensor) -> Any:
    stored = t.world.slot_get(fake, "grad")
    if stored is not MISSING:
        return stored
    with DisableTorchFunction():
        grad = example.grad
    return t.world.bring(grad, GradSource(t.world.place_of(fake)))
