"""Watching memory: while nothing changed the guards are not run; every change is seen; results are as without
watching."""

import collections
import types

import pytest
import torch

from pliant.guards import held_state, native_watch
from pliant.guards.codegen import READ_ERRORS
from pliant.guards.generated import define_entry
from pliant.guards.held_section import HeldSection
from pliant.guards.held_state import LOAD, HeldState, never
from pliant.guards.kinds import Guard, Kind, NumberOf, TensorFacts
from pliant.guards.names import Names
from pliant.guards.parts import dict_of
from pliant.guards.sources import (
    AttributeSource,
    CellSource,
    DictAttributeSource,
    ItemSource,
    ModuleMemberSource,
    TypeSource,
    held,
)
from pliant.wrappers.generated_code import code_behind

pliant = pytest.importorskip("pliant.compiler")  # brings the builder of the native part
needs_native = pytest.mark.skipif(
    not native_watch.available(), reason="no native check on this interpreter or without a C compiler"
)


class Watched:
    """A section that has been checked and is being watched."""

    def __init__(self, guards, sources=()):
        section = HeldSection(Names())
        assert all(section.add(g) for g in guards)
        assert all(section.read(s) for s in sources)
        text = section.text()
        self.scope = {**section.values, "READ_ERRORS": READ_ERRORS, "unchanged": never}
        exec(text, self.scope)
        load = self.scope[LOAD]
        self.entry = types.FunctionType((lambda: None).__code__, self.scope)
        self.state = HeldState(section, self.entry)
        self.runs = 0

        def counted():
            self.runs += 1
            return load()

        self.entry.load = counted
        assert self() is not None

    def __call__(self):
        found = self.scope["unchanged"]()
        return self.state.recheck() if found is None else found

    def quiet(self):
        """Whether nothing has to be checked."""
        return self.scope["unchanged"]() is not None


class Owner:
    limit = 3

    def method(self):
        return 1


def module():
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))


def facts(t):
    return TensorFacts(type(t), t.dtype, t.device, t.requires_grad, tuple(t.shape), t.stride())


@needs_native
def test_unchanged_state_is_not_checked_again():
    m = module()
    root = held(m, "m")
    weight = ModuleMemberSource(ModuleMemberSource(root, "_modules", "0"), "_parameters", "weight")
    w = Watched([Guard(weight, Kind.TENSOR, facts(m[0].weight))], [weight])
    runs = w.runs
    for _ in range(5):
        assert w() == (m[0].weight,)
        m[0].weight.data.add_(1)
    assert w.runs == runs


MODULE_CHANGES = {
    "training": lambda m: m.eval(),
    "parameter": lambda m: setattr(m[0], "weight", torch.nn.Parameter(torch.zeros(2, 2))),
    "requires_grad": lambda m: m[0].weight.requires_grad_(False),
    "data": lambda m: setattr(m[0].weight, "data", torch.zeros(5, 7)),
    "dtype": lambda m: m.double(),
    "submodule": lambda m: m.__setitem__(0, torch.nn.Linear(3, 3)),
    "hook": lambda m: m[0].register_forward_hook(lambda *a: None),
    "class": lambda m: setattr(m[0], "__class__", torch.nn.Identity),
    "dict": lambda m: setattr(m[0], "__dict__", dict(m[0].__dict__, training=False)),
    "shadow": lambda m: m[0].__dict__.update(forward=len),
    "buffer": lambda m: m[1].register_buffer("running_mean", torch.zeros(4)),
}


