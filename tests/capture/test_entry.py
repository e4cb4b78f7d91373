"""Entries from hand-made traces: values made anew, effects in order, breaks with frames."""

import collections
import functools
import types

import pytest
import torch
from torch import fx

from pliant.capture.reconstruct.statements import CannotReconstruct
from pliant.capture.trace import DELETED, CallEffect, ReplaceContents, Return, SetAttribute, SetItem, Trace
from pliant.compiler import eager
from pliant.dispatch.entry import CallShape
from pliant.dispatch.entry_writer import make_entry
from pliant.graph.contracts import CapturedGraph, GraphInput
from pliant.guards.codegen import MISS
from pliant.guards.kinds import Guard, Kind
from pliant.guards.sources import ArgSource, held
from pliant.symbolic.shape_env import ShapeEnv


def entry(value, *, effects=(), guards=(), origins=(), count=0):
    found = {id(obj): (obj, source) for obj, source in origins}
    trace = Trace(None, [], list(guards), list(effects), Return(value), found)
    return make_entry(trace, eager, None, shape=CallShape(count, ()))


def rebuilt(value):
    return entry(value).run((), {})


Point = collections.namedtuple("Point", "x y")


class Plain:
    def __init__(self):
        raise AssertionError("user code must not run")


class Slotted:
    __slots__ = ("a", "b")

    def __setattr__(self, name, value):
        raise AssertionError("user code must not run")


class Mapping(collections.OrderedDict):
    def __setitem__(self, key, value):
        raise AssertionError("user code must not run")


class Items(list):
    def append(self, value):
        raise AssertionError("user code must not run")


class Word(str):
    pass


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -2.5,
        1j,
        "text",
        b"bytes",
        ...,
        (),
        [],
        {},
        set(),
        (1,),
        (1, (2, [3])),
        {"a": [1, {2: 3}]},
        {1, 2},
        frozenset({3}),
        slice(1, None, 2),
        range(2, 9, 3),
        float("inf"),
        -0.0,
        torch.float32,
        torch.Size([2, 3]),
        Point(1, [2]),
        int,
        len,
        torch.relu,
        collections.deque([1, 2], maxlen=3),
        collections.OrderedDict([("b", 1), ("a", 2)]),
        collections.defaultdict(list, {1: [2]}),
        collections.Counter("hello"),
        types.SimpleNamespace(a=1, b=[2]),
    ],
    ids=lambda value: repr(value).partition(" of type object at")[0],
)
def test_equal_values(value):
    made = rebuilt(value)
    assert type(made) is type(value) and repr(made) == repr(value)


def test_containers_are_new_each_time():
    value = [1, {"a": 2}]
    e = entry(value)
    first, second = e.run((), {}), e.run((), {})
    assert first == second == value
    assert first is not value and first is not second and first[1] is not second[1]


def test_identity_and_sharing():
    shared = [1]
    made = rebuilt({"a": shared, "b": (shared, shared)})
    assert made["a"] is made["b"][0] is made["b"][1]


def test_cycles():
    loop = [1]
    loop.append((loop, {"self": loop}))
    made = rebuilt(loop)
    assert made[1][0] is made and made[1][1]["self"] is made
    inside = ([],)
    inside[0].append(inside)
    made = rebuilt(inside)
    assert made[0][0] is made


def test_instances():
    plain = Plain.__new__(Plain)
    plain.me, plain.items = plain, [1]
    made = rebuilt(plain)
    assert type(made) is Plain and made.me is made and made.items == [1]
    slotted = Slotted.__new__(Slotted)
    object.__setattr__(slotted, "a", 5)
    made = rebuilt(slotted)
    assert made.a == 5 and not hasattr(made, "b")


def test_instances_of_builtin_subclasses():
    mapping = Mapping()
    collections.OrderedDict.__setitem__(mapping, "k", 1)
    mapping.__dict__["note"] = "n"
    made = rebuilt(mapping)
    assert type(made) is Mapping and list(made.items()) == [("k", 1)] and made.note == "n"
    items = Items([1, 2])
    made = rebuilt(items)
    assert type(made) is Items and made == [1, 2]
    word = Word("abc")
    word.extra = [1]
    made = rebuilt(word)
    assert type(made) is Word and made == "abc" and made.extra == [1]


def test_functions_and_cells():
    def outer():
        count = 0

        def step(n, by=[1], *, key="k"):
            nonlocal count
            count += n
            return count

        def again():
            return again, step

        step.tag = "tagged"
        return step, again

    step, again = outer()
    made_step, made_again = rebuilt((step, again))
    assert made_step(2) == 2 and made_step(3) == 5 and step(1) == 1
    assert made_step.tag == "tagged" and made_step.__kwdefaults__ == {"key": "k"} and made_step.__defaults__ == ([1],)
    assert made_step.__qualname__ == step.__qualname__
    assert made_again() == (made_again, made_step)


def test_methods_and_partials():
    items = [1]
    made_items, append, partial = rebuilt((items, items.append, functools.partial(max, 3, key=len)))
    append(2)
    assert made_items == [1, 2] and items == [1]
    assert (partial.func, partial.args, partial.keywords) == (max, (3,), {"key": len})
    made, method = rebuilt((plain := types.SimpleNamespace(), types.MethodType(repr, plain)))
    assert method.__self__ is made and method() == "namespace()"


