"""Text of values, conversions between numbers, and the operator module.

Holds:  special methods written in Python run in the interpreter; text of a number that varies is a `Text`.
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import math
import operator
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.handlers.data_dependent import element, in_message, to_float, to_int
from pliant.capture.handlers.table import Rows, spread
from pliant.capture.numbers.array_memory import is_array
from pliant.capture.numbers.number_domains import floor_quotient, is_finite, power_of_zero, within_domain
from pliant.capture.numbers.numpy_scalars import fixed, is_scalar, plain_number, rounded_number, shown_number
from pliant.capture.numbers.varying_text import text_of, text_of_tensor
from pliant.capture.protocols import iteration, operators, polyfills, subscripts
from pliant.capture.protocols.iteration import note_order
from pliant.capture.protocols.tail_calls import TailCall, steps_of
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import has_symbols
from pliant.capture.value_kinds import (
    DICT_VIEWS,
    HOLDS_FUNCTIONS,
    LITERALS,
    ByKind,
    class_in_numpy,
    concrete,
    has_method,
    is_int,
    is_number,
    is_numpy_scalar,
    is_str,
    is_symbolic,
    is_text,
    misused,
    name_of_class,
    plain_class,
    varying,
)
from pliant.capture.varying_values import Text, join
from pliant.graph.fake_tensor import is_fake
from pliant.graph.tensor_spec import certain, product
from pliant.graph.unbacked import is_unbacked, math_function
from pliant.symbolic.rules import floats
from pliant.unpatched import BUILTINS

ROWS = Rows()
handles, takes, TABLE = ROWS.handles, ROWS.takes, ROWS.callables
repr = BUILTINS.repr


# ---- text
def _to_text(function: Any, special: str, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if not args:
        return ""
    value = args[0]
    if (len(args) > 1 or kwargs) and varying(value) is not None:
        return t.native(function, concrete(value), *args[1:], **kwargs)  # which complains
    if is_scalar(value):
        value = shown_number(value) if function is str else fixed(value)
    if is_array(value):
        return _tensor_text(t, value, f"{function.__name__}() of an array", function)
    if is_fake(value):
        return _tensor_text(t, value, f"{function.__name__}() of a tensor")
    if (marked := in_message(t, value, "")) is not None:
        return marked
    method = operators.python_method(t, value, special)
    if method is None and special == "__str__" and type(value).__str__ is object.__str__:  # type: ignore[comparison-overlap]
        method = operators.python_method(t, value, "__repr__")
    if method is not None:
        return TailCall(polyfills.checked, (str, f"{special} returned non-string (type {{}})", method, value))
    if function is str and varying(value) is str:
        return value
    if is_symbolic(value) and (text := text_of(value, "")) is not None:
        return text
    if (text_of_error := _TEXTS_OF_ERRORS.of(value)) is not None:
        return text_of_error(t, function, value)
    note_order(t, value)
    value = t.internalize(value)
    if type(value) in DICT_VIEWS:
        t.refuse_opaque(value)  # of a dict from outside
    if type(value) is types.MappingProxyType:
        shown = t.call(function, (*gc.get_referents(value), *args[1:]), kwargs)
        return shown if function is str else join("", ("mappingproxy(", shown, ")"))
    if not t.world.is_opaque(value):
        value = _COPIES.get(type(value).__repr__, lambda it: it)(value)
    if len(args) == 1 and (named := _NAMED.get(type(value))) is not None:
        return TailCall(named, (value,))
    if len(args) == 1 and not LITERALS.issuperset(map(type, _shown(value) or ())):
        return _container_text(t, value)
    value = t.concrete_tree(value)
    t.refuse_opaque(value)
    _refuse_address(value)
    return t.native(function, value, *args[1:], **kwargs)


def text_by_name(t: Tracer, receiver: Any, name: str, args: Args, owner: type) -> Any:
    """`__repr__`, `__str__` or `__format__` of the class `owner`, which is written in C, called by name: what the function
    shows that asks for it; NotImplemented where that asks the program's class."""
    if owner is object and name != "__repr__":
        shown_by = str if name == "__format__" else repr
        return t.call(shown_by, (receiver,), {}) if args in ((), ("",)) else NotImplemented
    if name == "__format__" and owner in _SHOWN_BY_STR and args in ((), ("",)) and type(receiver) is not owner:
        return t.call(str, (receiver,), {})
    if name != "__repr__":
        return NotImplemented
    if owner is object and type(receiver).__repr__ is not object.__repr__:  # type: ignore[comparison-overlap]
        raise GraphBreak("unknown-call", "a text that shows an address")
    if type(receiver) is owner:
        return t.call(repr, (receiver,), {})
    if owner.__repr__ in _COPIES and not t.world.is_opaque(receiver):
        return t.call(repr, (_COPIES[owner.__repr__](receiver),), {})
    if owner in _BRACKETS and any(map(is_symbolic, owner.__iter__(receiver))) or owner in _NAMED:  # type: ignore[attr-defined]
        raise GraphBreak("unknown-call", f"the text of a {type(receiver).__name__}")
    return NotImplemented