@needs_native
@pytest.mark.parametrize("name", MODULE_CHANGES)
def test_changes_of_modules_are_seen(name):
    m = module()
    root = held(m, "m")
    first, second = (ModuleMemberSource(root, "_modules", k) for k in "01")
    weight, mean = (
        ModuleMemberSource(first, "_parameters", "weight"),
        ModuleMemberSource(second, "_buffers", "running_mean"),
    )
    w = Watched(
        [
            Guard(first, Kind.TYPE, torch.nn.Linear),
            Guard(DictAttributeSource(first, "training"), Kind.EQUALS, True),
            Guard(DictAttributeSource(first, "_forward_hooks"), Kind.EMPTY, None),
            Guard(dict_of(first), Kind.NO_KEY, "forward"),
            Guard(weight, Kind.TENSOR, facts(m[0].weight)),
            Guard(mean, Kind.TENSOR, facts(m[1].running_mean)),
        ]
    )
    assert w.quiet()
    MODULE_CHANGES[name](m)
    assert not w.quiet() and w() is None


@needs_native
def test_memory_alike_in_its_place_is_no_change():
    m = module()
    weight = ModuleMemberSource(ModuleMemberSource(held(m, "m"), "_modules", "0"), "_parameters", "weight")
    w = Watched([Guard(weight, Kind.TENSOR, facts(m[0].weight))], [weight])
    m[0].weight.data = torch.ones(3, 2)  # as an optimizer does that does not write in place
    assert w.quiet()
    m[0].weight.data = torch.ones(3, 2, dtype=torch.float64)
    assert not w.quiet() and w() is None


@needs_native
def test_which_memory_tensors_share_is_watched():
    m = module()
    first, second = (ModuleMemberSource(held(m, "m"), "_modules", k) for k in "01")
    sources = ModuleMemberSource(first, "_parameters", "bias"), ModuleMemberSource(second, "_parameters", "bias")
    w = Watched([Guard(sources[0], Kind.SEPARATE, ((sources[0],), (sources[1],)))])
    assert w.quiet()
    m[0].bias.data = torch.ones(3)
    assert not w.quiet() and w() is not None
    m[0].bias.data = m[1].bias.data
    assert w() is None


@needs_native
def test_functions_cells_lists_and_classes():
    count = 1

    def f():
        return count

    def g():
        return -count

    owner, items, nested, table = Owner(), [1, 2], [[2]], {"k": 1}
    root, names = held(f, "f"), held(items, "items")
    cell = CellSource(ItemSource(AttributeSource(root, "__closure__"), 0))
    cls = TypeSource(held(owner, "owner"))
    guards = {
        "code": Guard(AttributeSource(root, "__code__"), Kind.IDENTITY, f.__code__),
        "cell": Guard(cell, Kind.EQUALS, 1),
        "item": Guard(ItemSource(names, 0), Kind.EQUALS, 1),
        "length": Guard(names, Kind.LENGTH, 2),
        "inner": Guard(ItemSource(held(nested, "nested"), 0), Kind.LENGTH, 1),
        "class": Guard(cls, Kind.TYPE_LOOKUP, ("method", Owner.method)),
        "keys": Guard(held(table, "table"), Kind.KEYS, ("k",)),
    }

    def rebind():
        nonlocal count
        count = 2

    changes = {
        "code": lambda: setattr(f, "__code__", g.__code__),
        "cell": rebind,
        "item": lambda: items.__setitem__(0, 5),
        "length": lambda: items.append(3),
        "inner": lambda: nested[0].append(1),
        "class": lambda: setattr(Owner, "method", len),
        "keys": lambda: table.update(z=1),
    }
    watched = {name: Watched([guard]) for name, guard in guards.items()}
    original = Owner.method
    for name, w in watched.items():
        assert w.quiet() or name == "length", name  # the change before touched its list
        changes[name]()
        assert not w.quiet() and w() is None, name
    Owner.method = original


@needs_native
def test_harmless_changes_are_checked_and_watched_again():
    owner = Owner()
    owner.a, owner.b = 1000, 1
    w = Watched([Guard(DictAttributeSource(held(owner, "owner"), "a"), Kind.EQUALS, 1000)])
    owner.b = 2
    owner.c = 3
    assert w.quiet()  # the keys that matter are as they were
    owner.a = int("1000")
    assert not w.quiet() and w() == ()
    checks = 0
    while not w.quiet():  # once checks have cost what a look does
        w()
        checks += 1
    assert checks < 1000
    owner.a = 2
    assert w() is None
    owner.a = 1000
    assert w() == ()


