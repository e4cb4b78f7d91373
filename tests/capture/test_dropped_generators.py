"""Suspended generators are closed where eager closes them: when the last reference goes, at the latest with the frame."""

import contextlib
import gc
import sys

import pytest
import torch

import pliant
from pliant.capture.iterators import generators


def careful(log, n):
    try:
        for i in range(n):
            got = yield i
            log.append(("got", got))
    except ValueError as error:
        log.append(str(error))
        yield "after"
    finally:
        log.append("finally")


@contextlib.contextmanager
def scope(log, name):
    try:
        yield name
    finally:
        log.append(name)


def in_two_contexts(log):
    with scope(log, "outer"), scope(log, "inner"):
        yield 1


def delegating(log):
    inner = careful(log, 3)
    log.append(next(inner))
    yield from inner


def beside_one_that_ends_first(log):
    log.append(list(zip((i for i in range(2)), careful(log, 3))))


def contexts_inside(log):
    it = in_two_contexts(log)
    next(it)
    it.close()
    log.append("end")


def dead_at_a_break(log):
    it = careful(log, 3)
    next(it)
    pliant.graph_break()
    log.append("end")


def contexts_dead_at_a_break(log):
    it = in_two_contexts(log)
    next(it)
    pliant.graph_break()
    log.append("end")


def used_behind_a_break(log):
    it = careful(log, 3)
    next(it)
    pliant.graph_break()
    log.append((next(it), it.send(4)))
    del it
    log.append("end")


def replaced_behind_a_break(log):
    it = careful(log, 3)
    next(it)
    pliant.graph_break()
    log.append(it.throw(ValueError("thrown")))
    it = None
    log.append("end")


def in_a_callee(log):
    def inner():
        it = careful(log, 3)
        next(it)
        pliant.graph_break()
        log.append("inner")

    inner()
    log.append("outer")
    pliant.graph_break()


def delegates_to_another(log):
    it = delegating(log)
    next(it)
    pliant.graph_break()
    log.append(next(it))
    pliant.graph_break()
    log.append("end")


def only_a_method_of_it(log):
    send = careful(log, 3).send
    send(None)
    pliant.graph_break()
    log.append(send(4))


def only_an_iterator_over_it(log):
    it = careful(log, 3)
    next(it)
    texts = map(str, it)
    del it
    pliant.graph_break()
    log.append(texts is None)


def in_each_turn(log):
    for turn in range(2):
        it = careful(log, 3)
        next(it)
        pliant.graph_break()
        log.append(turn)


def looked_at_by_name(log):
    it = careful(log, 3)
    next(it)
    pliant.graph_break()
    log.append(type(locals()["it"]).__name__)


def behind_an_exception(log):
    it = careful(log, 3)
    next(it)
    try:
        pliant.graph_break()
        raise ValueError
    except ValueError:
        log.append(1)
    log.append(it.gi_frame is None)


def closing_another(log):
    other = careful(log, 3)
    next(other)
    other.close()
    try:
        yield 1
    finally:
        log.append("closed")


def beside_one_that_was_closed(log):
    pliant.graph_break()
    it = closing_another(log)
    log.append(next(it))


def in_a_frame_that_raises(log):
    def inner():
        try:
            raise ValueError
        finally:
            it = careful(log, 3)
            next(it)
            pliant.graph_break()

    try:
        inner()
    except ValueError:
        pass
    log.append("end")


def catching(log):
    pliant.graph_break()
    try:
        yield 1
    except KeyError as error:
        log.append(repr(error))
        yield 2
    finally:
        log.append("closed")


def thrown_into_behind_a_break(log):
    it = catching(log)
    next(it)
    log.append(it.throw(KeyError("thrown")))


def replaced_while_it_delegates(log):
    it = delegating(log)
    next(it)
    next(it)
    pliant.graph_break()
    log.append("resumed")
    it = None
    log.append("end")


def replaced_where_the_rest_runs_eagerly(log):
    it = careful(log, 3)
    next(it)
    pliant.graph_break()
    log.append(sys.getrefcount(it) > 100)
    it.gi_frame.f_lasti  # what a frame is in is for eager to say
    it = None
    log.append("end")


class Noted:
    def __init__(self, log, *kinds):
        self.log = log
        self.kinds = kinds

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(kind and kind.__name__)
        return kind is not None and issubclass(kind, self.kinds)


def breaking(log):
    with Noted(log):
        pliant.graph_break()
        yield 1
        yield 2


def delegating_to_one_that_breaks(log):
    with Noted(log):
        yield from breaking(log)


def started_by_the_operation_that_breaks(log):
    it = delegating_to_one_that_breaks(log)
    log.append(next(it))
    log.append("end")


def started_in_a_tuple(log):
    pair = (delegating_to_one_that_breaks(log), 1)
    log.append(next(pair[0]))
    pair = None
    log.append("end")


def left_by_a_loop(log):
    for value in delegating_to_one_that_breaks(log):
        log.append(value)
        break
    log.append("end")


def alive_while_an_operator_fails(log):
    it = careful(log, 3)
    next(it)
    with Noted(log, RuntimeError):
        torch.ones(2) @ torch.ones(3)


def left_by_an_exception_behind_a_break(log):
    try:
        for value in careful(log, 3):
            if value == 0:
                pliant.graph_break()
            else:
                raise KeyError(value)
    except KeyError as error:
        log.append(repr(error))