_SHOWN_BY_STR = (str, int, float, complex)  # with no specification, of another class


def _copied_of_class(cls: Any, items: Callable[[Any], Any], value: Any) -> Any:
    return value if type(value) is cls else cls(items(value))


# What shows no name of a class: how it shows an instance of a subclass, too.
_COPIES: dict[Any, Callable[[Any], Any]] = {
    cls.__repr__: functools.partial(_copied_of_class, cls, items)
    for cls, items in ((list, list.__iter__), (tuple, tuple.__iter__), (dict, dict.items))
}


def _tensor_text(t: Tracer, value: Any, what: str, shown: Any = str, spec: Any = "") -> Text:
    """What a tensor or an array shows once the graph has run; of one with a gradient it names an operator of autograd. `shown`:
    `format` shows the number alone of one without dimensions, `str` does not."""
    tensor = value.tensor if is_array(value) else value
    if tensor.__class__ is not torch.Tensor or tensor.requires_grad or spec or t.recorder.region is not None:
        raise GraphBreak("data-dependent", what)
    return text_of_tensor(t.native(torch.clone, tensor), shown, is_array(value))


_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    torch.Size: ("torch.Size([", "])"),
    dict: ("{", "}"),
    set: ("{", "}"),
    collections.deque: ("deque([", "])"),
    type({}.keys()): ("dict_keys([", "])"),
    type({}.values()): ("dict_values([", "])"),
    type({}.items()): ("dict_items([", "])"),
}


def _shown(value: Any) -> Iterable[Any] | None:
    """What a container shows in its brackets; None of what is no such container."""
    pairs = _PAIRS.of(value)(value)
    return value if pairs is None and type(value) in _BRACKETS else pairs and itertools.chain(*pairs)


def _container_text(t: Tracer, value: Any) -> str:
    """Containers show their elements by `repr`, which may be the program's."""

    def text(item: Any) -> str:
        if item is value:
            raise GraphBreak("unknown-object", "text of a container that holds itself")
        return t.call(repr, (item,), {})  # type: ignore[no-any-return]

    left, right = _BRACKETS[type(value)]
    right = _ENDS.of(value)(value) or right
    pairs = _PAIRS.of(value)(value)
    texts = [text(v) for v in value] if pairs is None else [join(": ", [text(k), text(v)]) for k, v in pairs]
    return left + join(", ", texts) + right  # type: ignore[no-any-return]


_PAIRS: ByKind[Callable[[Any], Any]] = ByKind(lambda value: None, {dict: dict.items})
_ENDS: ByKind[Callable[[Any], str | None]] = ByKind(
    lambda value: None,
    {
        tuple: lambda value: ",)" if len(value) == 1 else None,
        collections.deque: lambda value: None if value.maxlen is None else f"], maxlen={value.maxlen})",
    },
)


# What is written in C and shows what it holds behind its name.
_NAMED: dict[type, Callable[[Any], str]] = {
    collections.OrderedDict: polyfills.text_of_ordered_dict,
    collections.defaultdict: polyfills.text_of_default_dict,
    collections.Counter: collections.Counter.__repr__,  # written in Python
    functools.partial: polyfills.text_of_partial,
    types.SimpleNamespace: polyfills.text_of_namespace,
    types.MethodType: polyfills.text_of_method,
    slice: polyfills.text_of_slice,
}


