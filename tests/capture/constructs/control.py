"""Control flow, loops, comprehensions, generators, exceptions, pattern matching."""

import sys

import torch
from tests.capture.constructs.harness import program

import pliant


@program("control")
def if_on_constant(x, y):
    flag = 3
    if flag > 2:
        return x + y
    return x - y


@program("control")
def if_on_shape(x, y):
    if x.shape[0] > 2 and x.dim() == 2:
        return x * 2
    return y


@program("control")
def for_range(x, y):
    for i in range(4):
        x = x + i * y
    return x


@program("control")
def for_else(x, y):
    for i in range(3):
        if i == 5:
            break
    else:
        x = x + 1
    return x


@program("control")
def while_loop(x, y):
    i = 0
    while i < 3:
        x = x * 2
        i += 1
        if i == 2:
            continue
    return x, i


@program("control")
def nested_loops_break(x, y):
    for i in range(3):
        for j in range(3):
            if j > i:
                break
            x = x + i * j
    return x


@program("control")
def iterate_tensor(x, y):
    return [row.sum() for row in x]


@program("control")
def comprehension_with_condition(x, y):
    return [x + i for i in range(6) if i % 2]


@program("control")
def dict_comprehension(x, y):
    return {f"k{i}": x * i for i in range(3)}


@program("control")
def set_comprehension(x, y):
    return x * len({i % 3 for i in range(10)})


@program("control")
def nested_comprehension(x, y):
    return [[x + i + j for i in range(2)] for j in range(2)]


@program("control")
def generator_expression_sum(x, y):
    return sum(x * i for i in range(3))


@program("control")
def generator_function(x, y):
    def gen(n):
        for i in range(n):
            yield x + i

    return list(gen(3))


@program("control")
def generator_send(x, y):
    def gen():
        total = x
        while True:
            got = yield total
            if got is None:
                return
            total = total + got

    g = gen()
    next(g)
    g.send(1.0)
    return g.send(y)


@program("control")
def yield_from_value(x, y):
    def inner():
        yield x
        yield y
        return 7

    def outer():
        n = yield from inner()
        yield x * n

    return list(outer())


@program("control")
def generator_star_args(x, y):
    def f(*args):
        return torch.stack(args)

    return f(*(x + i for i in range(3)))


@program("control")
def generator_try_finally(x, y):
    log = []

    def gen():
        try:
            yield x
            yield y
        finally:
            log.append("closed")

    g = gen()
    a = next(g)
    g.close()
    return a, log


@program("control")
def generator_throw(x, y):
    def gen():
        try:
            yield x
        except ValueError as error:
            yield y + len(str(error))

    g = gen()
    next(g)
    return g.throw(ValueError("abc"))


@program("control")
def try_except(x, y):
    try:
        raise ValueError("no")
    except ValueError as error:
        return x + len(str(error))


@program("control")
def try_finally(x, y):
    out = []
    try:
        out.append(x + 1)
    finally:
        out.append(y)
    return out


@program("control")
def try_else_finally(x, y):
    order = []
    try:
        order.append("try")
    except KeyError:
        order.append("except")
    else:
        order.append("else")
    finally:
        order.append("finally")
    return x, order


@program("control")
def except_chain(x, y):
    try:
        try:
            {}["a"]
        except KeyError as error:
            raise RuntimeError("outer") from error
    except RuntimeError as error:
        return x, type(error.__cause__).__name__, str(error)


@program("control")
def except_context(x, y):
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise RuntimeError("b")
    except RuntimeError as error:
        return x + 1, type(error.__context__).__name__


@program("control")
def bare_reraise(x, y):
    seen = []
    try:
        try:
            raise IndexError("i")
        except IndexError:
            seen.append(1)
            raise
    except IndexError:
        seen.append(2)
    return x, seen


@program("control")
def return_in_finally(x, y):
    def f():
        try:
            return x
        finally:
            y.sum()

    return f()


@program("control")
def index_error_in_list(x, y):
    items = [x]
    try:
        items[3]
    except IndexError:
        return y


@program("control")
def key_error_default(x, y):
    d = {"a": x}
    try:
        return d["b"]
    except KeyError as error:
        return d["a"], error.args


