"""Tracebacks of exceptions that a program raises and handles: the program's files, functions, lines and columns."""

import contextlib
import sys
import traceback
import unittest

import pytest
import torch

import pliant

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def walk(error):
    found = []
    step = error.__traceback__
    while step is not None:
        found.append((step.tb_lineno, step.tb_frame.f_code.co_name))
        step = step.tb_next
    return found


def lines(error):
    return [line for line, _ in walk(error)]


def deep(n):
    if n == 0:
        raise KeyError("k")
    return deep(n - 1)


@program
def raises(x):
    try:
        raise ValueError("a")
    except ValueError as e:
        return x + e.__traceback__.tb_lineno


@program
def divides_by_zero(x):
    try:
        y = 1
        y // 0
    except ZeroDivisionError as e:
        return x + e.__traceback__.tb_lineno


@program
def misses_a_key(x):
    d = {}
    try:
        d["q"]
    except KeyError as e:
        return x, walk(e)


@program
def several_calls_deep(x):
    try:
        deep(2)
    except KeyError as e:
        return x, walk(e)


@program
def asks_lines_alone(x):
    try:
        deep(2)
    except KeyError as e:
        return x, lines(e)


@program
def formats(x):
    try:
        deep(1)
    except KeyError as e:
        return x + 1, traceback.format_exc()


@program
def returns_the_error(x):
    try:
        deep(1)
    except KeyError as e:
        return x + 1, e


@program
def raises_again(x):
    try:
        try:
            deep(1)
        except KeyError as e:
            raise
    except KeyError as e:
        return x, walk(e)


@program
def raises_again_by_name(x):
    try:
        try:
            deep(1)
        except KeyError as e:
            raise e
    except KeyError as e:
        return x, walk(e)


@program
def runs_finally(x):
    out = []
    try:
        try:
            deep(0)
        finally:
            out.append(1)
    except KeyError as e:
        return x, walk(e)


@program
def raises_from(x):
    try:
        try:
            deep(0)
        except KeyError as e:
            raise ValueError("b") from e
    except ValueError as v:
        return x, walk(v), walk(v.__cause__), walk(v.__context__)


class Swallows:
    def __enter__(self):
        return self

    def __exit__(self, t, v, tb):
        self.l = tb.tb_lineno
        return True


@program
def leaves_a_with_block(x):
    c = Swallows()
    with c:
        deep(1)
    return x + c.l


@program
def asks_exc_info(x):
    try:
        deep(1)
    except KeyError:
        t, v, tb = sys.exc_info()
        return x + tb.tb_lineno, tb.tb_next.tb_lineno


@program
def raises_behind_a_break(x):
    try:
        pliant.graph_break()
        deep(1)
    except KeyError as e:
        return x, walk(e)


@program
def breaks_while_handling(x):
    try:
        deep(1)
    except KeyError as e:
        pliant.graph_break()
        return x + 1, walk(e)


def gen():
    yield 1
    raise KeyError("g")


@program
def in_a_generator(x):
    try:
        for i in gen():
            x = x + i
    except KeyError as e:
        return x, walk(e)


@program
def through_c_code(x):
    try:
        sorted([3, 1], key=lambda a: {}[a])
    except KeyError as e:
        return x, walk(e)


@program
def misses_an_attribute(x):
    try:
        x.nope
    except AttributeError as e:
        return x + 1, walk(e)


@program
def in_c_code(x):
    try:
        int("q")
    except ValueError as e:
        return x + 1, walk(e)


@program
def stores_the_error(x):
    l = []
    try:
        deep(1)
    except KeyError as e:
        l.append(e)
    return x + 1, l


@program
def returns_the_traceback(x):
    try:
        deep(1)
    except KeyError as e:
        return x + 1, e.__traceback__


@program
def drops_the_traceback(x):
    e = KeyError("z")
    try:
        raise e.with_traceback(None)
    except KeyError as e2:
        return x, walk(e2)


@program
def raises_one_error_twice(x):
    e = KeyError("z")
    for i in range(2):
        try:
            raise e
        except KeyError:
            pass
    return x, walk(e)


@program
def raises_in_turns(x):
    out = []
    for i in range(3):
        try:
            if i == 1:
                raise ValueError(i)
            deep(i)
        except (ValueError, KeyError) as e:
            out.append(walk(e))
    return x, out


@program
def extracts(x):
    try:
        deep(1)
    except KeyError as e:
        return x, [(f.lineno, f.name, f.line) for f in traceback.extract_tb(e.__traceback__)]


@program
def asserts(x):
    try:
        assert x.shape[0] == 77, "no"
    except AssertionError as e:
        return x, walk(e)


@program
def ends_an_iterator(x):
    it = iter([])
    try:
        next(it)
    except StopIteration as e:
        return x, walk(e)


