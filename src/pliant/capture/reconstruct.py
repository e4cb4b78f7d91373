"""Objects of a trace -> Python statements of the entry that make them again.

In:     a value as the traced program saw it (`capture.trace` says what may be inside).
Out:    `Rebuilder.value(obj)`: an expression; the statements it needs are appended to `lines`.
Holds:  what existed before the trace is loaded by its source, once; what the trace made is made anew, with its
        identity, sharing
        and cycles; no user code runs (no `__init__`, `__setitem__`, `__setattr__` of the program's classes).
        Anything else raises `CannotReconstruct`.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import functools
import gc
import inspect
import io
import itertools
import random
import re
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pliant.capture.bytecode.resume import generator_code, point_at, resume_freevars
from pliant.capture.carried import (
    PLAIN_ITERATORS,
    Carried,
    CarriedItems,
    Carry,
    Numbered,
    Suspended,
    advanced,
    finished,
    place_of,
)
from pliant.capture.generators import OURS, TracedCallable, TracedGenerator
from pliant.capture.trace import NULL, TRACEBACK, Trace
from pliant.capture.world import is_numpy_scalar
from pliant.errors import Unsupported
from pliant.guards.codegen import GuardWriter
from pliant.guards.facts import PLAIN


class CannotReconstruct(Unsupported):
    """A value of the trace has no recipe: the tracer breaks earlier, or the function runs eagerly."""

    def __init__(self, kind: str, obj: object) -> None:
        super().__init__(f"a {type(obj).__qualname__} made while capturing cannot be made again", kind=kind)


class _ImmutableCycle(CannotReconstruct):
    """An immutable object is needed while it is being made: what needs it must be filled after it is there."""


# Kept by reference: immutable, or global by nature.
_ATOMS: tuple[type, ...] = (
    *PLAIN,
    complex,
    enum.Enum,
    types.ModuleType,
    types.CodeType,
    re.Pattern,
    re.Match,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    decimal.Decimal,
    inspect.Signature,
    inspect.Parameter,
    types.GenericAlias,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    torch.finfo,
    torch.iinfo,
)

_LITERAL = frozenset({int, bool, str, bytes, type(None)})


class Rebuilder:
    """Statements that make the values of one trace; `writer` loads what existed, `outputs` names what the graph
    returns."""

    def __init__(self, trace: Trace, writer: GuardWriter, outputs: list[str]) -> None:
        self.lines: list[str] = []
        self.names = writer.names
        self._trace = trace
        self._writer = writer
        self._outputs = outputs
        self._made: dict[int, str] = {}
        self._deferred: collections.deque[Callable[[], None]] = collections.deque()
        self._keep: list[Any] = []  # ids stay unique while these live
        self._open: dict[
            int, str
        ] = {}  # being built -> text of an empty one, to bind early if it holds itself ("" if immutable)

    def value(self, obj: Any) -> str:
        """An expression for the object; the same text again for the same object."""
        known = self._existing(obj)
        if known is not None:
            return known
        if type(obj) in _LITERAL:
            return repr(obj)
        made = self._made.get(id(obj))
        if made is not None:
            return made
        text = self._make(obj)
        while self._deferred and not self._open:
            self._deferred.popleft()()
        return text

    def _existing(self, obj: Any) -> str | None:
        trace, key = self._trace, id(obj)
        if key in trace.outputs:
            return self._outputs[trace.outputs[key]]
        if key in trace.input_of:
            return self._writer.read(trace.inputs[trace.input_of[key]].source)
        if key in trace.origins:
            return self._writer.read(trace.origins[key][1])
        return None

    def _make(self, obj: Any) -> str:
        if id(obj) in self._open:
            return self._bind_early(obj)
        self._keep.append(obj)
        self._open[id(obj)] = _EMPTY.get(type(obj), "")
        try:
            recipe = _recipe(obj)
            return recipe(self, obj)
        finally:
            self._open.pop(id(obj), None)

    def _bind_early(self, obj: Any) -> str:
        """The object is reached again while its contents are made: it holds itself."""
        empty = self._open[id(obj)]
        if not empty:
            raise _ImmutableCycle("immutable-cycle", obj)
        return self.bind(obj, empty)

    # ---- what recipes use
    def bind(self, obj: Any, text: str, hint: str = "") -> str:
        """Emit `name = text` as the object; from here on it can be referred to, so mutable objects are bound before
        they are filled."""
        name = self.names.fresh(hint or _name_of(type(obj)))
        self.lines.append(f"{name} = {text}")
        self._made[id(obj)] = name
        return name

    def bind_contents(self, obj: Any, contents: Callable[[], str], literal: str, fill: str) -> str:
        """Emit `name = [contents]`, or fill the one that a cycle bound early. `literal` and `fill` have a `{}` for
        the contents."""
        try:
            text = contents()
        except _ImmutableCycle:
            self._made.get(id(obj)) or self.bind(obj, _EMPTY[type(obj)])
        name = self._made.get(id(obj))
        if name is None:
            return self.bind(obj, literal.format(text))
        self.fill(lambda: f"{name}{fill.format(contents())}")
        return name

    def fill(self, statement: Callable[[], str]) -> None:
        """Emit a statement that fills a bound object; later, if it needs an immutable object that is still being
        made."""
        try:
            self.lines.append(statement())
        except _ImmutableCycle:
            self._deferred.append(lambda: self.lines.append(statement()))

    def hold(self, obj: Any) -> str:
        return self.names(obj)

    def items(self, values: Iterable[Any]) -> str:
        return ", ".join([self.value(v) for v in values])

    def pairs(self, mapping: Iterable[tuple[Any, Any]]) -> str:
        return ", ".join([f"{self.value(k)}: {self.value(v)}" for k, v in mapping])


Recipe = Callable[[Rebuilder, Any], str]


def _name_of(cls: type) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


def _atom(b: Rebuilder, obj: Any) -> str:
    return b.hold(obj)


def _class(b: Rebuilder, obj: type) -> str:
    """The class itself; one of the traced program whose methods share variables with a call is made anew in each."""
    made = b._trace.made
    if id(obj) not in made:
        return b.hold(obj)
    space = {k: v for k, v in vars(obj).items() if k not in ("__dict__", "__weakref__")}
    methods = [m for v in space.values() for m in _functions_in(v) if id(m) in made]
    if not any(set(m.__code__.co_freevars) - {"__class__"} for m in methods):
        return b.hold(obj)
    plain_bases = all(base.__init_subclass__.__qualname__ == "object.__init_subclass__" for base in obj.__bases__)
    if type(obj) is not type or "__slots__" in space or not plain_bases:
        raise CannotReconstruct("class-with-closure", obj)
    start = {"__module__": space.pop("__module__"), "__qualname__": obj.__qualname__}
    name = b.bind(obj, f"type({obj.__name__!r}, ({b.items(obj.__bases__)},), {start!r})", hint=obj.__name__)
    for key, value in space.items():
        if hasattr(type(value), "__set_name__") and not isinstance(value, property):
            raise CannotReconstruct("class-with-closure", obj)
        b.fill(lambda k=key, v=value: f"type.__setattr__({name}, {k!r}, {b.value(v)})")  # type: ignore[misc]
    return name


def _functions_in(value: Any) -> tuple[Any, ...]:
    """The functions of a value in the namespace of a class."""
    if isinstance(value, property):
        return value.fget, value.fset, value.fdel
    return (value.__func__ if isinstance(value, (classmethod, staticmethod)) else value,)


def _float(b: Rebuilder, obj: float) -> str:
    return repr(obj) if obj - obj == 0.0 else b.hold(obj)  # inf and nan have no literal


# Text of an empty container of each kind whose contents are made before it (if it does not hold itself).
_EMPTY: dict[type, str] = {list: "[]", dict: "{}", set: "set()"}


def _list(b: Rebuilder, obj: list[Any]) -> str:
    return b.bind_contents(obj, lambda: b.items(obj), "[{}]", ".extend([{}])")


def _tuple(b: Rebuilder, obj: tuple[Any, ...]) -> str:
    return b.bind(obj, f"({b.items(obj)}{',' * (len(obj) == 1)})")


def _dict(b: Rebuilder, obj: dict[Any, Any]) -> str:
    return b.bind_contents(obj, lambda: b.pairs(obj.items()), "{{{}}}", ".update({{{}}})")


def _set(b: Rebuilder, obj: set[Any]) -> str:
    return b.bind_contents(obj, lambda: b.items(obj), "{{{}}}" if obj else "set()", ".update([{}])")


def _frozenset(b: Rebuilder, obj: frozenset[Any]) -> str:
    return b.bind(obj, f"frozenset(({b.items(obj)}{',' * (len(obj) == 1)}))")


def _struct_sequence(b: Rebuilder, obj: Any) -> str:
    """What `torch.max(x, 1)` returns: a tuple whose fields have names, made from all of them."""
    contents, hidden = obj.__reduce__()[1]
    if hidden:
        raise CannotReconstruct("builtin-instance", obj)
    return b.bind(obj, f"{b.hold(type(obj))}(({b.items(contents)},))")


def _slice(b: Rebuilder, obj: slice) -> str:
    return b.bind(obj, f"slice({b.items((obj.start, obj.stop, obj.step))})")


def _range(b: Rebuilder, obj: range) -> str:
    return b.bind(obj, f"range({b.items((obj.start, obj.stop, obj.step))})")


def _size(b: Rebuilder, obj: torch.Size) -> str:
    return b.bind(obj, f"{b.names.define('Size', torch.Size)}(({b.items(obj)}{',' * (len(obj) == 1)}))")


def _deque(b: Rebuilder, obj: collections.deque[Any]) -> str:
    name = b.bind(obj, f"{b.hold(collections.deque)}(maxlen={obj.maxlen!r})")
    if obj:
        b.fill(lambda: f"{name}.extend([{b.items(obj)}])")
    return name


def _ordered_dict(b: Rebuilder, obj: collections.OrderedDict[Any, Any]) -> str:
    name = b.bind(obj, f"{b.hold(collections.OrderedDict)}()")
    for key, value in obj.items():
        b.fill(lambda k=key, v=value: f"{name}[{b.value(k)}] = {b.value(v)}")  # type: ignore[misc]
    return name


def _defaultdict(b: Rebuilder, obj: collections.defaultdict[Any, Any]) -> str:
    name = b.bind(obj, f"{b.hold(collections.defaultdict)}({b.value(obj.default_factory)})")
    if obj:
        b.fill(lambda: f"{name}.update({{{b.pairs(obj.items())}}})")
    return name


def _partial(b: Rebuilder, obj: functools.partial[Any]) -> str:
    parts = [b.value(obj.func), *[b.value(a) for a in obj.args]]
    if obj.keywords:
        parts.append(f"**{{{b.pairs(obj.keywords.items())}}}")
    name = b.bind(obj, f"{b.hold(functools.partial)}({', '.join(parts)})")
    return _fill_dict(b, obj, name)


def _method(b: Rebuilder, obj: types.MethodType) -> str:
    if type(obj.__self__) in OURS:  # the program sees a method of a real generator
        return b.bind(obj, f"{b.value(obj.__self__)}.{obj.__name__}", hint=obj.__name__)
    return b.bind(obj, f"{b.names.define('MethodType', types.MethodType)}({b.items((obj.__func__, obj.__self__))})")


def _builtin(b: Rebuilder, obj: types.BuiltinFunctionType) -> str:
    """A C function is itself; a method of an object made by the trace is taken from that object."""
    owner = obj.__self__
    if owner is None or isinstance(owner, (types.ModuleType, type)):
        return b.hold(obj)
    return b.bind(obj, f"{b.value(owner)}.{obj.__name__}", hint=obj.__name__)


def _cell(b: Rebuilder, obj: types.CellType) -> str:
    name = b.bind(obj, f"{b.names.define('Cell', types.CellType)}()", hint="cell")
    try:
        contents = obj.cell_contents
    except ValueError:  # empty
        return name
    b.fill(lambda: f"{name}.cell_contents = {b.value(contents)}")
    return name


def _function(b: Rebuilder, obj: types.FunctionType) -> str:
    make = b.names.define("FunctionType", types.FunctionType)
    closure = f"({b.items(obj.__closure__)},)" if obj.__closure__ else "None"
    parts = [b.hold(obj.__code__), b.hold(obj.__globals__), repr(obj.__name__), b.value(obj.__defaults__), closure]
    name = b.bind(obj, f"{make}({', '.join(parts)})", hint=obj.__name__)
    if obj.__kwdefaults__:
        b.fill(lambda: f"{name}.__kwdefaults__ = {b.value(obj.__kwdefaults__)}")
    if obj.__annotations__:
        b.fill(lambda: f"{name}.__annotations__ = {b.value(obj.__annotations__)}")
    for attribute in ("__qualname__", "__doc__", "__module__"):
        value = getattr(obj, attribute)
        if value != _default_attribute(obj, attribute):
            b.lines.append(f"{name}.{attribute} = {b.value(value)}")
    return _fill_dict(b, obj, name)


def _default_attribute(function: types.FunctionType, attribute: str) -> Any:
    """What a function made of the same code has without being told."""
    plain = types.FunctionType(function.__code__, function.__globals__, function.__name__, None, function.__closure__)
    return getattr(plain, attribute)


def _fill_dict(b: Rebuilder, obj: Any, name: str) -> str:
    for key, value in obj.__dict__.items():
        b.fill(lambda k=key, v=value: f"{name}.__dict__[{k!r}] = {b.value(v)}")  # type: ignore[misc]
    return name


def _static(b: Rebuilder, obj: Any) -> str:
    return b.bind(obj, f"{b.hold(type(obj))}({b.value(obj.__func__)})")


def _property(b: Rebuilder, obj: property) -> str:
    return b.bind(obj, f"{b.hold(property)}({b.items((obj.fget, obj.fset, obj.fdel, obj.__doc__))})")


def _super(b: Rebuilder, obj: Any) -> str:
    return b.bind(obj, f"{b.hold(super)}({b.items((obj.__thisclass__, obj.__self__))})")


def _weakref(b: Rebuilder, obj: weakref.ref[Any]) -> str:
    return b.bind(obj, f"{b.hold(weakref.ref)}({b.value(obj())})")


def _symbolic(b: Rebuilder, obj: Any) -> str:
    """A number computed from sizes: evaluated in Python from the inputs' sizes."""
    node = obj.node
    return b.bind(obj, b._writer.expression(node.shape_env.simplify(node.expr)), hint="size")


