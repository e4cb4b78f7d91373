"""Small programs on which random programs once disagreed with eager."""

import bisect
import contextlib
import dataclasses
import heapq
import itertools
from collections import deque

import numpy as np
import pytest
import torch
from tests.capture.constructs.harness import observe, same

import pliant


class Failure(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.code = code

    def __str__(self):
        return f"failure {self.code}"


class Shown:
    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"Shown({self.value})"

    def __format__(self, spec):
        return f"{spec}:{self.value}"


class Scaled:
    scale = 2

    @property
    def doubled(self):
        return self.scale * 2


SCALED = Scaled()


def careful(log):
    try:
        for i in range(3):
            try:
                yield i
            except ValueError as error:
                log.append(str(error))
    except GeneratorExit:
        log.append("closed")
        raise
    finally:
        log.append("finally")


def delegating(log):
    result = yield from careful(log)
    log.append(result)


def dropped_generators(x, log):
    log.append(list(zip(range(2), careful(log))))
    log.append(any(v == 1 for v in careful(log)))
    return x + 1


def delegated_throw_and_close(x, log):
    steps = delegating(log)
    next(steps)
    log.append(steps.throw(ValueError("thrown")))
    steps.close()
    return x + 1


def texts_of_sizes(x, log):
    log.append(f"{x.shape}|{[x.shape[0]]}|{x.shape[0]:>4}|{Shown(x.shape[0])!r}|{Shown(1):spec}")
    log.append("{0[0]}{1.value!s}|{2:>{w}}".format([x.shape[0]], Shown(2), x.shape[0], w=5))
    log.append("%s %r" % ([Shown(1)], Shown(x.shape[0])))
    return x + 1


def errors_of_sizes(x, log):
    for wrong in (lambda n: n + "a", lambda n: n % 0, lambda n: n.nothing, lambda n: [][n], lambda n: {}[n]):
        try:
            wrong(x.shape[0])
        except Exception as error:
            log.append((type(error).__name__, str(error)))
    try:
        raise Failure(x.shape[0])
    except Failure as error:
        log.append(str(error))
    return x + 1


def numbers_of_sizes(x, log):
    n = x.shape[0]
    log.append((round(n, -1), round(n / 3, 1), divmod(n, 3), n.bit_length(), (n / 4).is_integer(), hash(n)))
    return x + n


def contexts_of_exceptions(x, log):
    try:
        try:
            raise ValueError(1)
        except ValueError:
            undefined  # noqa: B018, F821
    except NameError as error:
        log.append(type(error.__context__).__name__)
    try:
        {}[[]]
    except TypeError as error:
        log.append(str(error))
    return x + 1


def swallowed_by_an_exit_stack(x, log):
    with contextlib.ExitStack() as stack, contextlib.suppress(TypeError):
        stack.callback(log.append, "left")
        log.append(x.sum().item() > 1e9)
        {}[[]]
    return x + 1


def stores_into_a_class(x, log):
    Scaled.scale = 3 + x.dim()
    log.append(SCALED.doubled)
    Scaled.scale = 2
    return x + 1


def hooks_of_classes(x, log):
    class Base:
        def __init_subclass__(cls, **options):
            log.append(sorted(options))

    class Derived(Base, flag=1):
        pass

    return x + len(Derived.__mro__)


def attributes_and_their_dict(x, log):
    for _ in range(2):
        SCALED.extra = 1
        log.append(("extra" in SCALED.__dict__, sorted(SCALED.__dict__)))
        del SCALED.extra
    return x + 1


STATE: dict = {}


def order_of_stored_keys(x, log):
    STATE.clear()
    for name in ("first", "second", "first", "third"):
        STATE[name] = len(STATE)
    del STATE["second"]
    STATE["second"] = x.shape[0]
    log.append(list(STATE))
    return x + 1


def loop_before_a_raise(x, log):
    a = x * 100
    try:
        while a.abs().sum() > 10:
            a = a / 10
        raise ValueError(a.shape[0])
    except ValueError as error:
        log.append(str(error))
    return a


def thrown_into_one_that_has_not_started(x, log):
    try:
        raise KeyError
    except KeyError:
        try:
            (_ for _ in ()).throw(ValueError)
        except ValueError as error:
            log.append(type(error.__context__).__name__)
    return x + 1


def raised_after_a_failed_assumption(x, log):
    try:
        if x.sum() > 0:
            raise ValueError
    except ValueError as error:
        log.append(type(error.__context__).__name__)
    return x + 1


def numbers_sent_to_a_generator(x, log):
    def adding(total=0):
        for _ in range(2):
            total += yield total
        return total

    g = adding()
    next(g)
    try:
        while True:
            g.send(x.shape[0])
    except StopIteration as stop:
        log.append(stop.value)
    return x + 1


def printing_to_nothing(x, log):
    with contextlib.redirect_stdout(None):
        print("hidden", x.shape[0])
    return x + 1


def missing_keys_of_a_dict_of_its_own(x, log):
    class Made(dict):
        def __missing__(self, key):
            self[key] = key * 2
            return super().__getitem__(key)

        def __setitem__(self, key, value):
            log.append(("set", key))
            super().__setitem__(key, value)

    made = Made(a=1)
    log.append((made["q"], dict(made)))
    return x + 1


def heaps_of_numbers(x, log):
    heap = [x.shape[0], 9, 1, 5]
    heapq.heapify(heap)
    heapq.heappush(heap, x.shape[0] - 1)
    bisect.insort(heap, x.shape[0])
    log.append((heapq.heappop(heap), heap, heapq.nsmallest(2, [x.shape[0], 9, 1])))
    return x + 1


def classes_with_contents_across_a_break(x, log):
    rows = x.shape[0]

    class Default:
        def __get__(self, obj, owner=None):
            return rows

    class Holder:
        items = []
        rows = Default()

    holder = Holder()
    pliant.graph_break()
    Holder.items.append(rows)
    log.append((holder.rows, Holder.items, type(holder) is Holder))
    return x + 1


class Called:
    def __init__(self, log):
        self.log = log

    def __hash__(self):
        self.log.append("hash")
        return 1

    def __call__(self):
        self.log.append("call")

    def __pow__(self, other, modulus=None):
        self.log.append("pow")
        return modulus


def special_methods_run_once(x, log):
    called = Called(log)
    called()
    log.append(pow(called, 2, x.shape[0]))
    return x + 1


def dataclasses_with_defaults_of_the_call(x, log):
    rows = x.shape[0]

    @dataclasses.dataclass
    class Row:
        left: object
        right: int = rows
        tags: list = dataclasses.field(default_factory=lambda: [rows])

    row = Row(1)
    row.tags.append(3)
    pliant.graph_break()
    log.append((row.right, row.tags, Row(2).right))
    return x + 1


class Plain:
    scale = 3


PLAIN = Plain()


def values_stored_into_a_class(x, log):
    before = PLAIN.scale
    Plain.scale = x.shape[0] + 1
    log.append((before > 0, PLAIN.scale, Plain.scale))
    return x + 1


def _context(log):
    try:
        pliant.graph_break()
        {}["missing"]
    except KeyError as error:
        log.append(type(error.__context__).__name__)


def contexts_across_a_break(x, log):
    try:
        raise ValueError
    except ValueError:
        _context(log)
    _context(log)
    return x + 1


class Stack(list):
    def __getitem__(self, index):
        return super().__getitem__(index)


def slices_of_a_list_of_its_own(x, log):
    stack = Stack([1, x.shape[0]])
    pliant.graph_break()
    log.append((stack[1:], stack[-1], stack[0]))
    return x + 1


def raise_before_a_break(x, log):
    try:
        if x.sum() > 0:
            raise ValueError
    except ValueError:
        log.append("raised")
    pliant.graph_break()
    log.append("end")
    return x + 1


def wrapped():
    pass


def names_of_a_function_whose_dict_was_read(x, log):
    def wrapper():
        pass

    wrapper.__dict__.update(wrapped.__dict__)
    wrapped.mark = 1
    log.append((wrapped.__name__, wrapped.__doc__, wrapped.mark, getattr(wrapped, "other", None)))
    del wrapped.mark
    log.append(hasattr(wrapped, "mark"))
    return x + 1


class Counted:
    """Notes how C code looks at it."""

    def __init__(self, log):
        self.log = log

    def __int__(self):
        self.log.append("int")
        return 2

    def __float__(self):
        self.log.append("float")
        return 2.5

    def __index__(self):
        self.log.append("index")
        return 2


def numbers_of_objects(x, log):
    error = ValueError

    class Complex:
        def __complex__(self):
            raise error

    try:
        complex(Complex())
    except ValueError:
        log.append("raised by __complex__")
    one = Counted(log)
    log.append((complex(one), complex(1, one), int(one), float(one), "%d %f" % (one, one)))
    log.append(
        (list(enumerate("ab", one)), list(itertools.islice("abc", one)), list(itertools.combinations("abc", one)))
    )
    log.append(([1, 2, 3][one], range(one), hex(one)))
    return x + 1


PROGRAMS = (
    numbers_of_objects,
    names_of_a_function_whose_dict_was_read,
    dropped_generators,
    delegated_throw_and_close,
    texts_of_sizes,
    errors_of_sizes,
    numbers_of_sizes,
    contexts_of_exceptions,
    swallowed_by_an_exit_stack,
    stores_into_a_class,
    hooks_of_classes,
    attributes_and_their_dict,
    order_of_stored_keys,
    loop_before_a_raise,
    thrown_into_one_that_has_not_started,
    raised_after_a_failed_assumption,
    numbers_sent_to_a_generator,
    printing_to_nothing,
    missing_keys_of_a_dict_of_its_own,
    heaps_of_numbers,
    classes_with_contents_across_a_break,
    special_methods_run_once,
    dataclasses_with_defaults_of_the_call,
    values_stored_into_a_class,
    contexts_across_a_break,
    slices_of_a_list_of_its_own,
    raise_before_a_break,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_agrees_with_eager(program):
    compiled = pliant.compile(program, backend="eager")
    with pliant.config.patch(strict=True):
        for rows in (4, 4, 5, 2):
            want, got = observe(program, (torch.ones(rows, 3), [])), observe(compiled, (torch.ones(rows, 3), []))
            assert same(got, want), (got, want)


def test_a_tuple_of_a_list_that_was_extended_before_a_break():
    opaque = pliant.disable(lambda: None)

    def items(many):
        if many:
            yield 1
        opaque()

    def program(x, many):
        return x + 1, len((0, *items(many)))

    compiled = pliant.compile(program, backend="eager")
    for many in (True, False, True):
        assert compiled(torch.ones(1), many)[1] == program(torch.ones(1), many)[1]


def test_an_index_that_was_out_of_range():
    def program(x, values):
        try:
            return x + values[1]
        except IndexError:
            return x - 1

    compiled = pliant.compile(program, backend="eager")
    for values in ([1], [1, 2], [3]):
        assert compiled(torch.ones(1), values) == program(torch.ones(1), values)


@pytest.mark.parametrize("breaks", [False, True])
def test_a_generator_that_returns_nothing_ends_with_an_error_of_no_argument(breaks):
    opaque = pliant.disable(lambda: None) if breaks else lambda: None

    def items():
        yield 1
        opaque()

    def program(x):
        it = items()
        next(it)
        try:
            return x, next(it)
        except StopIteration as error:
            return x + 1, error.args, str(error)

    assert pliant.compile(program, backend="eager")(torch.ones(1)) == program(torch.ones(1))


def out_of_range(x):
    return x[torch.tensor([99]).clone()]


def failing_operator_behind_effects(x, log):
    log.append("before")
    print("before", x.shape[0])
    return out_of_range(x)


def failing_operator_that_is_caught(x, log):
    try:
        return out_of_range(x)
    except IndexError as error:
        log.append(str(error))
    return x + 1


def failing_operator_in_a_block(x, log):
    with contextlib.suppress(IndexError):
        log.append(1)
        try:
            out_of_range(x)
        finally:
            log.append(2)
    return x + len(log)


def writes_that_overlap(x, log):
    log.append(1)
    y = x * 2
    y -= torch.split(y, 1)[0]
    return y


def writes_that_do_not_overlap(x, log):
    y = x.repeat(4, 2)
    y[:, 0].mul_(y[:, 1])
    y[0] += y[1]
    y.add_(y)
    return y


def a_branch_that_raises(x, log):
    if x.sum() > 4.0:
        raise ValueError(1)
    return x * 2


BY_DATA = [
    a_branch_that_raises,
    failing_operator_behind_effects,
    failing_operator_that_is_caught,
    failing_operator_in_a_block,
    writes_that_overlap,
    writes_that_do_not_overlap,
]


COMPILED = [(a_branch_that_raises, "aot_eager")]
COMPILED += [(failing_operator_behind_effects, "pliant"), (writes_that_overlap, "pliant")]


@pytest.mark.parametrize("function, backend", [*((f, "eager") for f in BY_DATA), *COMPILED])
def test_an_operator_that_fails_when_it_runs(function, backend):
    compiled = pliant.compile(function, backend=backend)
    for size in (3, 3, 5):
        want, got = (observe(f, (torch.arange(float(size)), [])) for f in (function, compiled))
        assert same(got, want)


def test_errors_of_a_backend_are_its_own():
    def failing(*inputs):
        raise RuntimeError("the backend's")

    with pytest.raises(RuntimeError, match="the backend's"):
        pliant.compile(lambda x: x + 1, backend=lambda module, inputs: failing)(torch.ones(2))


class Interrupted(Exception):
    def __init__(self, n):
        pliant.graph_break()
        super().__init__(n)
        pliant.graph_break()
        self.code = 1


def test_an_exception_that_breaks_while_it_is_made():
    def program(x, log):
        error = ValueError(1)
        pliant.graph_break()
        error.__init__(x.shape[0], 3)
        error.add_note("note")
        log += [error.args, str(error)]
        raise Interrupted(x.shape[0])

    compiled = pliant.compile(program, backend="eager")
    for size in (2, 3, 4):
        want, got = (observe(f, (torch.ones(size), [])) for f in (program, compiled))
        assert same(got, want)


def array_as_default(x, value):
    @dataclasses.dataclass
    class Row:
        right: object = value


@pytest.mark.parametrize("value", [np.ones(2), [1], deque()], ids=["array", "list", "deque"])
@pytest.mark.parametrize(
    "use",
    [array_as_default, lambda x, v: {v: 1}, lambda x, v: hash(v), lambda x, v: v in {1, 2}, lambda x, v: {(1, v)}],
    ids=["default", "key", "hash", "contained", "in a tuple"],
)
def test_complaints_of_values_without_a_hash(use, value):
    compiled = pliant.compile(use, backend="eager")
    for _ in range(2):
        want, got = (observe(f, (torch.ones(1), value)) for f in (use, compiled))
        assert same(got, want)
