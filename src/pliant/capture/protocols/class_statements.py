"""Class statements of the traced program.

In:     what `__build_class__` is called with.
Out:    a real class, whose body was interpreted.
Holds:  the program's metaclasses, `__init_subclass__` and `__set_name__` are interpreted too.
Source: Python's data model, "Creating the class object".
"""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping
from typing import Any

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.protocols import attributes, polyfills
from pliant.capture.protocols.given_to_c import concrete_tree
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import (
    concrete,
    derives,
    is_cell,
    is_class,
    is_of_program,
    is_plain_dict,
    is_str,
    is_tuple,
    misused,
    plain_class,
)


def build_class(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """A class statement: the body is interpreted, then the metaclass is called."""
    body, name, *written = args
    given = tuple(written)
    bases = tuple([base for one in given for base in _entries(t, one, given)])
    meta, namespace, keywords = _prepare(t, name, bases, kwargs)
    frame = t.make_frame(body, (), {}, False)
    frame.class_locals = namespace
    cell = frame.value()
    if len(bases) != len(given) or any(one is not other for one, other in zip(bases, given, strict=True)):
        namespace["__orig_bases__"] = given
    if not is_class(meta) or any(_program_hook(t, cls, hook) for cls, hook in _hooks(meta)):
        made = t.call(meta, (name, bases, namespace), keywords)
    else:
        made = new_class(t, meta, (name, bases, namespace), keywords)
    if is_cell(cell) and is_class(made):
        _check_class_cell(cell, name, made)
    return made


def _check_class_cell(cell: types.CellType, name: str, made: Any) -> None:
    """`__class__` of the body is what `type.__new__` made, if it got the cell."""
    try:
        set_to = cell.cell_contents
    except ValueError:
        said = f"__class__ not set defining {name!r} as {made!r}. Was __classcell__ propagated to type.__new__?"
        raise Raised(RuntimeError(said)) from None
    if set_to is not made:
        raise Raised(TypeError(f"__class__ set to {set_to!r} defining {name!r} as {made!r}"))


def _entries(t: Tracer, base: Any, bases: tuple[Any, ...]) -> tuple[Any, ...]:
    """What stands for a base of a class statement: itself, or what it says if it is no class (PEP 560)."""
    if is_class(base):
        return (base,)
    if (said := t.world.python_function(type(base), "__mro_entries__")) is None:
        return t.native(types.resolve_bases, (base,))  # type: ignore[no-any-return]
    entries = t.call(said, (base, bases), {}) if is_of_program(said) else t.native(base.__mro_entries__, bases)
    if not is_tuple(entries):
        raise misused(entries, "__mro_entries__ must return a tuple")
    return entries  # type: ignore[no-any-return]


def _hooks(meta: Any) -> tuple[tuple[Any, str], ...]:
    return (meta, "__new__"), (meta, "__init__"), (type(meta), "__call__")


def _prepare(t: Tracer, name: str, bases: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """The metaclass, or what else is called in its place; the namespace that it prepares, the statement's other keywords."""
    keywords = dict(kwargs)
    meta = keywords.pop("metaclass", type(bases[0]) if bases else type)
    if is_class(meta):
        meta = t.native(types._calculate_meta, meta, bases)  # type: ignore[attr-defined]  # the most derived one
        if not _program_hook(t, meta, "__prepare__"):
            return meta, meta.__prepare__(name, bases, **keywords), keywords
    prepare = t.call(getattr, (meta, "__prepare__", None), {})
    namespace = {} if prepare is None else t.call(prepare, (name, bases), keywords)
    _refuse_own_namespace(t, namespace)
    if not isinstance(namespace, Mapping):
        raise misused(namespace, f"{meta.__name__ if is_class(meta) else '<metaclass>'}.__prepare__() must return a mapping, not {{}}")
    return meta, namespace, keywords


def _refuse_own_namespace(t: Tracer, namespace: Any) -> None:
    """Names of a body are stored at once, and by C code."""
    if t.world.is_foreign(namespace) or any(_program_hook(t, type(namespace), name) for name in _OF_NAMESPACES):
        raise GraphBreak("unknown-object", f"a class statement whose namespace is a {type(namespace).__name__}")


_OF_NAMESPACES = "__getitem__ __setitem__ __delitem__ __missing__ __contains__".split()


def new_class(t: Tracer, make: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A class made by `make(name, bases, namespace)`; hooks of the program that this runs are interpreted."""
    name, bases, namespace = args
    for place, (value, wanted) in enumerate(((name, str), (bases, tuple), (namespace, dict)), 1):
        if not issubclass(plain_class(value), wanted):
            raise misused(value, f"type.__new__() argument {place} must be {wanted.__name__}, not {{}}")
    name = concrete(name)
    if not derives(make, enum.EnumMeta):  # which asks its own
        _refuse_own_namespace(t, namespace) if not is_plain_dict(namespace) else None
        namespace = dict(t.mapping(namespace))
    module = t.frames[-1].globals.get("__name__")
    if is_plain_dict(namespace) and is_str(module):
        namespace.setdefault("__module__", module)  # of the code that calls
    bases = tuple(t.sequence(bases))
    if not all(map(is_class, bases)):
        t.native(make, name, bases, namespace)  # which complains
    named = {k: v for k, v in namespace.items() if _program_hook(t, type(v), "__set_name__")}
    namespace |= dict.fromkeys(named)
    made = _create(t, make, name, bases, namespace, keywords)
    t.world.note_made_class(made)
    for key, value in named.items():
        type.__setattr__(made, key, value)
    for key, value in named.items():
        said = f"Error calling __set_name__ on '{type(value).__name__}' instance {key!r} in '{name}'"
        t.call(polyfills.named, (t.world.type_lookup(type(value), "__set_name__"), (value, made, key), said), {})
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