def _generator(b: Rebuilder, obj: TracedGenerator) -> str:
    if obj.finished:
        return b.bind(obj, f"{b.hold(finished)}()", hint="generator")
    if obj.started:
        return b.bind(obj, f"{_suspended(b, obj)}.start()", hint="generator")
    return _new_generator(b, obj)


def _suspended(b: Rebuilder, obj: TracedGenerator) -> str:
    """Text of the state of a generator that stands at a `yield`."""
    frame = obj.frame
    stack = [*frame.stack, None]
    point = point_at(
        frame.program, frame.program.index_of(frame.op.offset), [v is not NULL for v in stack], frame.locals
    )
    if point.handled or obj.running:
        raise CannotReconstruct("started-generator", obj)
    generator_code(point)
    cells = [frame.cells.get(n) or types.CellType() for n in resume_freevars(frame.code)]
    values = [*(v for v in stack if v is not NULL), *(frame.locals[n] for n in point.locals)]
    b._keep.append(cells)
    place = b.names(place_of(point, frame.globals, frame.name), "place")
    return f"{b.hold(Suspended)}({place}, ({b.items(cells)}{',' * (len(cells) == 1)}), ({b.items(values)},))"


def _new_generator(b: Rebuilder, obj: TracedGenerator) -> str:
    """A generator that has not started: its function is called again with the bound parameters."""
    frame = obj.frame
    code = frame.code
    values = {
        **frame.locals,
        **{n: frame.cells[n].cell_contents for n in code.co_cellvars if n in _parameters(code) and n in frame.cells},
    }
    closure = f"({b.items([frame.cells[n] for n in code.co_freevars])},)" if code.co_freevars else "None"
    make = f"{b.names.define('FunctionType', types.FunctionType)}({b.hold(code)}, {b.hold(frame.globals)}, {code.co_name!r}, None, {closure})"
    args = [b.value(values[n]) for n in _parameters(code)[: code.co_argcount]]
    rest = list(_parameters(code)[code.co_argcount + code.co_kwonlyargcount :])
    keywords = [
        f"{n}={b.value(values[n])}"
        for n in _parameters(code)[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    ]
    stars = ["*" * (1 + (i > 0 or not code.co_flags & 0x04)) + b.value(values[n]) for i, n in enumerate(rest)]
    return b.bind(obj, f"{make}({', '.join([*args, *keywords, *stars])})", hint="generator")


def _parameters(code: types.CodeType) -> tuple[str, ...]:
    extra = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + extra]