def _exception_text(t: Tracer, function: Any, error: BaseException) -> Any:
    """What most exceptions show: their arguments."""
    arguments = t.get_attr(error, "args")
    if function is str:
        shown_by = repr if len(arguments) == 1 and isinstance(error, KeyError) else str
        return t.call(shown_by, arguments if len(arguments) == 1 else (arguments,), {}) if arguments else ""
    parts = [t.call(repr, (one,), {}) for one in arguments]
    return join("", [type(error).__name__, "(", join(", ", parts), ")"])


_TEXTS_OF_ERRORS: ByKind[Callable[..., Any] | None] = ByKind(
    None,
    families={
        BaseException: _exception_text,
        **dict.fromkeys((OSError, ImportError, SyntaxError, UnicodeError, BaseExceptionGroup)),  # not from `args` alone
    },
)
# Methods written in C show the address of their object.
_OF_AN_OBJECT = (types.BuiltinMethodType, types.MethodWrapperType)


def _refuse_address(value: Any) -> None:
    """Texts that contain an address differ from eager's when the object is made anew."""
    plain = type(value).__repr__ is object.__repr__ and type(value).__str__ is object.__str__  # type: ignore[comparison-overlap]
    if plain or type(value) in _OF_AN_OBJECT and not HOLDS_FUNCTIONS.of(value.__self__):
        raise GraphBreak("unknown-call", f"text of a {type(value).__name__}, which contains its address")


ROWS.each((str,), _to_text, "__str__")
ROWS.each((repr,), _to_text, "__repr__")


@takes(BUILTINS.ascii)
def _ascii(t: Tracer, value: Any) -> str:
    text: str = concrete(t.call(repr, (value,), {}))
    if str.isascii(text):
        return text
    return str.encode(text, "ascii", "backslashreplace").decode()


@takes(BUILTINS.format)
def _format(t: Tracer, value: Any, spec: Any = "") -> Any:
    if (marked := in_message(t, value, spec)) is not None:
        return marked
    if not is_text(spec):
        return t.native(BUILTINS.format, "", spec)  # which complains
    if is_scalar(value):
        value = shown_number(value)
    if is_array(value):
        if value.tensor.dim() or not t.mode.allow_unbacked:
            return _tensor_text(t, value, "formatting an array", format, spec)
        value = value.tensor
    if is_numpy_scalar(value):
        return t.native(BUILTINS.format, value, concrete(spec))
    if is_fake(value):
        if value.size_ or value.__class__ is not torch.Tensor or not t.mode.allow_unbacked:
            return _tensor_text(t, value, "formatting a tensor", format, spec)
        value = element(t, value)
        if is_symbolic(value) and (marked := in_message(t, value, spec)) is not None:
            return marked
    if varying(value) is str and is_str(spec) and not spec:
        return value
    if is_symbolic(value) and (text := text_of(value, spec)) is not None:
        return text
    method = operators.python_method(t, value, "__format__")
    if method is not None:
        return TailCall(polyfills.checked, (str, "__format__ must return a str, not {}", method, value, spec))
    if not spec and plain_class(value) not in LITERALS:  # a number's or a text's class may have its own, too
        return TailCall(str, (value,))
    t.refuse_opaque(value)
    return t.native(BUILTINS.format, concrete(value), concrete(spec))