def replaces_one_outside_its_try(log):
    def late():
        yield 1
        try:
            yield 2
        finally:
            log.append("finally")

    it = late()
    next(it)
    it = late()
    next(it)
    log.append(next(it))


def in_a_zip_that_a_loop_leaves(log):
    for pair in zip(careful(log, 3), careful(log, 3)):
        pliant.graph_break()
        log.append(pair)
        if pair[0]:
            break
    log.append("end")


def dropped_by_a_callee(log):
    def use(it):
        log.append(next(it))
        it = None
        log.append("dropped")

    use(careful(log, 3))
    log.append("end")


def held_by_a_function_alone(log):
    it = careful(log, 3)
    next(it)

    def step():
        return next(it)

    log.append(step())


def breaks_where_it_is_dropped(log):
    def closing():
        try:
            yield 1
        finally:
            pliant.graph_break()
            log.append("closed")

    it = closing()
    log.append(next(it))
    it = None
    log.append("end")


def held_by_one_that_is_dropped(log):
    for value in (v + 1 for v in breaking(log)):
        log.append(value)
        break
    log.append("end")


class Holder:
    def __init__(self, it):
        self.it = it


def closes_what_it_delegates_to(log, holder=None):
    def outer():
        yield from holder.it

    holder = Holder(careful(log, 3))
    pliant.graph_break()
    for value in outer():
        log.append(value)
        if value:
            break
    log.append("end")


class Ending:
    """An iterator with an end of its own."""

    def __init__(self, log):
        self.log = log
        self.left = 2

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left

    def __del__(self):
        self.log.append("deleted")


def iterators_that_end(log):
    for value in Ending(log):
        pliant.graph_break()
        log.append(value)
    log.append("end")
    try:
        for value in Ending(log):
            pliant.graph_break()
            raise KeyError(value)
    except KeyError:
        log.append("caught")


def operands_that_end(log):
    def use(ending, _):
        del ending
        log.append("used")

    use(Ending(log), pliant.graph_break())
    log.append("end")


def unpacked_too_far(log):
    it = careful(log, 4)
    try:
        a, b = it
    except ValueError as error:
        log.append(str(error))
    log.append(next(it))


def fails_behind_a_break():
    pliant.graph_break()
    raise KeyError(4)


def while_it_handles(log):
    try:
        fails_behind_a_break()
    except KeyError as error:  # its traceback leads to the generator's own frame
        yield str(error)
    finally:
        log.append("finally")


def dropped_while_it_handles(log):
    it = while_it_handles(log)
    log.append(next(it))
    it = None
    log.append("dropped")


PROGRAMS = (
    dropped_while_it_handles,
    left_by_an_exception_behind_a_break,
    replaces_one_outside_its_try,
    in_a_zip_that_a_loop_leaves,
    dropped_by_a_callee,
    held_by_a_function_alone,
    breaks_where_it_is_dropped,
    held_by_one_that_is_dropped,
    closes_what_it_delegates_to,
    iterators_that_end,
    operands_that_end,
    unpacked_too_far,
    started_by_the_operation_that_breaks,
    started_in_a_tuple,
    left_by_a_loop,
    alive_while_an_operator_fails,
    replaced_while_it_delegates,
    replaced_where_the_rest_runs_eagerly,
    beside_one_that_ends_first,
    contexts_inside,
    dead_at_a_break,
    contexts_dead_at_a_break,
    used_behind_a_break,
    replaced_behind_a_break,
    in_a_callee,
    delegates_to_another,
    only_a_method_of_it,
    only_an_iterator_over_it,
    in_each_turn,
    looked_at_by_name,
    behind_an_exception,
    beside_one_that_was_closed,
    in_a_frame_that_raises,
    thrown_into_behind_a_break,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.fallbacks_expected  # generators that await cannot be made again
def test_closed_where_eager_closes(program):
    def run(x, log):
        program(log)
        return x + 1

    theirs: list = []
    run(torch.ones(1), theirs)
    compiled = pliant.compile(run, backend="eager")
    for _ in range(2):  # captured, then from the entry
        mine: list = []
        compiled(torch.ones(1), mine)
        assert mine == theirs


def breaks_twice(log):
    pliant.graph_break()
    yield None
    try:
        pliant.graph_break()
        yield 1
    finally:
        log.append("finally")


def test_closed_where_the_trace_that_goes_on_in_it_is_done():
    def program(x):
        log = []
        log.append(any(v == 1 for v in breaks_twice(log)))
        return log

    compiled = pliant.compile(program, backend="eager")
    gc.disable()
    try:
        assert compiled(torch.ones(1)) == program(torch.ones(1))
    finally:
        gc.enable()


def test_symbolic_numbers_are_not_searched_for_generators(monkeypatch):
    """They lead to all that the trace knows."""
    met, reached = [], generators.reached
    monkeypatch.setattr(generators, "reached", lambda *args: (met.append(one) or one for one in reached(*args)))

    def scaled(x, size):
        return x * size

    def program(x):
        for factor in (n + 1 for n in range(8)):
            x = scaled(x, x.shape[0] + factor)
        return x

    x = torch.ones(3)
    assert torch.equal(pliant.compile(program, backend="eager", dynamic=True)(x), program(x))
    assert 8 <= len(met) < 100