def _reduced(b: Rebuilder, obj: Any) -> str:
    """An iterator of the standard library, by its own `__reduce__`: (function, args[, state])."""
    made = obj.__reduce__()
    b._keep.append(made)
    name = b.bind(obj, f"{b.hold(made[0])}({b.items(made[1])})", hint="iterator")
    if len(made) > 2 and made[2] is not None:
        b.lines.append(f"{name}.__setstate__({b.value(made[2])})")
    return name


def _traced_callable(b: Rebuilder, obj: TracedCallable) -> str:
    return b.value(obj.function)


def _carry(b: Rebuilder, obj: Carry) -> str:
    value = obj.value
    text = _suspended(b, value) if type(value) is TracedGenerator else b.value(value)
    by_turn = type(value) is CarriedItems and value.by_turn
    name = b.names.fresh("loop")
    b.lines.append(f"{name} = [{b.hold(Carried)}({text}{', True' * by_turn})]")
    return f"{name}.pop()"  # the entry keeps none: what the loop drops is gone


def _carried_items(b: Rebuilder, obj: CarriedItems) -> str:
    place = b._writer.read(obj.source)
    return b.bind(obj, f"{b.hold(advanced)}({place}, {obj.steps})", hint="iterator")


def _numbered(b: Rebuilder, obj: Numbered) -> str:
    return b.bind(obj, f"enumerate({b.items((obj.items, obj.count))})", hint="iterator")


