"""Operators, comparisons, truth and length of any value, by Python's own protocols.

In:     traced values.
Out:    traced results; symbolic numbers and fake tensors go through their own operators, which record or guard.
Holds:  special methods written in Python run in the interpreter; containers from outside are read under guards.
Source: Python's data model, "Emulating numeric types" and "Emulating container types".
"""

from __future__ import annotations

import collections
import functools
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak, Raised, WrongKind
from pliant.capture.iterators.generators import OURS
from pliant.capture.numbers import progressions
from pliant.capture.numbers.array_memory import is_array
from pliant.capture.numbers.arrays import beside_symbol, beside_tensor, computed_by_numpy
from pliant.capture.numbers.number_domains import floor_quotient, power_of_zero, settled_operands, within_domain
from pliant.capture.numbers.numpy_scalars import plain_number
from pliant.capture.outside.whole_containers import at_most, base_in_c, joined_to_dict
from pliant.capture.protocols import polyfills
from pliant.capture.protocols.descriptors import bind
from pliant.capture.protocols.late_equality import alike_when_run
from pliant.capture.protocols.patched_methods import refuse_patched
from pliant.capture.protocols.tail_calls import TailCall, ended, ending
from pliant.capture.protocols.tensor_members import own_member
from pliant.capture.recording import stand_ins
from pliant.capture.signatures import Tracer
from pliant.capture.structures import leaves
from pliant.capture.value_kinds import (
    COMPARED_IN_C,
    DICT_TYPES,
    DICT_VIEWS,
    HOLDS_FUNCTIONS,
    MUTABLE_CONTAINERS,
    SYMBOLIC_TYPES,
    ByKind,
    by_kind,
    concrete,
    exactly,
    has_method,
    is_bound,
    is_builtin,
    is_class,
    is_function,
    is_method,
    is_mutable_container,
    is_number,
    is_numpy_scalar,
    is_set,
    is_str,
    is_symbolic,
    is_text,
    is_told_by_value,
    misused,
    name_of_class,
    plain_class,
)
from pliant.capture.varying_values import UNSETTLED, Text
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import LengthSource
from pliant.guards.standard import LRU_CACHE
from pliant.unpatched import BUILTINS

_PLAIN = COMPARED_IN_C | SYMBOLIC_TYPES | {FakeTensor, Text} | UNSETTLED
_is_real = exactly(*_PLAIN - {complex})
BINARY = {  # symbol -> (name of the method, the operation, the same in place)
    symbol: (name.strip("_"), getattr(operator, name), getattr(operator, f"i{name.strip('_')}"))
    for symbol, name in zip(
        "+ - * / // % ** @ & | ^ << >>".split(),
        "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift".split(),
        strict=True,
    )
}
COMPARE = {  # symbol -> (name of the method, that of the other operand, the operation)
    symbol: (name, reflected, getattr(operator, name))
    for symbol, name, reflected in zip("< <= > >= == !=".split(), "lt le gt ge eq ne".split(), "gt ge lt le eq ne".split(), strict=True)
}
UNARY = {
    "UNARY_NEGATIVE": ("__neg__", operator.neg),
    "UNARY_INVERT": ("__invert__", operator.invert),
    "UNARY_POSITIVE": ("__pos__", operator.pos),
}


def _is_plain(value: Any) -> bool:
    """Whether its operators are written in C."""
    return type(value) in _PLAIN and (type(value) is not FakeTensor or value.subclass_ is None)


def python_method(t: Tracer, obj: Any, name: str) -> types.FunctionType | None:
    """The special method of the object's class, if it is written in Python; a break where it cannot be told how it binds."""
    cls = type(obj)
    if cls is FakeTensor and obj.subclass_ is not None:
        member = own_member(t, obj.subclass_, name)
        return member if is_function(member) else None
    if cls in _PLAIN or cls in MUTABLE_CONTAINERS or cls is tuple or cls in OURS:
        return None
    found = t.world.python_function(cls, name)
    if found is None and name.startswith("__"):
        other = t.world.type_lookup(cls, name)
        if isinstance(other, _OTHER_WAYS) or _is_method_of_another(other) or _is_of_a_program(type(other)):
            raise GraphBreak("unknown-object", f"the {name} of a {cls.__qualname__} is no function")
    return found


def _is_method_of_another(found: Any) -> bool:
    """Whether it is a method in C of an object that the class holds, whose state it reads."""
    return is_bound(found) and not HOLDS_FUNCTIONS.of(found.__self__)


