"""Callables that are not simply interpreted: built-ins that need guards or re-entry, pure C functions, effects, refusals.

In:     `find(function)` and `find_class(cls)` give the row of the table, if there is one; `call_native` decides for C functions.
Out:    traced results.
Holds:  every C function that runs during a trace is listed here as pure, by itself, by its type or by its module.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import copy
import functools
import inspect
import itertools
import math
import operator
import types
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture import attributes, operators
from pliant.capture.generators import TracedGenerator, TracedIterator
from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.torch_calls import call_torch, constant_answers
from pliant.capture.trace import CallEffect
from pliant.capture.world import DICT_TYPES, MUTABLE_CONTAINERS, SYMBOLIC_TYPES, concrete
from pliant.graph.fake_tensor import FakeTensor
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import held

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[["Tracer", Args, Kwargs], Any]
_TABLE: dict[Any, Handler] = {}


def handles(*functions: Any) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        for function in functions:
            _TABLE[function] = handler
        return handler

    return add


def find(function: Any) -> Handler | None:
    """The handler of this very callable."""
    try:
        found = _TABLE.get(function)
    except TypeError:  # unhashable callable
        return None
    if found is None and type(function) in (types.FunctionType, types.BuiltinFunctionType):
        answers = constant_answers()
        if function in answers:
            return lambda t, args, kwargs: answers[function]
    return found


# ---- questions about objects
@handles(len)
def _len(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    return operators.length(t, args[0])


@handles(bool)
def _bool(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    return operators.truth(t, args[0]) if args else False


@handles(isinstance)
def _isinstance(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    value, wanted = args
    return _check_class(t, value, wanted)


def _check_class(t: Tracer, value: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple):
        return any(_check_class(t, value, w) for w in wanted)
    cls = type(value)
    if cls in SYMBOLIC_TYPES:
        return issubclass(attributes.bring_class(t, value), wanted)
    if cls is TracedGenerator:
        return bool(isinstance(wanted, type) and issubclass(types.GeneratorType, wanted))
    hook = (
        t.world.type_lookup(type(wanted), "__instancecheck__")
        if isinstance(wanted, type) and type(wanted) is not type
        else MISSING
    )
    if isinstance(hook, types.FunctionType) and not hook.__module__.startswith(("abc", "torch", "typing", "enum")):
        return bool(operators.truth(t, t.call(hook, (wanted, value), {})))
    return bool(t.native(isinstance, value, wanted))


@handles(issubclass)
def _issubclass(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    return t.native(issubclass, *args)


@handles(type)
def _type(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1:
        return attributes.bring_class(t, args[0])
    return t.native(type, *args, **kwargs)


@handles(callable)
def _callable(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    return callable(args[0])


@handles(id)
def _id(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    source = t.world.source_of(args[0])
    if source is None or isinstance(args[0], FakeTensor):
        raise GraphBreak("unknown-call", "id() of an object made here")
    t.world.guard(source, Kind.IDENTITY, args[0])
    return id(args[0])


@handles(inspect.signature)
def _signature(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """The signature of a function is a constant of its code, which calls of it guard."""
    function = args[0]
    if isinstance(function, types.MethodType):
        function = function.__func__
    if not isinstance(function, (types.FunctionType, type)):
        raise GraphBreak("unknown-call", f"the signature of a {type(function).__name__}")
    t.get_attr(function, "__code__" if isinstance(function, types.FunctionType) else "__init__")
    return t.native(inspect.signature, args[0])


@handles(hash)
def _hash(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    method = operators.python_method(t, args[0], "__hash__")
    if method is not None:
        return t.call(method, args, {})
    if isinstance(args[0], (str, int, float, tuple, type(None), bytes)):
        return t.native(hash, t.hashable(args[0]))
    raise GraphBreak("unknown-call", "hash() of an object without __hash__")


# ---- attributes by name
@handles(getattr)
def _getattr(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    try:
        return t.get_attr(args[0], args[1])
    except Raised as raised:
        if len(args) == 3 and isinstance(raised.error, AttributeError):
            return args[2]
        raise


@handles(hasattr)
def _hasattr(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    try:
        t.get_attr(args[0], args[1])
    except Raised as raised:
        if isinstance(raised.error, AttributeError):
            return False
        raise
    return True


@handles(setattr)
def _setattr(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    t.set_attr(*args)


@handles(delattr)
def _delattr(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    t.delete_attr(*args)


@handles(object.__getattribute__)
def _object_getattribute(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    return attributes.generic_get_attr(t, *args)


@handles(object.__setattr__)
def _object_setattr(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    attributes.generic_set_attr(t, *args)


@handles(object.__delattr__)
def _object_delattr(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    from pliant.capture.trace import DELETED

    attributes.generic_set_attr(t, *args, DELETED)  # type: ignore[call-arg]


@handles(vars)
def _vars(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if not args:
        return dict(t.frames[-1].locals)
    return t.get_attr(args[0], "__dict__")


@handles(globals)
def _globals(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    t.world.set_origin(t.frames[-1].globals, held(t.frames[-1].globals, "globals()"))
    return t.frames[-1].globals


@handles(locals)
def _locals(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    frame = t.frames[-1]
    cells = {n: t.world.cell_get(c) for n, c in frame.cells.items()}
    return {**frame.locals, **{n: v for n, v in cells.items() if v is not MISSING}}


@handles(super)
def _super(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if not args:
        frame = t.frames[-1]
        first = frame.code.co_varnames[0]
        receiver = frame.locals[first] if first in frame.locals else t.world.cell_get(frame.cells[first])
        args = (t.world.cell_get(frame.cells["__class__"]), receiver)
    if isinstance(args[1], FakeTensor):
        raise GraphBreak("unknown-object", "super() of a tensor")
    return t.native(super, *args)


# ---- iteration
@handles(iter)
def _iter(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2:
        return t.native(iter, t.reentrant(args[0]), args[1])
    return operators.iterate(t, args[0])


@handles(next)
def _next(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    try:
        return operators.next_value(t, args[0])
    except Raised as raised:
        if len(args) == 2 and isinstance(raised.error, StopIteration):
            return args[1]
        raise


def _quantifier(stop_at: bool) -> Handler:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
        iterator = operators.iterate(t, args[0])
        while True:
            try:
                value = operators.next_value(t, iterator)
            except Raised as raised:
                if isinstance(raised.error, StopIteration):
                    return not stop_at
                raise
            if bool(concrete(operators.truth(t, value))) == stop_at:
                return stop_at

    return handler


_TABLE[any] = _quantifier(True)
_TABLE[all] = _quantifier(False)


@handles(sum)
def _sum(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    total = args[1] if len(args) > 1 else kwargs.get("start", 0)
    for value in t.sequence(args[0]):
        total = operators.binary(t, "+", total, value)
    return total


def _extreme(symbol: str, symbolic: Any, name: str) -> Handler:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
        values = t.sequence(args[0]) if len(args) == 1 else args
        if not values:
            if "default" in kwargs:
                return kwargs["default"]
            raise Raised(ValueError(f"{name}() arg is an empty sequence"))
        key = kwargs.get("key")
        best = values[0]
        mark = best if key is None else t.call(key, (best,), {})
        for value in values[1:]:
            rank = value if key is None else t.call(key, (value,), {})
            if key is None and (type(value) in SYMBOLIC_TYPES or type(best) in SYMBOLIC_TYPES):
                best = mark = t.native(symbolic, best, value)
            elif concrete(operators.truth(t, operators.compare(t, symbol, rank, mark))):
                best, mark = value, rank
        return best

    return handler


_TABLE[max] = _extreme(">", torch.sym_max, "max")
_TABLE[min] = _extreme("<", torch.sym_min, "min")


@handles(sorted)
def _sorted(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    values = [t.internalize(v) for v in t.sequence(args[0])]
    _need_plain_order(t, values, kwargs)
    return t.native(sorted, values, **_with_key(t, kwargs))


def _with_key(t: Tracer, kwargs: Kwargs) -> Kwargs:
    out = {k: concrete(v) for k, v in kwargs.items()}
    if out.get("key") is not None:
        out["key"] = t.reentrant(out["key"])
    return out


def _need_plain_order(t: Tracer, values: Any, kwargs: Kwargs) -> None:
    if kwargs.get("key") is None:
        t.refuse_opaque(*values)


@handles(functools.reduce)
def _reduce(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    values = list(t.sequence(args[1]))
    if len(args) > 2:
        values.insert(0, args[2])
    if not values:
        raise Raised(TypeError("reduce() of empty iterable with no initial value"))
    total = values[0]
    for value in values[1:]:
        total = t.call(args[0], (total, value), {})
    return total


# ---- text
def _to_text(function: Any, special: str) -> Handler:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
        if not args:
            return ""
        value = args[0]
        if isinstance(value, FakeTensor):
            raise GraphBreak("data-dependent", f"{function.__name__}() of a tensor")
        method = operators.python_method(t, value, special)
        if method is None and special == "__str__":
            method = operators.python_method(t, value, "__repr__")
        if method is not None and not isinstance(value, BaseException):
            return t.call(method, (value,), {})
        value = t.concrete_tree(t.internalize(value))
        t.refuse_opaque(value)
        _refuse_address(value)
        return t.native(function, value, *args[1:], **kwargs)

    return handler


def _refuse_address(value: Any) -> None:
    """Texts that contain an address differ from eager's when the object is made anew."""
    if type(value).__repr__ is object.__repr__ and type(value).__str__ is object.__str__:  # type: ignore[comparison-overlap]
        raise GraphBreak("unknown-call", f"text of a {type(value).__name__}, which contains its address")