def _string_io(b: Rebuilder, obj: io.StringIO) -> str:
    name = b.bind(obj, f"{b.hold(io.StringIO)}({obj.getvalue()!r})", hint="text")
    b.lines.append(f"{name}.seek({obj.tell()})")
    return name


def _lock(b: Rebuilder, obj: Any) -> str:
    if not obj.acquire(blocking=False):
        raise CannotReconstruct("locked", obj)
    obj.release()
    return b.bind(obj, f"{b.hold(threading.RLock if type(obj) is _RLOCK else threading.Lock)}()", hint="lock")


def _random(b: Rebuilder, obj: random.Random) -> str:
    name = b.bind(obj, f"{b.hold(random.Random)}()")
    b.lines.append(f"{name}.setstate({b.hold(obj.getstate())})")
    return name


def _mapping_proxy(b: Rebuilder, obj: types.MappingProxyType[Any, Any]) -> str:
    return b.bind(obj, f"{b.hold(types.MappingProxyType)}({b.value(gc.get_referents(obj)[0])})")


# ---- instances of the program's classes

# Builtin base -> (statement that makes an instance without user code, then statements that fill it)
_BASES: dict[type, tuple[Recipe, Callable[[Rebuilder, Any, str], None]]] = {}


def _new(b: Rebuilder, obj: Any) -> str:
    base = _builtin_base(type(obj))
    return f"{b.hold(base)}.__new__({b.value(type(obj))})"


