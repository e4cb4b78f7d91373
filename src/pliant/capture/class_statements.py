"""Class statements of the traced program.

In:     what `__build_class__` is called with.
Out:    a real class, whose body was interpreted.
Holds:  `__init_subclass__` and `__set_name__` of the program are interpreted too; its metaclasses' own constructors, which
        Python would run unwatched, are a graph break.
Source: Python's data model, "Creating the class object".
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from pliant.capture import attributes, calls
from pliant.capture.frame import Returned
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.value_kinds import standard_globals

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer


def build_class(t: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A class statement: the body is interpreted, then the metaclass is called."""
    body, name, *bases = args
    resolved = types.resolve_bases(bases)
    meta, namespace, keywords = types.prepare_class(name, resolved, dict(kwargs))
    if (
        _program_hook(t, meta, "__new__")
        or _program_hook(t, meta, "__init__")
        or _program_hook(t, type(meta), "__call__")
    ):
        raise GraphBreak("unknown-object", f"a class statement that runs methods of {meta.__name__}")
    frame = calls.make_frame(t, body, (), {}, False)
    frame.class_locals = namespace
    result = frame.run()
    assert isinstance(result, Returned)
    if resolved is not bases and "__orig_bases__" not in namespace and tuple(bases) != tuple(resolved):  # type: ignore[comparison-overlap]
        namespace["__orig_bases__"] = tuple(bases)
    named = {k: v for k, v in namespace.items() if _program_hook(t, type(v), "__set_name__")}
    for key in named:
        del namespace[key]
    made = _create(t, meta, name, tuple(resolved), namespace, keywords)
    t.world.made[id(made)] = made
    if isinstance(result.value, types.CellType):
        result.value.cell_contents = made
    for key, value in named.items():
        type.__setattr__(made, key, value)
    for key, value in named.items():
        t.call(t.get_attr(value, "__set_name__"), (made, key), {})
    if _hooked(t, resolved):
        t.call(attributes.super_attr(t, made, made, "__init_subclass__"), (), keywords)
    return made


def _create(t: Tracer, meta: type, name: str, bases: tuple[Any, ...], namespace: Any, keywords: dict[str, Any]) -> Any:
    """The class; a first base that is taken away again keeps Python from running `__init_subclass__` itself."""
    if not _hooked(t, bases):
        return t.native(meta, name, bases, namespace, **keywords)
    made = t.native(meta, name, (_Unhooked, *bases), namespace, **keywords)
    try:
        made.__bases__ = bases
    except TypeError:  # a base with `__slots__`
        raise GraphBreak("unknown-object", f"the class statement of {name} runs __init_subclass__") from None
    return made


class _Unhooked:
    def __init_subclass__(cls, **keywords: Any) -> None:
        pass


def _hooked(t: Tracer, bases: Any) -> bool:
    return any(_program_hook(t, base, "__init_subclass__") for base in bases)


def _program_hook(t: Tracer, cls: type, name: str) -> bool:
    """Whether the class has the method from code that is not PyTorch's or the standard library's."""
    found = t.world.type_lookup(cls, name)
    function = getattr(found, "__func__", found)
    return isinstance(function, types.FunctionType) and not standard_globals(function.__globals__)
