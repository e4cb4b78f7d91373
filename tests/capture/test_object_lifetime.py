"""Programs that notice when objects die, and texts that run the program's own code."""

import copy
import gc
import weakref

import pytest
import torch

import pliant


class Counted:
    alive = 0

    def __init__(self):
        Counted.alive += 1

    def __del__(self):
        Counted.alive -= 1


class Plain:
    pass


def finalizers(x):
    value = Counted()
    before = Counted.alive
    pliant.graph_break()
    del value
    pliant.graph_break()
    return x + 1, before, Counted.alive


def finalizer_of_a_dead_local(x):
    value = Counted()
    pliant.graph_break()
    x = x + 1
    pliant.graph_break()
    return x, Counted.alive


def finalizer_of_a_dead_variable_of_inner_code(x):
    value = Counted()

    def alive():
        return value is not None and Counted.alive

    before = alive()
    pliant.graph_break()
    return x + 1, before, Counted.alive


def variable_that_a_function_still_reads(x):
    y = x * 2

    def twice():
        return y * 2

    pliant.graph_break()
    return twice() + 1


def variable_of_a_generator_behind_a_break(x):
    def parts(y):
        scaled = [part * y for part in (x, x + 1)]
        pliant.graph_break()
        yield scaled[0]
        yield scaled[1]

    return [part + 1 for part in parts(x * 3)]


def weak_references_to_dead_locals(x):
    first, second = Plain(), Plain()
    several = [weakref.ref(first), weakref.ref(second)]
    pliant.graph_break()
    x = x + sum(reference() is not None for reference in several)
    second = None
    pliant.graph_break()
    return x, sum(reference() is not None for reference in several)


def finalizer_of_a_caller(x):
    def inner(value):
        pliant.graph_break()
        return value * 2

    kept = Counted()
    y = inner(x)
    kept = None
    pliant.graph_break()
    return y, Counted.alive


def dead_reference(x):
    value = Plain()
    reference = weakref.ref(value)
    value = None
    pliant.graph_break()
    return x + 1, reference() is None


def dies_after_a_break(x):
    value = Plain()
    reference = weakref.ref(value)
    pliant.graph_break()
    value = None
    gc.collect()
    return x + 1, reference() is None


def text_of_values_of_a_dict(x):
    pliant.graph_break()

    class Raised(Exception):
        pass

    class Bad:
        def __repr__(self):
            raise Raised

    try:
        return repr({1: Bad()})
    except Raised:
        return "raised"


@pytest.mark.parametrize(
    "program",
    [
        finalizers,
        finalizer_of_a_dead_local,
        finalizer_of_a_dead_variable_of_inner_code,
        variable_that_a_function_still_reads,
        variable_of_a_generator_behind_a_break,
        weak_references_to_dead_locals,
        finalizer_of_a_caller,
        dead_reference,
        dies_after_a_break,
        text_of_values_of_a_dict,
    ],
)
def test_as_eager(program):
    x = torch.ones(2)
    compiled = pliant.compile(program)
    for _ in range(2):
        assert str(compiled(x)) == str(program(x))


def test_a_context_manager_without_exit():
    class Enters:
        def __enter__(self):
            pass

    def program(x):
        with Enters():
            return x

    with pytest.raises(TypeError, match=r"missed __exit__ method"):
        pliant.compile(program)(torch.ones(1))


def test_values_behind_a_break_are_let_go():
    """The tensor before the break is dropped by the program before the last operation."""
    seen = []

    def program(x):
        y = x * 2
        seen.append(weakref.ref(y))
        pliant.graph_break()
        z = y + 1
        del y
        pliant.graph_break()
        seen.append(seen[0]() is None)
        return z

    compiled = pliant.compile(program)
    for call in range(3):
        seen.clear()
        compiled(torch.ones(2))
        assert seen[1] is True or call == 0  # compiling may hold it


def test_a_copied_tuple_that_holds_itself():
    def program(x):
        pair = ([],)
        pair[0].append(pair)
        return x + 1, copy.deepcopy(pair)

    found = pliant.compile(program)(torch.ones(1))[1]
    assert found[0][0] is found


def test_callbacks_of_references_run_the_newest_first():
    def program(x, seen):
        held = Plain()
        one = weakref.ref(held, lambda _: seen.append("one"))
        end = weakref.finalize(held, seen.append, "end")
        two = weakref.ref(held, lambda _: seen.append("two"))
        pliant.graph_break()
        del held
        return x + 1, one, two, end.alive

    compiled, want, got = pliant.compile(program), [], []
    program(torch.ones(2), want)
    compiled(torch.ones(2), got)
    assert got == want == ["two", "end", "one"]


def test_what_only_guards_refer_to_is_not_seen():
    """`named_parameters` tells modules apart by a set, whose guards hold them weakly; its generator goes on behind breaks."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Linear(2, 1)))

    def program(x):
        found = []
        for name, p in module.named_parameters():
            pliant.graph_break()
            found.append((name, (p.sum() + x).detach()))
        return found

    pliant.reset()
    compiled, x = pliant.compile(program), torch.ones(2)
    for _ in range(2):
        assert str(compiled(x)) == str(program(x))
    assert pliant.stats()["graph_breaks"] == 4