def _new_from(plain: Callable[[Any], Any]) -> Recipe:
    """For immutable bases: `base.__new__(cls, contents)`."""

    def make(b: Rebuilder, obj: Any) -> str:
        base = _builtin_base(type(obj))
        return f"{b.hold(base)}.__new__({b.value(type(obj))}, {b.value(plain(obj))})"

    return make


def _no_contents(b: Rebuilder, obj: Any, name: str) -> None:
    pass


def _fill_list(b: Rebuilder, obj: Any, name: str) -> None:
    if list.__len__(obj):
        b.fill(lambda: f"list.extend({name}, [{b.items(list.__iter__(obj))}])")


def _fill_mapping(b: Rebuilder, obj: Any, name: str) -> None:
    if dict.__len__(obj):
        b.fill(lambda: f"dict.update({name}, {{{b.pairs(dict.items(obj))}}})")


def _fill_ordered(b: Rebuilder, obj: Any, name: str) -> None:
    base = b.hold(collections.OrderedDict)
    for key in collections.OrderedDict.__iter__(obj):
        value = dict.__getitem__(obj, key)
        b.fill(lambda k=key, v=value: f"{base}.__setitem__({name}, {b.value(k)}, {b.value(v)})")  # type: ignore[misc]


def _fill_defaultdict(b: Rebuilder, obj: Any, name: str) -> None:
    base = b.hold(collections.defaultdict)
    b.lines.append(f"{base}.__init__({name}, {b.value(obj.default_factory)})")
    _fill_mapping(b, obj, name)


