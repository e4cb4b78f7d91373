"""Small functions with every kind of control flow, and arguments to call them with. No step limits: all of them end."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

LOG: list[str] = []
TOTAL = 0


class Manager:
    def __init__(self, swallow: bool) -> None:
        self.swallow = swallow

    def __enter__(self) -> "Manager":
        LOG.append("enter")
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        LOG.append(f"exit {kind and kind.__name__}")
        return self.swallow

    def twice(self, x: int) -> int:
        return 2 * x


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y


class Base:
    def scale(self, x: int, *, by: int = 3) -> int:
        return x * by


class Derived(Base):
    def scale(self, x: int, *, by: int = 3) -> int:
        y = super().scale(x, by=by) + 1
        return y + super().scale(y)

    def captured(self, x: int) -> int:
        names = [lambda: self for _ in range(2)]
        return super().scale(x) + len(names)

    def rebound(self, x: int) -> int:
        first = super().scale(x)
        self = Derived()
        return first + super().scale(x + 1)


def arithmetic(a: int, b: int) -> Any:
    c = a + b * 2 - (a // (b or 1))
    c -= -a
    return c, +c, ~c, not c, a is b, a in (1, 2), a < b <= 7 < 9, a if b else c


def loops(n: int) -> Any:
    total = 0
    for i in range(n):
        for j in range(i):
            if j == 3:
                break
            if (i + j) % 2:
                continue
            total += i * j
        else:
            total += 100
    while total > 50:
        total -= 7
        if total == 51:
            return "early"
    return total


def calls(x: int, *args: int, key: int = 2, **rest: int) -> Any:
    shown = dict(a=x, **rest)
    return max(x, *args, key=lambda v: -v * key), sorted([*args, x], reverse=True), shown, "a-b".split("-", maxsplit=1)


def unpacking(seq: list[int]) -> Any:
    a, *b, c = seq
    (d, e), f = (a, b), c
    d, e = e, d
    return [a, *b], {c, *b}, {"k": a, "l": f}, (*b, d, e), seq[1:], seq[::2], [x for x in seq if x > 1]


def formatting(x: float, width: int) -> str:
    return f"{x!r} {x:.2f} {x!s:>{width}} {width} {'q'!a:<8}|" + "%s" % x


def storing(n: int) -> Any:
    global TOTAL
    data = {"a": [1, 2, 3], "b": n}
    data["a"][1] += n
    data["a"][0:1] = [7, 8]
    del data["b"]
    point = Point(1, 2)
    point.x += 4
    del point.y
    TOTAL = n
    return data, point.x, hasattr(point, "y"), TOTAL


def deleting(flag: bool) -> int:
    x = 5
    if flag:
        del x
    return x


def closures(n: int) -> Any:
    count = 0

    def add(k: int, *, times: int = 2) -> int:
        nonlocal count
        count += k * times + n
        return count

    add(1)
    count += 10
    n += 1
    return add(2), count, [(lambda: i + n)() for i in range(3)], n


def comprehensions(n: int) -> Any:
    i = "outer"
    nested = [[i * j for j in range(i)] for i in range(n)]
    return nested, {k: v for k, v in enumerate(range(n))}, {i % 2 for i in range(n)}, i, sum(x for x in range(n))


def shelved(n: int) -> Any:
    i = 7
    plain = [i for i in range(n)]
    made = [lambda: i for i in range(n)]
    return plain, [f() for f in made], (lambda: i)()


def unbound_comprehension(n: int) -> Any:
    squares = [q * q for q in range(n)]
    try:
        return q  # noqa: F821
    except NameError as error:
        return squares, str(error)


def catching(kind: int) -> Any:
    trail = []
    try:
        trail.append("try")
        if kind == 1:
            raise ValueError("one")
        if kind == 2:
            [][1]
        if kind == 3:
            raise KeyError("three") from ValueError("cause")
    except ValueError as error:
        trail.append(str(error))
        trail.append(sys.exc_info()[0])
    except (IndexError, OSError):
        trail.append("index")
        raise RuntimeError("second")
    else:
        trail.append("else")
    finally:
        trail.append("finally")
        LOG.append(str(trail))
    return trail, sys.exc_info()[1]


def nested_handlers(kind: int) -> Any:
    seen = []
    try:
        raise ValueError("outer")
    except ValueError:
        try:
            if kind:
                raise KeyError("inner")
            seen.append(str(sys.exc_info()[1]))
        except KeyError:
            seen.append((str(sys.exc_info()[1]), str(sys.exc_info()[1].__context__)))
            if kind == 2:
                raise
            if kind == 3:
                return "returned from inside"
        seen.append(str(sys.exc_info()[1]))
        if kind == 4:
            raise
    return seen, sys.exc_info()


def loop_with_handlers(n: int) -> Any:
    seen = []
    for i in range(n):
        try:
            seen.append(10 // (i - 1))
            if i == 3:
                continue
        except ZeroDivisionError as error:
            seen.append(str(error))
            continue
        finally:
            seen.append("f")
            if i == 4:
                break
    return seen


def finally_returns(n: int) -> Any:
    try:
        return 1 // n
    finally:
        if n == 2:
            return "from finally"
        LOG.append("done")


def groups(n: int) -> Any:
    seen = []
    try:
        if n:
            raise ExceptionGroup("g", [ValueError("a"), TypeError("b"), OSError("c")][:n])
    except* ValueError as group:
        seen.append(len(group.exceptions))
    except* TypeError:
        seen.append("type")
    return seen


def managers(kind: int) -> Any:
    with Manager(kind == 1) as outer, Manager(False):
        x = outer.twice(3)
        if kind:
            raise ValueError("inside")
        return x
    return "swallowed"


def suppress_in_loop(n: int) -> Any:
    out = []
    for i in range(n):
        with contextlib.suppress(ZeroDivisionError):
            out.append(6 // i)
            if i == 2:
                break
    return out


def matching(subject: Any) -> Any:
    match subject:
        case {"kind": kind, **rest} if kind:
            return "mapping", kind, rest
        case Point(x, y=0):
            return "on axis", x
        case Point(x, y):
            return "point", x, y
        case [first, *others]:
            return "sequence", first, others
        case "a" | "b":
            return "letter"
        case None:
            return "none"
    return "other"


def generator_inside(n: int) -> Any:
    def count(k: int) -> Iterator[int]:
        for i in range(k):
            yield i * n

    return list(count(3)), [x for x in count(2)]


def none_tests(x: Any, y: Any) -> Any:
    if x is None:
        return "no x"
    if y is not None and x:
        return x or y, x and y
    assert y is None, f"bad {x}"
    return [x, y][0]


def asserting(x: int) -> int:
    assert x > 2, "too small"
    return x


def imports(n: int) -> Any:
    import math
    from os.path import join as j

    return math.floor(n / 2), j("a", "b")


def classes(n: int) -> Any:
    @staticmethod
    def inner(v: int = n) -> int:
        return v

    class Local(Base):
        size: int = n

        def scale(self, x: int) -> int:
            return super().scale(x) + n

    return inner(), Local().scale(n), Local.__name__


def looks_at_locals(a: int, b: int) -> Any:
    c = a + b
    return sorted(locals().items()), c


def long_jumps(n: int) -> int:
    total = 0
    for i in range(n):
        total += i * 1 + i * 2 + i * 3 + i * 4 + i * 5 + i * 6 + i * 7 + i * 8 + i * 9 + i * 10 + i * 11 + i * 12
        total += i * 1 + i * 2 + i * 3 + i * 4 + i * 5 + i * 6 + i * 7 + i * 8 + i * 9 + i * 10 + i * 11 + i * 12
        total += i * 1 + i * 2 + i * 3 + i * 4 + i * 5 + i * 6 + i * 7 + i * 8 + i * 9 + i * 10 + i * 11 + i * 12
        total += i * 1 + i * 2 + i * 3 + i * 4 + i * 5 + i * 6 + i * 7 + i * 8 + i * 9 + i * 10 + i * 11 + i * 12
    return total


_DERIVED = Derived()
CASES: list[tuple[Any, list[tuple[Any, ...]]]] = [
    (arithmetic, [(3, 5), (0, 0)]),
    (loops, [(0,), (6,)]),
    (calls, [(1,), (1, 5, 2)]),
    (unpacking, [([1, 2, 3, 4],), ([1],)]),
    (formatting, [(1.5, 7)]),
    (storing, [(4,)]),
    (deleting, [(False,), (True,)]),
    (closures, [(3,)]),
    (comprehensions, [(4,)]),
    (shelved, [(3,)]),
    (unbound_comprehension, [(3,)]),
    (catching, [(0,), (1,), (2,), (3,)]),
    (nested_handlers, [(0,), (1,), (2,), (3,), (4,)]),
    (loop_with_handlers, [(3,), (7,)]),
    (finally_returns, [(0,), (1,), (2,)]),
    (groups, [(0,), (1,), (2,), (3,)]),
    (managers, [(0,), (1,), (2,)]),
    (suppress_in_loop, [(4,)]),
    (matching, [({"kind": 1, "b": 2},), (Point(1, 0),), (Point(1, 2),), ([1, 2],), ("b",), (None,), (5,)]),
    (generator_inside, [(2,)]),
    (none_tests, [(None, 1), (1, 2), (0, 3), (0, None)]),
    (asserting, [(1,), (3,)]),
    (imports, [(5,)]),
    (classes, [(3,)]),
    (looks_at_locals, [(1, 2)]),
    (long_jumps, [(2,)]),
    (Derived.scale, [(_DERIVED, 4)]),
    (Derived.captured, [(_DERIVED, 4)]),
    (Derived.rebound, [(_DERIVED, 4)]),
]