_OTHER_WAYS = (staticmethod, classmethod, property, functools.partial, LRU_CACHE)


def _is_of_a_program(cls: type) -> bool:
    """Whether the class is written in Python; C code has kinds of methods of its own (pybind11's)."""
    return bool(cls.__flags__ & _HEAP_TYPE)


_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def refuse_none(t: Tracer, obj: Any, name: str, text: str = "'NoneType' object is not callable") -> None:
    """CPython's error where the object's class has None in the place of the special method."""
    if t.world.type_lookup(type(obj), name) is None:
        raise misused(obj, text)


def special_method(t: Tracer, obj: Any, name: str) -> Any:
    """The bound special method looked up on the class, or None."""
    found = t.world.type_lookup(type(obj), name)
    if found is None:
        raise GraphBreak("unknown-object", f"the {name} of a {type(obj).__qualname__} is None")
    return None if found is MISSING else ended(t, bind(t, found, obj, type(obj), name))


def _operands(t: Tracer, symbol: str, left: Any, right: Any) -> tuple[Any, Any]:
    """What an operator is applied to: plain lists, and what NumPy's rules make of operands where these decide."""
    if not UNSETTLED.isdisjoint((type(left), type(right))):
        left, right = settled_operands(symbol, left, right)
    left, right = beside_symbol(t, left, right)
    return beside_tensor(t, symbol, left, right) if is_array(left) or is_array(right) else (left, right)


# ---- arithmetic
_TRUTH_TYPES = frozenset((bool, torch.SymBool))
_OF_TRUTHS = {"&": operator.and_, "|": operator.or_, "^": operator.ne}  # their results are truths too


@ending
def binary(t: Tracer, symbol: str, left: Any, right: Any) -> Any:
    """left <symbol> right; symbols ending in `=` are in place."""
    inplace = symbol.endswith("=")
    plain = symbol.removesuffix("=")
    if plain == "%" and is_str(left) and not (_is_of_subclass(right, left) and python_method(t, right, "__rmod__")):
        return TailCall(str.__mod__, (left, right))
    if symbol == "+" and (numbers := progressions.joined(t, left, right)) is not NotImplemented:
        return numbers
    name, function, in_place = BINARY[plain]
    left, right = _operands(t, symbol, left, right)
    if inplace:
        function = in_place
    cls, other = type(left), type(right)
    if _is_plain(left) and _is_plain(right):
        if cls in (str, bytes) and other is not Text:
            right = concrete(right)
        if plain in _OF_TRUTHS and _TRUTH_TYPES.issuperset((cls, other)):
            return t.native(_OF_TRUTHS[plain], left, right)
        if plain == "//" and (quotient := floor_quotient(left, right)) is not None:
            return quotient
        if plain == "**" and (power := power_of_zero(left, right)) is not None:
            return power
        return t.native(function, *within_domain(t, plain, left, right))
    methods = ordered_methods(t, left, right, f"__{name}__", f"__r{name}__")
    if inplace:
        if (method := python_method(t, left, f"__i{name}__")) is not None:
            methods.insert(0, (method, left, right))
        elif methods:
            refuse_none(t, left, f"__i{name}__")
            if base_in_c(left) in DICT_TYPES and name == "or":  # before the other operand is asked
                t.call(dict.__ior__, (left, right), {})
                return left
            if base_in_c(left) is set and is_set(right) and name in ("or", "and", "sub", "xor"):
                return _native_binary(t, function, left, right, inplace)
    if methods:
        return in_turn(t, symbol, left, right, methods, (f"__{name}__", f"__r{name}__"))
    return _native_binary(t, function, left, right, inplace)


def _native_binary(t: Tracer, function: Any, left: Any, right: Any, inplace: bool) -> Any:
    whole, other_side, base, other = left, right, base_in_c(left), base_in_c(right)
    if function is operator.ior and base in DICT_TYPES and t.world.is_opaque(left) and type(left) is not base:
        return t.call(dict.__ior__, (left, right), {})
    joined = base in _JOINED and (other is not None or is_number(right))
    left = t.world.whole(left) if inplace or joined else t.world.adopt(left)
    right = t.world.whole(right) if joined else t.world.adopt(right)
    if function is operator.or_ and base is dict and other in DICT_TYPES:
        right = joined_to_dict(whole, other_side, right)
    if function is operator.mul and (numbers := progressions.repeated(t, left, right)) is not None:
        return numbers
    if not is_fake(left) and not is_fake(right):
        right, left = concrete(right), concrete(left)
    if function is operator.mod and is_text(left):
        return t.call(str.__mod__, (left, right), {})
    if not _copies_items(function, left, right):
        t.refuse_opaque(left, right)
    if function is operator.iadd and base in (list, collections.deque):
        right = (t.listed if base is list else t.iterable)(right.copy() if right is left else other_side)
    if is_numpy_scalar(left) or is_numpy_scalar(right):
        return computed_by_numpy(t, function, (left, right), {})
    made = _named(t, function, (left, right), (whole, other_side))
    return whole if inplace and made is left else made