def _fill_set(b: Rebuilder, obj: Any, name: str) -> None:
    if set.__len__(obj):
        b.fill(lambda: f"set.update({name}, [{b.items(set.__iter__(obj))}])")


def _fill_deque(b: Rebuilder, obj: Any, name: str) -> None:
    base = b.hold(collections.deque)
    b.fill(lambda: f"{base}.__init__({name}, [{b.items(base_iter(obj))}], {obj.maxlen!r})")


def base_iter(obj: collections.deque[Any]) -> list[Any]:
    """The items of a deque whatever its class overrides."""
    return list(collections.deque.__iter__(obj))


def _new_exception(b: Rebuilder, obj: BaseException) -> str:
    """Some exceptions of C keep more than `args`; their own `__new__` takes it from the arguments."""
    base = _builtin_base(type(obj))
    given = ""
    if base.__new__ is not Exception.__new__:
        given = "".join([", " + b.value(v) for v in obj.args])
    return f"{b.hold(base)}.__new__({b.value(type(obj))}{given})"


_KEPT_BESIDE = {
    AttributeError: ("name", "obj"),
    NameError: ("name",),
    ImportError: ("name", "path"),
    StopIteration: ("value",),
}


def _fill_exception(b: Rebuilder, obj: BaseException, name: str) -> None:
    b.fill(lambda: f"{name}.args = {b.value(obj.args)}")
    for cls, names in _KEPT_BESIDE.items():
        for kept in names if isinstance(obj, cls) else ():
            if getattr(obj, kept) is not None:
                b.fill(lambda k=kept: f"{name}.{k} = {b.value(getattr(obj, k))}")  # type: ignore[misc]
    if obj.__traceback__ is not None:
        b.lines.append(f"{name}.__traceback__ = {b.hold(TRACEBACK)}")
    if obj.__cause__ is not None:
        b.fill(lambda: f"{name}.__cause__ = {b.value(obj.__cause__)}")
    if obj.__context__ is not None:
        b.fill(lambda: f"{name}.__context__ = {b.value(obj.__context__)}")
    if obj.__suppress_context__ and obj.__cause__ is None:
        b.lines.append(f"{name}.__suppress_context__ = True")


_BASES |= {
    object: (_new, _no_contents),
    types.SimpleNamespace: (_new, _no_contents),
    list: (_new, _fill_list),
    dict: (_new, _fill_mapping),
    collections.OrderedDict: (_new, _fill_ordered),
    collections.defaultdict: (_new, _fill_defaultdict),
    set: (_new, _fill_set),
    collections.deque: (_new, _fill_deque),
    tuple: (_new_from(lambda o: tuple(tuple.__iter__(o))), _no_contents),
    frozenset: (_new_from(lambda o: frozenset(frozenset.__iter__(o))), _no_contents),
    int: (_new_from(lambda o: int.__int__(o)), _no_contents),
    float: (_new_from(lambda o: float.__float__(o)), _no_contents),
    str: (_new_from(lambda o: str.__str__(o)), _no_contents),
    bytes: (_new_from(lambda o: bytes.__getitem__(o, slice(None))), _no_contents),
}


def _builtin_base(cls: type) -> type:
    """The class implemented in C whose memory layout instances of the class have."""
    base: type = cls
    while base.__flags__ & (1 << 9) and base.__base__ is not None:  # Py_TPFLAGS_HEAPTYPE: made by a class statement
        base = base.__base__
    return base


