"""How many arguments CPython's own callables take, and under which names.

In:     a function, method or class of CPython's.
Out:    `of(function)`: its `Arity`, by what CPython tells or by `_PARAMETERS`; None where nobody tells.
Holds:  what an arity does not take, the callable refuses before it does anything.
"""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
import math
import operator
import sys
import types
import weakref
from collections.abc import Callable, Collection
from typing import Any

from pliant.unpatched import BUILTINS


class Arity:
    """What a signature says of counts and names. `bound`: the first parameter is given already."""

    __slots__ = ("any_name", "least", "most", "named", "needed", "positional")

    def __init__(self, signature: inspect.Signature, bound: bool = False) -> None:
        given = [*signature.parameters.values()][bound:]
        positional = [one for one in given if one.kind <= one.POSITIONAL_OR_KEYWORD]
        by_name = [one for one in given if one.kind is one.KEYWORD_ONLY]
        # By place: the name under which it may be given too.
        self.positional = [None if one.kind is one.POSITIONAL_ONLY else one.name for one in positional]
        self.least = sum(one.default is one.empty for one in positional)
        self.most = sys.maxsize if any(one.kind is one.VAR_POSITIONAL for one in given) else len(positional)
        self.named = {one.name for one in by_name}.union(filter(None, self.positional))
        self.needed = {one.name for one in by_name if one.default is one.empty}
        self.any_name = any(one.kind is one.VAR_KEYWORD for one in given)

    def takes(self, count: int, names: Collection[str]) -> bool:
        """Whether so many arguments, and others under these names, fit."""
        if not names:  # most calls
            return self.least <= count <= self.most and not self.needed
        if count > self.most or any(name not in names for name in self.positional[count : self.least]):
            return False
        given = self.positional[:count]
        return self.needed <= {*names} and all((self.any_name or name in self.named) and name not in given for name in names)


_SETS, _DICTS, _TEXTS = (set, frozenset), (dict, collections.OrderedDict, collections.defaultdict), (str, bytes, bytearray)
_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
# Of what not every release of CPython tells the parameters.
_PARAMETERS: tuple[tuple[Any, dict[str, Callable[..., Any]]], ...] = (
    ((BUILTINS, types, functools, weakref), {
        "bool set frozenset vars dir": lambda x=0, /: 0,
        "dict": lambda x=0, /, **names: 0,
        "super": lambda x=0, y=0, /: 0,
        "staticmethod classmethod": lambda x, /: 0,
        "MappingProxyType": lambda mapping: 0,
        "cmp_to_key": lambda mycmp: 0,
        "iter next ref": lambda x, y=0, /: 0,
        "filter": lambda x, y, /: 0,
        "getattr reduce": lambda x, y, z=0, /: 0,
        "range slice": lambda x, y=0, z=0, /: 0,
        "type": lambda x, y=0, z=0, /, **names: 0,
        "map": lambda x, y, /, *more: 0,
        "partial": lambda x, /, *more, **names: 0,
        "int": lambda x=0, /, base=0: 0,
        "str": lambda object=0, encoding=0, errors=0: 0,
        "bytes bytearray": lambda source=0, encoding=0, errors=0: 0,
        "zip": lambda *more, strict=0: 0,
        "max min": lambda x, /, *more, key=0, default=0: 0,
    }),
    ((itertools, math, collections), {
        "islice": lambda x, y, z=0, step=0, /: 0,
        "chain hypot": lambda *more: 0,
        "product": lambda *more, repeat=0: 0,
        "zip_longest": lambda *more, fillvalue=0: 0,
        "repeat": lambda object, times=0: 0,
        "log": lambda x, base=0, /: 0,
        "OrderedDict": lambda x=0, /, **names: 0,
        "defaultdict": lambda factory=0, x=0, /, **names: 0,
        "deque": lambda iterable=0, maxlen=0: 0,
    }),
    (_SETS, {
        "clear copy pop": lambda self, /: 0,
        "add discard remove isdisjoint issubset issuperset __contains__": lambda self, x, /: 0,
        "symmetric_difference symmetric_difference_update": lambda self, x, /: 0,
        "union update intersection intersection_update difference difference_update": lambda self, /, *more: 0,
    }),
    ((*_DICTS, list), {"__getitem__": lambda self, x, /: 0}),
    (_DICTS, {
        "clear copy keys values items __reversed__": lambda self, /: 0,
        "update": lambda self, x=0, /, **names: 0,
    }),
    ((dict,), {"pop": lambda self, x, y=0, /: 0}),
    ((collections.OrderedDict,), {"pop": lambda self, key, default=0: 0}),
    ((collections.deque,), {
        "clear copy reverse pop popleft __reversed__": lambda self, /: 0,
        "append appendleft extend extendleft remove count": lambda self, x, /: 0,
    }),
    (_TEXTS, {"count find index rfind rindex startswith endswith": lambda self, x, y=0, z=0, /: 0}),
    ((types.GeneratorType,), {
        "send": lambda self, x, /: 0,
        "throw": lambda self, x, y=0, z=0, /: 0,
        "close": lambda self, /: 0,
    }),
    ((BaseException,), {"with_traceback add_note": lambda self, x, /: 0}),
    (_GETTERS, {"__call__": lambda self, x, /: 0}),
    ((weakref.ref,), {"__call__": lambda self, /: 0}),
)  # fmt: skip


