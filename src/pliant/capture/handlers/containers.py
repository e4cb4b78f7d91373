"""Methods of mutable containers.

Holds:  reads of dicts from outside are guarded one key at a time; everything else adopts the container.
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

from pliant.capture.frame import Frame
from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.handlers import given
from pliant.capture.handlers.given import Arguments, Convert, pairs_or_mapping
from pliant.capture.handlers.iteration import in_order
from pliant.capture.handlers.questions import ATTRIBUTE_METHODS
from pliant.capture.iterators.carried import own_items
from pliant.capture.iterators.endings import check_let_go
from pliant.capture.numbers.given_numbers import asked_key, made_key
from pliant.capture.outside.whole_containers import base_in_c, hooks_in_order, most_items
from pliant.capture.protocols import iteration, operators, polyfills, subscripts
from pliant.capture.protocols.iteration import hashables, hashables_of_table
from pliant.capture.protocols.tail_calls import TailCall
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import DICT_TYPES, LITERALS, ByKind, is_list, is_set
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import ItemSource
from pliant.torch_adapter import module_call


def call_container_method(t: Tracer, receiver: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A method of a mutable container: reads of outside dicts are guarded one key at a time, the rest adopts the container."""
    base: Any = base_in_c(receiver)
    if base in DICT_TYPES and name == "get" and args and iteration.lacks_number(t, receiver, args[0]):
        return args[1] if len(args) == 2 else None
    if base in DICT_TYPES and name in _KEY_BY_KEY and t.world.needs_guards(receiver):
        return _KEY_BY_KEY[name](t, receiver, *args)
    if name == "__getitem__" and base in _ITEMS:
        return _ITEMS[base](t, receiver, *args)
    if name in ("append", "add") and len(args) == 1:
        value = t.hashable(args[0]) if name == "add" else args[0]
        if _adds_unread(t, receiver, value):
            return None
    if name in _OF_HOOKS and _is_of_call(t.frames[-1]) and (hooks := hooks_in_order(t.world, receiver)) is not None:
        return hooks if name == "items" else [hook for _, hook in hooks]
    receiver = t.world.adopt(receiver)
    if name == "sort" and is_list(receiver):
        return _sort(t, receiver, kwargs)
    if t.world.is_opaque(receiver):
        if name in ATTRIBUTE_METHODS:
            return ATTRIBUTE_METHODS[name](t, (receiver, *args), kwargs)
        return _call_on_contents(t, receiver, name, args, kwargs)
    is_derived = base not in (None, type(receiver))  # perhaps with a method of its own: the base class' was asked for
    method = functools.partial(getattr(base, name), receiver) if is_derived else getattr(receiver, name)
    if base is collections.deque and name in _GROWING:
        # One that is its own argument, be it as the object from outside that the receiver stands for, grows by what it held.
        args = tuple([receiver.copy() if t.world.resolve(one) is receiver else one for one in args])
    args, kwargs = arguments_of(receiver, name).of(t, args, kwargs)
    if name in ("index", "count", "remove", "__eq__", "__contains__"):
        args = tuple(map(t.internalize, args))
        t.refuse_opaque(t.internalize(receiver), *args, compared="==")
        known, *args = operators.known_to_c(t, receiver, *args)
        if known is not receiver and is_list(receiver):
            receiver[:] = known
        elif known is not receiver:
            method = getattr(known, name)
        if name == "index" and args and _is_absent(t, known, *args):
            return TailCall(polyfills.absent, (args[0], base.__name__))
    return t.native(method, *args, **kwargs)


def _adds_unread(t: Tracer, receiver: Any, value: Any) -> bool:
    if base_in_c(receiver) is collections.deque and t.world.needs_guards(receiver):
        _check_first(t, receiver)
    return t.world.add_unread(receiver, [value])


