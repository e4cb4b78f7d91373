"""Functions with a cache that was filled before they are captured return what it holds."""

import functools
import random
from unittest import mock

import pytest
import torch

import pliant
from pliant.capture import attempt

STATE = {"k": 1}


def filled(**options):
    @functools.lru_cache(**options)
    def cached(a, b=0, *, c=None):
        return STATE["k"], [a, b, c]

    return cached


@pytest.mark.parametrize("options", [{"maxsize": 4}, {"maxsize": None}, {"maxsize": 4, "typed": True}], ids=str)
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {"a": 1}), ((1,), {}), (("s", 2), {}), ((1,), {"c": "k"}), ((torch.float32,), {}),
        (((1, ("s", None)),), {}), ((torch.Size([2, 3]),), {"b": ()}),
    ],  # fmt: skip
    ids=str,
)
def test_what_is_kept_is_returned(options, args, kwargs):
    cached = filled(**options)
    STATE["k"] = 1
    others = [cached(n) for n in (7, 8)]
    kept = cached(*args, **kwargs)
    STATE["k"] = 2

    def program(x):
        number, found = cached(*args, **kwargs)
        found.append(number)
        return x * number, found

    result, found = pliant.compile(program, backend="eager")(torch.ones(2))
    assert result[0] == 1
    assert found is kept[1]
    assert found[-1] == 1 and others[0][1] == [7, 0, None]


def test_a_cache_is_filled_for_tuples_and_sizes_before_the_trace():
    class Plan:
        def __init__(self, axes):
            self.axes, self.k = axes, STATE["k"]

    planned = functools.lru_cache(lambda names, *, axes: Plan(axes))
    sized = functools.lru_cache(lambda plan, shape: [plan.k, *shape])

    def program(x):
        for names in (("a",), ("b", "c")):
            plan = planned(names, axes=())
            x = x + sized(plan, x.shape)[0]
        return x

    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.zeros(2, 3)), program(torch.zeros(2, 3)))
    assert (planned.cache_info().currsize, sized.cache_info().currsize) == (2, 2)
    assert sized(planned(("a",), axes=()), (2, 3)) is sized(planned(("a",), axes=()), torch.Size([2, 3]))


class Plan:
    def __init__(self, axes=(1, 0)):
        self.axes, self.k = list(axes), 1


def _stores_beside(x, total):
    STATE["unread"] = STATE.get("unread", 0) + 1
    SEEN.append(len(SEEN))
    return x + 0


SEEN = []
BEFORE = {"drawn": lambda x, total: x + torch.rand(1), "written": lambda x, total: x + total.add_(1), "stored": _stores_beside}


@pytest.mark.parametrize("kept_before", [True, False])
@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE.keys())
def test_what_a_plan_of_sizes_does_not_read_may_have_changed(before, kept_before):
    plan, totals = Plan(), [torch.zeros(1), torch.zeros(1)]
    sized = functools.lru_cache(lambda plan, shape: ([shape[axis] for axis in plan.axes], plan.k))

    def program(x, total):
        shape, k = sized(plan, before(x, total).shape)
        return x.view(shape) + k + total

    if kept_before:
        program(torch.zeros(4, 3), torch.zeros(1))
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for size in (4, 5, 6):
        x = torch.randn(size, 3)
        torch.testing.assert_close(compiled(x, totals[0]), program(x, totals[1]))
    assert sized.cache_info().currsize == 3


def test_caches_are_filled_within_a_trace():
    """No other trace is begun for each key."""
    planned, sized = functools.cache(Plan), functools.cache(lambda plan, shape: [plan.k, *(shape[axis] for axis in plan.axes)])

    def program(x):
        for axes in ((0, 1), (1, 0), (0,), (1,)):
            x = x * sized(planned(axes), x.shape)[0]
        return x

    x, begun = torch.ones(2, 3), []
    start = attempt._Attempt._start
    with mock.patch.object(attempt._Attempt, "_start", lambda *args: begun.append(args) or start(*args)):
        assert torch.equal(pliant.compile(program, backend="eager", fullgraph=True)(x), x)
    assert (planned.cache_info().currsize, sized.cache_info().currsize, len(begun)) == (4, 4, 1)


