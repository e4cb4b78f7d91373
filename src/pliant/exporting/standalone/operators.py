"""Operators that libraries without PyTorch call, and how their arguments are written in C.

In:     an extern call of the loop IR.
Out:    the name of its C function, its arguments in the order of its schema; `NoForm` for what has none.
Holds:  a function takes its results, then every argument: views of memory by pointer, 0 for None, numbers, lists of
        numbers as arrays. It is there for float32 and float64; `operators.h` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from pliant.ir.loops import Buffer, Extern, View

_aten = torch.ops.aten
SUFFIXES = {torch.float32: "f32", torch.float64: "f64"}
MOST_DIMS = 5  # of `p_view`


class NoForm(Exception):
    """What the library cannot do."""


def _any(call: Mapping[str, Any]) -> str | None:
    return None


def _convolution(call: Mapping[str, Any]) -> str | None:
    if call["transposed"]:
        return "a transposed convolution"
    return None if len(call["input"].shape) in (3, 4) and len(call["weight"].shape) == len(call["input"].shape) else "a convolution in 3 dimensions"


# Operator -> C function, what it cannot do of its arguments.
ROWS: dict[Any, tuple[str, Callable[[Mapping[str, Any]], str | None]]] = {
    _aten.mm.default: ("p_mm", _any),
    _aten.bmm.default: ("p_mm", _any),
    _aten.addmm.default: ("p_addmm", _any),
    _aten.baddbmm.default: ("p_addmm", _any),
    _aten.convolution.default: ("p_convolution", _convolution),
    _aten.max_pool2d_with_indices.default: ("p_max_pool", _any),
    _aten.avg_pool2d.default: ("p_avg_pool", _any),
}
_PAIRS = ("max_pool2d_with_indices", "avg_pool2d")  # one number in a list stands for both dimensions


def function_of(extern: Extern) -> tuple[str, list[Any]]:
    """The C function and its arguments: views, None, expressions, numbers, lists of them."""
    row = ROWS.get(extern.target)
    if row is None or extern.defines or extern.mutates:
        raise NoForm(f"there are no loops for `{said(extern)}`")
    given = dict(_given(extern))
    floats = {one.dtype for one in [*given.values(), *extern.outs] if isinstance(one, (View, Buffer)) and one.dtype is not torch.int64}
    if len(floats) != 1 or not floats <= SUFFIXES.keys():
        raise NoForm(f"there are no loops for elements of {', '.join(map(str, floats))} in `{said(extern)}`")
    if (why := row[1](given)) is not None:
        raise NoForm(f"there are no loops for {why}: `{said(extern)}`")
    (dtype,) = floats
    return f"{row[0]}_{SUFFIXES[dtype]}", list(given.values())


def _given(extern: Extern) -> Iterator[tuple[str, Any]]:
    name = extern.target._schema.name.partition("::")[2]
    for place, one in enumerate(extern.target._schema.arguments):
        value = extern.args[place] if place < len(extern.args) else extern.kwargs.get(one.name, one.default_value)
        if isinstance(value, (list, tuple)) and name in _PAIRS:
            value = [*value, *value][:2] or None
        yield one.name, value


def said(extern: Extern) -> str:
    """The operator and the line of the program that called it."""
    _, _, where = extern.origin.text.partition(" ")
    first = where.strip().splitlines()[0] if where.strip() else ""
    return f"{extern.target}`" + (f", called at `{first}" if first else "")