def _named(t: Tracer, function: Any, operands: tuple[Any, Any], given: tuple[Any, Any]) -> Any:
    """The function of what stands for the values that the program has given, whose classes its complaint names."""
    t.refuse_beside_tensor(function, given)
    try:
        return t.native(function, *operands)
    except WrongKind as raised:
        mine, names = (" and ".join(f"'{name_of_class(one)}'" for one in pair) for pair in (operands, given))
        if mine not in str(raised.error) or mine == names:
            raise
        raise Raised(TypeError(str(raised.error).replace(mine, names))) from None


# Dicts of other classes are joined to one of the left one's class.
_JOINED = (list, set, dict)
_COPYING = frozenset((operator.add, operator.iadd, operator.mul, operator.imul))
_IN_ORDER = frozenset((list, tuple, collections.deque))


def _copies_items(function: Any, left: Any, right: Any) -> bool:
    """Whether the operator, written in C, looks at no item of these: lists that are joined or repeated."""
    classes = {type(left), type(right)}
    return function in _COPYING and classes <= {int, *_IN_ORDER} and not classes.isdisjoint(_IN_ORDER)


def in_turn(
    t: Tracer, symbol: str, left: Any, right: Any, methods: list[tuple[Any, Any, Any]], names: tuple[str, str]
) -> Any:
    """The call that asks these (method, object, other), then those of the names that are written in C.

    Methods of what stands for an array are none of the array's: code behind a break must not have them.
    """
    if is_array(left) or is_array(right):
        found = (t.call(method, (obj, other), {}) for method, obj, other in methods)
        for result in found:
            if result is not NotImplemented:
                return result
        raise GraphBreak("tensor-error", f"{symbol} of an array, which does not know the other operand")
    if is_numpy_scalar(left):  # which may become a number, or the object an array, before the object is asked
        raise GraphBreak("unknown-call", f"{symbol} of a NumPy scalar and an object with methods of its own")
    for obj, name, other in ((left, names[0], right), (right, names[1], left)):
        method = getattr(type(obj), name) if has_method(type(obj), name) else None  # `type` has some for classes
        if method is not None and not is_function(method):
            if getattr(method, "__objclass__", None) is not object:
                methods.append((method, obj, other))
    return TailCall(polyfills.computed, (symbol, left, right, *methods))


def ordered_methods(
    t: Tracer, left: Any, right: Any, direct: str, reflected: str, comparing: bool = False
) -> list[tuple[Any, Any, Any]]:
    """Python-level methods in the order Python tries them: the reflected one of a subclass goes first, of an arithmetic
    operator only if it is the subclass' own. Only comparisons ask two objects of the same class both."""
    own = python_method(t, left, direct)
    other = python_method(t, right, reflected)
    found = [(own, left, right)] if own is not None else []
    if other is not None and (comparing or type(left) is not type(right)):
        overrides = comparing or other is not python_method(t, left, reflected)
        found.insert(0 if overrides and _is_of_subclass(right, left) else len(found), (other, right, left))
    return found


def _is_of_subclass(value: Any, other: Any) -> bool:
    """Whether the value's class derives from the other's, and so is asked first."""
    return type(other) in type(value).__mro__[1:]


@ending
def unary(t: Tracer, name: str, value: Any) -> Any:
    special, function = UNARY[name]
    method = python_method(t, value, special)
    if method is not None:
        return TailCall(method, (value,))
    value = t.internalize(t.world.whole(value))  # a `Counter`
    t.refuse_opaque(value)
    return t.native(function, *within_domain(t, name, value))  # type: ignore[arg-type]


