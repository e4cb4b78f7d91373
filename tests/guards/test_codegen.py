"""Each kind of guard, by metamorphosis: change the guarded fact (miss), change something else (hit)."""

import math
from types import SimpleNamespace

import pytest
import torch

import pliant
from pliant.dispatch.compiled_function import dispatcher_of
from pliant.guards.codegen import MISS, GuardWriter, compile_guards
from pliant.guards.explain import explain_miss
from pliant.guards.facts import has_items, lacks_item
from pliant.guards.kinds import MISSING, ConstantItems, Guard, Kind, TensorFacts
from pliant.guards.names import Names
from pliant.guards.replay import Replay
from pliant.guards.sources import (
    ArgSource,
    CellSource,
    DictAttributeSource,
    ItemSource,
    ModuleMemberSource,
    SizeSource,
    StateSource,
    StrideSource,
    TypeSource,
    held,
)
from pliant.guards.state import READERS, state_guards
from pliant.symbolic.expr import symbol

V = ArgSource(0, "v")


def holds(guard, *args, symbols=None):
    return compile_guards([guard], symbol_sources=symbols).check(args, {})


class Base:
    flag = 1


class Derived(Base):
    pass


NAN, OTHER_NAN = float("nan"), -float("nan")
SAME, OTHER = object(), object()

CASES = [
    # kind, expected, hits, misses
    (Kind.TYPE, int, [3, 4], [3.0, True, "3"]),
    (Kind.NUMBER_TYPE, float, [3.0, NAN], [3, True]),
    (Kind.IDENTITY, SAME, [SAME], [OTHER, None]),
    (Kind.IDENTITY, None, [None], [0, False]),
    (Kind.EQUALS, 3, [3], [3.0, 4, True]),
    (Kind.EQUALS, 1, [1], [True, 1.0]),
    (Kind.EQUALS, True, [True], [1, False]),
    (Kind.EQUALS, 0.0, [0.0], [-0.0, 0, False]),
    (Kind.EQUALS, NAN, [NAN, float("nan")], [1.0]),
    (Kind.EQUALS, 2.5, [2.5], [2.25]),
    (Kind.EQUALS, "a", ["a"], ["b", b"a"]),
    (Kind.EQUALS, (1, 2.0), [(1, 2.0)], [(1.0, 2.0), (1, 2), [1, 2.0]]),
    (Kind.EQUALS, torch.float32, [torch.float32], [torch.float64]),
    (Kind.EQUALS, 1j, [1j], [1, 2j]),
    (Kind.LENGTH, 2, [[1, 2], (3, 4), {1: 2, 3: 4}], [[1], [1, 2, 3], 5]),
    (Kind.KEYS, ("a", "b"), [{"a": 1, "b": 2}], [{"b": 1, "a": 2}, {"a": 1}]),
    (Kind.KEYS, (1,), [{1: 0}], [{True: 0}, {1.0: 0}]),
    (Kind.HAS_KEY, "a", [{"a": 1}, {"b": 2, "a": 3}], [{}, {"b": 1}]),
    (Kind.NO_KEY, "a", [{}, {"b": 1}], [{"a": 1}]),
    (Kind.EMPTY, None, [{}, []], [{1: 2}]),
    (Kind.RANGE, (0, 3, 1), [range(3)], [range(0, 3, 2), range(4), 3]),
]


@pytest.mark.parametrize(
    ("kind", "expected", "hits", "misses"), CASES, ids=lambda v: v.name if isinstance(v, Kind) else ""
)
def test_fact(kind, expected, hits, misses):
    for value in hits:
        assert holds(Guard(V, kind, expected), value), value
    for value in misses:
        assert not holds(Guard(V, kind, expected), value), value


def facts_of(t, **changes):
    known = {
        "cls": type(t),
        "dtype": t.dtype,
        "device": t.device,
        "requires_grad": t.requires_grad,
        "sizes": tuple(t.shape),
        "strides": t.stride(),
    }
    return TensorFacts(**{**known, **changes})


def test_tensor_facts():
    guard = Guard(V, Kind.TENSOR, facts_of(torch.zeros(2, 3), is_leaf=True, storage_offset_zero=True))
    assert holds(guard, torch.ones(2, 3))
    changed = [
        torch.zeros(2, 4),
        torch.zeros(3, 2).t(),
        torch.zeros(2, 3, dtype=torch.float64),
        torch.zeros(6),
        3,
        None,
        torch.zeros(2, 3, requires_grad=True),
        torch.nn.Parameter(torch.zeros(2, 3)),
        torch.zeros(2, 3, device="meta"),
        torch.zeros(7)[1:].view(2, 3),
    ]
    assert not any(holds(guard, value) for value in changed)