_TABLE[str] = _to_text(str, "__str__")
_TABLE[repr] = _to_text(repr, "__repr__")
_TABLE[ascii] = _to_text(ascii, "__repr__")


@handles(format)
def _format(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    value = args[0]
    spec = args[1] if len(args) > 1 else ""
    if isinstance(value, FakeTensor):
        raise GraphBreak("data-dependent", "formatting a tensor")
    method = operators.python_method(t, value, "__format__")
    if method is not None:
        return t.call(method, (value, spec), {})
    if not spec and not isinstance(value, (int, float, str)) and type(value) not in SYMBOLIC_TYPES:
        return t.call(str, (value,), {})
    return t.native(format, concrete(value), spec)


# ---- numbers
def _convert(function: Any, symbolic: Any, special: str) -> Handler:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
        if args and type(args[0]) in SYMBOLIC_TYPES:
            return t.native(symbolic, args[0])
        if args:
            method = operators.python_method(t, args[0], special)
            if method is not None:
                return t.call(method, args, {})
            t.refuse_opaque(args[0])
        return t.native(function, *args, **kwargs)

    return handler


_TABLE[int] = _convert(int, torch.sym_int, "__int__")
_TABLE[float] = _convert(float, torch.sym_float, "__float__")


def _symbolic_math(function: Any, symbolic: Any) -> Handler:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
        if symbolic is not None and any(type(a) in SYMBOLIC_TYPES for a in args):
            return t.native(symbolic, *args)
        return t.native(function, *(concrete(a) for a in args))

    return handler


for _name, _symbolic in (
    ("sqrt", torch.sym_sqrt if hasattr(torch, "sym_sqrt") else None),
    ("floor", math.floor),
    ("ceil", math.ceil),
    ("trunc", math.trunc),
):
    _TABLE[getattr(math, _name)] = _symbolic_math(getattr(math, _name), _symbolic or getattr(torch, "_sym_sqrt", None))
_TABLE[round] = _symbolic_math(round, round)
_TABLE[abs] = lambda t, args, kwargs: _abs(t, args[0])
_TABLE[pow] = lambda t, args, kwargs: (
    operators.binary(t, "**", *args) if len(args) == 2 else t.native(pow, *map(concrete, args))
)
_TABLE[divmod] = lambda t, args, kwargs: (operators.binary(t, "//", *args), operators.binary(t, "%", *args))


def _abs(t: Tracer, value: Any) -> Any:
    method = operators.python_method(t, value, "__abs__")
    return t.call(method, (value,), {}) if method is not None else t.native(abs, value)


# ---- the operator module goes through our protocols
for _symbol, (_opname, _function) in operators._BINARY.items():
    _TABLE[_function] = functools.partial(lambda symbol, t, args, kwargs: operators.binary(t, symbol, *args), _symbol)
    _TABLE[operators._INPLACE[_symbol]] = functools.partial(
        lambda symbol, t, args, kwargs: operators.binary(t, symbol + "=", *args), _symbol
    )
for _symbol, (_, _, _function) in operators._COMPARE.items():
    _TABLE[_function] = functools.partial(lambda symbol, t, args, kwargs: operators.compare(t, symbol, *args), _symbol)
for _unary, (_, _function) in operators._UNARY.items():  # type: ignore[assignment]
    _TABLE[_function] = functools.partial(lambda name, t, args, kwargs: operators.unary(t, name, *args), _unary)
_TABLE[operator.getitem] = lambda t, args, kwargs: operators.subscript(t, *args)
_TABLE[operator.setitem] = lambda t, args, kwargs: operators.store_subscript(t, *args)
_TABLE[operator.delitem] = lambda t, args, kwargs: operators.delete_subscript(t, *args)
_TABLE[operator.contains] = lambda t, args, kwargs: operators.contains(t, *args)
_TABLE[operator.truth] = lambda t, args, kwargs: operators.truth(t, *args)
_TABLE[operator.not_] = lambda t, args, kwargs: operators.negation(t, *args)
_TABLE[operator.is_] = lambda t, args, kwargs: operators.identical(t, *args)
_TABLE[operator.is_not] = lambda t, args, kwargs: not operators.identical(t, *args)


# ---- effects, replayed after the graph
def _effect(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> None:
    """Call it at the end of the entry, with the arguments as they are now."""
    args = tuple(_snapshot(t, a) for a in args)
    kwargs = {k: _snapshot(t, v) for k, v in kwargs.items()}
    t.world.effects_in_order.append(CallEffect(function, args, kwargs))


def _snapshot(t: Tracer, value: Any) -> Any:
    if isinstance(value, FakeTensor):
        raise GraphBreak("side-effect-call", "output of a tensor's value")
    value = t.concrete_tree(t.internalize(value))
    if isinstance(value, (str, int, float, bool, type(None), bytes)):
        return value
    if isinstance(value, type) or t.world.is_foreign(value):
        if isinstance(value, (type, types.ModuleType, types.FunctionType)) or not type(value).__module__.startswith(
            "builtins"
        ):
            return value
    raise GraphBreak("side-effect-call", f"output of a {type(value).__name__}")


@handles(print)
def _print(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if any(v is not None for k, v in kwargs.items() if k == "file"):
        raise GraphBreak("side-effect-call", "print to a file")
    texts = tuple(t.call(str, (a,), {}) if not isinstance(a, (FakeTensor, str)) else a for a in args)
    _effect(t, print, texts, kwargs)


@handles(warnings.warn)
def _warn(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    raise GraphBreak("side-effect-call", "warnings.warn")


_LOG_OUTPUT = frozenset(
    ("debug", "info", "warning", "warn", "error", "critical", "log", "warning_once", "info_once", "warning_advice")
)


def log(t: Tracer, method: types.MethodType, args: Args, kwargs: Kwargs) -> Any:
    """A method of a logger: output is replayed after the graph, questions are answered by its code."""
    name = getattr(method.__func__, "__name__", "")
    if name not in _LOG_OUTPUT:
        return t.call(method.__func__, (method.__self__, *args), kwargs)
    t.world.set_origin(method.__func__, held(method.__func__, name))
    _effect(t, method, args, kwargs)
    return None


# ---- calls that are left out of the graph
def _refuse(kind: str, detail: str) -> Handler:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
        raise GraphBreak(kind, detail)

    return handler


for _function, _kind in (  # type: ignore[assignment, assignment, assignment, assignment, assignment, assignment, assignment, assignment]
    (input, "side-effect-call"),
    (open, "side-effect-call"),
    (exec, "unknown-call"),
    (eval, "unknown-call"),
    (compile, "unknown-call"),
    (breakpoint, "side-effect-call"),
    (torch.manual_seed, "random-state"),
    (torch.seed, "random-state"),
    (torch.get_rng_state, "random-state"),
    (torch.set_rng_state, "random-state"),
    (torch.set_num_threads, "mutated-global-state"),
    (torch.set_default_dtype, "mutated-global-state"),
    (torch.compiler.disable, "user-request"),
    (copy.deepcopy, "unknown-call"),
):
    _TABLE[_function] = _refuse(_kind, f"a call of {getattr(_function, '__qualname__', _function)}")


# ---- classes implemented in C
ClassHandler = Callable[["Tracer", Any, Args, Kwargs], Any]


def _construct_iterable(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    args = tuple(t.iterable(a) if i == 0 else concrete(a) for i, a in enumerate(args))
    if cls in (set, frozenset) and args:
        args = ([t.hashable(v) for v in args[0]],)
    return t.native(cls, *args, **kwargs)


def _construct_dict(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    leading: Args = ()
    if cls is collections.defaultdict:
        leading, args = args[:1], args[1:]
    sources = [_pairs_or_mapping(t, a) for a in args]
    return t.native(cls, *leading, *sources, **kwargs)


def _pairs_or_mapping(t: Tracer, value: Any) -> Any:
    if value is None:
        return value
    if isinstance(value, dict) or operators.python_method(t, value, "keys") is not None:
        return t.mapping(value)
    return [tuple(t.sequence(pair)) for pair in t.sequence(value)]


def _construct_lazy(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """zip, enumerate, reversed and itertools: lazily over traced iterables."""
    return t.native(
        cls,
        *(a if isinstance(a, int) or type(a) in SYMBOLIC_TYPES else t.iterable(a) for a in map(_concrete, args)),
        **{k: concrete(v) for k, v in kwargs.items()},
    )


def _concrete(value: Any) -> Any:
    return concrete(value)


def _construct_reversed(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    value = t.world.adopt(t.world.resolve(args[0]))
    method = operators.python_method(t, value, "__reversed__")
    if method is not None:
        return t.call(method, (value,), {})
    if isinstance(value, FakeTensor):
        return t.native(reversed, t.sequence(value))
    if not hasattr(type(value), "__reversed__") and operators.python_method(t, value, "__getitem__"):
        size = concrete(operators.length(t, value))
        return iter([operators.subscript(t, value, i) for i in range(size - 1, -1, -1)])
    return t.native(reversed, value)


def _construct_with_function(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    function = (
        args[0]
        if args[0] is None and cls is filter
        else t.reentrant(args[0], truth=cls is not map and cls is not itertools.starmap)
    )
    return t.native(cls, function, *(t.iterable(a) for a in args[1:]))


def _construct_accumulate(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    function = args[1] if len(args) > 1 else kwargs.get("func")
    rest = {k: v for k, v in kwargs.items() if k != "func"}
    values = t.iterable(args[0])
    step = t.reentrant(operator.add if function is None else function)
    return t.native(cls, values, step, **rest)


def _item_accessor(t: Tracer, getter: Any, args: Args) -> Any:
    keys = getter.__reduce__()[1]
    found = tuple(operators.subscript(t, args[0], k) for k in keys)
    return found[0] if len(keys) == 1 else found


def _attribute_accessor(t: Tracer, getter: Any, args: Args) -> Any:
    names = getter.__reduce__()[1]
    found = tuple(functools.reduce(t.get_attr, name.split("."), args[0]) for name in names)
    return found[0] if len(names) == 1 else found


def _method_accessor(t: Tracer, caller: Any, args: Args) -> Any:
    made = caller.__reduce__()
    if made[0] is operator.methodcaller:
        return t.call(t.get_attr(args[0], made[1][0]), made[1][1:], {})
    return t.call(t.get_attr(args[0], made[0].args[0]), made[1], made[0].keywords)


_ACCESSORS: dict[Any, Callable[[Tracer, Any, Args], Any]] = {
    operator.itemgetter: _item_accessor,
    operator.attrgetter: _attribute_accessor,
    operator.methodcaller: _method_accessor,
}


def find_accessor(cls: type) -> Callable[[Tracer, Any, Args], Any] | None:
    """How objects of the operator module's classes are called."""
    return _ACCESSORS.get(cls)


def _construct_plain(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    return t.native(
        cls, *(t.concrete_tree(t.internalize(a)) for a in args), **{k: t.concrete_tree(v) for k, v in kwargs.items()}
    )


def _construct_range(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    return t.native(range, *(concrete(operators._as_index(t, a)) for a in args))


def _construct_slice(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    return slice(*args)


def _construct_partial(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    return t.native(cls, *args, **kwargs)


def _construct_exception(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    return t.native(cls, *args, **kwargs)


def _construct_object(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    return object()


_CLASSES: dict[Any, ClassHandler] = {
    **dict.fromkeys((list, tuple, set, frozenset, collections.deque), _construct_iterable),
    **dict.fromkeys((dict, collections.OrderedDict, collections.defaultdict), _construct_dict),
    **dict.fromkeys(
        (
            zip,
            enumerate,
            itertools.chain,
            itertools.islice,
            itertools.cycle,
            itertools.repeat,
            itertools.count,
            itertools.product,
            itertools.permutations,
            itertools.combinations,
            itertools.combinations_with_replacement,
            itertools.zip_longest,
            itertools.compress,
            itertools.pairwise,
        ),
        _construct_lazy,
    ),
    **dict.fromkeys(
        (map, filter, itertools.takewhile, itertools.dropwhile, itertools.filterfalse, itertools.starmap),
        _construct_with_function,
    ),
    **dict.fromkeys(
        (
            complex,
            bytes,
            torch.Size,
            torch.device,
            torch.finfo,
            torch.iinfo,
            torch.Generator,
            types.SimpleNamespace,
            memoryview,
            bytearray,
        ),
        _construct_plain,
    ),
    **dict.fromkeys((operator.itemgetter, operator.attrgetter, operator.methodcaller), _construct_partial),
    itertools.accumulate: _construct_accumulate,
    reversed: _construct_reversed,
    range: _construct_range,
    slice: _construct_slice,
    functools.partial: _construct_partial,
    object: _construct_object,
    property: _construct_exception,
    staticmethod: _construct_exception,
    classmethod: _construct_exception,
    types.MethodType: _construct_exception,
    types.CellType: _construct_exception,
}


def find_class(cls: type) -> ClassHandler | None:
    """How a class implemented in C is instantiated, if it is one of those listed."""
    found = _CLASSES.get(cls)
    if found is None and issubclass(cls, BaseException) and cls.__module__ == "builtins":
        return _construct_exception
    return found


def call_enum(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """Color(1): the member."""
    member = t.native(cls, *(concrete(a) for a in args), **kwargs)
    t.world.set_origin(member, held(member, str(member)))
    return member


# ---- C functions and methods
_PURE_MODULES = frozenset(
    (
        "math",
        "cmath",
        "_operator",
        "operator",
        "itertools",
        "_bisect",
        "_heapq",
        "_collections",
        "_functools",
        "_struct",
        "_string",
        "_json",
        "unicodedata",
        "_statistics",
        "binascii",
        "_sre",
        "zlib",
        "_abc",
        "_typing",
    )
)
_PURE_BUILTINS = frozenset((bin, hex, oct, chr, ord, dir, issubclass, callable, divmod, pow))
_PURE_SELF_TYPES = (
    str,
    bytes,
    int,
    float,
    bool,
    complex,
    tuple,
    frozenset,
    range,
    slice,
    type(None),
    torch.Size,
    torch.dtype,
    torch.device,
    types.MappingProxyType,
)
_OWN_SELF_TYPES = tuple(MUTABLE_CONTAINERS) + (TracedGenerator, TracedIterator)
_READ_ONLY_DICT = frozenset(("get", "__getitem__", "__contains__"))


def call_native(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A function or method written in C."""
    receiver = getattr(function, "__self__", None)
    if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType | types.MemberDescriptorType)):
        return _call_descriptor(t, function, args, kwargs)
    if receiver is None or isinstance(receiver, types.ModuleType):
        return _call_c_function(t, function, args, kwargs)
    if isinstance(receiver, type):
        return _call_c_classmethod(t, function, receiver, args, kwargs)
    return call_method(t, receiver, function.__name__, function, args, kwargs)


def _call_descriptor(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Class.method(self, ...) of a class written in C."""
    owner = function.__objclass__
    if issubclass(owner, torch._C.TensorBase):
        return call_torch(t, function, args, kwargs)
    if not args:
        raise GraphBreak("bad-call", f"{function.__qualname__} without an object")
    receiver = t.world.resolve(args[0])
    bound = t.native(function.__get__, receiver, type(receiver))
    return call_method(t, receiver, function.__name__, bound, args[1:], kwargs)


def call_method(t: Tracer, receiver: Any, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    """A bound method written in C."""
    if isinstance(receiver, torch.Tensor) or type(receiver) in SYMBOLIC_TYPES:
        return call_torch(t, bound, args, kwargs)
    special = _METHODS.get(name)
    if special is not None:
        handled = special(t, receiver, args, kwargs)
        if handled is not NotImplemented:
            return handled
    if isinstance(receiver, _PURE_SELF_TYPES):
        args = tuple(
            t.concrete_tree(t.internalize(a)) if not isinstance(a, (TracedGenerator, TracedIterator)) else a
            for a in args
        )
        if name == "join" and isinstance(receiver, (str, bytes)):
            args = (t.sequence(args[0]),)
        t.refuse_opaque(*args)
        return t.native(bound, *args, **kwargs)
    if isinstance(receiver, (*_OWN_SELF_TYPES, list, dict, set)):
        return _call_container_method(t, receiver, name, args, kwargs)
    if name in _ITERATOR_METHODS and not t.world.is_opaque(receiver):
        return t.native(bound, *args, **kwargs)
    module = type(receiver).__module__
    if module in ("re", "_sre", "datetime", "string", "torch._C") or type(receiver).__name__ in ("PyCapsule",):
        return t.native(bound, *(t.concrete_tree(t.internalize(a)) for a in args), **kwargs)
    if name in _ATTRIBUTE_METHODS and not isinstance(receiver, type):
        return _ATTRIBUTE_METHODS[name](t, (receiver, *args), kwargs)
    if getattr(bound, "__objclass__", None) is object and name in ("__init__", "__init_subclass__"):
        return None
    if isinstance(receiver, (property, classmethod, staticmethod)) and name in (
        "setter",
        "getter",
        "deleter",
        "__get__",
    ):
        return t.native(bound, *args, **kwargs)
    if isinstance(receiver, BaseException) and name in ("__init__", "with_traceback", "add_note"):
        return t.native(bound, *args, **kwargs)
    if name == "__eq__" or name == "__ne__":
        return receiver is args[0] if name == "__eq__" else receiver is not args[0]
    raise GraphBreak("unknown-call", f"the method {name} of a {type(receiver).__name__}")


_ATTRIBUTE_METHODS = {
    "__getattribute__": _object_getattribute,
    "__setattr__": _object_setattr,
    "__delattr__": _object_delattr,
}
_ITERATOR_METHODS = frozenset(("__next__", "__iter__", "__length_hint__", "send", "throw", "close"))


def _call_container_method(t: Tracer, receiver: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A method of a mutable container: reads of outside dicts are guarded one key at a time, the rest adopts the container."""
    if isinstance(receiver, dict) and t.world.needs_guards(receiver):
        if name in _READ_ONLY_DICT:
            return _read_foreign_dict(t, receiver, name, args)
        if name == "__setitem__":
            t.world.dict_set(receiver, t.hashable(args[0]), args[1])
            return None
        if name == "__len__":
            return operators.length(t, receiver)
    if isinstance(receiver, list) and name == "__getitem__":
        return (
            operators.subscript(t, receiver, args[0])
            if type(receiver) is list
            else t.native(list.__getitem__, receiver, concrete(args[0]))
        )
    receiver = t.world.adopt(receiver)
    if t.world.is_opaque(receiver):
        if isinstance(receiver, dict) and name in ("keys", "values", "items"):
            return _foreign_dict_view(t, receiver, name)
        raise GraphBreak("unknown-object", f"the method {name} of a {type(receiver).__name__} from outside")
    method = getattr(receiver, name)
    if isinstance(method, types.MethodType):  # a subclass' own method: what was asked for is the base class'
        method = functools.partial(getattr(_native_base(receiver), name), receiver)
    args = tuple(_container_argument(t, receiver, name, i, a) for i, a in enumerate(args))
    if name == "sort":
        _need_plain_order(t, receiver, kwargs)
        kwargs = _with_key(t, kwargs)
    if name in ("index", "count", "remove", "__eq__", "__contains__"):
        t.refuse_opaque(receiver, *args)
    return t.native(method, *args, **kwargs)


def _native_base(value: Any) -> type:
    return next(base for base in type(value).__mro__ if base in MUTABLE_CONTAINERS)


def _foreign_dict_view(t: Tracer, receiver: dict[Any, Any], name: str) -> Any:
    t.world.guard(t.world.source_of(receiver), Kind.KEYS, tuple(dict.keys(receiver)))
    items = {k: t.world.dict_get(receiver, k) for k in dict.keys(receiver)}
    return getattr(items, name)()


def _container_argument(t: Tracer, receiver: Any, name: str, index: int, value: Any) -> Any:
    if (
        isinstance(receiver, dict)
        and name in ("pop", "setdefault", "__setitem__", "__delitem__", "get", "move_to_end", "__getitem__")
        and index == 0
    ):
        return t.hashable(value)
    if isinstance(receiver, set) and name in ("add", "discard", "remove"):
        return t.hashable(value)
    if name in (
        "extend",
        "extendleft",
        "__iadd__",
        "union",
        "intersection",
        "difference",
        "symmetric_difference",
        "issubset",
        "issuperset",
        "isdisjoint",
        "intersection_update",
        "difference_update",
    ) or (name == "update" and isinstance(receiver, set)):
        return t.iterable(value)
    if name == "update":
        return _pairs_or_mapping(t, value)
    if (
        isinstance(receiver, (list, collections.deque))
        and name in ("insert", "pop", "rotate", "__getitem__", "__delitem__")
        and index == 0
    ):
        return concrete(value)
    return value


def _read_foreign_dict(t: Tracer, receiver: dict[Any, Any], name: str, args: Args) -> Any:
    key = t.hashable(args[0])
    if name == "__contains__":
        return t.world.dict_contains(receiver, key)
    value = t.world.dict_get(receiver, key)
    if value is not MISSING:
        return t.world.resolve(value)
    if name == "get":
        return args[1] if len(args) > 1 else None
    raise Raised(KeyError(key))


def _str_format(t: Tracer, receiver: Any, args: Args, kwargs: Kwargs) -> Any:
    if not isinstance(receiver, str):
        return NotImplemented
    values = [
        t.call(str, (a,), {}) if not isinstance(a, (str, int, float)) and type(a) not in SYMBOLIC_TYPES else concrete(a)
        for a in args
    ]
    named = {k: concrete(v) for k, v in kwargs.items()}
    t.refuse_opaque(*named.values())
    return t.native(receiver.format, *values, **named)


def _str_mod(t: Tracer, receiver: Any, args: Args, kwargs: Kwargs) -> Any:
    if not isinstance(receiver, str):
        return NotImplemented
    value = t.concrete_tree(t.internalize(args[0]))
    parts = value if isinstance(value, tuple) else (value,)
    if any(isinstance(p, FakeTensor) for p in parts):
        raise GraphBreak("data-dependent", "formatting a tensor")
    t.refuse_opaque(value)
    return t.native(operator.mod, receiver, value)


_METHODS: dict[str, Callable[[Tracer, Any, Args, Kwargs], Any]] = {"format": _str_format, "__mod__": _str_mod}


def _call_c_function(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    module = getattr(function, "__module__", None) or ""
    if module.startswith("torch") or function in _torch_builtins():
        return call_torch(t, function, args, kwargs)
    if function in _PURE_BUILTINS or module in _PURE_MODULES:
        args = tuple(t.concrete_tree(t.internalize(a)) for a in args)
        t.refuse_opaque(*args)
        return t.native(function, *args, **{k: concrete(v) for k, v in kwargs.items()})
    if function is builtins.__build_class__:
        return t.build_class(args, kwargs)
    raise GraphBreak("unknown-call", f"the C function {module}.{function.__name__}")


@functools.cache
def _torch_builtins() -> frozenset[Any]:
    found = set()
    for owner in (
        torch._C._VariableFunctions,
        torch._C._nn,
        torch._C,
        torch._C._linalg,  # type: ignore[attr-defined]
        torch._C._special,  # type: ignore[attr-defined]
        torch._C._fft,  # type: ignore[attr-defined]
    ):
        for name in dir(owner):
            value = getattr(owner, name, None)
            if isinstance(value, types.BuiltinFunctionType):
                with contextlib.suppress(TypeError):
                    found.add(value)
    return frozenset(found)


def _call_c_classmethod(t: Tracer, function: Any, cls: type, args: Args, kwargs: Kwargs) -> Any:
    """dict.fromkeys, object.__new__, int.from_bytes..."""
    if function.__name__ == "__call__":
        return t.instantiate(cls, args, kwargs)
    if function.__name__ == "__new__":
        return t.new_object(args[0], function, args[1:], kwargs)
    if cls in DICT_TYPES and function.__name__ == "fromkeys":
        return t.native(function, [t.hashable(k) for k in t.sequence(args[0])], *args[1:])
    if issubclass(cls, torch._C.TensorBase):
        return call_torch(t, function, args, kwargs)
    if cls in (int, float, str, bytes, itertools.chain, object) or cls.__module__ == "datetime":
        if function.__name__ == "from_iterable":
            return t.native(function, [t.iterable(a) for a in t.sequence(args[0])])
        if function.__name__ in ("__init_subclass__", "__subclasshook__"):
            return None if function.__name__ == "__init_subclass__" else NotImplemented
        return t.native(function, *map(concrete, args), **kwargs)
    raise GraphBreak("unknown-call", f"the class method {cls.__name__}.{function.__name__}")
