"""Arguments too many, too few, or of other names: callables written in C complain as CPython words it, inside the graph."""

import collections
import functools
import itertools
import math
import operator
import types

import pytest

import pliant
from pliant import arity
from pliant.capture import tracer
from pliant.capture.handlers.table import ALL

NAMES = {"itertools": itertools, "functools": functools, "operator": operator, "math": math, "collections": collections, "types": types}
BUILTINS = """abs all any ascii bin bool bytearray bytes callable chr complex dict divmod enumerate filter float format frozenset
    getattr hasattr hash hex int isinstance issubclass iter len list map max memoryview min next oct ord pow property range repr
    reversed round set setattr delattr slice sorted staticmethod str sum super tuple type vars dir zip"""
IN_MODULES = """itertools.accumulate itertools.chain itertools.combinations itertools.compress itertools.count itertools.cycle
    itertools.dropwhile itertools.filterfalse itertools.groupby itertools.islice itertools.pairwise itertools.permutations
    itertools.product itertools.starmap itertools.takewhile itertools.zip_longest itertools.chain.from_iterable
    functools.reduce functools.cmp_to_key functools.partial
    operator.add operator.contains operator.getitem operator.itemgetter operator.itemgetter(1) operator.attrgetter('a')
    math.floor math.gcd math.hypot math.log math.pow math.prod math.sin math.isnan math.isclose
    collections.deque collections.OrderedDict collections.defaultdict types.MappingProxyType dict.fromkeys int.from_bytes"""
METHODS = {
    "'ab'": "count endswith find index join replace split startswith upper __add__ __repr__",
    "b'ab'": "find decode upper",
    "[1]": "append clear copy count extend index insert pop remove reverse sort __init__ __getitem__ __contains__ __len__",
    "(1,)": "count index __add__",
    "{1: 2}": "clear copy fromkeys get items keys pop popitem setdefault update values __getitem__ __init__",
    "{1}": "add clear difference discard intersection_update isdisjoint issubset pop remove symmetric_difference union update",
    "frozenset((1,))": "copy union __contains__",
    "(5)": "bit_length to_bytes __add__ __round__",
    "(1.5)": "is_integer as_integer_ratio __eq__",
    "collections.deque((1,))": "append appendleft clear extend extendleft pop popleft remove reverse rotate __init__",
    "collections.OrderedDict(a=1)": "move_to_end pop popitem update __init__",
    "(i for i in (1,))": "send throw close __next__",
    "ValueError(1)": "with_traceback add_note",
    "object()": "__eq__ __getattribute__ __setattr__ __init__",
}
CALLABLES = [*BUILTINS.split(), *IN_MODULES.split(), *(f"{text}.{name}" for text, names in METHODS.items() for name in names.split())]


def attempts(name):
    """A function that calls the callable in many ways, and says how it complains."""
    calls = [[*"12345"[:count], *more] for count in range(6) for more in ([], ["foo=1"], ["foo=1", "key=2"])]
    lines = ["def attempted():", "    found = []"]
    for call in calls:
        lines += ["    try:", f"        {name}({', '.join(call)})", "        found.append('taken')"]
        lines += ["    except Exception as error:", "        found.append((type(error).__name__, str(error)))"]
    lines += ["    try:", f"        {name}(*(1, 2, 3, 4, 5, 6), **{{'bar': 2}})", "        found.append('taken')"]
    lines += ["    except Exception as error:", "        found.append((type(error).__name__, str(error)))"]
    space = dict(NAMES)
    exec("\n".join([*lines, "    return found"]), space)
    return space["attempted"]


@pytest.mark.parametrize("name", CALLABLES)
def test_complaints_are_cpythons(name):
    assert pliant.compile(attempts(name), backend="eager")() == attempts(name)()


@pytest.mark.parametrize("name", ["sorted", "{1: 2}.update", "dict", "next", "(i for i in (1,)).send", "itertools.product"])
def test_complaints_do_not_break_the_graph(name):
    pliant.compile(attempts(name), backend="eager", fullgraph=True)()


def of_python(function):
    module = getattr(function, "__module__", None) or getattr(getattr(function, "__objclass__", None), "__module__", None)
    return module in ("builtins", "math", "itertools", "collections", "_operator", "_functools", "functools", "re", "_heapq", "_bisect")


def test_all_rows_have_parameters():
    assert tracer
    rows = [one for one in (*ALL.callables, *ALL.classes) if of_python(one)]
    assert len(rows) > 100
    lacking = {one.__qualname__ for one in rows if arity.of(one) is None}
    assert lacking <= {"breakpoint", "cell", "_lru_cache_wrapper"}


def test_what_does_not_fit_is_never_called():
    """A signature that refuses what CPython takes would run the call while it is captured."""
    for name in CALLABLES:
        if (parameters := arity.of(eval(name, dict(NAMES)))) is None:
            continue
        for count in range(6):
            for named in ({}, {"foo": 1}, {"key": None}, {"default": 1}, {"x": 1}, {"iterable": ()}):
                if not parameters.takes(count, named):
                    with pytest.raises((TypeError, RuntimeError)):
                        eval(name, dict(NAMES))(*[1] * count, **named)