def test_open_sizes_are_not_checked():
    guard = Guard(V, Kind.TENSOR, facts_of(torch.zeros(2, 3), sizes=(None, 3), strides=(None, 1)))
    assert holds(guard, torch.zeros(9, 3))
    assert not holds(guard, torch.zeros(2, 4))
    assert not holds(guard, torch.zeros(2, 3, 1))


def test_dispatch_keys():
    guard = Guard(
        V, Kind.TENSOR, facts_of(torch.zeros(2), dispatch_keys=torch._C._dispatch_keys(torch.zeros(2)).raw_repr())
    )
    assert holds(guard, torch.zeros(2))
    with torch.inference_mode():
        assert not holds(guard, torch.zeros(2))


def test_relations():
    a, b = ArgSource(0, "a"), ArgSource(1, "b")
    x, y = torch.zeros(1), torch.zeros(1)
    assert holds(Guard(b, Kind.SAME_AS, a), x, x)
    assert not holds(Guard(b, Kind.SAME_AS, a), x, y)
    distinct = Guard(None, Kind.DISTINCT, (tuple(ArgSource(i, "x") for i in range(4)), ()))
    assert holds(distinct, x, y, 1, 2)
    assert not holds(distinct, x, y, 1, x)


def test_shapes_are_read_once():
    s = symbol("s0")
    guards = [
        Guard(None, Kind.SHAPE, s.ge(2)),
        Guard(None, Kind.SHAPE, s.le(9)),
        Guard(StrideSource(V, 0), Kind.EXPRESSION, s),
    ]
    check = compile_guards(guards, symbol_sources={s: SizeSource(V, 1)})
    assert check.text.count(".shape") == 1
    assert check.check((torch.zeros(2, 4),), {})
    assert not check.check((torch.zeros(2, 10),), {})
    assert not check.check((torch.zeros(4, 2).t(),), {})


def test_class_lookup_sees_changes_of_bases():
    instance = Derived()
    guards = [Guard(V, Kind.TYPE, Derived), Guard(TypeSource(V), Kind.TYPE_LOOKUP, ("flag", 1))]
    absent = [Guard(V, Kind.TYPE, Derived), Guard(TypeSource(V), Kind.TYPE_LOOKUP, ("nothing", MISSING))]
    check, no_name = compile_guards(guards).check, compile_guards(absent).check
    assert check((instance,), {}) and no_name((instance,), {})
    Derived.flag = 2
    assert not check((instance,), {})
    del Derived.flag
    assert check((instance,), {})
    Base.nothing = 1
    assert not no_name((instance,), {})
    del Base.nothing


@pytest.mark.parametrize("name", READERS)
def test_state_holds_now(name):
    assert compile_guards(state_guards((name,))).check((), {})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("grad_enabled", torch.no_grad),
        ("inference_mode", torch.inference_mode),
        ("autocast", lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
        ("function_modes", lambda: torch.device("meta")),
        ("default_device", lambda: torch.device("meta")),
    ],
)
def test_state_changes(name, change):
    check = compile_guards(state_guards((name,))).check
    with change():
        assert not check((), {})
        assert compile_guards(state_guards((name,))).check((), {})
    assert check((), {})


def test_the_current_gpu_is_state_where_there_are_several(monkeypatch):
    names = [guard.source.name for guard in state_guards()]
    assert "current_gpu" not in names or torch.cuda.device_count() > 1
    current = [0]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    check = compile_guards(state_guards()).check
    assert check((), {})
    current[0] = 1
    assert not check((), {})


def test_configuration_is_state():
    from pliant import config

    check = compile_guards(state_guards()).check
    with config.patch(fuse=False):
        assert not check((), {})
    with config.patch(strict=True):  # generates the same code
        assert check((), {})


def test_missing_values_are_misses():
    source = ItemSource(DictAttributeSource(V, "table"), "key")
    check = compile_guards([Guard(source, Kind.EQUALS, 1)]).check
    assert check((SimpleNamespace(table={"key": 1}),), {})
    for value in (SimpleNamespace(table={}), SimpleNamespace(), 3):
        assert not check((value,), {})
    assert not check((), {})


def test_module_members_share_reads():
    module = torch.nn.Sequential(torch.nn.Linear(2, 3))
    root = held(module, "self")
    layer = ModuleMemberSource(root, "_modules", "0")
    guards = [
        Guard(ModuleMemberSource(layer, "_parameters", n), Kind.TYPE, torch.nn.Parameter) for n in ("weight", "bias")
    ]
    check = compile_guards([*guards, Guard(DictAttributeSource(layer, "training"), Kind.EQUALS, True)])
    assert check.text.count("__dict__") == 2
    assert check.check((), {})
    module.eval()
    assert not check.check((), {})