@program("control")
def custom_exception(x, y):
    class Odd(Exception):
        def __init__(self, n):
            super().__init__(f"odd {n}")
            self.n = n

    try:
        raise Odd(3)
    except Odd as error:
        return x * error.n, str(error)


@program("control")
def match_literal(x, y):
    match x.dim():
        case 1:
            return x
        case 2:
            return y
        case _:
            return x + y


@program("control")
def match_sequence(x, y):
    match [x, y, 3]:
        case [a, *rest, 3]:
            return a, rest


@program("control")
def match_mapping(x, y):
    match {"kind": "add", "value": x}:
        case {"kind": "add", "value": v}:
            return v + y


@program("control")
def match_class(x, y):
    class P:
        __match_args__ = ("a", "b")

        def __init__(self, a, b):
            self.a, self.b = a, b

    match P(x, 2):
        case P(a, b=2):
            return a * 2


@program("control")
def chained_comparison(x, y):
    n = x.shape[1]
    return x if 2 < n <= 4 else y


@program("control")
def walrus(x, y):
    if (n := x.shape[1]) > 3:
        return x + n
    return y


@program("control")
def conditional_expression(x, y):
    return x + (1 if x.dtype == torch.float32 else 2)


@program("control")
def assertion(x, y):
    assert x.shape == y.shape, "shapes"
    return x + y


@program("control")
def star_unpacking(x, y):
    a, *b, c = [x, y, x + y, x - y]
    return a, b, c


@program("control")
def recursion(x, y):
    def f(n):
        return x if n == 0 else f(n - 1) + y

    return f(4)


@program("control", whole=False)
def branch_on_data(x, y):
    if x.sum() > 0:
        return x + 1
    return y - 1


@program("control", whole=False)
def branch_on_data_in_loop(x, y):
    for i in range(3):
        if x.mean() > i:
            x = x - y
        else:
            x = x + y
    return x


@program("control", whole=False)
def break_in_nested_call(x, y):
    def g(a):
        b = a * 2
        if b.sum() > 100:
            b = b + 1
        return b * 3

    z = g(x) + 1
    return z * y


@program("control", whole=False)
def break_in_with(x, y):
    with torch.no_grad():
        z = x + 1
        if z.sum() > 0:
            z = z * 2
    return z + y


@program("control")
def break_in_try(x, y):
    try:
        z = x + 1
        if z.sum() > 1000:
            raise ValueError
        z = z * 2
    except ValueError:
        z = y
    finally:
        z = z + 1
    return z


@program("control")
def item_call(x, y):
    n = int(x.abs().sum().item())
    return y * n


@program("control", whole=False)
def uncaught_exception(x, y):
    z = x + 1
    raise ValueError(f"bad {z.dim()}")


@program("control", whole=False)
def shape_error(x, y):
    return x @ y


@program("control")
def caught_tensor_error(x, y):
    try:
        return x @ y
    except RuntimeError:
        return x + y


def handling_one():
    """A generator that stands in a handler, and then behind it."""
    try:
        raise ValueError
    except ValueError:
        yield sys.exc_info()[0]
    yield sys.exc_info()[0]
    raise TypeError


@program("control")
def generators_handle_what_their_callers_do(x, y):
    items, found = handling_one(), []
    try:
        raise IndexError
    except IndexError:
        found.append(next(items))
    found.append(next(items))  # nothing is handled any more
    try:
        next(items)
    except TypeError as error:
        return x + 1, found, error.__context__ is None


@program("control")
def generators_that_delegate_in_handlers(x, y):
    def around():
        try:
            raise KeyError
        except KeyError:
            yield from handling_one()

    items, found = around(), []
    try:
        raise IndexError
    except IndexError:
        found.append(next(items))
    found.append(next(items))
    try:
        next(items)
    except TypeError as error:
        found += [type(error.__context__), type(error.__context__.__context__)]
    return x + 1, found, sys.exc_info()


@program("control", whole=False)
def breaks_in_generators_that_handle(x, y):
    def items():
        try:
            raise ValueError
        except ValueError:
            pliant.graph_break()
            yield sys.exc_info()[0]
        pliant.graph_break()
        yield sys.exc_info()[0]

    found = []
    try:
        raise IndexError
    except IndexError:
        for item in items():
            found += [item, sys.exc_info()[0]]
    return x + 1, found, sys.exc_info()
