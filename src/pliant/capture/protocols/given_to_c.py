"""What C code of Python itself gets of traced values, and what it may not look into.

In:     a traced value that C code is about to hash, compare, iterate over or call.
Out:    what it gets: keys, containers of the trace's own, numbers that do not vary, callables that come back here.
Holds:  a break where C code would read an object from outside unguarded, or run a method of the program's unseen.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import types
import warnings
from collections.abc import Callable
from typing import Any

from pliant.bytecode.decode import Program, decode, per_program
from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.handlers.table import find
from pliant.capture.iterators.generators import TracedCallable
from pliant.capture.numbers.array_memory import unhashable
from pliant.capture.numbers.numpy_scalars import fixed, is_scalar
from pliant.capture.numbers.progressions import items, passes
from pliant.capture.protocols import operators
from pliant.capture.protocols.asked_by_c import ASKED_FOR_MORE, COMPARED, LOOKED_INTO, is_generated, refuse_own, within
from pliant.capture.protocols.module_attributes import builtins_of
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import consists_of, mapped
from pliant.capture.value_kinds import (
    CONSTANTS,
    DICT_VIEWS,
    HOLDS_FUNCTIONS,
    MUTABLE_CONTAINERS,
    PLAIN_TYPES,
    ByKind,
    by_kind,
    concrete,
    derives,
    is_bound,
    is_class,
    is_function,
    is_hashed_by_identity,
    is_method,
    is_mutable_container,
    is_numpy_scalar,
    is_symbolic,
    is_tuple,
    own_dict,
    own_field,
    tuple_of,
)
from pliant.capture.varying_values import PROGRESSIONS, UNSETTLED, HookNumber, Text
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.guards.kinds import MISSING
from pliant.guards.standard import standard_globals
from pliant.unpatched import BUILTINS


def _tuple_as_key(t: Tracer, key: Any) -> Any:
    """Of a tuple of another class: of parts that are keys, where the class hashes as tuples do."""
    _refuse_own_hash(t, key)
    parts = [hashable(t, part) for part in tuple.__iter__(key)]
    same = all(a is b for a, b in zip(parts, tuple.__iter__(key), strict=True))
    return _object_as_key(t, key if same else tuple_of(type(key), parts, key))


def _pinned(t: Tracer, key: Any) -> Any:
    if is_fake(key):
        t.world.note_identity(key)
    _refuse_own_hash(t, key)
    t.world.note_nan(key)
    t.world.pin(key)
    return key


def _object_as_key(t: Tracer, key: Any) -> Any:
    if is_scalar(key):
        return fixed(key)
    if type(key).__hash__ is None:
        raise Raised(unhashable(key))
    _refuse_own_hash(t, key)
    if is_hashed_by_identity(key) or is_bound(key):
        for part in _told_by(key):
            t.world.note_identity(part)
    elif t.world.is_opaque(key) and not dataclasses.is_dataclass(key):
        _read_to_hash(t, key)
    else:
        for name in _fields_compared(t, key):
            _fixed_field(t, key, name)
    return key


def _read_to_hash(t: Tracer, key: Any) -> None:
    """Put guards on what C code would read in an object from outside: what the class' method in Python does."""
    method = operators.python_method(t, key, "__hash__")
    if method is None:
        t.refuse_opaque(key)
    elif standard_globals(method.__globals__):  # of others `_computes_plainly` has them
        t.call(method, (key,), {})


def _refuse_own_hash(t: Tracer, key: Any) -> None:
    """Break if C code that looks for the key would run what the program wrote for its class."""
    for name in ("__hash__", "__eq__"):
        method = operators.python_method(t, key, name)
        if method is not None and not standard_globals(method.__globals__) and not is_generated(method, type(key)):
            if _computes_plainly(t, key):
                return
            raise GraphBreak("unknown-object", f"a {type(key).__name__} with its own {name} as a key")


def refuse_own_keys(t: Tracer, keys: tuple[Any, ...]) -> None:
    """Break if C code that looks for a key among these would run what the program wrote for the class of one."""
    if not CONSTANTS.issuperset(map(type, keys)):
        for key in keys:
            refuse_own_keys(t, tuple(tuple.__iter__(key))) if is_tuple(key) else _refuse_own_hash(t, key)


def internalize(t: Tracer, value: Any, within: frozenset[int] = frozenset()) -> Any:
    """The value with every outside container in it replaced by the trace's own copy."""
    value = t.world.adopt(value)
    inside = _INSIDE.of(value)
    return value if inside is None or id(value) in within else inside(t, value, within)


