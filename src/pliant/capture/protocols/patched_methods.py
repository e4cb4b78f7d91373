"""What the program put in the place of PyTorch's: special methods of tensors, the way in which modules are called, hooks.

In:     an operator that is about to be called on values of the trace; a module, or its class.
Out:    `refuse_patched(t, *names)`: a graph break where one of these methods of `torch.Tensor` is the program's own; whether a call
        of a module is its `forward` alone.
Holds:  the same at later calls: a guard asks for what PyTorch has. C code would call the program's methods while the
        function is captured, and not again; behind the break they run at each call. Other methods are interpreted.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.modules.module as nn_module

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.signatures import Tracer
from pliant.capture.value_kinds import is_of_program
from pliant.guards import facts
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import AttributeSource, held
from pliant.unpatched import BUILTINS

_BINARY = "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift".split()
_OTHERS = "lt le gt ge eq ne neg invert pos getitem setitem delitem contains index".split()
_CLASSES = (bool, int, float, complex)


def _by_operator() -> dict[int, tuple[str, ...]]:
    found: dict[Any, tuple[str, ...]] = {}
    for name in _BINARY:
        plain = name.strip("_")
        found[getattr(operator, name)] = (f"__{plain}__", f"__r{plain}__")
        found[getattr(operator, f"i{plain}")] = (f"__i{plain}__", f"__{plain}__", f"__r{plain}__")
    found |= {getattr(operator, name): (f"__{name}__",) for name in _OTHERS}
    found |= {cls: (f"__{cls.__name__}__",) for cls in _CLASSES}
    found[str] = ("__str__", "__repr__")
    found |= {getattr(BUILTINS, name): (f"__{name}__",) for name in ("abs", "iter", "reversed", "hash", "repr", "format")}
    return {id(function): names for function, names in found.items()}


# By the id of a function of Python's: what stands for a callable of the program may hash in a way of its own.
OF_OPERATORS = _by_operator()


def refuse_patched(t: Tracer, *names: str) -> None:
    """Break the graph where one of these special methods of tensors is the program's."""
    for name in names:
        if is_of_program(t.world.type_lookup(torch.Tensor, name)):
            raise GraphBreak("unknown-object", f"the program's own {name} of tensors")


# ---- calls of modules
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
