"""Special methods of tensors that the program put in the place of PyTorch's.

In:     an operator that is about to be called on values of the trace.
Out:    `refuse_patched(t, *names)`: a graph break where one of these methods of `torch.Tensor` is the program's own.
Holds:  the same at later calls: a guard asks for the methods that PyTorch has. C code would call the program's while the
        function is captured, and not again; behind the break it runs at each call. Other methods are interpreted.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.signatures import Tracer
from pliant.capture.value_kinds import is_of_program
from pliant.unpatched import BUILTINS

_BINARY = "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift".split()
_OTHERS = "lt le gt ge eq ne neg invert pos getitem setitem delitem contains index".split()
_CLASSES = (bool, int, float, complex)


def _by_operator() -> dict[int, tuple[str, ...]]:
    found: dict[Any, tuple[str, ...]] = {}
    for name in _BINARY:
        plain = name.strip("_")
        found[getattr(operator, name)] = (f"__{plain}__", f"__r{plain}__")
        found[getattr(operator, f"i{plain}")] = (f"__i{plain}__", f"__{plain}__", f"__r{plain}__")
    found |= {getattr(operator, name): (f"__{name}__",) for name in _OTHERS}
    found |= {cls: (f"__{cls.__name__}__",) for cls in _CLASSES}
    found[str] = ("__str__", "__repr__")
    found |= {getattr(BUILTINS, name): (f"__{name}__",) for name in ("abs", "iter", "reversed", "hash", "repr", "format")}
    return {id(function): names for function, names in found.items()}


# By the id of a function of Python's: what stands for a callable of the program may hash in a way of its own.
OF_OPERATORS = _by_operator()


def refuse_patched(t: Tracer, *names: str) -> None:
    """Break the graph where one of these special methods of tensors is the program's."""
    for name in names:
        if is_of_program(t.world.type_lookup(torch.Tensor, name)):
            raise GraphBreak("unknown-object", f"the program's own {name} of tensors")
