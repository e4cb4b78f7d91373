"""How classes written in C are instantiated.

Holds:  iterables of the program are driven through the interpreter; numbers that C code needs are specialized.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import itertools
import operator
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak, WrongKind
from pliant.capture.handlers import given
from pliant.capture.handlers.given import Arguments, Convert
from pliant.capture.handlers.random_numbers import make_generator
from pliant.capture.handlers.table import ALL, ClassHandler, Rows
from pliant.capture.iterators import carried
from pliant.capture.iterators.looped import CARRIED_FOR, looped
from pliant.capture.numbers import progressions
from pliant.capture.numbers.numpy_scalars import scalar_of
from pliant.capture.outside.whole_containers import base_in_c
from pliant.capture.protocols import attributes, iteration, operators, subscripts
from pliant.capture.protocols.asked_by_c import COMPARED, refuse_own, within
from pliant.capture.signatures import Args, Frame, Kwargs, Tracer
from pliant.capture.trace import NULL
from pliant.capture.value_kinds import (
    DICT_TYPES,
    MUTABLE_CONTAINERS,
    concrete,
    derives,
    has_method,
    is_text,
    varying,
)
from pliant.graph.fake_tensor import is_fake
from pliant.graph.unbacked import is_unbacked
from pliant.guards.kinds import MISSING
from pliant.guards.standard import LRU_CACHE, can_change
from pliant.torch_adapter import DisableFuncTorch, DisableTorchDispatch, profiler

ROWS = Rows()
CLASSES = ROWS.classes


def _made_of(*first: Convert, rest: Convert = given.number, **named: Convert) -> ClassHandler:
    """Made by C code of what it gets for the arguments."""
    arguments = Arguments(*first, rest=rest, **named)

    def make(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
        args, kwargs = arguments.of(t, args, kwargs)
        return t.native(cls, *args, **kwargs)

    return make


_construct_as_it_is = _made_of(rest=given.as_it_is)


def _construct_list(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    return args[0] if args and carried.is_of_a_loop(t, args[0]) else t.native(cls, *map(t.listed, args), **kwargs)


def _of_rows(make: ClassHandler) -> ClassHandler:
    """What may be made of the rows of a tensor, for a loop."""

    def construct(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
        carried.refuse_varying_rows(t.frames[-1], *args)
        return make(t, cls, args, kwargs)

    return construct


def _of_items(make: ClassHandler) -> ClassHandler:
    """What gives one item for one of each, for a loop: over lists of any length, too."""

    def construct(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
        return make(t, cls, tuple([carried.in_turn(t.frames[-1], one) for one in args]), kwargs)

    return _of_rows(construct)


def _construct_dict(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    leading: Args = ()
    if cls is collections.defaultdict:
        leading, args = tuple(given.factory(t, a) for a in args[:1]), args[1:]
    sources = [given.pairs_or_mapping(t, a, cls is collections.OrderedDict) for a in args]
    return t.native(cls, *leading, *sources, **kwargs)


def _construct_reversed(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    value = t.world.adopt(t.world.resolve(args[0]))
    method = operators.python_method(t, value, "__reversed__")
    if method is not None:
        return t.call(method, (value,), {})
    if is_fake(value):
        carried.refuse_varying_rows(t.frames[-1], value)
        return t.native(reversed, t.sequence(value))
    if not has_method(type(value), "__reversed__") and operators.python_method(t, value, "__getitem__"):
        size = concrete(operators.length(t, value))
        return iter([t.subscript(value, i) for i in range(size - 1, -1, -1)])
    if t.world.is_opaque(value) and base_in_c(value) is list:
        return carried.own_items(t, value, method="__reversed__")
    return t.native(reversed, value if type(value) in _NOT_LOOKED_INTO else _as_c_reads_it(t, value))


_NOT_LOOKED_INTO = MUTABLE_CONTAINERS | {tuple}  # by `reversed`


def _as_c_reads_it(t: Tracer, value: Any) -> Any:
    """A container from outside of a class of the program's: what it holds, under guards; or a break."""
    if base_in_c(value) in DICT_TYPES and (held_here := t.world.contents(value)) is not None:
        return held_here
    value = subscripts.known_items(t, value)
    t.refuse_opaque(value)
    return value


_of_groups = _made_of(given.items, given.grouping, iterable=given.items, key=given.grouping)