@program
def splits_a_group(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
        except* ValueError as e:
            pass
    except* KeyError as g:
        r = walk(g)
    return x, r


@program
def in_an_operator(x):
    try:
        x @ torch.ones(77, 2)
    except RuntimeError as e:
        return x, walk(e)


class Raises(torch.nn.Module):
    def forward(self, x):
        raise ValueError("m")


module = Raises()


@program
def in_a_module(x):
    try:
        module(x)
    except ValueError as e:
        return x, walk(e)


def breaks_and_raises(x):
    pliant.graph_break()
    raise ValueError("brk")


@program
def breaks_inside_a_call(x):
    try:
        breaks_and_raises(x)
    except ValueError as e:
        return x, walk(e)


@program
def breaks_and_raises_again(x):
    try:
        try:
            deep(1)
        except KeyError as e:
            pliant.graph_break()
            raise
    except KeyError as e:
        return x, walk(e)


@program
def in_what_runs_eagerly(x):
    try:
        x.numpy().nope
    except AttributeError as e:
        return x, walk(e)


@program
def asks_locals(x):
    q = 5
    try:
        deep(0)
    except KeyError as e:
        return x, e.__traceback__.tb_frame.f_locals["q"]


@program
def asks_the_caller(x):
    try:
        deep(0)
    except KeyError as e:
        return x, e.__traceback__.tb_next.tb_frame.f_back.f_code.co_name


def closure(k):
    def inner(x):
        y = k
        raise ValueError(y)

    return inner


@program
def in_a_closure(x):
    try:
        closure(1)(x)
    except ValueError as e:
        return (
            x,
            walk(e),
            e.__traceback__.tb_next.tb_frame.f_code.co_qualname,
            e.__traceback__.tb_frame.f_globals is globals(),
        )


def genthrow():
    try:
        yield 1
    except ValueError:
        yield 2
        raise


@program
def throws_into_a_generator(x):
    g = genthrow()
    next(g)
    g.throw(ValueError("t"))
    try:
        next(g)
    except ValueError as e:
        return x, walk(e)


@program
def in_a_delegated_generator(x):
    def a():
        yield from gen()

    try:
        for q in a():
            pass
    except KeyError as e:
        return x, walk(e)


@program
def in_a_comprehension(x):
    try:
        [deep(i) for i in range(2)]
    except KeyError as e:
        return x, walk(e)


@program
def in_part_of_a_line(x):
    try:
        z = (1 + 2) * (3 // 0) + deep(3)
    except ZeroDivisionError as e:
        return x, e


@program
def in_a_property(x):
    class P:
        @property
        def v(self):
            return self.w

    try:
        P().v
    except AttributeError as e:
        return x, walk(e)


@program
def through_finally(x):
    def f():
        try:
            return 1 // 0
        finally:
            x.sum()

    try:
        f()
    except ZeroDivisionError as e:
        return x, walk(e)


@program
def calls_wrongly(x):
    try:
        (lambda: deep())()
    except TypeError as e:
        return x, walk(e)


@program
def in_a_context_manager(x):
    @contextlib.contextmanager
    def cm():
        try:
            yield
        finally:
            pass

    try:
        with cm():
            deep(0)
    except KeyError as e:
        return x, walk(e)


def described(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, BaseException):
        return repr(value), walk(value), traceback.format_exception(value)
    if isinstance(value, (tuple, list)):
        return [described(one) for one in value]
    return traceback.format_tb(value) if type(value).__name__ == "traceback" else value


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.fallbacks_expected  # frames cannot be made again
def test_traceback_is_as_in_eager(name):
    compiled = pliant.compile(PROGRAMS[name], backend="eager")
    for _ in range(2):
        x = torch.ones(2)
        assert described(compiled(x)) == described(PROGRAMS[name](x))


def test_tracebacks_of_two_calls_are_two():
    compiled = pliant.compile(PROGRAMS["returns_the_error"], backend="eager")
    first, second = (compiled(torch.ones(2))[1] for _ in range(2))
    first.__traceback__.tb_next = None
    assert len(walk(second)) == 3
    assert pliant.stats()["graphs"] > 0


def caught_and_yielded():
    try:
        int("no number")
    except ValueError as error:
        yield error
    yield 3


def ends_frames(x):
    case = unittest.TestCase()
    with case.assertRaises(ValueError) as found:
        int("no number")
    with case.assertRaisesRegex(ZeroDivisionError, "by zero"):
        1 // 0
    case.assertRaises(KeyError, {}.__getitem__, 1)
    return x + 1, str(found.exception)


def ends_a_generator(x):
    generator = caught_and_yielded()
    error = next(generator)
    traceback.clear_frames(error.__traceback__)
    return x + 1, next(generator, "ended")


def test_frames_of_a_traceback_are_cleared():
    expected = ends_frames(torch.ones(2))[1]
    assert pliant.compile(ends_frames, backend="eager", fullgraph=True)(torch.ones(2))[1] == expected


@pytest.mark.fallbacks_expected
def test_a_generator_in_a_traceback_ends():
    expected = ends_a_generator(torch.ones(2))[1]
    assert pliant.compile(ends_a_generator, backend="eager")(torch.ones(2))[1] == expected
