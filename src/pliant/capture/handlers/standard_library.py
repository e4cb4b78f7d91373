"""Functions and classes of the standard library (and NumPy's scalars) that compute from plain values.

In:     calls whose arguments are plain: text, numbers, builtin containers of these.
Out:    what they return, computed at capture.
Holds:  only functions that neither act on the world nor ask it (no files, clocks, environment); arguments were guarded
        when they were read. Objects of classes in C that the trace made are used natively while nobody else has them.
"""

from __future__ import annotations

import _thread
import _weakref
import collections
import dataclasses
import datetime
import decimal
import functools
import hashlib
import importlib.util
import inspect
import io
import linecache
import logging
import pickle
import random
import re
import struct
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.random_numbers import call_numpy_random
from pliant.capture.handlers.table import Rows, spread
from pliant.capture.iterators.generators import OURS, TracedCallback
from pliant.capture.numbers.array_memory import is_array
from pliant.capture.numbers.arrays import computed_by_numpy, makes_array
from pliant.capture.numbers.given_numbers import refuse_many
from pliant.capture.numbers.made_arrays import is_for_graph
from pliant.capture.numbers.numpy_scalars import by_python, is_scalar
from pliant.capture.outside.bringing import note_decimals
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import is_container, leaves, parts_of
from pliant.capture.trace import DELETED
from pliant.capture.value_kinds import (
    LITERALS,
    ByKind,
    concrete,
    is_dict,
    is_numpy_scalar,
    is_plain_dict,
    is_set,
    is_text_or_bytes,
    module_of,
)
from pliant.graph.fake_tensor import is_fake
from pliant.guards.sources import ReferentSource

ROWS = Rows()
handles, TABLE, CLASSES = ROWS.handles, ROWS.callables, ROWS.classes

# Modules whose functions are called as they are where all arguments are plain.
_FOLDED = frozenset(
    """ast base64 calendar colorsys copyreg difflib fnmatch html importlib.metadata inspect json json.decoder
    json.encoder keyword platform pprint re reprlib shlex statistics string textwrap token typing urllib.parse
    posixpath ntpath genericpath numpy numpy._core numpy._core.fromnumeric numpy._core.numerictypes numpy.lib importlib.util""".split()
)
# ... except those that ask the world.
_ASKS = frozenset(
    """exists lexists isfile isdir islink getsize getmtime getatime getctime samefile realpath abspath expanduser
    expandvars ismount stat relpath currentframe stack trace getsource getsourcelines getsourcefile getfile
    load dump today""".split()
)
_PLAIN = LITERALS | {complex, range}
_CONTAINERS = frozenset((list, tuple, torch.Size, set, frozenset, dict))
_MISSING = object()


def _plain(t: Tracer, value: Any) -> Any:
    """The value without symbolic numbers and containers from outside; `_MISSING` if it is not plain."""
    value = t.world.adopt(t.world.resolve(concrete(value)))
    cls = type(value)
    if cls in _PLAIN or is_numpy_scalar(value) or cls is type and value.__module__ == "numpy":
        return value
    if cls not in _CONTAINERS:
        return _MISSING
    if cls is dict:
        found = {k: _plain(t, v) for k, v in value.items()}
        return _MISSING if any(v is _MISSING or type(k) not in _PLAIN for k, v in found.items()) else found
    items = [_plain(t, v) for v in value]
    return _MISSING if any(v is _MISSING for v in items) else cls(items)


