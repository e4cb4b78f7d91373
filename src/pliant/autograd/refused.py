"""Results of a program whose gradients are an error in eager too, if they are asked for, and only then.

In:     the results as they are when the program ran on fakes, the leaves that gradients are asked for.
Out:    the error of each, "" if it has gradients; which inputs they lead to.
Holds:  a result counts as such if each of the leaves that it leads to is behind a function that fails: eager's engine
        runs every function on the way to a leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant import torch_adapter
from pliant.autograd.history import Node, all_behind, saves
from pliant.records import dataclass

FREED = "Trying to backward through the graph a second time, of which what it saved was freed (see retain_graph)"
_MISSING = "is not implemented"  # in what PyTorch says of a function without a derivative


@dataclass(frozen=True, slots=True)
class Refused:
    """`errors`: by tangent, of those that are refused. `leads_to`: for each input the tangents that lead there, as bits."""

    errors: dict[int, str]
    leads_to: list[int]

    @property
    def bits(self) -> int:
        return sum([1 << number for number in self.errors])

    def error(self, asked: int) -> RuntimeError:
        """The error of the first of the tangents that are asked."""
        why = next(why for number, why in self.errors.items() if asked >> number & 1)
        return error_of(why)


def error_of(why: str) -> RuntimeError:
    """The error that eager raises with this text."""
    return NotImplementedError(why) if why.startswith("the derivative for") else RuntimeError(why)


def after_own_gradients(results: Sequence[torch.Tensor], leaves: Sequence[Any], freed: set[Node]) -> dict[int, str]:
    """The results whose gradients the program itself has asked for, without retaining the graph."""
    gone = {node for node in freed if saves(node)}
    if not gone:
        return {}
    wanted = [leaf for leaf in leaves if leaf is not None]
    return {n: FREED for n, one in enumerate(results) if all_behind(one, wanted, gone.__contains__)}


def is_missing(error: BaseException) -> bool:
    """Whether it says that a function has no derivative."""
    return _MISSING in str(error) and "derivative for" in str(error)


def without_derivative(results: Sequence[Any], leaves: Sequence[Any], tangents: Sequence[Any]) -> dict[int, str]:
    """The results all of whose gradients lead through functions that have no derivative."""
    found = {}
    for number, (result, tangent) in enumerate(zip(results, tangents)):
        errors = [_error(result, leaf, tangent) for leaf in leaves]
        if any(errors) and None not in errors:
            found[number] = next(filter(None, errors))
    return found


def _error(result: Any, leaf: Any, tangent: Any) -> str | None:
    """Of this one gradient; "" if the result does not lead to the leaf, None if it is no error."""
    try:
        (found,) = torch_adapter.gradients([result], [leaf], [tangent], retain_graph=True)
    except RuntimeError as error:
        if not is_missing(error):
            raise
        return str(error)
    return "" if found is None else None