def _is_plain(cls: type) -> bool:
    """Whether `object.__new__` can make an instance; extension classes on the heap refuse it."""
    try:
        object.__new__(cls)
    except TypeError:
        return False
    return True


def _instance(b: Rebuilder, obj: Any) -> str:
    base = _builtin_base(type(obj))
    if isinstance(obj, BaseException):
        make, fill = _new_exception, _fill_exception
    elif base in _BASES:
        make, fill = _BASES[base]  # type: ignore[assignment, assignment]
    else:
        raise CannotReconstruct("builtin-instance", obj)
    if base is object and not _is_plain(type(obj)):
        raise CannotReconstruct("builtin-instance", obj)
    name = b.bind(obj, make(b, obj))
    fill(b, obj, name)
    for key, value in _instance_dict(obj).items():
        b.fill(lambda k=key, v=value: f"{name}.__dict__[{k!r}] = {b.value(v)}")  # type: ignore[misc]
    for key, value in _slots(obj):
        b.fill(lambda k=key, v=value: f"object.__setattr__({name}, {k!r}, {b.value(v)})")  # type: ignore[misc]
    return name


def _instance_dict(obj: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}
    return found


def _slots(obj: Any) -> Iterable[tuple[str, Any]]:
    """Names and values of the filled `__slots__` of all classes."""
    for cls in type(obj).__mro__:
        if not cls.__flags__ & (1 << 9):
            continue
        for name, descriptor in cls.__dict__.items():
            if isinstance(descriptor, types.MemberDescriptorType):
                try:
                    yield name, descriptor.__get__(obj)
                except AttributeError:
                    continue  # unset


_ITERATORS: tuple[type, ...] = (
    *PLAIN_ITERATORS,
    enumerate,
    zip,
    map,
    filter,
    itertools.count,
    itertools.repeat,
    itertools.chain,
    itertools.cycle,
    itertools.islice,
    itertools.accumulate,
    itertools.product,
    itertools.permutations,
    itertools.combinations,
    itertools.starmap,
    itertools.takewhile,
    itertools.dropwhile,
    itertools.compress,
    itertools.zip_longest,
)

_RECIPES: dict[type, Recipe] = {
    float: _float,
    list: _list,
    tuple: _tuple,
    dict: _dict,
    set: _set,
    frozenset: _frozenset,
    slice: _slice,
    range: _range,
    torch.Size: _size,
    collections.deque: _deque,
    collections.OrderedDict: _ordered_dict,
    collections.defaultdict: _defaultdict,
    functools.partial: _partial,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    types.CellType: _cell,
    types.FunctionType: _function,
    staticmethod: _static,
    classmethod: _static,
    property: _property,
    super: _super,
    TracedGenerator: _generator,
    TracedCallable: _traced_callable,
    Carry: _carry,
    CarriedItems: _carried_items,
    Numbered: _numbered,
    weakref.ref: _weakref,
    torch.SymInt: _symbolic,
    torch.SymFloat: _symbolic,
    torch.SymBool: _symbolic,
    **dict.fromkeys(_ITERATORS, _reduced),
}

_RLOCK = type(threading.RLock())
_RECIPES |= {
    io.StringIO: _string_io,
    type(threading.Lock()): _lock,
    _RLOCK: _lock,
    random.Random: _random,
    types.MappingProxyType: _mapping_proxy,
}

_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
)


def _recipe(obj: Any) -> Recipe:
    cls = type(obj)
    recipe = _RECIPES.get(cls)
    if recipe is not None:
        return recipe
    if obj is NULL or isinstance(obj, torch.Tensor):
        raise CannotReconstruct("unknown-tensor" if obj is not NULL else "null-on-stack", obj)
    if isinstance(obj, type):
        return _class
    if cls.__module__ == "numpy" and is_numpy_scalar(obj):
        return _atom
    if isinstance(obj, (*_ATOMS, *_DESCRIPTORS)):
        return _atom
    if issubclass(cls, tuple) and hasattr(cls, "n_sequence_fields"):
        return _struct_sequence
    return _instance
