"""Programs that put their own in place of what the standard library makes in C, before Pliant knows of it."""

import ast
import builtins
import importlib
import itertools
import math
import operator
import re
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import own_process
import pliant
from pliant import unpatched

_PATCHED = """
    import collections, functools, sys
    import torch
    {first}

    class Doubling(collections.deque):
        def append(self, item):
            super().append(4.0 if item == 2.0 else item)

    class Fives(collections.defaultdict):
        def __missing__(self, key):
            return 5.0 if key == "key" else super().__missing__(key)

    class Tripling(collections.OrderedDict):
        def items(self):
            return [("a", 6.0)] if list(self) == ["a"] else super().items()

    class Sevenfold(functools.partial):
        def __call__(self, *given):
            found = super().__call__(*given)
            return found * 7 if self.func is torch.mul else found

    collections.deque, collections.defaultdict = Doubling, Fives
    collections.OrderedDict, functools.partial = Tripling, Sevenfold
    import pliant

    def in_a_deque(x):
        items = collections.deque()
        items.append(2.0)
        return x * items[0]

    def of_partial(x):
        return functools.partial(torch.mul, 2)(x)

    def missing(x):
        return x * collections.defaultdict(lambda: 2.0)["key"]

    def in_order(x):
        for _, factor in collections.OrderedDict(a=2.0).items():
            x = x * factor
        return x

    for f in (in_a_deque, of_partial, missing, in_order):
        torch.testing.assert_close(pliant.compile(f)(torch.ones(3)), f(torch.ones(3)))
"""


@pytest.mark.parametrize("first", ["", "import pliant"])
def test_classes_put_in_place_of_those_of_the_library(first):
    """`first`: whether Pliant is imported before, which loads what captures at the first call."""
    program = textwrap.dedent(_PATCHED.format(first=first))
    own_process.ran(program, check=True)


def test_builtins_of_the_program_do_not_reach_the_compiler(monkeypatch):
    """What a program puts in place of a builtin after Pliant was imported is called by the program, and by other libraries."""
    callers, own = [], str(Path(pliant.__file__).parent)

    def heard(name):
        original = getattr(builtins, name)

        def replaced(*given, **named):
            callers.append((name, sys._getframe(1).f_code.co_filename))
            return original(*given, **named)

        return replaced

    def program(x, items):
        y = torch.relu(x * sum(items) + max(items)).view(-1, 1)
        return y.sum(0) + y.mean(), any(items)

    x, items = torch.ones(3), [1, 2]
    expected = program(x, items)
    compiled = pliant.compile(program, backend="eager")
    for name in ("sum", "any", "all", "max", "min", "len", "isinstance", "sorted"):
        monkeypatch.setattr(builtins, name, heard(name))
    found = compiled(x, items)
    monkeypatch.undo()
    torch.testing.assert_close(found, expected)
    assert not [caller for caller in callers if caller[1].startswith(own)]


OWN = Path(pliant.__file__).parent


def _used() -> set[tuple[str, str]]:
    """Modules of the standard library, and what the package has of them under which names."""
    found = set()
    for path in OWN.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                module, _, name = ast.unparse(node).rpartition(".")
                if module in sys.modules.keys() & sys.stdlib_module_names - {"builtins", "sys", "warnings"}:
                    found.add((module, name))
    return found


class _Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, items):
        y = self.linear(x) * sum(items) + x.shape[0] * 2 - 1
        for a, b in itertools.pairwise(items):
            y = y + a * b
        return y.relu() * math.prod(y.shape), re.sub("a", "b", str(sorted(items)))


@pytest.mark.parametrize("backend", ["eager", "pliant"])
def test_functions_put_in_place_of_those_of_the_library(backend, monkeypatch):
    """Each one that the package uses. Python code of the library calls what it finds: `functools.wraps`, for one."""
    callers = []

    def heard(module, name, original):
        def replaced(*given, **named):
            if sys._getframe(1).f_code.co_filename.startswith(str(OWN)) and (module, name) != ("functools", "update_wrapper"):
                callers.append((module, name))
            return original(*given, **named)

        return replaced

    for module, name in sorted(_used()):
        function = getattr(sys.modules[module], name, None)
        if callable(function) and not isinstance(function, type):
            monkeypatch.setattr(f"{module}.{name}", heard(module, name, function))
    pliant.reset()
    module = _Scaled()
    compiled = pliant.compile(module, backend=backend)
    for rows in (3, 5):
        x = torch.ones(rows, 4, requires_grad=True)
        (found, text), (expected, expected_text) = compiled(x, [1, 2, rows]), module(x, [1, 2, rows])
        found.sum().backward()
        torch.testing.assert_close(found, expected)
        assert text == expected_text
    monkeypatch.undo()
    assert not callers


@pytest.mark.parametrize("name", ["itertools.chain", "itertools.count", "math.prod", "operator.add", "re.sub", "copy.copy", "time.perf_counter"])
def test_functions_that_fail(name, monkeypatch):
    """Of the program, which has them in the place of the library's for a test of its own."""

    def failing(*given, **named):
        raise RuntimeError(f"{name} is the program's")

    pliant.reset()
    monkeypatch.setattr(name, failing)
    x = torch.ones(3)
    torch.testing.assert_close(pliant.compile(lambda x: (x + 1) * x.shape[0])(x), x * 6)


def test_what_the_package_uses_is_taken_when_it_is_imported():
    """Of modules that all programs with PyTorch have loaded: others are taken as they are when they are needed."""
    later = {"__future__", "asyncio", "collections.abc", "decimal", "fcntl", "hmac", "importlib", "runpy", "shlex", "sysconfig", "builtins", "sys", "warnings"}
    imported = set()
    for path in OWN.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module)
    used = {name for name in imported if name.partition(".")[0] in sys.stdlib_module_names and not name.startswith("_")}
    assert used - later == {*unpatched.USED}


def test_what_a_module_had_is_there_when_it_is_first_asked_for(monkeypatch):
    """Names are put there one by one; nothing in the package asks for all that is there."""
    own, functions = unpatched._as_it_was(math), {name for name in dir(math) if callable(getattr(math, name))}
    for name in functions:
        monkeypatch.setattr(math, name, None)
    assert functions.isdisjoint(vars(own)) and functions <= {*dir(own)}
    assert all(map(callable, map(own.__getattr__, functions))) and functions <= vars(own).keys()
    asked = re.compile(r"\bvars\((" + "|".join(unpatched.USED) + r")\)")
    assert not [path for path in OWN.rglob("*.py") if path.name != "unpatched.py" and asked.search(path.read_text())]


def test_other_values_of_a_module_are_those_of_now(monkeypatch):
    own = unpatched.standard("linecache")
    monkeypatch.setattr("linecache.cache", {})
    monkeypatch.setattr("linecache.getline", None)
    assert own.cache is importlib.import_module("linecache").cache
    assert own.getline is not None
    assert unpatched.standard("os").path is unpatched.standard("posixpath" if sys.platform != "win32" else "ntpath")


def test_functions_named_as_methods_of_modules_are_the_modules():
    kept = unpatched.standard("operator")
    for name in ("__eq__", "__lt__", "__getitem__", "__setitem__", "__add__"):
        assert getattr(kept, name) is vars(operator)[name]