# ---- comparison
@ending
def compare(t: Tracer, symbol: str, left: Any, right: Any) -> Any:
    """left <symbol> right for the six comparisons."""
    name, reflected, function = COMPARE[symbol]
    left, right = _operands(t, symbol, left, right)
    if _is_plain(left) and _is_plain(right):
        given = known_to_c(t, left, right) if complex in (type(left), type(right)) else (left, right)
        return t.native(function, *within_domain(t, symbol, *given))
    if symbol == "!=":
        methods = [(method, a, b) for a, b in _by_rank(left, right) if (method := _differs(t, a)) is not None]
    else:
        methods = ordered_methods(t, left, right, f"__{name}__", f"__{reflected}__", comparing=True)
    if methods:
        return in_turn(t, symbol, left, right, methods, (f"__{name}__", f"__{reflected}__"))
    if symbol in ("==", "!="):
        if by_identity(left) and by_identity(right):
            return identical(t, left, right) is (symbol == "==")
        if type(left) is type(right) and (alike := _ALIKE.of(left)) is not None:
            return alike(t, symbol, left, right)
    given = left, right
    left, right = known_to_c(t, t.internalize(t.world.whole(left)), t.internalize(t.world.whole(right)))
    if (alike := alike_when_run(t, symbol, left, right)) is not None:
        return alike
    for value in (left, right):
        t.world.pin(value)
    t.refuse_opaque(left, right, compared="==" if symbol in ("==", "!=") else "<")
    return _named(t, function, (left, right), given)


def known_to_c(t: Tracer, *operands: Any) -> Any:
    """Operands of a comparison: beside numbers of other classes (an enum's, decimals) numbers that vary are concrete, as
    those know no symbols."""
    parts = list(leaves(*operands))
    if any(map(is_symbolic, parts)):  # functions equal no number
        if not all(_is_real(part) or is_function(part) or is_builtin(part) or by_identity(part) for part in parts):
            return map(t.concrete_tree, operands)
    return operands


def _references_alike(t: Tracer, symbol: str, left: Any, right: Any) -> Any:
    """Of weak references: as what they lead to, if that is alive."""
    objects = [t.call(one, (), {}) for one in (left, right)]
    if any(one is None for one in objects):
        return identical(t, left, right) is (symbol == "==")
    return compare(t, symbol, *objects)


def _bound_alike(t: Tracer, symbol: str, left: Any, right: Any) -> bool:
    """Of two methods of objects: the same function, of one object."""
    what = "__func__" if is_method(left) else "__name__"
    same = compare(t, "==", t.get_attr(left, what), t.get_attr(right, what))
    if same is not True and same is not False:
        raise GraphBreak("unknown-call", "a comparison of methods that are no functions")
    same = same and identical(t, t.get_attr(left, "__self__"), t.get_attr(right, "__self__"))
    return same is (symbol == "==")


# Equality of two values of one class by what they lead to.
_ALIKE: ByKind[Callable[..., Any] | None] = ByKind(
    None,
    {
        **dict.fromkeys((types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType), _bound_alike),
        weakref.ref: _references_alike,
    },
)


def by_identity(value: Any) -> bool:
    """Whether the object's class leaves comparison to `object`."""
    cls: Any = type(value)
    return cls.__eq__ is object.__eq__ and cls.__ne__ is object.__ne__ and not is_function(value)


def _by_rank(left: Any, right: Any) -> list[tuple[Any, Any]]:
    """Who is asked first by a comparison."""
    pairs = [(left, right), (right, left)]
    return pairs[::-1] if _is_of_subclass(right, left) else pairs


def _differs(t: Tracer, obj: Any) -> Any:
    """The `__ne__` of the object; that of `object` asks its `__eq__`."""
    cls: Any = type(obj)
    derived = cls.__ne__ is object.__ne__ and python_method(t, obj, "__eq__") is not None
    return t.world.hold(polyfills.differs, "differs") if derived else python_method(t, obj, "__ne__")


def identical(t: Tracer, left: Any, right: Any) -> bool:
    """`left is right`; a container from outside and its adopted copy are one object, and so are a bound method's makers."""
    left, right = t.world.resolve(left), t.world.resolve(right)
    if type(left) is type(right) is weakref.ref:
        t.world.guard_references(left, right)
    if t.world.guard_which(left, right):
        return True
    kinds = {plain_class(left), plain_class(right)}
    if len(kinds) == 1 or object in kinds and type(None) not in kinds:  # else numbers that vary are not what it is
        left, right = concrete(left), concrete(right)
    if left is right:
        return True
    if is_fake(left) and is_fake(right):
        stand_ins.check_identity(t, left, right)
    if all(issubclass(type(one), torch.autograd.graph.Node) for one in (left, right)):
        raise GraphBreak("data-dependent", "whether two functions of autograd's graph are one")
    t.world.guard_distinct(left, right)
    if {type(left), type(right)} == {tuple} and t.world.is_foreign(left) and t.world.is_foreign(right):
        return t.world.source_of(left) == t.world.source_of(right)
    return False