@needs_native
def test_restless_dicts_are_looked_at_by_themselves():
    """Dicts that change at each call stand beside the ones that do not: changes of both are seen, however many."""
    owners = [Owner() for _ in range(20)]
    for i, owner in enumerate(owners):
        owner.a, owner.b = 1000 + i, 0
    wanted = list(enumerate(owners))
    w = Watched([Guard(DictAttributeSource(held(o, f"o{i}"), "a"), Kind.EQUALS, 1000 + i) for i, o in wanted])
    for busy in (3, 20):
        for n in range(100):
            for owner in owners[:busy]:
                owner.b = n
            assert w.quiet()
    for i, owner in wanted:
        owner.a = 0
        assert not w.quiet() and w() is None
        owner.a = 1000 + i
        assert w() == ()


@needs_native
def test_restless_state_is_watched_ever_more_rarely():
    owner = Owner()
    owner.a = 1.5
    w = Watched([Guard(DictAttributeSource(held(owner, "owner"), "a"), Kind.EQUALS, 1.5)])
    runs = w.runs
    for _ in range(100):
        owner.a = float("1.5")
        assert w() == ()
    assert w.runs - runs < 110  # one check a call, and a second one where memory was looked at


@needs_native
def test_state_that_changes_at_every_slow_call_is_watched_rarely(monkeypatch):
    owner, clock, looks = Owner(), [100.0], []
    owner.a = 1.5
    w = Watched([Guard(DictAttributeSource(held(owner, "owner"), "a"), Kind.EQUALS, 1.5)])
    look, load = w.state._look, w.state._load
    monkeypatch.setattr(held_state, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))

    def taking(seconds, action):
        clock[0] += seconds
        looks.append(seconds)
        return action()

    w.state._look, w.state._load = lambda: taking(0.2, look), lambda: taking(0.001, load)
    for _ in range(200):
        clock[0] += 0.7  # the rest of the call
        owner.a = float("1.5")
        assert w() == ()
    assert looks.count(0.2) < 5
    for _ in range(1500):
        clock[0] += 0.7
        w()
    assert w.quiet()  # for it has stopped to change


@pytest.mark.parametrize(
    "guard",
    [
        Guard(held({1}, "s"), Kind.KEYS, (1,)),
        Guard(held(collections.OrderedDict(a=1), "o"), Kind.KEYS, ("a",)),
        Guard(AttributeSource(held(lambda: 1, "f"), "__closure__"), Kind.IDENTITY, None),
        Guard(ItemSource(held([[1]], "l"), 0), Kind.EQUALS, [1]),
    ],
)
def test_what_memory_does_not_tell_is_left_to_the_entry(guard):
    assert not HeldSection(Names()).add(guard)


def test_compiled_modules_notice_changes():
    """The whole way, with more guards than are checked inline."""
    import pliant

    m = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(6)))
    c, x = pliant.compile(m, backend="eager"), torch.randn(2, 4)
    for change in (
        lambda: None,
        lambda: None,
        lambda: m.__setitem__(2, torch.nn.Tanh()),
        lambda: m[0].weight.data.zero_(),
        lambda: setattr(m[3], "bias", None),
        lambda: m[5].requires_grad_(False),
        lambda: m.append(torch.nn.ReLU()),
        lambda: setattr(m[1], "forward", lambda x: x + 1),
        lambda: m.double() and m.float(),
    ):
        change()
        for _ in range(3):
            assert torch.equal(c(x), m(x))
    from pliant.dispatch.compiled_function import dispatcher_of

    if native_watch.available():
        assert isinstance(dispatcher_of(c).hot.__globals__["unchanged"], types.BuiltinFunctionType)