@pytest.mark.parametrize(
    "ask", [len, bool, lambda one: 2 in one, lambda one: len([*one]), lambda one: sum(one)], ids=["len", "bool", "in", "all", "sum"]
)
@pytest.mark.parametrize("container", [list, set, dict.fromkeys], ids=["list", "set", "dict"])
def test_what_a_container_held_when_the_cache_was_filled(ask, container):
    results = []
    for compiled in (False, True):
        held = container([1])
        seen = functools.cache(lambda n, held=held: [n, int(ask(held))])

        def program(x, number, seen=seen):
            return x * sum(seen(number % 3))

        run = pliant.compile(program, backend="eager") if compiled else program
        found = []
        for number in range(6):
            found.append(run(torch.ones(1), number).item())
            held.update({number + 2: 0}) if isinstance(held, (dict, set)) else held.append(number + 2)
            if number == 2:
                held.clear()
        results.append(found)
    assert results[0] == results[1]


def test_kept_tensors_are_themselves():
    made = functools.cache(lambda n: torch.rand(n))
    kept = made(3)
    compiled = pliant.compile(lambda x: (x + made(3), made(3)), backend="eager")
    total, found = compiled(torch.zeros(3))
    assert found is kept
    assert torch.equal(total, kept)


def test_other_arguments_are_computed():
    cached = functools.lru_cache(maxsize=2)(lambda n: n + STATE["k"])
    STATE["k"] = 1
    cached(1), cached(2), cached(3)  # the first was dropped
    STATE["k"] = 5
    compiled = pliant.compile(lambda x: (x, cached(1), cached(2), cached(3)), backend="eager")
    assert compiled(torch.ones(1))[1:] == (6, 3, 4)


def test_what_is_kept_no_longer_is_asked_again():
    number = functools.cache(lambda: STATE["k"])
    pair = functools.cache(lambda: [STATE["k"]])
    STATE["k"] = 1
    number(), pair()
    STATE["k"] = 2
    compiled = pliant.compile(lambda x: x * number() + pair()[0])
    assert compiled(torch.ones(1)).item() == 2
    number.cache_clear(), pair.cache_clear()
    pair()
    assert compiled(torch.ones(1)).item() == 4


def _twice(make, *, calls=3):
    """What calls of a program give that calls a function with a cache, compiled and not, each with a cache of its own."""
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        STATE["k"] = 1
        program = make()
        program = pliant.compile(program, backend="eager") if compiled else program
        found.append([program(torch.ones(2), number) for number in range(calls)] + [torch.rand(1)])
    return found


def _draws():
    noise = functools.cache(lambda n: torch.randn(n))
    return lambda x, number: x * noise(2)


def _makes_a_module():
    layer = functools.cache(lambda n: torch.nn.Linear(n, n))
    return lambda x, number: layer(2)(x).detach()


def _makes_an_object():
    box = functools.cache(lambda: type("Box", (), {"number": 0})())

    def program(x, number):
        box().number += 1
        return x * box().number

    return program


def _writes_the_tensor():
    total = functools.cache(lambda n: torch.zeros(n))
    return lambda x, number: total(2).add_(x) * 1


def _writes_the_list():
    seen = functools.cache(list)

    def program(x, number):
        seen().append(1)
        return x * len(seen())

    return program


def _gives_a_view_away():
    table = functools.cache(lambda n: torch.zeros(n))

    def program(x, number):
        return table(2)[:1], x

    def outer(x, number):
        program(x, number)[0].add_(1)
        return table(2) + 0

    return outer