def found_by_identity(t: Tracer, left: Any, right: Any) -> bool:
    """`left is right`, asked before `left == right`, which says the same of what is told by its value."""
    return not (is_told_by_value(left) and is_told_by_value(right)) and identical(t, left, right)


# ---- truth
def _tensor_truth(t: Tracer, value: FakeTensor) -> Any:
    refuse_patched(t, "__bool__")
    if t.recorder.elements.constants.of(value) is not None:
        return t.native(bool, value)
    if (number := t.recorder.elements.number(value)) is not None:
        return truth(t, number)
    raise GraphBreak("data-dependent", "a branch on the value of a tensor")


def _container_truth(t: Tracer, value: Any) -> Any:
    value = t.world.resolve(value)
    return length(t, value) != 0 if t.world.needs_guards(value) else bool(value)


def _object_truth(t: Tracer, value: Any) -> Any:
    if is_array(value):
        number = plain_number(value)
        return truth(t, value.tensor if number is value else number)
    value = t.world.resolve(value)
    if (method := python_method(t, value, "__bool__")) is not None:
        return TailCall(polyfills.checked, (bool, "__bool__ should return bool, returned {}", method, value))
    refuse_none(t, value, "__bool__")
    if (method := python_method(t, value, "__len__")) is not None:
        return TailCall(polyfills.is_not_empty, (method, value))
    refuse_none(t, value, "__len__")
    if t.world.is_foreign(value) and not (is_class(value) or is_function(value)):
        if has_method(type(value), "__bool__"):
            raise GraphBreak("unknown-object", f"the truth of a {type(value).__name__} from outside")
        if has_method(type(value), "__len__"):
            return length(t, value) != 0
    return bool(t.native(bool, value))


_truth = by_kind(
    _object_truth,
    {
        **dict.fromkeys((*_PLAIN, tuple, frozenset, range, torch.Size), lambda t, value: bool(value)),
        **dict.fromkeys(MUTABLE_CONTAINERS, _container_truth),
        **dict.fromkeys((bool, torch.SymBool), lambda t, value: value),
        **dict.fromkeys((torch.SymInt, torch.SymFloat), lambda t, value: value != 0),
        FakeTensor: _tensor_truth,
    },
    place=1,
)
truth = ending(_truth)  # bool(value), or a SymBool


def negation(t: Tracer, value: Any, linked: bool = False) -> Any:
    result = truth(t, value, linked=linked)
    return torch.sym_not(result) if is_symbolic(result) else not result  # type: ignore[no-untyped-call]


@ending
def length(t: Tracer, value: Any) -> Any:
    """len(value)"""
    if is_fake(value):
        refuse_patched(t, "__len__")
        if value.dim() == 0:
            raise Raised(TypeError("len() of a 0-d tensor"))
        return value.size_[0]
    value = t.world.resolve(value)
    method = python_method(t, value, "__len__")
    if method is not None:
        return TailCall(method, (value,)) if is_array(value) else TailCall(polyfills.length, (method, value))
    return _length_outside(t, value) if t.world.needs_guards(value) else t.native(BUILTINS.len, value)


def _length_outside(t: Tracer, value: Any) -> Any:
    added = (world := t.world).unread_additions(value)
    if added is None and (held_here := world.changed_contents(value)) is not None:
        return len(held_here)
    if added is None and world.has_changes(value):
        return len(world.adopt(value))
    source = world.place_of(value)
    if not is_mutable_container(value) and not issubclass(type(value), _COUNTED):
        raise GraphBreak("unknown-object", f"len() of a {type(value).__name__} from outside")
    world.note_asked(value, len(value))
    if is_mutable_container(value) and world.inputs.policy.length(source, len(value)):
        world.inputs.policy.note_varies(LengthSource(source), int)
        return at_most(world, value, world.bring(len(value), LengthSource(source)) + (added or 0))
    world.guard(source, Kind.LENGTH, len(value))
    return at_most(world, value, len(value) + (added or 0))


_COUNTED: tuple[Any, ...] = (list, dict, set, collections.deque, tuple, str, types.MappingProxyType, *DICT_VIEWS)
