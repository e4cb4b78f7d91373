"""What a program's own operator would do to what is compiled: its schema, its shape function, its derivative.

In:     an operator of a program's.
Out:    `content_of(operator)`: what of it was used while a graph was made; `NotKept` where that cannot be told.
Holds:  only operators of `torch.library.custom_op`, with nothing registered beside it: their functions are in Python. What
        these read runs under no guard, so all of it counts: functions that they call, constants, what of PyTorch they name.
        The kernel itself does not count: it is called wherever the graph runs.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Iterator
from typing import Any

import torch

from pliant.dispatch import markers
from pliant.entries.constants import spelled
from pliant.entries.content import Content, NotKept, content, describe
from pliant.guards.standard import standard_class, standard_module
from pliant.torch_adapter import (
    CustomOperator,
    OpOverload,
    OpOverloadPacket,
    custom_operator,
    has_only_kernels_of_its_own,
    opoverload_of,
)

_ATEN = ("aten", "prims")


def overload_of(target: Any) -> OpOverload[..., Any] | None:
    """The program's operator that is called; None if it is PyTorch's, or none. NotKept where it may be one of several."""
    if isinstance(target, OpOverloadPacket):
        if str(target).partition(".")[0] in _ATEN:
            return None
        if target._overload_names != [""]:
            raise NotKept("custom-operator", f"{target}, which has overloads")
        target = target.default
    elif type(target) is CustomOperator:
        target = opoverload_of(target)
    return target if isinstance(target, OpOverload) and target.namespace not in _ATEN else None


def content_of(operator: OpOverload[..., Any]) -> Content:
    """What counts of it."""
    return _Reader().operator(operator)


def _content_of_object(obj: Any) -> Content:
    own = overload_of(obj)
    return [str(obj)] if own is None else content_of(own)


for _cls in (OpOverload, OpOverloadPacket, CustomOperator):
    describe(_cls, _content_of_object)


class _Reader:
    """Reads an operator's functions, and all that they lead to, once each."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def operator(self, operator: OpOverload[..., Any]) -> Content:
        made = custom_operator(operator)
        if made is None or not has_only_kernels_of_its_own(operator):
            raise NotKept("custom-operator", f"{operator}, of which not all is known")
        casts = [value for name, value in vars(made).items() if name.startswith("_autocast")]  # releases name them otherwise
        rules = [[cls.__module__, cls.__qualname__, self.value(rule)] for cls, rule in made._torch_dispatch_fns.items()]
        facts = [str(operator._schema), sorted(map(str, operator.tags)), str(markers.mark_of(operator)), rules, *map(self.value, casts)]
        functions = (made._abstract_fn, made._setup_context_fn, made._backward_fn, made._vmap_fn)
        return [*facts, *map(self.value, functions)]

    def value(self, value: Any) -> Content:
        """What such a function may find under a name."""
        constant = spelled(value)
        if constant is not None or value is None:
            return ["constant", constant]
        if id(value) in self.seen:
            return ["known"]
        self.seen.add(id(value))
        if isinstance(value, types.FunctionType):
            return content(value) if standard_module(value.__module__) else self._function(value)
        if isinstance(value, types.ModuleType) and standard_module(value.__name__):
            return ["module", value.__name__]
        if isinstance(value, type) and standard_class(value):
            return ["class", value.__module__, value.__qualname__]
        if isinstance(value, types.BuiltinFunctionType):
            return content(value)
        if (own := overload_of(value)) is not None:
            return self.operator(own)
        if isinstance(value, (OpOverload, OpOverloadPacket)):
            return content(value)
        raise NotKept("custom-operator", f"its functions read a {type(value).__module__}.{type(value).__qualname__}")

    def _function(self, function: types.FunctionType) -> Content:
        """Its code and all that it may read by name, in order; names of attributes that are names of globals count, too."""
        names = sorted(set(_names(function.__code__)))
        space = function.__globals__
        held = [vars(builtins) | space, vars(torch.Tensor), *self._modules(names, space)]
        read = [[name, self.value(one[name])] for one in held for name in names if name in one]
        cells = [self.value(cell.cell_contents) for cell in function.__closure__ or ()]
        defaults = list(map(self.value, (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())))
        return [content(function), read, cells, defaults]

    def _modules(self, names: list[str], space: dict[str, Any]) -> list[dict[str, Any]]:
        """The modules that the names lead to, one through the other."""
        found: list[dict[str, Any]] = []
        new = [space]
        while new:
            values = [one[name] for one in new for name in names if name in one]
            modules = [vars(v) for v in values if isinstance(v, types.ModuleType) and standard_module(v.__name__)]
            new = [one for one in modules if not any(one is other for other in found)]
            found += new
        return found


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
