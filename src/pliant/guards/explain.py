"""Why an entry does not serve a call, in words.

In:     the statements of the entry's check and the call's arguments.
Out:    `Failure`: the fact that does not hold with old and new value, the guard with its user line, and how to avoid
        the recompile.
Holds:  the statements themselves are run again, so the explanation cannot disagree with the check. Nothing is raised.
"""

from __future__ import annotations

import enum
import itertools
import os
import reprlib
import types
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any

import torch

from pliant.guards.codegen import related
from pliant.guards.facts import Itself, same
from pliant.guards.kinds import MISSING, ConstantItems, Guard, Kind, NumberOf, TensorFacts
from pliant.guards.parts import root_of
from pliant.guards.replay import Replay
from pliant.guards.sources import (
    AttributeSource,
    DictAttributeSource,
    HeldSource,
    ItemSource,
    Source,
    StateSource,
    value_of,
)
from pliant.guards.state import READERS
from pliant.guards.steps import READ_ERRORS, Step, lookup
from pliant.records import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """One fact that does not hold. `guard` is None for the number and names of the arguments."""

    text: str
    advice: str
    guard: Guard | None


def explain_miss(replay: Replay, args: Sequence[Any], kwargs: dict[str, Any]) -> Failure | None:
    """The first fact that does not hold for the call; None if all hold."""
    found = replay.first_failing(args, kwargs)
    if found is None:
        return None
    index, variables = found
    guard = replay.steps[index].guard
    if guard is None:
        return _failed_read(replay.steps, index, args, kwargs)
    value = _value_in(guard.source, args, kwargs) if isinstance(guard.source, Source) else _ABSENT
    if value is _ABSENT and guard.kind not in _WITHOUT_VALUE:
        return Failure(f"{_quoted(guard.source)} is not there any more", "", guard)
    try:
        text, advice = _WORDS[guard.kind](guard, value, variables)
    except READ_ERRORS as error:  # as it was for the check: autograd refuses to tell what some views are
        text, advice = f"{_name(guard)} cannot be read: {type(error).__name__}: {error}", ""
    return Failure(text, advice, guard)


def _quoted(source: Source) -> str:
    return f"`{text}`" if (text := source.describe()) else "the module of the function"  # whose names are told without it


def in_lines(failures: Sequence[Failure]) -> list[str]:
    """Why entries do not serve a call, the first few, and what to do, as lines of a message."""
    reasons = list(dict.fromkeys(f.text for f in failures)) or ["unknown"]
    shown = [*reasons[:_SHOWN], *([f"and {len(reasons) - _SHOWN} more"] if len(reasons) > _SHOWN else [])]
    advice = dict.fromkeys(f.advice for f in failures if f.advice) or ["call it with fewer kinds of arguments"]
    return ["  why  " + "\n       ".join(shown), *(f"  do   {one}" for one in advice)]


_SHOWN = 3


_ABSENT: Any = object()
_WITHOUT_VALUE = (Kind.SHAPE, Kind.DISTINCT, Kind.SEPARATE, Kind.STATE)


def _failed_read(steps: Sequence[Step], index: int, args: Sequence[Any], kwargs: dict[str, Any]) -> Failure:
    text = steps[index].text
    if text.startswith("if len(args) !="):
        keywords = f" and keywords {', '.join(kwargs)}" if kwargs else ""
        what = f"it is called with {len(args)} positional arguments{keywords}, before it was otherwise"
        return Failure(what, "call it with the same arguments each time", None)
    source = steps[index].source
    what = source.describe() if source is not None else text.partition(" = ")[2]
    return Failure(f"`{what}` is not there any more", "", None)


def _value_in(source: Source, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return _ABSENT if isinstance(source, StateSource) else value_of(source, args, kwargs)
    except (*READ_ERRORS, NameError):
        return _ABSENT


def _short(value: Any) -> str:
    if isinstance(type(value).__getattribute__, types.FunctionType):  # which is not asked
        return f"a {type(value).__qualname__}"
    if isinstance(value, types.MethodType):
        return f"the method {value.__func__.__qualname__}"
    if isinstance(value, types.FunctionType):
        code = value.__code__
        return f"the function {value.__qualname__} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
    if isinstance(value, (types.BuiltinFunctionType, types.ModuleType)):
        return f"the {'module' if isinstance(value, types.ModuleType) else 'function'} {value.__name__}"
    if value is MISSING:
        return "not there"
    if isinstance(value, torch.Tensor):
        sizes = "nested" if value.is_nested else tuple(value.shape)
        return f"a tensor {sizes} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, type):
        return value.__qualname__
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.__dict__.get('_name_')}"
    text = repr(value) if _is_plain(value) or type(value).__module__ == "numpy" else ""
    return text if text and len(text) < 80 else f"a {type(value).__qualname__}"