@pytest.mark.parametrize(
    "make",
    [
        lambda: iter([1, 2, 3]),
        lambda: iter((1, 2, 3)),
        lambda: iter(range(4)),
        lambda: enumerate("abc"),
        lambda: zip([1, 2], [3, 4]),
        lambda: map(str, [1, 2]),
        lambda: reversed([1, 2, 3]),
        lambda: iter({1: 2, 3: 4}.items()),
        lambda: filter(None, [0, 1, 2]),
    ],
)
def test_iterators_go_on_where_they_were(make):
    iterator, same = make(), make()
    next(iterator), next(same)
    assert list(rebuilt(iterator)) == list(same)


def test_exceptions():
    error = KeyError("k", 1)
    error.__cause__ = ValueError("v")
    error.note = "n"
    made = rebuilt(error)
    assert type(made) is KeyError and made.args == ("k", 1) and made.note == "n"
    assert type(made.__cause__) is ValueError and made.__suppress_context__


def test_what_cannot_be_made():
    for value in ((i for i in "abc"), torch.zeros(2)):
        with pytest.raises(CannotReconstruct):
            entry([value])


def test_values_from_outside_are_loaded_once():
    outside = [1, 2]
    e = entry((outside, [outside]), origins=[(outside, ArgSource(0, "x"))], count=1)
    other = [5]
    made = e.run((other,), {})
    assert made[0] is other and made[1][0] is other
    assert e.text.count("args[0]") == 1


def test_call_shape():
    e = entry(1, count=1)
    assert e.run((1,), {}) == 1
    assert e.run((), {}) is MISS and e.run((1, 2), {}) is MISS and e.run((1,), {"k": 1}) is MISS


# ---- effects


def test_effects_on_objects():
    target, table, items = types.SimpleNamespace(a=1), {"x": 1, "y": 2}, [1, 2]
    origins = [(target.__dict__, ArgSource(0, "d")), (table, ArgSource(1, "t")), (items, ArgSource(2, "i"))]
    made = [7]
    effects = [
        SetItem(target.__dict__, "b", made),
        SetItem(table, "x", DELETED),
        SetItem(table, "z", made),
        ReplaceContents(items, [items, made]),
    ]
    e = entry(made, effects=effects, origins=origins, count=3)
    result = e.run((target.__dict__, table, items), {})
    assert target.b is result and table == {"y": 2, "z": [7]} and items[0] is items and items[1] is result


def test_all_values_are_loaded_before_stores():
    a, b = [1], [2]
    origins = [(a, ArgSource(0, "a")), (b, ArgSource(1, "b"))]
    table = {"p": a, "q": b}
    origins.append((table, ArgSource(2, "t")))
    e = entry(None, effects=[SetItem(table, "p", b), SetItem(table, "q", a)], origins=origins, count=3)
    e.run((a, b, table), {})
    assert table["p"] is b and table["q"] is a


def test_effects_on_cells_slots_and_classes():
    class C:
        pass

    slotted, cell = Slotted.__new__(Slotted), types.CellType(1)
    origins = [(slotted, held(slotted, "s")), (cell, held(cell, "c")), (C, held(C, "C"))]
    effects = [SetAttribute(slotted, "a", 3), SetAttribute(cell, "x", 4, "cell"), SetAttribute(C, "k", 5, "type")]
    entry(None, effects=effects, origins=origins).run((), {})
    assert slotted.a == 3 and cell.cell_contents == 4 and C.k == 5


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([1], [2, 3]),
        ({1: 2}, {3: 4}),
        ({1}, {2, 3}),
        (collections.deque([1]), collections.deque([2])),
        (bytearray(b"a"), bytearray(b"bc")),
        (collections.OrderedDict(a=1), collections.OrderedDict(c=1, b=2)),
        (collections.OrderedDict(a=1), {"c": 1, "b": 2}),
        (collections.Counter("a"), collections.Counter("bb")),
    ],
)
def test_replaced_contents(before, after):
    entry(None, effects=[ReplaceContents(before, after)], origins=[(before, held(before, "b"))]).run((), {})
    assert before == after and list(before) == list(after)


def test_calls_are_replayed(capsys):
    effects = [CallEffect(print, ("a", [1]), {"sep": "-"}), CallEffect(print, ("b",), {})]
    entry(None, effects=effects).run((), {})
    assert capsys.readouterr().out == "a-[1]\nb\n"


# ---- graphs


def test_graph_runs_between_loads_and_values():
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output((graph.call_function(torch.add, (x, y)),))
    inputs = [GraphInput(n, "tensor", None, ArgSource(i, n), None) for i, n in enumerate("xy")]
    result = object()
    captured = CapturedGraph(fx.GraphModule({}, graph), inputs, ShapeEnv())
    trace = Trace(
        captured,
        inputs,
        [Guard(ArgSource(0, "x"), Kind.TYPE, torch.Tensor)],
        [],
        Return({"sum": result}),
        {},
        {id(result): 0},
    )
    e = make_entry(trace, eager, None, shape=CallShape(2, ()))
    a, b = torch.randn(2), torch.randn(2)
    assert torch.equal(e.run((a, b), {})["sum"], a + b)
    assert e.run((1, b), {}) is MISS
    lines = [line.strip() for line in e.text.splitlines()]
    assert lines.index("[out0] = graph([x, y])") < lines.index("dict_1 = {'sum': out0}")
