"""Class statements of the traced program.

In:     what `__build_class__` is called with.
Out:    a real class, whose body was interpreted.
Holds:  the program's metaclasses, `__init_subclass__` and `__set_name__` are interpreted too.
Source: Python's data model, "Creating the class object".
"""

from __future__ import annotations

import enum
import types
from typing import Any

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.protocols import attributes
from pliant.capture.protocols.given_to_c import concrete_tree
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import (
    concrete,
    derives,
    is_cell,
    is_class,
    is_of_program,
    is_plain_dict,
    misused,
    plain_class,
)


def build_class(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """A class statement: the body is interpreted, then the metaclass is called."""
    body, name, *bases = args
    resolved = types.resolve_bases(bases)
    meta, namespace, keywords = _prepare(t, name, resolved, kwargs)
    frame = t.make_frame(body, (), {}, False)
    frame.class_locals = namespace
    cell = frame.value()
    if resolved is not bases and "__orig_bases__" not in namespace and tuple(bases) != tuple(resolved):  # type: ignore[comparison-overlap]
        namespace["__orig_bases__"] = tuple(bases)
    if any(_program_hook(t, cls, hook) for cls, hook in _hooks(meta)):
        made = t.call(meta, (name, tuple(resolved), namespace), keywords)
    else:
        made = new_class(t, meta, (name, tuple(resolved), namespace), keywords)
    if is_cell(cell) and is_class(made):
        cell.cell_contents = made
    return made


def _hooks(meta: Any) -> tuple[tuple[Any, str], ...]:
    return (meta, "__new__"), (meta, "__init__"), (type(meta), "__call__")


def _prepare(t: Tracer, name: str, bases: Any, kwargs: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """The metaclass, the namespace that it prepares, and the other keywords of the statement."""
    meta = kwargs.get("metaclass") or (type(bases[0]) if bases else type)
    keywords = {k: v for k, v in kwargs.items() if k != "metaclass"}
    if not is_class(meta):
        raise GraphBreak("unknown-object", "a class statement whose metaclass is no class")
    meta = max([meta, *map(type, bases)], key=lambda cls: len(cls.__mro__))
    if not _program_hook(t, meta, "__prepare__"):
        return types.prepare_class(name, bases, dict(kwargs))
    return meta, t.call(t.get_attr(meta, "__prepare__"), (name, tuple(bases)), keywords), keywords


def new_class(t: Tracer, make: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A class made by `make(name, bases, namespace)`; hooks of the program that this runs are interpreted."""
    name, bases, namespace = args
    for place, (value, wanted) in enumerate(((name, str), (bases, tuple), (namespace, dict)), 1):
        if not issubclass(plain_class(value), wanted):
            raise misused(value, f"type.__new__() argument {place} must be {wanted.__name__}, not {{}}")
    name, namespace = concrete(name), dict(t.mapping(namespace)) if is_plain_dict(namespace) else namespace
    module = t.frames[-1].globals.get("__name__")
    if is_plain_dict(namespace) and isinstance(module, str):
        namespace.setdefault("__module__", module)  # of the code that calls
    named = {k: v for k, v in namespace.items() if _program_hook(t, type(v), "__set_name__")}
    for key in named:
        del namespace[key]
    made = _create(t, make, name, tuple(t.sequence(bases)), namespace, keywords)
    t.world.note_made_class(made)
    for key, value in named.items():
        type.__setattr__(made, key, value)
    for key, value in named.items():
        t.call(t.get_attr(value, "__set_name__"), (made, key), {})
    if _hooked(t, bases):
        t.call(attributes.super_attr(t, made, made, "__init_subclass__"), (), keywords)
    return made


def _create(t: Tracer, make: Any, name: str, bases: tuple[Any, ...], namespace: Any, keywords: dict[str, Any]) -> Any:
    """The class; a first base that is taken away again keeps Python from running `__init_subclass__` itself."""
    if derives(make, enum.EnumMeta):
        _fix_members(t, name, bases, namespace)
    if not _hooked(t, bases):
        return t.native(make, name, bases, namespace, **keywords)
    made = t.native(make, name, (_Unhooked, *bases), namespace, **keywords)
    try:
        made.__bases__ = bases
    except TypeError:  # a base with `__slots__`
        raise GraphBreak("unknown-object", f"the class statement of {name} runs __init_subclass__") from None
    return made


def _fix_members(t: Tracer, name: str, bases: tuple[Any, ...], namespace: Any) -> None:
    """The values of an enum's members as the standard library gets them, which makes and hashes the members: numbers that
    vary are concrete from now on; code of the program is not run."""
    for hook in ("__new__", "__init__", "_generate_next_value_"):
        if is_of_program(namespace.get(hook)) or any(_program_hook(t, base, hook) for base in bases):
            raise GraphBreak("unknown-object", f"the members of {name} are made by {hook} of the program")
    for key in tuple(getattr(namespace, "_member_names", ())):
        value = concrete_tree(t, namespace[key])
        dict.__setitem__(namespace, key, value)
        try:
            t.hashable(value)
        except Raised:  # members of lists are compared
            t.refuse_opaque(value)


class _Unhooked:
    def __init_subclass__(cls, **keywords: Any) -> None:
        pass


def _hooked(t: Tracer, bases: Any) -> bool:
    return any(_program_hook(t, base, "__init_subclass__") for base in bases)


def _program_hook(t: Tracer, cls: type, name: str) -> bool:
    """Whether the class has the method from code that is not PyTorch's or the standard library's."""
    return is_of_program(t.world.type_lookup(cls, name))