def _internalize_items(places: Callable[[Any], Any], t: Tracer, value: Any, within: frozenset[int]) -> Any:
    """Of a list or a dict, in place: it may hold itself."""
    inner = within | {id(value)}
    for place, item in places(value):
        if is_mutable_container(item) or issubclass(type(item), tuple):
            value[place] = internalize(t, item, inner)
    return value


def _internalize_parts(t: Tracer, value: Any, within: frozenset[int]) -> Any:
    parts = (*tuple.__iter__(value),)  # by no method of the program's
    items = [internalize(t, v, within) for v in parts]
    return tuple_of(type(value), items, value) if any(a is not b for a, b in zip(items, parts, strict=True)) else value


def _internalize_slice(t: Tracer, value: slice, within: frozenset[int]) -> slice:
    return slice(*(internalize(t, v, within) for v in (value.start, value.stop, value.step)))


def concrete_tree(t: Tracer, value: Any) -> Any:
    """The value with symbolic numbers in it specialized."""
    return mapped(value, concrete)


def plain(t: Tracer, value: Any) -> Any:
    """The value as C code may have it: nothing in it is read from outside, or varies."""
    return concrete_tree(t, internalize(t, value))


def refuse_opaque(t: Tracer, *values: Any, within: frozenset[int] = frozenset(), compared: str = "") -> None:
    """Break if C code would look into an object from outside, or run a method written in Python. `compared`: all that
    it does is to compare objects, by `==` or by `<`."""
    inside = bool(within) or any(type(value) in LOOKED_INTO for value in values)
    for value in values:
        if id(value) in within or is_numpy_scalar(value):
            continue
        if inside:
            t.world.note_nan(value)
        _REFUSED_IN_C.of(value)(t, value, within, compared)


def _take(t: Tracer, value: Any, within: frozenset[int], compared: str) -> None:
    """Nothing in it is the program's."""


def _refuse_object(t: Tracer, value: Any, within: frozenset[int], compared: str) -> None:
    _note_compared(t, value)
    if not compared:
        refuse_own(t, None, (value,), _MADE_NUMBERS)
    if compared == "<":
        _refuse_methods(t, value, _ORDERS)
    compares = operators.python_method(t, value, "__eq__")
    if compares is not None and _computes_plainly(t, value):
        return
    if compared == "==" and operators.by_identity(value):
        return
    if t.world.is_opaque(value) and not _safe_outside(value):
        raise GraphBreak("unknown-object", f"a {type(value).__name__} from outside is used by C code")
    if compares is not None and not is_generated(compares, type(value)):
        raise GraphBreak("unknown-object", f"C code would call methods of {type(value).__name__}")


def _refuse_parts(t: Tracer, value: Any, within: frozenset[int], compared: str) -> None:
    if type(value).__module__ != "builtins" and t.world.is_opaque(value):
        _refuse_object(t, value, within, compared)
    refuse_opaque(t, *LOOKED_INTO[type(value)](value), within=within | {id(value)}, compared=compared)


def _refuse_own_order(t: Tracer, value: Any, within: frozenset[int], compared: str) -> None:
    """Break for a string, number or class that is compared by what the program wrote for its class, or asked for more."""
    if not compared:
        refuse_own(t, None, (value,), ASKED_FOR_MORE)
    _refuse_methods(t, value, ("__eq__",) * (not _computes_plainly(t, value)) + _ORDERS * (compared != "=="))


def _refuse_methods(t: Tracer, value: Any, names: tuple[str, ...]) -> None:
    methods = [method for name in names if (method := operators.python_method(t, value, name)) is not None]
    if not all(standard_globals(method.__globals__) or is_generated(method, type(value)) for method in methods):
        raise GraphBreak("unknown-object", f"C code would call methods of {type(value).__name__}")


def _note_compared(t: Tracer, value: Any) -> None:
    """C code may tell an object from others by which one it is: in containers, before it asks for `__eq__`."""
    for part in filter(t.world.is_opaque, _told_by(value)):
        t.world.note_identity(part)


def _told_by(value: Any) -> tuple[Any, ...]:
    """The objects whose identity tells the value from others: of a method, the function and what it is a method of."""
    if is_method(value):
        return value.__func__, value.__self__
    return (value.__self__ if is_bound(value) and not HOLDS_FUNCTIONS.of(value.__self__) else value,)


