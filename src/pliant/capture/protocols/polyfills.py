"""Polyfills: what Python's operations do with the methods that they enter, spelled out in Python.

In:     the methods that CPython would call, as the tracer has looked them up, and the operands.
Out:    the operation's result, or its exception.
Holds:  the only text of these rules: every trace interprets it, and a graph break in a method can cut the frames here; code
        behind a break is run by CPython too. Nothing here is a frame of the program: tracebacks and `stacklevel` leave these out.
Source: `Objects/typeobject.c`, `Objects/abstract.c`; the data model in Python's reference.
"""

from __future__ import annotations

import _string  # type: ignore[import-not-found]
import operator
import sys
from collections.abc import Callable, Generator
from typing import Any

from pliant.capture.signatures import Args, Kwargs
from pliant.capture.value_kinds import name_of_class
from pliant.dispatch.own_frames import OWN_FILES
from pliant.unpatched import BUILTINS

OWN_FILES.add(__file__)
__builtins__ = vars(BUILTINS)  # type: ignore[assignment]  # of the functions below, also where CPython runs them
Method = Callable[..., Any]


# ---- classes
def instance(new: Method, cls: type, args: Args, kwargs: Kwargs) -> Any:
    """type.__call__ of a class whose `__new__` is written in Python."""
    obj = new(cls, *args, **kwargs)
    if is_object_of(obj, cls):
        init: Any = type(obj).__init__
        if init is not object.__init__ and (init is not type.__init__ or len(args) != 3):  # neither does anything
            return initialized(init, obj, args, kwargs)
    return obj


def is_object_of(obj: Any, cls: type) -> bool:
    """Whether the class of an object derives from another, whatever these say when they are asked."""
    return type.__subclasscheck__(cls, type(obj))


def initialized(init: Method, obj: Any, args: Args, kwargs: Kwargs) -> Any:
    """The rest of type.__call__."""
    result = init(obj, *args, **kwargs)
    if result is not None:
        raise TypeError(f"__init__() should return None, not '{name_of_class(result)}'")
    return obj


def named(method: Method, args: Args, told: str) -> None:
    """The `__set_name__` of what a new class has."""
    try:
        method(*args)
    except Exception as error:
        if sys.version_info < (3, 12):
            raise RuntimeError(told) from error
        error.add_note(told)
        raise


# ---- attributes
def attribute(find: Method, args: tuple[Any, ...], fallback: Method, obj: Any, name: str) -> Any:
    """`find(*args)`, and on AttributeError the `__getattr__` of the object's class."""
    try:
        return find(*args)
    except AttributeError:
        pass
    return fallback(obj, name)


def attribute_of(find: Method, args: tuple[Any, ...], obj: Any, name: str) -> Any:
    """getattr(obj, name), whose error says what was asked"""
    try:
        return find(*args)
    except AttributeError as error:
        if error.name is None and error.obj is None:
            error.name, error.obj = name, obj
        raise


def attribute_or(find: Method, args: tuple[Any, ...], default: Any) -> Any:
    """getattr(obj, name, default)"""
    try:
        return find(*args)
    except AttributeError:
        return default


def has_attribute(find: Method, args: tuple[Any, ...]) -> bool:
    """hasattr(obj, name)"""
    try:
        find(*args)
    except AttributeError:
        return False
    return True


def computed_once(function: Method, obj: Any, name: str) -> Any:
    """functools.cached_property.__get__ where the instance has no value yet."""
    value = function(obj)
    obj.__dict__[name] = value
    return value


# ---- truth and length
def checked(wanted: type, complaint: str, method: Method, *args: Any) -> Any:
    """What a special method gives, where it has to be of a class: `__bool__`, `__str__`, `__repr__`, `__format__`."""
    result = method(*args)
    if not isinstance(result, wanted):
        raise TypeError(complaint.replace("{}", name_of_class(result)))
    return result


def length(method: Method, value: Any) -> int:
    """`__len__`"""
    result = method(value)
    if type(result) is not int:
        result = operator.index(result)
    if result < 0:
        raise ValueError("__len__() should return >= 0")
    if result > sys.maxsize:
        raise OverflowError("cannot fit 'int' into an index-sized integer")
    return result


def absent(value: Any, container: str) -> None:
    """`index` of a list or deque that lacks the value."""
    raise ValueError(f"{value!r} is not in {container}")


def hashed(method: Method, value: Any) -> int:
    """`__hash__`"""
    result = method(value)
    if not isinstance(result, int):
        raise TypeError("__hash__ method should return an integer")
    fits = type(result) is int and -sys.maxsize <= result <= sys.maxsize and result != -1
    return result if fits else hash(int(result))


def is_not_empty(method: Method, value: Any) -> bool:
    """The truth of an object that has a `__len__` only."""
    return length(method, value) != 0


def truth_and_value(value: Any) -> tuple[bool, Any]:
    """What `and` and `or` need."""
    return bool(value), value


def contained(method: Method, container: Any, item: Any, wanted: bool) -> bool:
    """`__contains__`"""
    return bool(method(container, item)) is wanted


