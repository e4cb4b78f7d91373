"""In which order a sum of products of several tensors is computed, over symbolic sizes.

In:     an equation and its operands, with symbols among their sizes.
Out:    the result, contracted two operands at a time; NotImplemented for what is left to PyTorch.
Holds:  the order is one with the fewest multiplications, as the package that PyTorch asks finds it for numbers. Guards say
        that no other order costs less, not what the sizes are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pliant.torch_adapter import VARIABLE_FUNCTIONS

_MOST = 4  # operands, of which PyTorch asks for the best order too
_Labels: TypeAlias = "frozenset[str]"


def einsum(*args: Any) -> Any:
    """`torch.einsum` of three or four tensors with symbolic sizes."""
    equation, operands = args[0], args[1:]
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not isinstance(equation, str) or not 2 < len(operands) <= _MOST or not all(isinstance(x, Tensor) for x in operands):
        return NotImplemented
    ordered = torch.backends.opt_einsum
    if not (ordered.enabled and ordered.is_available()):  # PyTorch goes from left to right
        return NotImplemented
    if not any(isinstance(n, torch.SymInt) for x in operands for n in x.shape):
        return NotImplemented
    terms, result = _labels(equation, [x.dim() for x in operands])
    if len(terms) != len(operands) or any(len(t) != x.dim() for t, x in zip(terms, operands)):
        return NotImplemented  # whose error is PyTorch's
    sizes = _sizes(terms, operands)
    if any(n.node.hint is None for n in sizes.values() if isinstance(n, torch.SymInt)):
        return NotImplemented
    path = _best([frozenset(t) for t in terms], frozenset(result), sizes)
    return VARIABLE_FUNCTIONS.einsum(equation, operands, path=[place for pair in path for place in pair])


def _labels(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """The label of each dimension of each operand, and the result's. Dimensions of `...` are numbered from the last."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    written = left.split(",")
    terms = []
    for text, rank in zip(written, ranks):
        before, dots, after = text.partition("...")
        many = rank - len(before) - len(after) if dots else 0
        terms.append([*before, *[f"{k}..." for k in range(many, 0, -1)], *after])
    if len(written) != len(ranks):
        return [], []
    spread = {label for term in terms for label in term if len(label) > 1}
    if not arrow:
        return terms, [*spread, *[c for c in left if c.isalpha() and left.count(c) == 1]]
    return terms, [*(spread if "..." in right else ()), *[c for c in right if c.isalpha()]]


def _sizes(terms: Sequence[Sequence[str]], operands: Sequence[Tensor]) -> dict[str, Any]:
    """The size of each label; a dimension of 1 is spread over others."""
    sizes: dict[str, Any] = {}
    for term, x in zip(terms, operands):
        for label, n in zip(term, x.shape):
            if label not in sizes or type(n) is not int or n != 1:
                sizes.setdefault(label, n)
                sizes[label] = n if type(sizes[label]) is int and sizes[label] == 1 else sizes[label]
    return sizes


def _orders(terms: list[_Labels], result: _Labels, sizes: dict[str, Any]) -> list[tuple[Any, list[tuple[int, int]]]]:
    """All orders, each as its multiplications and the pairs to contract: places among those left, to whose end each
    product goes."""
    if len(terms) == 1:
        return [(0, [])]
    found = []
    for i, j in itertools.combinations(range(len(terms)), 2):
        both = terms[i] | terms[j]
        rest = [t for k, t in enumerate(terms) if k not in (i, j)]
        kept = both & result.union(*rest)
        cost = math.prod([sizes[label] for label in sorted(both)]) * (1 if kept == both else 2)
        found += [(cost + more, [(i, j), *path]) for more, path in _orders([*rest, kept], result, sizes)]
    return found


def _best(terms: list[_Labels], result: _Labels, sizes: dict[str, Any]) -> list[tuple[int, int]]:
    """The cheapest order for the sizes at hand. That no other is cheaper are the guards: how others compare is not asked."""
    orders = _orders(terms, result, sizes)
    least, path = min(orders, key=lambda order: _now(order[0]))
    return path if all(least <= cost for cost, _ in orders) else []


def _now(number: Any) -> int:
    return number.node.require_hint() if isinstance(number, torch.SymInt) else number  # type: ignore[no-any-return]