def reentrant(t: Tracer, function: Any, truth: bool = False) -> TracedCallable:
    """A callable for C code that comes back into the interpreter."""
    return TracedCallable(t, function, truth)


class GroupingKey(TracedCallable):
    """One whose results C code compares with each other: none may have a way of its own to."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        key = super().__call__(*args, **kwargs)
        refuse_own(self.tracer, itertools.groupby, within((key,)), COMPARED)
        return key


def grouping(t: Tracer, function: Any) -> GroupingKey:
    return GroupingKey(t, function, False)


# A value as a dict key or set element: symbolic numbers become concrete; user-defined hashing is refused.
hashable: Callable[[Tracer, Any], Any] = by_kind(
    _object_as_key,
    {
        **dict.fromkeys(PLAIN_TYPES, lambda t, key: concrete(key)),
        HookNumber: lambda t, key: key,
        tuple: lambda t, key: tuple(map(functools.partial(hashable, t), key)),
    },
    {
        tuple: _tuple_as_key,
        **dict.fromkeys((FakeTensor, str, int, float, type, types.FunctionType, functools.partial, type(None)), _pinned),
    },
    place=1,
)
_INSIDE: ByKind[Callable[[Tracer, Any, frozenset[int]], Any] | None] = ByKind(
    None,
    {
        list: functools.partial(_internalize_items, enumerate),
        dict: functools.partial(_internalize_items, dict.items),
        slice: _internalize_slice,
        **dict.fromkeys(UNSETTLED, lambda t, value, within: concrete(value)),
    },
    {tuple: _internalize_parts},
)
_MADE_NUMBERS = frozenset(("__index__", "__float__"))  # what else C code may ask the one door to it knows: `asked_by_c`
_ORDERS = ("__lt__", "__gt__", "__le__", "__ge__")
_REFUSED_IN_C: ByKind[Callable[[Tracer, Any, frozenset[int], str], None]] = ByKind(
    _refuse_object,
    {
        **dict.fromkeys((str, int, float, type, type(None)), _take),
        **dict.fromkeys(LOOKED_INTO, _refuse_parts),
        **dict.fromkeys(UNSETTLED, lambda t, value, within, compared: value.settle()),
    },
    {FakeTensor: _take, **dict.fromkeys((str, int, float, type), _refuse_own_order)},
)


_SAFE_MODULES = frozenset(("torch", "builtins", "enum", "functools", "types", "re"))


def _safe_outside(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in _SAFE_MODULES and not _HOLDS_OTHERS.of(value)


# What C code would read in an object from outside, and no guard compares.
_HOLDS_OTHERS: ByKind[bool] = ByKind(
    False,
    families=dict.fromkeys(
        (
            *MUTABLE_CONTAINERS, memoryview, *DICT_VIEWS, types.MappingProxyType, types.SimpleNamespace, types.CellType,
            BaseException,
        ),
        True,
    ),
)


# ---- what is made of numbers that vary
MADE_OF_NUMBERS = UNSETTLED | {Text}


def as_taken(function: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The arguments as a function gets them that may look into what is made of numbers which vary."""
    given = {*map(type, (*args, *kwargs.values()))}
    handled = is_function(function) and find(function) is not None
    fixed: frozenset[type] = UNSETTLED
    if Text in given and not _passes_text(function):
        fixed = frozenset(PLAIN_TYPES)
    elif any(function is one for one in _IN_TURN):
        args = tuple(map(items, args))
    elif any(function is one for one in _ASK_CLASS):
        fixed = UNSETTLED - PROGRESSIONS
    elif passes(function) and not handled:
        fixed = frozenset()
    if fixed.isdisjoint(given):
        return args, kwargs

    def taken(value: Any) -> Any:
        return concrete(value) if type(value) in fixed else value

    return tuple(map(taken, args)), {name: taken(value) for name, value in kwargs.items()}


_IN_TURN = (
    enumerate, zip, map, filter, itertools.chain, itertools.islice, itertools.pairwise, itertools.product, itertools.zip_longest,
)  # fmt: skip
_ASK_CLASS = (BUILTINS.isinstance, type)
_PASS_TEXT = (
    *map(vars(BUILTINS).get, "format print isinstance setattr".split()), str, type, list, tuple, str.__mod__, warnings.warn,
)  # fmt: skip