def _check_first(t: Tracer, receiver: Any) -> None:
    """Before a deque from outside that is full lets go of its first item."""
    world, source = t.world, t.world.place_of(receiver)
    added = world.unread_additions(receiver)
    if added is None and world.has_changes(receiver):
        return
    most = most_items(world, receiver, source)
    if most is not None and not operators.length(t, receiver) < most:
        world.guard(source, Kind.LENGTH, len(receiver))
        first = len(receiver) + (added or 0) - most
        for item in itertools.islice(collections.deque.__iter__(receiver), first, first + 1):
            world.guard(ItemSource(source, first), Kind.TYPE, type(item))
            check_let_go((item,))


def _is_absent(t: Tracer, container: Any, value: Any, *bounds: Any) -> bool:
    """Whether the container lacks an object, between these places: the complaint shows the object by its own method."""
    is_plain = LITERALS.issuperset
    if is_plain(map(type, (value,))) or not is_plain(map(type, bounds)) or len(bounds) > 2:
        return False
    start, stop = (*bounds, None, None)[:2]
    return not t.native(operator.contains, [*container][start:stop], value)


def _is_of_call(frame: Frame) -> bool:
    """Whether it is PyTorch's call of a module, which asks for the keys of hooks in other tables and uses them for no more."""
    name = frame.code.co_qualname
    return (module_call.__qualname__ in name or name in _READ_BACKWARD_HOOKS) and not frame.is_the_users


_OF_HOOKS = ("items", "values")
_READ_BACKWARD_HOOKS = ("Module._get_backward_hooks", "Module._get_backward_pre_hooks")


def _sort(t: Tracer, receiver: list[Any], kwargs: Kwargs) -> None:
    """In place; keys and comparisons of the program find the list empty, as CPython has it."""
    values = receiver.copy()
    receiver.clear()
    try:
        values = in_order(t, values, kwargs)
    finally:
        changed = bool(receiver)
        receiver[:] = values
    if changed:
        raise Raised(ValueError("list modified during sort"))