# ---- numbers
def _convert(function: Any, symbolic: Any, specials: tuple[str, ...], t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and is_array(args[0]):
        number = plain_number(args[0])
        if number is args[0] and number.tensor.dim():  # whether NumPy takes one of one element depends on its version
            raise GraphBreak("bad-call", f"{function.__name__} of an array that has dimensions")
        args = (args[0].tensor if number is args[0] else number,)
    if len(args) == 1 and is_fake(args[0]):
        if certain(product(args[0].size_) != 1):  # another error than that of `item`
            raise GraphBreak("bad-call", f"{function.__name__} of what has not one element")
        args = (element(t, args[0]),)
    if args and is_symbolic(args[0]):
        if len(args) > 1 or kwargs:
            return t.native(function, concrete(args[0]), *args[1:], **kwargs)  # which complains
        (number,) = within_domain(t, function.__name__, args[0])
        return symbolic(t, number) if is_symbolic(number) else t.native(function, number)
    if args:
        for special in specials:
            method = operators.python_method(t, args[0], special)
            if method is None and t.world.needs_guards(args[0]):
                operators.refuse_none(t, args[0], special)
            if method is not None and len(args) == 1:
                result = t.call(method, args, {})
                return (
                    symbolic(t, result) if is_symbolic(result) else _checked(t, function, result, special)
                )
            if has_method(plain_class(args[0]), special):
                break  # in C, and no other is asked
        t.refuse_opaque(args[0])
    return t.native(function, *args, **kwargs)


@takes(operator.index)
def _index(t: Tracer, value: Any) -> Any:
    number = subscripts.as_index(t, value)
    t.refuse_opaque(number)
    return number if varying(number) is int else t.native(operator.index, t.plain(number))


def _checked(t: Tracer, function: Any, result: Any, special: str) -> Any:
    """What a conversion makes of what the object's method gave."""
    if type(result) is not (int if special in ("__int__", "__index__") else function):
        raise GraphBreak("bad-call", f"{special} gives a {type(result).__name__}")
    return t.native(function, result)


ROWS.each((int,), _convert, to_int, ("__int__", "__index__", "__trunc__"))
ROWS.each((float,), _convert, to_float, ("__float__", "__index__"))


_OWN_ROUNDING = {math.floor: "__floor__", math.ceil: "__ceil__", math.trunc: "__trunc__"}


def _of_numbers(t: Tracer, function: Any, args: Args) -> Any:
    """A function of `math` where no argument is symbolic: of the program's objects it takes what they give as a float."""
    special = _OWN_ROUNDING.get(function)
    if special is not None and (method := operators.python_method(t, args[0], special)) is not None:
        return t.call(method, args, {})
    if function is math.trunc:  # which asks for no float
        return t.native(function, *map(concrete, args))
    own = [any(operators.python_method(t, a, name) is not None for name in ("__float__", "__index__")) for a in args]
    given = []
    for value, is_own in zip(args, own, strict=True):
        if not is_own and any(own):
            t.native(math.fabs, concrete(value))  # the first that is no number is complained of, before others are asked
        given.append(t.call(float, (value,), {}) if is_own else concrete(value))
    return t.native(function, *given)


def _symbolic_math(function: Any, symbolic: Any, arity: int, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == arity and not kwargs:
        args = within_domain(t, function.__name__, *args)
        if has_symbols(args) and all(map(is_number, args)):
            return t.native(symbolic, *args)
    if args and not kwargs:
        return _of_numbers(t, function, args)
    return t.native(function, *map(concrete, args), **{name: concrete(value) for name, value in kwargs.items()})


def _still_there(names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Functions of `math` by name, but for those in whose place the program put another of them."""
    found = ((name, getattr(math, name)) for name in names)
    return ((name, function) for name, function in found if getattr(function, "__name__", name) == name)


for _name, _function in _still_there(("floor", "ceil", "trunc")):
    ROWS.each((_function,), _symbolic_math, _function, 1)
_natural_log = functools.partial(_symbolic_math, math.log, math_function("log"), 1)
for _name, _function in _still_there(floats.MATH.keys() - {"log"}):
    ROWS.each((_function,), _symbolic_math, math_function(_name), floats.MATH[_name].arity)


@handles(math.log)
def _log(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """To a base it is a quotient, in Python too."""
    if len(args) == 2 and has_symbols(args):
        return operators.binary(t, "/", *(_natural_log(t, (a,), {}) for a in args))
    return _natural_log(t, args, kwargs)


def _times(function: Any, factor: float, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """A product in Python too, of what it takes for a number."""
    if has_symbols(args):
        return operators.binary(t, "*", t.call(float, args, {}), factor)
    return _of_numbers(t, function, args)


ROWS.each((math.degrees,), _times, 180.0 / math.pi)
ROWS.each((math.radians,), _times, math.pi / 180.0)


@takes(BUILTINS.round)
def _round(t: Tracer, number: Any, ndigits: Any = None) -> Any:
    digits: Args = () if ndigits is None else (ndigits,)
    if not hasattr(class_in_numpy(number) or float, "__round__"):
        raise misused(number, "type {} doesn't define __round__ method")
    method = operators.python_method(t, number, "__round__")
    if method is not None:
        return t.call(method, (number, *digits), {})
    if not digits and (whole := rounded_number(number)) is not None:
        number = whole
    if is_symbolic(number) and not digits:
        return t.native(BUILTINS.round, *within_domain(t, "round", number))
    if varying(number) is float and is_int(ndigits):
        return t.native(BUILTINS.round, number, ndigits)
    return t.native(BUILTINS.round, concrete(number), *(concrete(subscripts.as_index(t, one)) for one in digits))


@takes(BUILTINS.pow)
def _pow(t: Tracer, base: Any, exp: Any, mod: Any = None) -> Any:
    if mod is None:
        return operators.binary(t, "**", base, exp)
    method = operators.python_method(t, base, "__pow__")
    if method is not None:
        return t.call(method, (base, exp, mod), {})
    return t.native(BUILTINS.pow, *map(concrete, (base, exp, mod)))


@handles(math.pow)
def _math_pow(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """Of a positive base, and of zero, it is `**` of floats, which assumes that of numbers that only running the graph tells."""
    if len(args) == 2 and has_symbols(args):
        base, exponent = (t.call(float, (a,), {}) for a in args)
        if is_unbacked(base) or is_unbacked(exponent):
            return operators.binary(t, "**", base, exponent)
        if concrete(operators.truth(t, operators.compare(t, ">", base, 0.0))):
            return operators.binary(t, "**", base, exponent)
        if (power := power_of_zero(base, exponent)) is not None:
            return power
    return _of_numbers(t, math.pow, args)


def _class_of_floats(function: Any, of_tensors: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`math.isnan`: guards tell finite numbers from others, but what only running the graph tells may be any."""
    if len(args) == 1 and is_unbacked(args[0]):
        number = t.call(torch.tensor, args, {"dtype": torch.float64})
        return t.call(torch.Tensor.item, (t.call(of_tensors, (number,), {}),), {})
    if len(args) == 1 and is_finite(args[0]):
        return function is math.isfinite
    return _of_numbers(t, function, args)


for _name in ("isnan", "isinf", "isfinite"):
    ROWS.each((getattr(math, _name),), _class_of_floats, getattr(torch, _name))


@handles(BUILTINS.divmod)
def _divmod(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    left, right = args
    direct, reflected = "__divmod__", "__rdivmod__"
    if methods := operators.ordered_methods(t, left, right, direct, reflected):
        return operators.in_turn(t, "divmod()", left, right, methods, (direct, reflected))
    if any(map(is_fake, args)):
        names = " and ".join(f"'{name_of_class(a)}'" for a in args)
        raise Raised(TypeError(f"unsupported operand type(s) for divmod(): {names}"))
    if (quotient := floor_quotient(*args)) is not None:
        return quotient, operators.binary(t, "%", *args)
    args = within_domain(t, "//", *args)
    if has_symbols(args) and all(is_number(one) or is_numpy_scalar(one) or is_array(one) for one in args):
        return operators.binary(t, "//", *args), operators.binary(t, "%", *args)
    t.refuse_opaque(*args)
    return t.native(BUILTINS.divmod, *args)


def _abs(t: Tracer, value: Any) -> Any:
    method = operators.python_method(t, value, "__abs__")
    return TailCall(method, (value,)) if method is not None else t.native(BUILTINS.abs, value)


# ---- the operator module goes through our protocols
def _concatenated(t: Tracer, symbol: str, left: Any, right: Any) -> Any:
    if not has_method(type(left), "__getitem__"):
        raise GraphBreak("bad-call", "what is concatenated is no sequence")
    return operators.binary(t, symbol, left, right)


TABLE |= {function: spread(operators.binary, symbol) for symbol, (_, function, _) in operators.BINARY.items()}
TABLE |= {function: spread(operators.binary, symbol + "=") for symbol, (_, _, function) in operators.BINARY.items()}
TABLE |= {function: spread(operators.compare, symbol) for symbol, (_, _, function) in operators.COMPARE.items()}
TABLE |= {function: spread(operators.unary, name) for name, (_, function) in operators.UNARY.items()}
TABLE |= {
    BUILTINS.abs: spread(_abs),
    operator.getitem: spread(subscripts.subscript),
    operator.setitem: spread(subscripts.store_subscript),
    operator.concat: spread(_concatenated, "+"),
    operator.iconcat: spread(_concatenated, "+="),
    operator.delitem: spread(subscripts.delete_subscript),
    operator.contains: spread(iteration.contains),
    operator.truth: spread(steps_of(operators.truth)),
    operator.not_: spread(operators.negation),
    operator.is_: spread(operators.identical),
    polyfills.is_one: spread(operators.found_by_identity),
    operator.is_not: spread(lambda t, left, right: not operators.identical(t, left, right)),
}