def test_cells():
    value = 3

    def f():
        return value

    source = CellSource(ItemSource(ArgSource(0, "closure"), 0))
    assert holds(Guard(source, Kind.EQUALS, 3), f.__closure__)
    value = 4
    assert not holds(Guard(source, Kind.EQUALS, 3), f.__closure__)


def test_arguments_are_checked_first():
    writer = GuardWriter(Names())
    module = held(torch.nn.ReLU(), "self")
    writer.add_all(
        [
            Guard(DictAttributeSource(module, "training"), Kind.EQUALS, True),
            Guard(StateSource("grad_enabled"), Kind.STATE, True),
            Guard(V, Kind.EQUALS, 1),
        ]
    )
    tests = [s.guard.source for s in writer.steps if s.guard]
    assert tests[0] == V and isinstance(tests[1], StateSource)


EXPLAINED = [
    (Kind.EQUALS, 3, 5, "`v` was 3, is 5"),
    (Kind.TYPE, int, 2.0, "type of `v` was int, is float"),
    (Kind.LENGTH, 2, [1], "length of `v` was 2, is 1"),
    (Kind.TENSOR, facts_of(torch.zeros(2, 3)), torch.zeros(2, 5), "size of dimension 1 of `v` was 3, is 5"),
    (
        Kind.TENSOR,
        facts_of(torch.zeros(2)),
        torch.zeros(2, dtype=torch.int64),
        "dtype of `v` was torch.float32, is torch.int64",
    ),
    (Kind.TENSOR, facts_of(torch.zeros(2)), torch.zeros(2, 1), "`v` had 1 dimensions, has 2"),
    (Kind.TENSOR, facts_of(torch.zeros(2, 3)), torch.zeros(3, 2).t(), "strides of `v` were (3, 1), are (1, 2)"),
    (Kind.HAS_KEY, "a", {}, "`v['a']` is not there any more"),
    (Kind.KEYS, ("a",), {"b": 1}, "keys of `v` were ['a'], are ['b']"),
    (Kind.EMPTY, None, {1: 2}, "`v` was empty, now holds 1"),
]


@pytest.mark.parametrize(("kind", "expected", "value", "text"), EXPLAINED)
def test_explanation(kind, expected, value, text):
    writer = GuardWriter(Names())
    writer.add(Guard(V, kind, expected))
    failure = explain_miss(Replay(writer.steps, writer.names.values), (value,), {})
    assert failure is not None and failure.text == text


def test_explanation_of_what_is_gone():
    writer = GuardWriter(Names())
    writer.add(Guard(ItemSource(V, "key"), Kind.EQUALS, 1))
    assert explain_miss(Replay(writer.steps, writer.names.values), ({"key": 1},), {}) is None
    assert "is not there any more" in explain_miss(Replay(writer.steps, writer.names.values), ({},), {}).text


def test_miss_prints_as_itself():
    assert repr(MISS) == "MISS" and math.pi


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_have_no_literal_are_compared(number):
    import pliant

    class Limits:
        limit = number

    limits = Limits()
    compiled = pliant.compile(lambda x: x * 2 if limits.limit == number else x * 3, backend="eager")
    plain = 2.0 if number == number else 3.0
    assert compiled(torch.ones(2)).tolist() == [plain] * 2
    limits.limit = 1.0
    assert compiled(torch.ones(2)).tolist() == [3.0] * 2


def test_the_constant_that_failed_is_looked_at_first():
    """So a miss costs one comparison, and a hit what it costs without."""
    values = (1, 2.5, float("nan"), "a", None, 10**20)
    for places in (None, (0, 2, 3, 4, 5, 7)):
        known = ConstantItems(values, places)
        items = list(values) if places is None else [1, "?", 2.5, float("nan"), "a", None, "?", int("1" + "0" * 20)]
        assert has_items(items, known) and known.failed == 0
        for index in (4, 1, 5):
            other = list(items)
            other[known.place(index)] = object()
            assert not has_items(other, known) and known.failed == index
            assert lacks_item(other, known) and not lacks_item(items, known)
            assert has_items(tuple(items), known)


def test_a_short_check_looks_at_the_constant_that_failed_alone():
    compiled = pliant.compile(lambda x, items: x + sum(items), backend="eager", dynamic=False)
    compiled(torch.ones(2), [*range(100), 1])
    (entry,) = dispatcher_of(compiled).entries
    place, _ = entry.checks.first_failing((torch.ones(2), [*range(100), 2]), {})
    probe = entry.checks.probe(place)
    assert probe((torch.ones(2), [*range(100), 2]), {})
    assert not probe((torch.ones(2), [*range(100), 1]), {})
    assert not probe((torch.ones(2), [7] * 100 + [1]), {})  # the whole check tells