def _call_on_contents(t: Tracer, receiver: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A method in C of a container from outside of a class of the program's: of what it holds, where that is all it asks."""
    base = base_in_c(receiver)
    if base is list and name in ("__iter__", "__reversed__"):
        return own_items(t, receiver, method=name)
    asked = _ASKED if base is collections.OrderedDict and name not in _VIEWS else ()
    known = name in _OF_CONTENTS.get(base, ()) and not any(t.world.python_function(type(receiver), n) for n in asked)
    held_here = t.world.contents(receiver) if known else None
    if held_here is None:
        raise GraphBreak("unknown-object", f"the method {name} of a {type(receiver).__name__} from outside")
    args = tuple([held_here.copy() if one is receiver else one for one in args])
    made = call_container_method(t, held_here, name, args, kwargs)
    return receiver if made is held_here else made


# Methods that read and write what the container holds and nothing else, and give no object of its class.
_OF_SEQUENCES = """append extend insert pop remove clear reverse index count __setitem__ __delitem__ __iadd__ __imul__ __contains__
    __len__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__"""
_OF_DICTS = """keys values items update setdefault pop popitem clear __delitem__ __ior__ __iter__ __reversed__""".split()
_OF_CONTENTS: dict[Any, frozenset[str]] = {
    list: frozenset(f"{_OF_SEQUENCES} sort copy __add__ __mul__ __rmul__".split()),
    collections.deque: frozenset(f"{_OF_SEQUENCES} appendleft extendleft popleft rotate __getitem__".split()),
    set: frozenset(name for name in vars(set) if name not in vars(object) or name in ("__eq__", "__ne__", "__contains__")),
    dict: frozenset((*_OF_DICTS, "copy", "__or__")),
    collections.defaultdict: frozenset(_OF_DICTS),
    collections.OrderedDict: frozenset((*_OF_DICTS, "move_to_end")),
}
_GROWING = ("extend", "extendleft", "__iadd__")
_VIEWS = ("keys", "values", "items")
_ASKED = ("__contains__", "__getitem__", "__setitem__", "__delitem__", "__iter__", "__missing__")  # by OrderedDict's methods


_PAIRS = functools.partial(pairs_or_mapping, by_keys=False)
_PAIRS_BY_KEYS = functools.partial(pairs_or_mapping, by_keys=True)


def _of_dicts(pairs: Convert) -> dict[str, Arguments]:
    return {
        **dict.fromkeys("pop setdefault __setitem__ __delitem__ get move_to_end __getitem__".split(), Arguments(made_key)),
        **dict.fromkeys(("update", "__ior__", "__init__"), Arguments(pairs)),
        **dict.fromkeys(("__or__", "__ror__"), Arguments(lambda t, value: t.mapping(value) if base_in_c(value) in DICT_TYPES else value)),
    }


# What C code gets for the arguments of a method.
_OF_SETS = Arguments(rest=hashables_of_table)
_OF_OPERATORS_OF_SETS = Arguments(rest=lambda t, value: hashables_of_table(t, value) if is_set(value) else value)
_AS_THEY_ARE = Arguments()
_OF_KEYS = {
    **dict.fromkeys(("add", "discard", "remove", "__contains__"), Arguments(made_key)),
    "isdisjoint": Arguments(rest=hashables),
}
_OF_ITEMS = {
    **dict.fromkeys(_GROWING, Arguments(given.items)),
    **dict.fromkeys(("insert", "pop", "rotate"), Arguments(given.number)),
    **dict.fromkeys(("__getitem__", "__delitem__"), Arguments(given.fixed)),
    "index": Arguments(given.as_it_is, rest=given.number),
    "__init__": Arguments(given.items, given.fixed, iterable=given.items, maxlen=given.fixed),
}
_ARGUMENTS: ByKind[dict[str, Arguments]] = ByKind(
    _OF_ITEMS,
    families={
        list: {**_OF_ITEMS, **dict.fromkeys((*_GROWING, "__init__"), Arguments(given.listed))},
        bytearray: {
            **_OF_ITEMS,
            **dict.fromkeys(("append", "insert", "remove"), Arguments(rest=given.number)),
        },
        dict: _of_dicts(_PAIRS),
        collections.OrderedDict: _of_dicts(_PAIRS_BY_KEYS),
        collections.defaultdict: {**_of_dicts(_PAIRS), "__init__": Arguments(given.factory, _PAIRS)},
        **dict.fromkeys((set, frozenset), _OF_KEYS),
    },
)


def arguments_of(receiver: Any, name: str) -> Arguments:
    """What a method gets; of a set it is the same for all but a few."""
    found = _ARGUMENTS.of(receiver).get(name)
    if found is not None or not is_set(receiver):
        return found or _AS_THEY_ARE
    if name in ("pop", "clear", "copy"):
        return _AS_THEY_ARE
    return _OF_OPERATORS_OF_SETS if name.startswith("__") and name != "__init__" else _OF_SETS


def _get(t: Tracer, mapping: Any, key: Any, default: Any = None) -> Any:
    value = t.world.dict_get(mapping, asked_key(t, mapping, key))
    if value is not MISSING:
        return t.world.resolve(value)
    t.world.note_asked(mapping, False)
    return default


def _length(t: Tracer, mapping: Any) -> Any:
    """As the class in C counts, which a `__len__` of the program's may ask."""
    held_here = mapping if t.world.python_function(type(mapping), "__len__") is None else t.world.contents(mapping)
    if held_here is None:
        raise GraphBreak("unknown-object", f"the length of a {type(mapping).__name__} from outside")
    return operators.length(t, held_here)


# Methods of a dict from outside of which only some keys are read.
_KEY_BY_KEY: dict[str, Callable[..., Any]] = {
    "get": _get,
    "__contains__": lambda t, mapping, key: t.world.contains(mapping, asked_key(t, mapping, key)),
    "__setitem__": lambda t, mapping, key, value: t.world.dict_set(mapping, asked_key(t, mapping, key), value),
    "__len__": _length,
}
_ITEMS: dict[type, Callable[..., Any]] = {**dict.fromkeys(DICT_TYPES, subscripts.dict_item), list: subscripts.list_item}