def contained_by_iteration(container: Any, item: Any, wanted: bool) -> bool:
    """`in` where there is no `__contains__`."""
    for each in container:
        if is_one(each, item) or each == item:
            return wanted
    return not wanted


def is_one(each: Any, item: Any) -> bool:
    """Asked before `==`."""
    return each is item


# ---- operators
def in_turn(methods: tuple[tuple[Method, Any, Any], ...]) -> Any:
    """The result of the first method that implements the operator: each is (method, object, other)."""
    if not methods:
        return NotImplemented
    method, obj, other = methods[0]
    result = method(obj, other)
    return in_turn(methods[1:]) if result is NotImplemented else result


def computed(symbol: str, left: Any, right: Any, *methods: tuple[Method, Any, Any]) -> Any:
    """left <symbol> right, by an operator or a comparison"""
    result = in_turn(methods)
    if result is not NotImplemented:
        return result
    if symbol == "==":
        return left is right
    if symbol == "!=":
        return left is not right
    names = f"'{name_of_class(left)}' and '{name_of_class(right)}'"
    if symbol in ("<", "<=", ">", ">="):
        raise TypeError(f"'{symbol}' not supported between instances of {names}")
    raise TypeError(f"unsupported operand type(s) for {symbol}: {names}")


def differs(obj: Any, other: Any) -> Any:
    """object.__ne__"""
    cls: Any = type(obj)
    result = cls.__eq__(obj, other)
    return result if result is NotImplemented else not result


# ---- iteration
def iterator(method: Method, value: Any) -> Any:
    """`__iter__`"""
    result = method(value)
    if not hasattr(type(result), "__next__"):
        raise TypeError(f"iter() returned non-iterator of type '{name_of_class(result)}'")
    return result


def each_item(iterator: Any) -> Generator[Any, None, None]:
    """The items of an iterator written in Python, for C code."""
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item


def items_by_index(value: Any) -> Generator[Any, None, None]:
    """iter(value) of a class that has items and no `__iter__`."""
    index = 0
    while True:
        try:
            item = value[index]
        except (IndexError, StopIteration):
            return
        yield item
        index += 1


def step(iterator: Any) -> tuple[Any, Any]:
    """`next` in a loop: the item and the iterator."""
    return next(iterator), iterator


def step_or(iterator: Any, default: Any) -> Any:
    """next(iterator, default)"""
    try:
        return next(iterator)
    except StopIteration:
        return default


def revived(state: Any) -> Generator[Any, Any, Any]:
    """A generator of the program behind a break: `state` advances it, compiled code too."""
    value = None
    while True:
        try:
            given = yield value
            step = state.send
        except BaseException as error:
            here = error.__traceback__
            given = error.with_traceback(here and here.tb_next)
            step = state.throw
            del here
        value = None
        try:
            value = step(given)
        except StopIteration as stop:
            return stop.value
        finally:
            del given, step


def all_items(items: Any) -> list[Any]:
    """list(items)"""
    found = []
    for item in items:
        found.append(item)
    return found


def listed_items(items: Any) -> list[Any]:
    """The same of what says beforehand how many they will be, by methods of the program's."""
    iterator = iter(items)
    operator.length_hint(items)
    return all_items(each_item(iterator))


def first_and_others(items: Any, count: int) -> list[Any]:
    """What unpacking into `count` names and a list of the others reads."""
    iterator = iter(items)
    found: list[Any] = []
    while len(found) < count:
        try:
            found.append(next(iterator))
        except StopIteration:
            return found
    return [*found, *iterator]


def made_of(function: Method, items: Any, *args: Any, **kwargs: Any) -> Any:
    """A function that takes all items before it does anything."""
    return function(all_items(items), *args, **kwargs)


def made_of_listed(function: Method, items: Any, *args: Any, **kwargs: Any) -> Any:
    """The same of one that makes a list of them."""
    return function(listed_items(items), *args, **kwargs)


def first_items(items: Any, count: int) -> list[Any]:
    """What unpacking into `count` names reads."""
    found: list[Any] = []
    for item in items:
        found.append(item)
        if len(found) > count:
            break
    return found


def added(items: Any, start: Any) -> Any:
    """sum(items, start): plain numbers are added by a rule of their own, until something else comes."""
    total, numbers, is_plain = start, [], type(start) in (int, float, bool)
    for item in items:
        is_plain = is_plain and type(item) in (int, float, bool)
        if is_plain:
            numbers.append(item)
        elif numbers:
            total = sum(numbers, total) + item
            numbers = []
        else:
            total = total + item
    return sum(numbers, total) if numbers else total


def multiplied(items: Any, /, *, start: Any = 1) -> Any:
    """math.prod(items, start=start)"""
    for item in items:
        start = start * item
    return start


def reduced(function: Method, items: Any, /, *initial: Any) -> Any:
    """functools.reduce(function, items, *initial)"""
    total: tuple[Any, ...] = initial
    try:
        steps = iter(items)
    except TypeError:
        steps = None
    if steps is None:
        raise TypeError("reduce() arg 2 must support iteration")
    for item in steps:
        total = (function(total[0], item),) if total else (item,)
    if not total:
        raise TypeError("reduce() of empty iterable with no initial value")
    return total[0]