def _construct_groups(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """Groups of items whose keys are equal, as C code compares them; without a key the items are their own keys."""
    if len(args) + len(kwargs) == 1:
        refuse_own(t, cls, within((*args, *kwargs.values())), COMPARED)
    return _of_groups(t, cls, args, kwargs)


def _accumulate(t: Tracer, iterable: Any, func: Any = None, **initial: Any) -> Any:
    return t.native(itertools.accumulate, t.iterable(iterable), t.reentrant(operator.add if func is None else func), **initial)


def _accessor(read: Callable[[Tracer, Any, Any], Any]) -> Callable[..., Any]:
    """What an `itemgetter` or `attrgetter` gives: what each of its keys reads, or the tuple of several."""

    def accessor(t: Tracer, getter: Any, args: Args, kwargs: Kwargs, linked: bool) -> Any:
        found = tuple(read(t, args[0], key) for key in getter.__reduce__()[1])
        return found[0] if len(found) == 1 else found

    return accessor


def _method_accessor(t: Tracer, caller: Any, args: Args, kwargs: Kwargs, linked: bool) -> Any:
    made = caller.__reduce__()
    if made[0] is operator.methodcaller:
        return t.call(t.get_attr(args[0], made[1][0]), made[1][1:], {})
    return t.call(t.get_attr(args[0], made[0].args[0]), made[1], made[0].keywords)


# How objects of the operator module's classes are called.
ACCESSORS: dict[Any, Callable[..., Any]] = {
    operator.itemgetter: _accessor(subscripts.subscript),
    operator.attrgetter: _accessor(lambda t, obj, path: functools.reduce(functools.partial(attributes.get_attr, t), path.split("."), obj)),
    operator.methodcaller: _method_accessor,
}


_CONVERSIONS = "__bytes__ __index__ __float__ __complex__ __iter__ __getitem__ __len__ __buffer__".split()


def _refuse_conversions(t: Tracer, cls: Any, args: Args) -> None:
    for value in args:
        if any(operators.python_method(t, value, name) is not None for name in _CONVERSIONS):
            raise GraphBreak("unknown-object", f"{cls.__name__} would call methods of {type(value).__name__}")


def _construct_plain(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    _refuse_conversions(t, cls, args)
    return t.native(cls, *map(t.plain, args), **{k: t.concrete_tree(v) for k, v in kwargs.items()})


def _construct_namespace(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    made = _construct_plain(t, cls, args, {})
    vars(made).update(kwargs)  # as they are: containers from outside too
    return made


def _construct_bytes(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    taken = [t.sequence(value) if has_method(type(value), "__next__") else value for value in args]
    _refuse_conversions(t, cls, tuple(taken))  # as they are: what C code gets of one from outside has another class
    return _construct_plain(t, cls, tuple(_as_c_reads_it(t, t.plain(value)) for value in taken), kwargs)


def _construct_numpy(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    made = NotImplemented if kwargs else scalar_of(t, cls, args)
    return _construct_plain(t, cls, args, kwargs) if made is NotImplemented else made


def _construct_complex(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """complex(real, imag), either of which may know how to become a number."""
    given = {"real": 0, **dict(zip(("real", "imag"), args, strict=False)), **kwargs}
    method = operators.python_method(t, given["real"], "__complex__")
    if method is not None and not is_text(given["real"]):
        given["real"] = t.call(method, (given["real"],), {})
        if not isinstance(given["real"], complex):
            raise GraphBreak("bad-call", "__complex__ gives no complex number")
    for name, value in given.items():
        own = any(operators.python_method(t, value, special) is not None for special in ("__float__", "__index__"))
        if own and not is_text(value):  # which C code reads
            given[name] = t.call(float, (value,), {})
    return _construct_plain(t, cls, (), given) if args or kwargs else 0j


def _construct_size(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    items = [i if varying(i) is int else concrete(i) for a in args for i in iteration.sequence(t, a, is_made=True)]
    return t.native(torch.Size, items, **kwargs)


def _construct_range(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    ends = [subscripts.as_index(t, a) for a in args]
    for end, given_end in zip(ends, args):
        if end is not given_end and is_unbacked(end):
            concrete(end)  # breaks here: the code behind a break is given what had to be asked, and would ask again
    made: Any = None
    if (parts := progressions.parts_of_range(ends)) is not None:
        made = (progressions.turns if _is_of_a_loop(t.frames[-1]) else progressions.varying_range)(t, *parts)
    return t.native(range, *map(concrete, ends)) if made is None else made


def _is_of_a_loop(frame: Frame) -> bool:
    """Whether a loop takes the range that is made now, or a list of it that nothing else sees."""
    ahead = frame.program.ops[frame.ip : frame.ip + 3]
    if [op.name for op in ahead] == ["CALL", "GET_ITER", "FOR_ITER"]:
        given: Any = ahead[0].arg
        called = [value for value in frame.stack[-2:] if value is not NULL]
        return (given.count, given.names) == (1, ()) and len(called) == 1 and called[0] is list
    return carried.begins_next(frame)


def _construct_partial(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """One of a partial from outside holds the parts of both."""
    if args and type(args[0]) is functools.partial and t.world.is_foreign(args[0]):
        func, given, keywords = (t.get_attr(args[0], name) for name in ("func", "args", "keywords"))
        args, kwargs = (func, *given, *args[1:]), {**t.world.adopt(keywords), **kwargs}
    return t.native(cls, *args, **kwargs)


def _construct_profiler_range(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """A name for the profiler: nothing while none records, else Python enters it around the code that is its work."""
    if t.inputs.policy.may_break:
        t.world.hold(profiler, "profiler")
        if t.get_attr(profiler, "_is_profiler_enabled"):
            raise GraphBreak("side-effect-call", "a profiler records, and this names a range for it")
    return contextlib.nullcontext()


ROWS.refuses(
    (profiler.record_function.__enter__, profiler.record_function.__exit__),
    "side-effect-call",
    "a range of the profiler begins or ends here",
)

_ITERTOOLS: dict[type, ClassHandler] = {
    **dict.fromkeys(
        (itertools.cycle, itertools.zip_longest, itertools.compress),
        _made_of(rest=given.items, fillvalue=given.as_it_is),
    ),
    itertools.product: _made_of(rest=given.listed, repeat=given.number),
    itertools.chain: _of_rows(_made_of(rest=given.in_turn)),
    itertools.pairwise: _of_rows(_made_of(rest=given.items)),
    itertools.islice: _of_rows(_made_of(given.items)),
    **dict.fromkeys(
        (itertools.combinations, itertools.combinations_with_replacement), _made_of(given.listed, iterable=given.listed)
    ),
    itertools.permutations: _made_of(given.listed, rest=given.fixed, iterable=given.listed),
    itertools.count: _made_of(rest=given.fixed),
    itertools.repeat: _made_of(given.as_it_is, object=given.as_it_is),
    itertools.groupby: _construct_groups,
    itertools.accumulate: lambda t, cls, args, kwargs: _accumulate(t, *args, **kwargs),
    itertools.starmap: _made_of(given.called, rest=given.items),
    **dict.fromkeys(
        (itertools.filterfalse, itertools.takewhile, itertools.dropwhile), _made_of(given.asked, given.items)
    ),
}
CLASSES |= {
    # Guards against dispatch modes or transforms, of which a capture has none.
    **dict.fromkeys(
        (DisableTorchDispatch, DisableFuncTorch), lambda t, cls, args, kwargs: contextlib.nullcontext()
    ),
    torch.autograd.profiler.record_function: _construct_profiler_range,
    list: _of_rows(_construct_list),
    tuple: _of_rows(_made_of(given.listed, rest=given.fixed, iterable=given.listed)),
    collections.deque: _made_of(given.items, rest=given.fixed, iterable=given.items),
    **dict.fromkeys((set, frozenset), _made_of(iteration.hashables_of_table)),
    **dict.fromkeys((dict, collections.OrderedDict, collections.defaultdict), _construct_dict),
    zip: _of_items(_made_of(rest=given.items, strict=given.number)),
    enumerate: _of_items(_made_of(given.items, iterable=given.items)),
    map: _made_of(given.called, rest=given.items),
    filter: _made_of(given.asked, given.items),
    **{cls: looped(make) if cls in CARRIED_FOR else make for cls, make in _ITERTOOLS.items()},
    **dict.fromkeys((torch.device, torch.finfo, torch.iinfo, memoryview), _construct_plain),
    types.SimpleNamespace: _construct_namespace,
    **dict.fromkeys((bytes, bytearray), _construct_bytes),
    complex: _construct_complex,
    torch.Size: _construct_size,
    reversed: _construct_reversed,
    range: _construct_range,
    functools.partial: _construct_partial,
    **dict.fromkeys(
        (
            property, staticmethod, classmethod, types.MethodType, types.CellType, types.FunctionType, slice, object,
            typing.TypeVar, typing.NewType, LRU_CACHE,
            *ACCESSORS,
        ),
        _construct_as_it_is,
    ),
}


_home = type.__dict__["__module__"].__get__


def find_class(cls: type) -> ClassHandler | None:
    """How a class implemented in C is instantiated, if it is one of those listed."""
    found = ALL.classes.get(cls)
    home = _home(cls) or ""  # as an attribute it may be the program's property; code without a module has none
    if found is None and issubclass(cls, BaseException) and home == "builtins":
        return _construct_as_it_is
    if found is None and home.startswith("numpy.random") and not can_change(cls):
        return make_generator
    if found is None and home == "numpy" and "numpy" in sys.modules:
        numpy = sys.modules["numpy"]
        return _construct_numpy if issubclass(cls, (numpy.generic, numpy.dtype, numpy.finfo, numpy.iinfo)) else None
    return found


def call_enum(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """Color(1): the member. Enum("Color", "RED GREEN"): a class."""
    if not cls.__members__:
        kwargs = {"module": t.frames[-1].globals.get("__name__"), **kwargs}
        return t.world.note_made_class(_construct_plain(t, cls, args, kwargs))
    missing = t.world.type_lookup(cls, "_missing_")
    known = not isinstance(missing, classmethod) or missing.__func__.__module__ == "enum"
    if len(args) == 1 and not kwargs and type(args[0]) is cls:  # before it is looked for
        return args[0]
    values: list[Any] | None
    try:
        values = [t.hashable(a) for a in args]
    except WrongKind:  # it is compared with the value of each member
        values, known = None, False
    if not known and derives(cls, enum.Flag):
        members = t.world.hold(cls._value2member_map_, "members")
        known = values is not None and all(t.world.dict_get(members, value) is not MISSING for value in values)
        if not known:
            raise GraphBreak("side-effect-call", f"{cls.__name__} keeps the member that it makes")
    if values is None or not known:
        return t.call(t.world.type_lookup(type(cls), "__call__"), (cls, *args), kwargs)
    member = t.native(cls, *values, **kwargs)
    return t.world.hold(member, str(member))