_PLAIN = (int, float, complex, bool, str, bytes, range, type(None), torch.dtype, torch.device)


def _is_plain(value: Any) -> bool:
    """Whether its text runs nothing of the program."""
    return type(value) in _PLAIN or type(value) in (tuple, set, frozenset) and all(map(_is_plain, value))


# What the other kinds say of their value.
_FACTS: dict[Kind, Callable[[Any], str]] = {
    Kind.TYPE: lambda e: f"is of type {_short(e)}",
    Kind.NUMBER_TYPE: lambda e: f"is any {_short(e)}",
    Kind.LENGTH: lambda e: f"has length {e}",
    Kind.KEYS: lambda e: f"has the keys {reprlib.repr(list(e))}",
    Kind.HAS_KEY: lambda e: f"has {_short(e)}",
    Kind.NO_KEY: lambda e: f"has no {_short(e)}",
    Kind.EMPTY: lambda e: "is empty",
    Kind.ALL_EMPTY: lambda e: f"has nothing in {', '.join(e)}",
    Kind.RANGE: lambda e: f"is {range(*e)}",
    Kind.TYPE_LOOKUP: lambda e: f"has {f'no {e[0]}' if e[1] is MISSING else f'the same {e[0]}'} along its bases",
}


def describe_guard(guard: Guard) -> str:
    """The fact in words, on one line."""
    e = guard.expected
    match guard.kind:
        case Kind.SHAPE:
            return str(e)
        case Kind.TENSOR:
            sizes = ", ".join("?" if n is None else str(n) for n in e.sizes)
            dtype = str(e.dtype).removeprefix("torch.")
            grad = ", requires grad" if e.requires_grad else ""
            return f"{_quoted(guard.source)} is a {e.cls.__qualname__} ({sizes}) {dtype} on {e.device}{grad}"
        case Kind.DISTINCT:
            mine, others = (", ".join(map(_quoted, sources)) for sources in e)
            return f"different objects: {mine}" + (f" and each of {others}" if others else "")
        case Kind.SEPARATE:
            written, others = (", ".join(map(_quoted, sources)) for sources in e)
            return f"memory that is written ({written}) is not shared with {others or 'another'}"
        case Kind.UNSET:
            return f"{_quoted(guard.source)} has no {e.__name__}"
        case Kind.ITEMS:
            return f"{_quoted(guard.source)} holds {len(e.values)} constants"
        case Kind.SAME_AS:
            return f"{_quoted(guard.source)} is {_quoted(e)}"
        case Kind.KEPT:
            return f"{_quoted(guard.source)} gives what it computes"
        case Kind.EXPRESSION:
            return f"{_quoted(guard.source)} is {e}"
        case Kind.STATE if guard.source.name == "config":
            return "the configuration is the same"
        case Kind.STATE | Kind.EQUALS:
            return f"{_quoted(guard.source)} is {_short(e)}"
        case Kind.IDENTITY:
            name = getattr(e, "__name__", "")
            return f"{_quoted(guard.source)} is the same {type(e).__qualname__} {name}".rstrip()
        case _:
            return f"{_quoted(guard.source)} {_FACTS[guard.kind](e)}"


# ---- one function a kind: (what changed, advice)

_Words = Callable[[Guard, Any, dict[str, Any]], tuple[str, str]]


def _name(g: Guard) -> str:
    return _quoted(g.source)