def _reads_what_changes():
    scaled = functools.lru_cache(maxsize=1)(lambda n: n * STATE["k"])

    def program(x, number):
        result = x * scaled(number // 2)
        STATE["k"] += 1
        return result

    return program


def _reads_a_tensor_that_changes():
    weight, scaled = torch.ones(2), functools.cache(lambda n: weight * n)

    def program(x, number):
        result = x * scaled(2)
        weight.add_(1)
        return result

    return program


def _reads_for_sizes_that_vary():
    scaled = functools.cache(lambda n: n * STATE["k"])

    def program(x, number):
        result = x * scaled(number % 3)
        STATE["k"] += 1
        return result

    return program


def _draws_behind_a_write():
    noise = functools.cache(lambda n: torch.randn(n))

    def program(x, number):
        y = torch.rand(2)
        return x * noise(2) + y

    return program


def _reads_what_was_written():
    weight = torch.zeros(2)
    seen = functools.cache(lambda n: [n, weight._version, weight.sum().item()])

    def program(x, number):
        weight.add_(1)
        return x * seen(number % 3)[1] + seen(number % 3)[2]

    return program


def _reads_what_was_stored():
    plans, cell = [Plan()], 0
    seen = functools.cache(lambda n: [n, plans[-1].k, len(plans), STATE["k"], cell])

    def program(x, number):
        nonlocal cell
        STATE["k"], cell = number, cell + 1
        plans[-1].k += 1
        plans.append(Plan())
        return x * sum(seen(number % 3))

    return program


def _adds_to_a_list_first():
    plans = [1]
    seen = functools.cache(lambda n: [n, len(plans)])

    def program(x, number):
        plans.append(number)
        return x * sum(seen(number % 3))

    return program


def _reads_the_state_of_the_generator():
    seen = functools.cache(lambda n: [n, torch.get_rng_state()])

    def program(x, number):
        y = torch.rand(2)
        return x * seen(number % 3)[1][:40].sum() + y

    return program


@pytest.mark.parametrize(
    "make",
    [
        _draws, _makes_a_module, _makes_an_object, _writes_the_tensor, _writes_the_list,
        _gives_a_view_away, _reads_what_was_written, _reads_what_was_stored, _adds_to_a_list_first,
        _reads_the_state_of_the_generator, _reads_what_changes,
        _reads_a_tensor_that_changes, _reads_for_sizes_that_vary, _draws_behind_a_write,
    ],
)  # fmt: skip
def test_what_is_computed_is_kept(make):
    eager, compiled = _twice(make, calls=7)
    for one, other in zip(eager, compiled, strict=True):
        torch.testing.assert_close(one, other)


def test_results_that_nobody_can_tell_apart_are_computed_by_the_graph():
    table = functools.cache(lambda n: torch.arange(n) * 2.0)
    compiled = pliant.compile(lambda x: x * table(x.shape[0]), backend="eager", fullgraph=True, dynamic=True)
    for size in (2, 3, 5):
        assert torch.equal(compiled(torch.ones(size)), torch.arange(size) * 2.0)
    assert table.cache_info().currsize == 0


def test_which_object_is_kept():
    table = functools.cache(lambda n: torch.zeros(n))
    compiled = pliant.compile(lambda x: (table(2), x + 1), backend="eager", fullgraph=True)
    first, second = compiled(torch.ones(2))[0], compiled(torch.ones(2))[0]
    assert first is second is table(2)


def test_a_cache_that_never_finds_its_key():
    class Key:
        def __hash__(self):
            return id(self)

        def __eq__(self, other):
            return False

    key, made = Key(), functools.cache(lambda key: [key])
    compiled = pliant.compile(lambda x: (x * 2, made(key), made(float("nan"))), backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2))[1][0] is key


def test_keys_that_are_new_in_each_trace():
    class Owner:
        def method(self):
            pass

    owner, made = Owner(), functools.cache(lambda key: [key])
    compiled = pliant.compile(lambda x: (x * 2, made(owner.method)), backend="eager")
    assert compiled(torch.ones(2))[1] is compiled(torch.ones(2))[1] is made(owner.method)


def test_effects_of_a_call_that_is_kept_are_not_done_again():
    done = []

    @functools.cache
    def once(number):
        done.append(number)

    def program(x):
        once(1)
        return x * 2

    compiled = pliant.compile(program, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    assert done == [1]
    pliant.reset()
    assert pliant.compile(program, backend="eager", fullgraph=True)(torch.ones(2)).tolist() == [2.0, 2.0]
    once.cache_clear()
    compiled(torch.ones(2))
    assert done == [1, 1]


def test_random_numbers_that_are_kept_are_not_drawn_again():
    number = functools.cache(lambda: random.random())
    compiled = pliant.compile(lambda x: x * number(), backend="eager")
    kept, state = number(), random.getstate()
    assert compiled(torch.ones(1)).item() == pytest.approx(kept)
    assert random.getstate() == state


@pytest.mark.parametrize("wrap", [staticmethod, classmethod, property])
def test_caches_in_descriptors(wrap):
    class Owner:
        noise = wrap(functools.cache(lambda *owner: torch.randn(2)))

    owner = Owner()

    def program(x):
        return x * (owner.noise if wrap is property else owner.noise())

    compiled = pliant.compile(program, backend="eager")
    assert torch.equal(compiled(torch.ones(2)), compiled(torch.ones(2)))
    assert torch.equal(compiled(torch.ones(2)), program(torch.ones(2)))


def test_a_cache_that_is_compiled_itself_is_computed():
    x = torch.ones(2)
    assert torch.equal(pliant.compile(functools.lru_cache(lambda x: x * 2))(x), x * 2)