def call_object(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A call of an object in C that is a function by nature, as NumPy's are."""
    if (drawn := call_numpy_random(t, function, args, kwargs)) is not NotImplemented:
        return drawn
    return fold(t, function, args, kwargs)


def fold(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """The result of a function that is computed at capture; NotImplemented if it is not one or its arguments vary."""
    if not _is_folded(function):
        return NotImplemented
    if (number := by_python(t, function, args, kwargs)) is not NotImplemented:
        return number
    of_numpy = _MODULE_OF.of(function)(function).startswith("numpy")
    if of_numpy and is_for_graph(t, function, args, kwargs):
        return NotImplemented
    if any(is_array(one) or is_fake(one) for one in leaves(args, kwargs)):  # beside which no number need be fixed
        return NotImplemented
    if makes_array(t, function, args, kwargs):  # of sizes that need not be fixed
        return NotImplemented
    refuse_many(t, function, tuple(map(t.internalize, args)), kwargs)
    values = [_plain(t, a) for a in args]
    named = {k: _plain(t, v) for k, v in kwargs.items()}
    if any(v is _MISSING for v in (*values, *named.values())):
        return NotImplemented
    if of_numpy:
        result = computed_by_numpy(t, function, values, named)
    else:
        result = t.native(function, *values, **named)
    return NotImplemented if type(result).__name__ == "ndarray" else result  # which would serve all calls


def _is_folded(function: Any) -> bool:
    module, name = _MODULE_OF.of(function)(function), getattr(function, "__name__", "")
    return module in _FOLDED and name not in _ASKS and not name.startswith("_")


_MODULE_OF: ByKind[Callable[[Any], Any]] = ByKind(
    lambda function: "numpy" if type(function).__name__ == "ufunc" else str(getattr(function, "__module__", "")),
    {types.FunctionType: module_of},
)


# ---- classes in C whose objects are computed with at capture
VALUES: tuple[type, ...] = (  # immutable
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    decimal.Decimal,
    re.Match,
    re.Pattern,
    struct.Struct,
    types.MappingProxyType,
)
OBJECTS: tuple[type, ...] = (io.StringIO, io.BytesIO, type(hashlib.md5()), type(hashlib.sha256()))


def _construct(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    if cls is decimal.Decimal:
        note_decimals(t.world)
    values = list(map(t.plain, args))
    return _made(t, t.native(cls, *values, **{k: t.plain(v) for k, v in kwargs.items()}))


def _make_proxy(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """A view of the very dict, which shows what becomes of it."""
    if len(args) != 1 or kwargs or not is_dict(args[0]):
        return _construct(t, cls, args, kwargs)
    return _made(t, t.native(cls, t.world.adopt(t.world.resolve(args[0]))))


def _made(t: Tracer, value: Any) -> Any:
    t.world.made[id(value)] = value
    return value


def make_reference(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """weakref.ref(obj, callback), or an object of a class derived from it"""
    t.world.note_identity(args[0])
    callbacks = [TracedCallback(t, a) for a in args[1:2] if a is not None]
    return t.native(weakref.ref.__new__, cls, args[0], *callbacks)


@handles(_weakref._remove_dead_weakref)  # type: ignore[attr-defined]
def _remove_dead(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    """An item of a dict of weak references, whose referent is gone."""
    if t.world.needs_guards(args[0]):
        t.world.dict_set(args[0], args[1], DELETED)
    else:
        t.world.resolve(args[0]).pop(args[1], None)


def referent(t: Tracer, reference: weakref.ref[Any]) -> Any:
    """What a weak reference leads to; one that is dead stays so."""
    source, found = t.world.source_of(reference), weakref.ref.__call__(reference)
    return found if source is None or found is None else t.world.bring(found, ReferentSource(source))


CLASSES |= {
    **dict.fromkeys(
        (
            datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone,
            decimal.Decimal, struct.Struct, io.StringIO, io.BytesIO, random.Random,
        ),
        _construct,
    ),
    types.MappingProxyType: _make_proxy,
    weakref.ref: make_reference,
}


ROWS.each(
    (hashlib.md5, hashlib.sha1, hashlib.sha224, hashlib.sha256, hashlib.sha384, hashlib.sha512),
    lambda function, t, args, kwargs: _made(t, t.native(function, *args, **kwargs)),
)
_IN_TIME_ZONES = frozenset(("astimezone", "ctime", "fromtimestamp", "strftime", "strptime", "timestamp"))


def note_time_zone(t: Tracer, method: str) -> None:
    """What such a method gives may be another thing in another process."""
    if method in _IN_TIME_ZONES:
        t.process_bound = f"{method} asks for the time zone, or the locale"


def computed_method(t: Tracer, receiver: Any, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    """A method of an immutable object, or of one that the trace made, whose arguments C code may have as they are now."""
    note_time_zone(t, name)
    return t.native(bound, *(_passed(t, a) for a in args), **{k: _passed(t, v) for k, v in kwargs.items()})


def _passed(t: Tracer, value: Any) -> Any:
    return _PASSED.of(value)(t, value)


def _passed_plain(t: Tracer, value: Any) -> Any:
    value = t.plain(value)
    t.refuse_opaque(value)
    return value


_PASSED: ByKind[Callable[..., Any]] = ByKind(_passed_plain, dict.fromkeys(OURS, lambda t, value: value))


def replaced(t: Tracer, pattern: re.Pattern[Any], name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    """`sub` and `subn` of a pattern, which call what is no text, and join what that gives."""
    given = {**dict(zip(_OF_SUB, args, strict=False)), **kwargs}
    if len(args) + len(kwargs) == len(given) and callable(repl := given.get("repl")):
        called = t.reentrant(repl)
        given["repl"] = lambda match: t.plain(called(match))
        return t.native(bound, **{k: v if k == "repl" else _passed(t, v) for k, v in given.items()})
    return computed_method(t, pattern, name, bound, args, kwargs)


_OF_SUB = ("repl", "string", "count")


# ---- functions that make classes: the class serves all calls
def _make_class(function: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    values = list(map(t.plain, args))
    named = {k: t.plain(v) for k, v in kwargs.items()}
    module = _told_module(function, t.frames[-1].globals)
    if function is collections.namedtuple and named.get("module") is None:
        named["module"] = module
    made = t.world.note_made_class(t.native(function, *values, **named))
    if named.get("module") is None:
        made.__module__ = module
    return made


def _told_module(function: Any, namespace: dict[str, Any]) -> Any:
    """The module that the class gets which is made here: before 3.12, data classes got that of the code that makes them."""
    by_caller = function is collections.namedtuple or "module" in inspect.signature(function).parameters
    return namespace.get("__name__", "__main__") if by_caller else types.__name__


ROWS.each((collections.namedtuple, dataclasses.make_dataclass), _make_class)


@handles(pickle.dumps)
def _pickled(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """The text of plain values, as caches make keys of them. It tells equal texts that are one object from two."""
    values = [_plain(t, one) for one in (*args, *kwargs.values())]
    parts = [*leaves(values)] + [key for one in values if is_plain_dict(one) for key in one]
    texts = [one for one in parts if is_text_or_bytes(one)]
    # In nested containers one may stand twice, or two that are equal; sets have no order of their own.
    inside = [*parts_of(values[0])] if is_container(values[0]) else []
    plain = not is_set(values[0]) and len(args) == 1 and LITERALS.issuperset(map(type, parts)) and _CONTAINERS.isdisjoint(map(type, inside))
    if not plain or len({*texts}) < len(texts):
        raise GraphBreak("unknown-call", "pickle.dumps of more than a few plain values")
    return t.native(pickle.dumps, values[0], **dict(zip(kwargs, values[1:])))


@handles(functools.total_ordering)
def _total_ordering(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if not t.world.is_made(args[0]):
        raise GraphBreak("mutated-global-state", "a class from outside gets comparisons")
    return t.native(functools.total_ordering, *args)


@handles(dataclasses.dataclass)
def _dataclass(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """A class that the trace made gets its methods now."""
    if not {bool}.issuperset(map(type, kwargs.values())):
        raise GraphBreak("unknown-object", "flags of a dataclass that are no truths")
    if not args or args[0] is None:
        return functools.partial(dataclasses.dataclass, **kwargs)
    if not t.world.is_made(args[0]):
        raise GraphBreak("mutated-global-state", "a class from outside becomes a dataclass")
    defaults = [getattr(value, "default", value) for value in vars(args[0]).values()]
    if any(is_array(default) and not is_scalar(default) for default in defaults):
        raise GraphBreak("unknown-object", "an array as the default of a dataclass, which complains of its class")
    return t.world.note_made_class(t.native(dataclasses.dataclass, *args, **kwargs))


# ---- single functions
@handles(sys.exc_info)
def _exc_info(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    error = t.handling()
    return (None, None, None) if error is None else (type(error), error, t.get_attr(error, "__traceback__"))


TABLE |= {
    sys.exit: spread(lambda t, *status: t.raise_(SystemExit(*status))),
    sys.intern: spread(lambda t, text: t.native(sys.intern, text)),
    sys.exception: spread(lambda t: t.handling()),
    functools.cmp_to_key: spread(lambda t, mycmp: functools.cmp_to_key(t.reentrant(mycmp))),
    **dict.fromkeys((threading.RLock, _thread.RLock), spread(lambda t: _made(t, threading.RLock()))),
    **dict.fromkeys((threading.Lock, _thread.allocate_lock), spread(lambda t: _made(t, threading.Lock()))),
}


@handles(logging.getLogger)
def _get_logger(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """Loggers live as long as the process; making one that nobody configured changes nothing."""
    return t.world.hold(t.native(logging.getLogger, *args, **kwargs), "logger")


# Text of code that runs, which capture itself adds to.
ROWS.each(
    (linecache.getline, linecache.getlines, linecache.checkcache, linecache.lazycache),
    lambda function, t, args, kwargs: t.native(function, *map(concrete, args)),
)


@handles(importlib.util.find_spec)
def _find_spec(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """A module that is loaded has its specification; where others would be found is the file system's to say."""
    if len(args) != 1 or args[0] not in sys.modules:
        raise GraphBreak("unknown-call", "a search for a module that is not loaded")
    return t.world.hold(sys.modules[args[0]].__spec__, "spec")