@needs_native
def test_guards_that_hold_are_not_compiled_before_something_changes():
    items = [1, 2]
    section = HeldSection(Names())
    root = held(items, "items")
    assert section.add(Guard(root, Kind.LENGTH, 2)) and section.read(ItemSource(root, 0))
    entry = define_entry("def entry(args, kwargs):\n    return 1\n", section.names.values, "f", section, {})
    state, first = HeldState(section, entry), entry.__dict__[LOAD]
    assert state.recheck() == (1,) and entry.__globals__["unchanged"]() == (1,)
    assert entry.__dict__[LOAD] is first and LOAD not in "".join(code_of_texts(entry))
    items[0] = 3
    assert entry.__globals__["unchanged"]() is None and state.recheck() == (3,)
    assert entry.__dict__[LOAD] is not first
    items.append(3)
    assert state.recheck() is None


def code_of_texts(function):
    """The names that the texts behind a function define."""
    return [name for code in code_behind(function).values() for name in code.co_names]


@needs_native
def test_a_change_before_the_first_check_is_seen():
    for change, expected in ((lambda items: items.append(3), None), (lambda items: items.__setitem__(0, 5), (5,))):
        items = [1, 2]
        section = HeldSection(Names())
        root = held(items, "items")
        assert section.add(Guard(root, Kind.LENGTH, 2)) and section.read(ItemSource(root, 0))
        entry = define_entry("def entry(args, kwargs):\n    return 1\n", section.names.values, "f", section, {})
        change(items)
        assert HeldState(section, entry).recheck() == expected


@needs_native
@pytest.mark.parametrize("change", ["another key", "the key", "the key goes"])
def test_other_keys_may_come_before_the_first_check(change):
    """While a program is compiled modules are imported: the dict of all modules is larger then."""
    table = {"a": 1, "b": 2}
    section = HeldSection(Names())
    item = ItemSource(held(table, "table"), "a")
    assert section.add(Guard(item, Kind.EQUALS, 1)) and section.read(item)
    entry = define_entry("def entry(args, kwargs):\n    return 1\n", section.values, "f", section, {})
    state, first = HeldState(section, entry), entry.__dict__[LOAD]
    if change == "another key":
        table["c"] = 3
        assert state.recheck() == (1,) and entry.__dict__[LOAD] is first
        table["d"] = 4
        assert entry.__globals__["unchanged"]() == (1,)
        table["a"] = 5
    elif change == "the key":
        table["a"] = 5
    else:
        del table["a"]
    assert entry.__globals__["unchanged"]() is None and state.recheck() is None


@needs_native
def test_a_guard_that_fails_where_it_is_written_fails_the_first_check():
    section = HeldSection(Names())
    assert section.add(Guard(held([1, 2], "items"), Kind.LENGTH, 3))
    entry = define_entry("def entry(args, kwargs):\n    return 1\n", section.names.values, "f", section, {})
    assert HeldState(section, entry).recheck() is None


@needs_native
@pytest.mark.parametrize("change", ["member", "bases", "nearer"])
def test_text_that_is_written_late_fails_for_what_changed_before(change):
    """Neither a member nor the bases are taken as they are by then, even where a class of C has the name."""

    class First:
        def __repr__(self):
            return "first"

    class Second:
        __repr__ = First.__repr__

    class Looked(First):
        pass

    section = HeldSection(Names())
    looked = TypeSource(held(Looked(), "looked"))
    expected = NumberOf(types.FunctionType) if change == "nearer" else First.__repr__
    guards = [Guard(looked, Kind.IDENTITY, Looked), Guard(looked, Kind.TYPE_LOOKUP, ("__repr__", expected))]
    assert all(section.add(guard) for guard in guards)
    entry = define_entry("def entry(args, kwargs):\n    return 1\n", section.values, "f", section, {})
    state = HeldState(section, entry)
    assert state.recheck() == ()
    if change == "member":
        del First.__repr__
    elif change == "nearer":
        Looked.__repr__ = lambda self: "another of the kind, which no source of the entry's reads"
    else:
        Looked.__bases__ = (Second,)
    assert state.recheck() is None
