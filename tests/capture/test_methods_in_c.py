"""Methods written in C, bound to objects from outside: what they do depends on their objects at each call."""

import array
import collections
import decimal
import functools
import io
import itertools
import threading
import types

import pytest
import torch

import pliant


class Base(list):
    def __len__(self):
        return 100 + super().__len__()


class Derived(Base):
    def pop(self):
        return "the derived one's"


class Table(dict): ...


class Fields:
    v = 1
    doubled = property(lambda self: self.v * 2)


@types.coroutine
def waiting():
    yield 1
    yield 2


async def coroutine():
    await waiting()


def methods():
    """Rows of: name, what makes a method, its arguments, and what changes its object between two calls."""
    items, derived, table, fields, local = [1, 2], Derived([1, 2, 3, 4, 5]), Table(a=1), Fields(), threading.local()
    local.v = 1
    space, view, letters = types.SimpleNamespace(v=1), {"a": 1}, io.StringIO("abcdefg")
    function = lambda: None
    function.v = 1

    def grow(of):
        return lambda: setattr(of, "v", of.v + 1)

    def fill(of):
        return lambda: of.update(a=of["a"] + 1, **{f"k{len(of)}": 1})

    yield "count", itertools.count().__next__, (), None
    yield "list iterator", iter([1, 2, 3, 4, 5, 6]).__next__, (), None
    yield "map", map(str, range(9)).__next__, (), None
    yield "zip", zip(range(9)).__next__, (), None
    yield "generator", (i for i in range(9)).send, (None,), None
    yield "coroutine", coroutine().send, (None,), None
    yield "lines", io.StringIO("1\n2\n3\n4\n").__next__, (), None
    yield "read", letters.read, (1,), None
    yield "list", items.pop, (), lambda: items.append(len(items))
    yield "derived", derived.__len__, (), lambda: derived.append(1)
    yield "of the base", super(Base, derived).__len__, (), lambda: derived.append(1)
    yield "hidden", super(Base, derived).pop, (), None
    yield "get", table.get, ("a",), fill(table)
    yield "item", table.__getitem__, ("a",), fill(table)
    yield "keys", table.keys, (), fill(table)
    yield "proxy", types.MappingProxyType(table).get, ("a",), fill(table)
    yield "view", view.values().__len__, (), fill(view)
    yield "deque", collections.deque(range(9)).popleft, (), None
    yield "array", array.array("i", range(9)).pop, (), None
    yield "field", fields.__getattribute__, ("v",), grow(fields)
    yield "namespace", space.__repr__, (), grow(space)
    yield "of a thread", local.__getattribute__, ("v",), grow(local)
    yield "of a function", function.__getattribute__, ("v",), grow(function)
    yield "property", Fields.doubled.__get__, (fields,), grow(fields)


def outcomes(function, name):
    found = []
    for row, method, args, change in methods():
        for _ in range(4 if row == name else 0):
            try:
                found.append(str(function(torch.ones(2), method, args)[1]))
            except Exception as error:
                found.append(repr(error))
            if change is not None:
                change()
    return found


def called(x, method, args):
    return x + 1, method(*args)


def called_behind_a_break(x, method, args):
    pliant.graph_break()
    return x + 1, method(*args)


@pytest.mark.parametrize("function", [called, called_behind_a_break])
@pytest.mark.parametrize("name", [row[0] for row in methods()])
@pytest.mark.fallbacks_expected  # of a coroutine's
def test_what_a_method_in_c_does_depends_on_its_object(name, function):
    want = outcomes(function, name)
    assert outcomes(pliant.compile(function, backend="eager"), name) == want


class Passing:
    """Finds attributes where every object has them."""

    def __getattribute__(self, name):
        return super().__getattribute__(name)


READS = [lambda o: o.c, lambda o: getattr(o, "c", 0), lambda o: hasattr(o, "c"), lambda o: dict(vars(o))]


@pytest.mark.parametrize("read", range(len(READS)))
@pytest.mark.parametrize("base", [str, int, float, bytes, tuple, frozenset, list, decimal.Decimal])
def test_attributes_of_values_of_own_classes(base, read):
    one = type("Own", (Passing, base), {})()
    compiled = pliant.compile(lambda x, o: (x + 1, READS[read](o)), backend="eager")
    found = []
    for call in range(4):
        for function in (READS[read], lambda o: compiled(torch.ones(2), o)[1]):
            try:
                found.append(function(one))
            except AttributeError as error:
                found.append(str(error))
        one.c = call // 2
    assert found[::2] == found[1::2]


