"""Runs one-construct programs eagerly and captured, and compares everything that can be observed.

A program is a function `f(x, y)` on two float tensors of shape [3, 4]. It returns any nested structure.
`whole` programs must be captured as one graph; the others may break but must still be right.
"""

import contextlib
import copy
import io
import pathlib
import re
from dataclasses import dataclass

import numpy
import torch

import pliant
from pliant.debug import events


@dataclass(frozen=True)
class Program:
    """One construct. `graphs`: True if it must be captured whole."""

    function: object
    whole: bool
    area: str

    @property
    def name(self) -> str:
        return f"{self.area}:{self.function.__name__}"


PROGRAMS: list[Program] = []


def program(area: str, whole: bool = True):
    """Register a program of an area."""

    def add(function):
        PROGRAMS.append(Program(function, whole, area))
        return function

    return add


def inputs():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 4, generator=generator), torch.randn(3, 4, generator=generator)


def observe(function, arguments):
    """(result or exception type, printed text, arguments after the call)."""
    text = io.StringIO()
    torch.manual_seed(0)
    with contextlib.redirect_stdout(text):
        try:
            result = ("returned", function(*arguments))
        except Exception as error:
            result = ("raised", type(error), str(error))
    return result, text.getvalue(), arguments


def same_class(a, b) -> bool:
    """The same class, or the same class statement of a program that was loaded twice."""
    return a is b or (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__) == ("program", b.__qualname__)


def same(a, b, seen=None) -> bool:
    """Equal values, types and structure, the same objects in the same places; tensors equal with dtype, shape and requires_grad."""
    seen = {} if seen is None else seen
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return _same_tensor(a, b) and seen.setdefault(id(a), id(b)) == id(b)
    if not same_class(type(a), type(b)):
        return False
    if isinstance(a, (numpy.ndarray, numpy.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and bool(numpy.allclose(a, b, equal_nan=True))
    if isinstance(a, str):
        return _ADDRESS.sub("", a) == _ADDRESS.sub("", b)
    if isinstance(a, _CONSTANTS):
        return same_class(a, b) if isinstance(a, type) else a == b
    if isinstance(a, float):
        return a == b or (a != a and b != b)
    if not isinstance(a, tuple):
        if id(a) in seen:
            return seen[id(a)] == id(b)
        seen[id(a)] = id(b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y, seen) for x, y in zip(a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k], seen) for k in a)
    if isinstance(a, (set, frozenset)):
        return a == b or sorted(map(repr, a)) == sorted(map(repr, b))
    if isinstance(a, BaseException) and not same(a.args, b.args, seen):
        return False
    slots = [name for base in type(a).__mro__ for name in base.__dict__.get("__slots__", ()) if name != "__dict__"]
    if not all(same(getattr(a, name, None), getattr(b, name, None), seen) for name in slots):
        return False
    return same(vars(a), vars(b), seen) if hasattr(a, "__dict__") else True


_CONSTANTS = (int, bool, bytes, type(None), type, range, slice, torch.dtype, torch.device, complex, numpy.dtype)
_CONSTANTS += (pathlib.PurePath,)  # whose slots are filled when they are asked for
_ADDRESS = re.compile(r"(?<= at )0x[0-9a-f]+")


def _same_tensor(a, b) -> bool:
    return (
        type(a) is type(b)
        and a.dtype == b.dtype
        and a.shape == b.shape
        and a.requires_grad == b.requires_grad
        and torch.allclose(a.detach(), b.detach(), atol=1e-7, equal_nan=True)
    )


def check(item: Program, backend: str = "eager") -> None:
    """Three calls captured and eagerly: first, second (from the entry), and one of another size."""
    pliant.reset()
    function = item.function
    compiled = pliant.compile(function, backend=backend)
    with pliant.config.patch(strict=True), events.collect("fallback", "recompile_limit") as fallbacks:
        for call in range(3):
            arguments = inputs()
            if call == 2:
                arguments = tuple(torch.cat([a, a]) for a in arguments)
            want = observe(function, copy.deepcopy(arguments))
            got = observe(compiled, copy.deepcopy(arguments))
            assert same(got[0], want[0]), f"call {call}: got {got[0]}, eager gives {want[0]}"
            assert got[1] == want[1], f"call {call}: printed {got[1]!r}, eager prints {want[1]!r}"
            assert same(got[2], want[2]), f"call {call}: the arguments were left different"
    stats = pliant.stats()
    inside = item.whole or [e for e in fallbacks if e.fields.get("reason") != "observed-call"]
    assert not (fallbacks and inside), stats  # behind a break, code inside a mode of the program steps aside
    if item.whole:
        assert stats["graph_breaks"] == 0, stats["break_reasons"]
        assert stats["calls"]["entry"] >= 1, stats  # a graph too, if it computes with tensors