def _tensor(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    e: TensorFacts = g.expected
    if not isinstance(v, torch.Tensor):
        return f"{_name(g)} was a tensor, is {_short(v)}", "pass a tensor each time"
    if type(v) is not e.cls:
        return f"{_name(g)} was a {e.cls.__qualname__}, is a {type(v).__qualname__}", "pass tensors of one class"
    for fact, advice in (
        ("layout", "pass dense tensors"),
        ("dtype", "convert before the call"),
        ("device", "move it before the call"),
        ("requires_grad", "call it with requires_grad always set, or never"),
    ):
        if (old := getattr(e, fact, torch.strided)) != (new := getattr(v, fact)):
            return f"{fact} of {_name(g)} was {old}, is {new}", advice
    for what, is_so in (("a conjugate", v.is_conj()), ("a negative", v.is_neg())):
        if is_so:
            return f"{_name(g)} is {what} view now", "pass its resolve_conj() or resolve_neg()"
    if e.is_leaf is not None and e.is_leaf != v.is_leaf:
        return f"is_leaf of {_name(g)} was {e.is_leaf}, is {v.is_leaf}", "pass always leaves of autograd, or never"
    return _sizes(g, e, v)


def _sizes(g: Guard, e: TensorFacts, v: torch.Tensor) -> tuple[str, str]:
    name = g.source.describe()
    if v.is_nested:
        return f"`{name}` is a nested tensor now", "nothing: a function of nested tensors runs eagerly"
    if v.dim() != len(e.sizes):
        return (
            f"`{name}` had {len(e.sizes)} dimensions, has {v.dim()}",
            "pass tensors of one rank; each rank compiles once",
        )
    for dim, (old, new) in enumerate(zip(e.sizes, v.shape)):
        if old is not None and old != new:
            if _is_held(g):
                return f"size of dimension {dim} of `{name}` was {old}, is {new}", "replace it before the first call"
            advice = f"pliant.mark_dynamic({name}, {dim}) before the first call, or compile with dynamic=True"
            return f"size of dimension {dim} of `{name}` was {old}, is {new}", advice
    strides = tuple(e.strides or ())
    return f"strides of `{name}` were {strides}, are {tuple(v.stride())}", f"pass {name}.contiguous()"


def _is_held(g: Guard) -> bool:
    """Whether the value is reached from a module, a function or a global, not passed."""
    return root_of(g.source).is_held


def _equals(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    advice = "set it before the first call; each value compiles once" if _is_held(g) else ""
    if type(g.expected) in (int, float):
        advice = "nothing: a number that changes becomes symbolic at this compile"
    return (
        f"{_name(g)} was {_short(g.expected)}, is {_short(v)}",
        advice or "call it with the same value, or pass a tensor",
    )


def _type(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    return f"type of {_name(g)} was {g.expected.__qualname__}, is {type(v).__qualname__}", "pass values of one type"


def _identity(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    if isinstance(g.source, AttributeSource) and g.source.name == "__code__":
        return f"the code of `{g.source.parent.describe()}` was replaced", "change functions before the first call"
    held = "" if isinstance(g.source, HeldSource) else "keep the same object from call to call"
    return f"{_name(g)} was {_short(g.expected)}, is another object: {_short(v)}", held


def _length(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    return f"length of {_name(g)} was {g.expected}, is {len(v)}", "pass containers of one length, or a stacked tensor"


def _keys(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    old, new = (reprlib.repr([*map(_key_text, keys)]) for keys in (g.expected, v))
    changes = [f"{word} {reprlib.repr(_key_text(k))}" for word, keys, others in (("without", g.expected, v), ("with", v, g.expected))
               for k in itertools.islice(_lacking(keys, others), _FEW_KEYS)]  # fmt: skip
    what = f", now {', '.join(changes)}" if changes and max(len(g.expected), len(v)) > _FEW_KEYS else ""
    kind = "items" if isinstance(v, (set, frozenset)) else "keys"
    return f"{kind} of {_name(g)} were {old}, are {new}{what}", f"use the same {kind} in the same order"


def _key_text(key: Any) -> str:
    """By no method of the program's: an object that a guard knows by its identity is shown as one."""
    return key if type(key) is str else _short(key.reference() if type(key) is Itself else key)


def _lacking(keys: Iterable[Any], others: Iterable[Any]) -> Iterator[Any]:
    known = {*map(_told, others)}
    return (key for key in keys if _told(key) not in known)


def _told(key: Any) -> Any:
    """What tells the key from others, by no method of the program's."""
    key = key.reference() if type(key) is Itself else key
    if type(key) is tuple:
        return tuple(map(_told, key))
    return type(key), key if type(key) in _PLAIN else id(key)


def _items(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    e: ConstantItems = g.expected
    places = range(len(e.values)) if e.places is None else e.places
    changed = ((i, old) for i, old in zip(places, e.values) if i >= len(v) or not same(v[i], old))
    place, old = next(changed, (len(e.values), "nothing"))
    new = _short(v[place]) if place < len(v) else "not there"
    return f"`{ItemSource(g.source, place).describe()}` was {_short(old)}, is {new}", "pass a tensor of the numbers"


_FEW_KEYS = 6  # as many as `reprlib` shows


def _key(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    name = ItemSource(g.source, g.expected).describe()
    if g.expected not in v:
        return f"`{name}` is not there any more", ""
    new = f" {_short(v[g.expected])}" if isinstance(v, dict) else ""
    return f"`{name}` was not there, now it is{new}", "make it before the first call"


def _changed(what: str) -> _Words:
    def words(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
        old = range(*g.expected) if g.kind is Kind.RANGE else g.expected
        return f"{what} of {_name(g)} was {_short(old)}, is {_short(v)}", ""

    return words


def _empty(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    now = f"holds {len(v)}" if isinstance(v, Sized) else f"is {_short(v)}"
    return f"{_name(g)} was empty, now {now}", "register hooks before the first call"


def _all_empty(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    name = next((name for name in g.expected if v.get(name) is None or v[name]), g.expected[0])
    parent = g.source.parent if isinstance(g.source, AttributeSource) and g.source.name == "__dict__" else g.source
    holds = len(v[name]) if name in v and v[name] is not None else "nothing"
    return (
        f"`{DictAttributeSource(parent, name).describe()}` was empty, now holds {holds}",
        "register hooks before the first call",
    )


def _same_as(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    return f"{_name(g)} and `{g.expected.describe()}` were the same object, now they differ", ""


def _distinct(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    names = ", ".join(map(_quoted, related(g)))
    held = all(root_of(source).is_held for source in related(g))
    advice = "tie objects before the first call" if held else "do not pass one object twice"
    return f"two of {names} are the same object now", advice


def _separate(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    written, others = (", ".join(map(_quoted, sources)) for sources in g.expected)
    return f"{written} is written and now shares memory with {others or 'another'}", "pass tensors that share no memory"


def _unset(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    return f"{_name(g)} had no `{g.expected.__name__}`, now it has", ""


def _state(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    reader = READERS[g.source.name]
    new = reader.read()
    if g.source.name == "config":
        return "the configuration changed", reader.advice
    return f"{g.source.describe()} was {_setting(g.expected)}, is {_setting(new)}", reader.advice


def _setting(value: Any) -> str:
    """Classes of modes by name."""
    if isinstance(value, tuple) and all(isinstance(item, type) for item in value):
        return ", ".join(item.__qualname__ for item in value) or "none"
    return str(value)


def _shape(g: Guard, v: Any, variables: dict[str, Any]) -> tuple[str, str]:
    where = f" ({g.origin})" if g.origin is not None else ""
    return (
        f"the sizes no longer satisfy `{g.expected}`{where}",
        "the condition comes from the line named; drop it to serve all sizes",
    )


def _expression(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    return f"{_name(g)} is {v}, no longer `{g.expected}`", "pass contiguous tensors"


def _kept(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    return f"the cache of {_name(g)} holds what it does not compute any more", "clear caches when you change what functions read"


def _type_lookup(g: Guard, v: Any, _: dict[str, Any]) -> tuple[str, str]:
    name, old = g.expected
    new = lookup(v, name)
    if new is old or isinstance(old, NumberOf) and type(new) is old.cls:
        return f"the bases of class {_short(v)} changed", "change classes before the first call"
    return f"`{_short(v)}.{name}` was {_short(old)}, is {_short(new)}", "change classes before the first call"


_WORDS: dict[Kind, _Words] = {
    Kind.TYPE: _type,
    Kind.IDENTITY: _identity,
    Kind.EQUALS: _equals,
    Kind.NUMBER_TYPE: _type,
    Kind.TENSOR: _tensor,
    Kind.LENGTH: _length,
    Kind.KEYS: _keys,
    Kind.ITEMS: _items,
    Kind.HAS_KEY: _key,
    Kind.NO_KEY: _key,
    Kind.EMPTY: _empty,
    Kind.ALL_EMPTY: _all_empty,
    Kind.SAME_AS: _same_as,
    Kind.DISTINCT: _distinct,
    Kind.SEPARATE: _separate,
    Kind.UNSET: _unset,
    Kind.STATE: _state,
    Kind.RANGE: _changed("value"),
    Kind.SHAPE: _shape,
    Kind.EXPRESSION: _expression,
    Kind.KEPT: _kept,
    Kind.TYPE_LOOKUP: _type_lookup,
}