@pytest.mark.fallbacks_expected
def test_methods_of_arrays_that_are_not_traced_are_called_in_eager():
    numpy = pytest.importorskip("numpy")

    def program(x, array):
        found = []
        try:
            found.append(array.tobytes())
        except AttributeError as error:
            found.append(error)
        return x * 2, found

    def given(x, method):
        return x * 2, method()

    pliant.reset()
    array = numpy.ones(2)
    assert pliant.compile(program, backend="eager")(torch.ones(2), array)[1] == [array.tobytes()]
    assert pliant.compile(given, backend="eager")(torch.ones(2), array.tobytes)[1] == array.tobytes()
    assert all("AttributeError" not in reason for reason in pliant.stats()["fallback_reasons"])
    pliant.reset()


class Owner:
    def __init__(self):
        self.items = [1.0, 2.0]

    def first(self, *_):
        return self.items[0]

    def __call__(self, *_):
        return self.items[0]


# What a class holds under `g`, made of an object whose state changes between two calls.
HELD = {
    "method in C": lambda owner: owner.items.index,
    "method wrapper": lambda owner: owner.items.__getitem__,
    "method": lambda owner: owner.first,
    "static method of one in C": lambda owner: staticmethod(owner.items.index),
    "static method of a method": lambda owner: staticmethod(owner.first),
    "static method of an object": lambda owner: staticmethod(owner),
    "class method of a method": lambda owner: classmethod(owner.first),
    "partial": lambda owner: functools.partial(owner.items.index),
}
PROPERTIES = {
    "property of a method": lambda owner: property(owner.first),
    "property of an object": property,
    "cached property": lambda owner: functools.cached_property(owner.first),
}


@pytest.mark.fallbacks_expected  # what binds again is not traced
@pytest.mark.parametrize("kind", [*HELD, *PROPERTIES])
def test_what_a_class_holds_of_an_object_is_read_at_each_call(kind):
    pliant.reset()
    owner = Owner()
    made = type("Holder", (), {"g": {**HELD, **PROPERTIES}[kind](owner)})
    argument = 0 if kind == "method wrapper" else 1.0

    def program(x, holder):
        found = holder.g
        return x * (found(argument) if kind in HELD else found)

    compiled = pliant.compile(program, backend="eager")
    for items in ([1.0, 2.0], [2.0, 1.0], [3.0, 1.0]):
        owner.items[:] = items
        holders = [made, made] if kind in HELD else [made(), made()]
        assert torch.equal(compiled(torch.ones(2), holders[0]), program(torch.ones(2), holders[1]))


@pytest.mark.fallbacks_expected
def test_a_special_method_of_another_object_is_not_the_objects_own():
    items = [0.0]
    made = type("Place", (), {"__index__": items.__len__})()
    compiled = pliant.compile(lambda x: x * [1.0, 5.0, 6.0][made], backend="eager")
    for count in (1, 2):
        items[:] = [0.0] * count
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2) * [1.0, 5.0, 6.0][count])


def texts(x):
    made = io.StringIO(newline="\r\n")
    made.write("a\nb\n")
    return made, "c\n"


def some_bytes(x):
    made = io.BytesIO(b"abcdef")
    made.read(2)
    return made, b"xy"


def many_bytes(x):
    made = io.BytesIO(b"a" * 3000)
    made.seek(2990)
    return made, b"xy"


@pytest.mark.parametrize("make", [texts, some_bytes, many_bytes])
def test_buffers_go_on_behind_a_break(make):
    def program(x):
        made, more = make(x)
        torch.save(x, io.BytesIO())
        left = made.read(3)
        made.write(more)
        return made, left, made.tell(), made.getvalue()

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for _ in range(2):
        found, wanted = compiled(torch.ones(2)), program(torch.ones(2))
        assert found[1:] == wanted[1:] and type(found[0]) is type(wanted[0])
        assert found[0].getvalue() == wanted[0].getvalue()
    assert pliant.stats()["fallbacks"] == 0


def test_what_is_written_and_read_in_a_buffer_is_a_break_each():
    def program(x):
        buffer = io.BytesIO()
        torch.save({"x": x + 1}, buffer)
        buffer.seek(0)
        return torch.load(buffer)["x"] * 2

    pliant.reset()
    x = torch.ones(2)
    torch.testing.assert_close(pliant.compile(program, backend="eager")(x), program(x))
    assert pliant.stats()["break_reasons"]["side-effect-call"] == 2 and pliant.stats()["graph_breaks"] <= 3