def _member(owner: Any, name: str) -> Any:
    """What a class itself has, or a module: it may have it once it is asked."""
    return vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name, None)


_KNOWN = {
    member: taken
    for owners, rows in _PARAMETERS for names, taken in rows.items() for owner in owners
    for name in names.split() if (member := _member(owner, name)) is not None
}  # fmt: skip


def of(function: Any) -> Arity | None:
    """None where nothing is known."""
    rule = _ARITIES.get(type(function))
    return rule(function) if rule is not None else _in_c(function) if issubclass(type(function), type) else None


@functools.lru_cache(maxsize=1024)
def _of_python(function: types.FunctionType) -> Arity | None:
    return None if "__signature__" in vars(function) else Arity(inspect.signature(function, follow_wrapped=False))


def _in_c(function: Any) -> Arity | None:
    key = type(function), function.__text_signature__
    if key not in _TOLD:
        _TOLD[key] = _told(function)
    if (told := _TOLD[key]) is not None:
        return told
    method = unbound(function)
    return _listed(method, bound=method is not function)


_TOLD: dict[tuple[type, str | None], Arity | None] = {}


def _told(function: Any) -> Arity | None:
    method = unbound(function)  # `inspect` would ask the object what it is
    try:
        return Arity(inspect.signature(method), method is not function) if function.__text_signature__ else None
    except ValueError:
        return None


@functools.lru_cache(maxsize=1024)
def _listed(function: Any, bound: bool = False) -> Arity | None:
    return Arity(inspect.signature(_KNOWN[function]), bound) if function in _KNOWN else None


def _of_wrapper(wrapper: Any) -> Arity | None:
    """Of a special method, which for `__init__` tells nothing: it takes what its class takes."""
    if wrapper.__self__ is None:  # as which `inspect` sees no object at all
        return None
    return _in_c(type(wrapper.__self__) if wrapper.__name__ == "__init__" else wrapper)


def unbound(function: Any) -> Any:
    """What the class of its object has under the name of a bound method; any other function itself."""
    owner = getattr(function, "__self__", None)
    bases = () if owner is None or issubclass(type(owner), (types.ModuleType, type)) else type(owner).__mro__
    found = (vars(base).get(function.__name__) for base in bases)
    return next((member for member in found if type(member) in _IN_C), function)


_IN_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


_ARITIES: dict[type, Callable[[Any], Arity | None]] = {
    types.FunctionType: _of_python,
    **dict.fromkeys(
        (types.BuiltinFunctionType, *_IN_C),
        _in_c,
    ),
    types.MethodWrapperType: _of_wrapper,
    **{cls: lambda called: _listed(vars(type(called))["__call__"], bound=True) for cls in (*_GETTERS, weakref.ref)},
}  # fmt: skip