def _passes_text(function: Any) -> bool:
    """Whether a text that shows numbers which vary goes through it unread."""
    if derives(function, BaseException):
        return True
    cls = type(function)
    if cls is types.BuiltinFunctionType and type(function.__self__) in (*MUTABLE_CONTAINERS, str):
        return True
    return cls in (types.FunctionType, types.MethodType) or any(function is one for one in _PASS_TEXT)


# ---- methods of the program that C code may run: they only compare and hash constants, in attributes that are guarded
_OPERATIONS = frozenset(
    """LOAD_FAST LOAD_CONST LOAD_GLOBAL LOAD_DEREF LOAD_ATTR PUSH_NULL CALL COMPARE_OP IS_OP CONTAINS_OP BUILD_TUPLE
    POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP
    JUMP COPY SWAP POP_TOP TO_BOOL UNARY_NOT RETURN_VALUE COPY_FREE_VARS BINARY_OP""".split()
)
_WITHOUT_EFFECT = (BUILTINS.hash, BUILTINS.isinstance, type, BUILTINS.len, NotImplemented)


def _computes_plainly(t: Tracer, obj: Any) -> bool:
    """Whether C code may hash and compare the object."""
    for name in ("__hash__", "__eq__"):
        method = operators.python_method(t, obj, name)
        if method is None:
            continue
        attributes = _attributes_read(decode(method.__code__))
        if attributes is None or not _known_names(t, method) or not all(_is_constant(t, obj, a) for a in attributes):
            return False
    return True


@per_program
def _attributes_read(program: Program) -> frozenset[str] | None:
    """The names of attributes that the code reads, if it does nothing but read, compare and call what is named."""
    if program.code.co_flags & 0x2A0 or not all(op.name in _OPERATIONS for op in program):  # no generators, no coroutines
        return None
    return frozenset(str(op.arg) for op in program if op.name == "LOAD_ATTR")


def _known_names(t: Tracer, method: types.FunctionType) -> bool:
    """Whether globals and cells that the method names are classes, or functions that have no effect."""
    code, space = method.__code__, method.__globals__
    names = {str(op.arg) for op in decode(code).ops if op.name == "LOAD_GLOBAL"}
    t.world.hold(space, str(space.get("__name__")))
    found = [t.world.dict_get(space, n) if n in space else builtins_of(space).get(n, MISSING) for n in names]
    found += [t.world.cell_get(cell) for cell in method.__closure__ or ()]
    return all(is_class(v) or any(v is f for f in _WITHOUT_EFFECT) for v in found)


def _is_constant(t: Tracer, obj: Any, name: str) -> bool:
    """Whether the attribute is a constant that C code may see; one from outside is guarded."""
    if name == "__class__":
        return True
    if t.world.is_foreign(obj) and t.world.has_changes(t.world.instance_dict(obj)):
        return False
    if isinstance(t.world.type_lookup(type(obj), name), (types.FunctionType, property)):
        return False
    try:
        value = t.get_attr(obj, name)
        seen = _fixed_field(t, obj, name) if type(value) in _FIXED else value
    except Raised:  # there is none, or it holds what has no hash
        return False
    return is_class(value) or consists_of(seen, _PLAIN)


_FIXED = (*PLAIN_TYPES, tuple)
_PLAIN = CONSTANTS | {type}


def _fixed_field(t: Tracer, obj: Any, name: str) -> Any:
    """What C code reads to hash the object: a number that varies is concrete from now on."""
    is_asked = operators.python_method(t, obj, "__getattribute__") is not None  # for what is not here
    value = own_field(obj, name) if is_asked and not t.world.is_foreign(obj) else t.get_attr(obj, name)
    fixed = t.hashable(value)
    if fixed is not value and not t.world.is_foreign(obj):
        object.__setattr__(obj, name, fixed)
    return fixed


def _fields_compared(t: Tracer, key: Any) -> list[str]:
    """What the hash and the comparison read that a dataclass wrote, or the standard library: of what the trace made, where
    numbers may vary, all fields."""
    cls = type(key)
    if dataclasses.is_dataclass(cls):
        return [one.name for one in dataclasses.fields(cls) if one.compare or one.hash]
    if t.world.is_foreign(key) or operators.python_method(t, key, "__hash__") is None:
        return []
    slots = (name for base in cls.__mro__ for name, slot in vars(base).items() if inspect.ismemberdescriptor(slot))
    return [name for name in (*slots, *(own_dict(key) or ())) if is_symbolic(own_field(key, name))]
