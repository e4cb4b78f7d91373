"""Whether a call of a module is its `forward` alone: nobody has replaced PyTorch's own way of it, and there are no hooks.

In:     a module, or its class.
Out:    the answer, under guards.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.modules.module as nn_module

from pliant.capture.signatures import Tracer
from pliant.guards import facts
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import AttributeSource, held

_GLOBAL_HOOKS = (
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def calls_as_torch_does(t: Tracer, cls: type) -> bool:
    """Whether calling a module of the class is PyTorch's own code, which need not be interpreted."""
    for name, own in (("__call__", "_wrapped_call_impl"), ("_call_impl", "_call_impl")):
        found = t.world.python_function(cls, name)
        if found is None or found.__globals__ is not vars(nn_module):
            return False
        if found.__code__.co_name != own:
            return False
        t.world.guard(AttributeSource(held(found, name), "__code__"), Kind.IDENTITY, found.__code__)
    return True


def has_hooks(t: Tracer, module: torch.nn.Module) -> bool:
    """Whether it has hooks, or all modules have."""
    everywhere = vars(nn_module)
    if not t.world.is_foreign(everywhere):
        t.world.hold(everywhere, "torch.nn.modules.module")
    if not _no_hooks(t, everywhere, _GLOBAL_HOOKS):
        return True
    if not t.world.is_foreign(module):
        return any(t.world.resolve(module.__dict__.get(name)) for name in _HOOKS)
    return not _no_hooks(t, t.world.instance_dict(module), _HOOKS)


def _no_hooks(t: Tracer, table: dict[str, Any], names: tuple[str, ...]) -> bool:
    """Whether the dicts of hooks that the table names are all empty: mostly one fact, else one fact each."""
    world = t.world
    if not world.has_changes(table) and facts.all_empty(table, names):
        if not any(world.has_changes(table[name]) for name in names):
            world.guard(world.source_of(table), Kind.ALL_EMPTY, names)
            return True
    return all([_is_empty(t, table, name) for name in names])  # noqa: C419  # each is guarded


def _is_empty(t: Tracer, table: dict[str, Any], name: str) -> bool:
    """Whether a dict of hooks, a value of the table, is empty or not there."""
    hooks = t.world.dict_get(table, name)
    if hooks is not MISSING and t.world.has_changes(hooks):
        return not t.world.adopt(hooks)
    if hooks is not MISSING and not hooks:
        t.world.guard(t.world.item_source(table, name), Kind.EMPTY)
    return hooks is MISSING or not hooks