def better_of(is_better: Method, best: Any, value: Any) -> Any:
    """max(best, value) or min"""
    if is_better(value, best):
        return value
    return best


def best_in_turn(function: Method, is_better: Method, items: Any, key: Method | None, otherwise: dict[str, Any]) -> Any:
    """max(items, key=key, **otherwise) or min: nothing is taken behind an item that cannot be compared"""
    found: tuple[Any, ...] = ()
    for item in items:
        if key is None:
            found = (function(found[0], item),) if found else (item,)
        elif not found:
            found = (item, key(item))
        else:
            rank = key(item)
            if is_better(rank, found[1]):
                found = (item, rank)
    return found[0] if found else function((), **otherwise)


def order(one: Any, other: Any) -> int:
    """Negative where the one comes first: sorting asks for nothing else."""
    return -1 if one < other else 0


def any_true(items: Any, /) -> bool:
    """any(items)"""
    for item in items:  # noqa: SIM110  # a generator would be between
        if item:
            return True
    return False


def all_true(items: Any, /) -> bool:
    """all(items)"""
    for item in items:  # noqa: SIM110
        if not item:
            return False
    return True


# ---- `with`
def entered(enter: Method, leave: Method) -> tuple[Any, Any]:
    """The value of `__enter__`, and `__exit__`."""
    return enter(), leave


# ---- texts
def text_of_ordered_dict(value: Any) -> str:
    inside = dict(value) if sys.version_info >= (3, 12) else list(value.items())
    return f"OrderedDict({inside!r})" if value else "OrderedDict()"


def text_of_default_dict(value: Any) -> str:
    inside = repr(dict(value))  # asked first
    return f"defaultdict({value.default_factory!r}, {inside})"


def text_of_partial(value: Any) -> str:
    given = [*map(repr, value.args), *keywords(value.keywords)]  # asked before the function
    return f"functools.partial({', '.join([repr(value.func), *given])})"


def text_of_namespace(value: Any) -> str:
    return f"namespace({', '.join(keywords(value.__dict__))})"


def text_of_slice(value: Any) -> str:
    return f"slice({value.start!r}, {value.stop!r}, {value.step!r})"


def keywords(values: dict[str, Any]) -> list[str]:
    return [f"{name}={value!r}" for name, value in values.items()]


def text_of_method(value: Any) -> str:
    name = getattr(value.__func__, "__qualname__", getattr(value.__func__, "__name__", "?"))
    return f"<bound method {name if isinstance(name, str) else '?'} of {value.__self__!r}>"


def formatted(pattern: str, args: Args, kwargs: Kwargs) -> str:
    """pattern.format(*args, **kwargs)"""
    return filled(pattern, args, kwargs, None, 2)[0]


def formatted_by_map(pattern: str, mapping: Any, /) -> str:
    """pattern.format_map(mapping)"""
    return filled(pattern, None, mapping, None, 2)[0]


def filled(pattern: str, args: Args | None, kwargs: Kwargs, following: int | None, depth: int) -> tuple[str, int | None]:
    """The pattern with its fields filled in, and the place of the argument for the next field without a name: -1 once a
    field has named a place."""
    if depth == 0:
        raise ValueError("Max string recursion exceeded")
    pieces = []
    for text, name, spec, conversion in list(_string.formatter_parser(pattern)):
        pieces.append(text)
        if name is None:
            continue
        first, rest = _string.formatter_field_name_split(name)
        place = first if isinstance(first, int) else None
        if first == "":
            if following == -1:
                raise ValueError("cannot switch from manual field specification to automatic field numbering")
            place = following or 0
            following = place + 1
        elif place is not None:
            if following is not None and following >= 0:
                raise ValueError("cannot switch from automatic field numbering to manual field specification")
            following = -1
        if place is None:
            value = kwargs[first]
        elif args is None:
            raise ValueError("Format string contains positional fields")
        elif place >= len(args):
            raise IndexError(f"Replacement index {place} out of range for positional args tuple")
        else:
            value = args[place]
        for is_attribute, key in list(rest):
            value = getattr(value, key) if is_attribute else value[key]
        if conversion is not None:
            if conversion not in _CONVERSIONS:
                raise ValueError(f"Unknown conversion specifier {conversion!s}")
            value = _CONVERSIONS[conversion](value)
        if "{" in spec:
            spec, following = filled(spec, args, kwargs, following, depth - 1)
        pieces.append(format(value, spec))
    return "".join(pieces), following


_CONVERSIONS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}


# ---- frames
def looked(function: Method, *args: Any, **kwargs: Any) -> Any:
    """What looks at the frames around this one, which are the program's."""
    return function(*args, **kwargs)


# The code whose rest may enter functions of the program again.
_GO_ON = (
    instance, attribute, in_turn, all_items, listed_items, made_of, made_of_listed, first_items, first_and_others, added,
    multiplied, reduced, best_in_turn, any_true, all_true, filled,
)
GO_ON = frozenset(function.__code__ for function in _GO_ON)
