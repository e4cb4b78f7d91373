"""Results of a program whose gradients are an error in eager too, if they are asked for, and only then.

In:     the results as they are when the program ran on fakes, the leaves that gradients are asked for.
Out:    the error of each that has one; which inputs they lead to.
Holds:  a gradient is an error if a function that fails is on a way to the leaf: eager's engine runs all of these. A result
        none of whose gradients is left is refused as a whole; no backward is traced for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from pliant import torch_adapter
from pliant.autograd.history import Node, leaves_behind
from pliant.errors import Unsupported
from pliant.records import dataclass
from pliant.regular import pattern

FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
    "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if "
    "you need to backward through the graph a second time or if you need to access saved tensors after calling backward."
)  # in PyTorch's own words
# What PyTorch says of a function without a derivative, of a custom operator without one, and of a source that is larger than the
# indices by which it is scattered.
_MISSING = pattern(
    "derivative for .* is not implemented|no autograd formula was registered|Function Scatter.* returned an invalid gradient"
)

_REFUSED_VIEW = "is a view and its base or another view of its base has been modified inplace"


@dataclass(frozen=True, slots=True)
class Refused:
    """`errors`: by tangent, of those that are refused as a whole. `at`: for each input the tangents, as bits, whose gradient
    of it is an error."""

    errors: dict[int, str]
    at: list[int]

    @classmethod
    def of(cls, errors: dict[int, str], reached_by: list[int], freed: list[int]) -> Refused | None:
        """`reached_by`: for each input the tangents that lead there; `freed`: those of them whose way there is freed."""
        whole = sum([1 << number for number in errors])
        at = [reached & whole | bits for reached, bits in zip(reached_by, freed)]
        return cls(errors, at) if errors or any(at) else None

    @property
    def whole(self) -> int:
        return sum([1 << number for number in self.errors])

    def error(self, asked: int) -> RuntimeError:
        """The error of the first of these tangents."""
        return error_of(next((why for number, why in self.errors.items() if asked >> number & 1), FREED))


def error_of(why: str) -> RuntimeError:
    """The error that eager raises with this text."""
    return NotImplementedError(why) if why.startswith("the derivative for") else RuntimeError(why)


def after_own_gradients(
    results: Sequence[torch.Tensor], leaves: Sequence[Any], freed: set[Node]
) -> tuple[dict[int, str], list[int]]:
    """The results whose gradients the program itself has asked for, without retaining the graph; for each leaf those, as
    bits, that lead there through what is gone then."""
    whole, at = dict[int, str](), [0] * len(leaves)
    places = {id(leaf): place for place, leaf in enumerate(leaves) if leaf is not None}
    for number, one in enumerate(results if freed else ()):
        free, behind = leaves_behind(one, freed.__contains__)
        if behind is not None and free.isdisjoint(places):
            whole[number] = FREED
        for leaf in (behind or set()) & places.keys():
            at[places[leaf]] |= 1 << number
    return whole, at


class NoDerivative(Unsupported):
    """A function on the way has no derivative. `refused`: by tangent, the results of which eager has none either."""

    def __init__(self, why: str, refused: dict[int, str]) -> None:
        super().__init__(why, kind="no-derivative")
        self.refused = refused


@contextlib.contextmanager
def views_refused() -> Iterator[None]:
    """Within it a view that autograd refuses to look at makes the program one for eager: it is an error there only where the
    view is used again, and no derivative otherwise."""
    try:
        yield
    except RuntimeError as error:
        if _REFUSED_VIEW not in str(error):
            raise
        what = "a result of `chunk`, `split` or `unbind` is used after its memory was written"
        raise Unsupported(what, kind="refused-view") from None


def is_missing(error: BaseException) -> bool:
    """Whether it says that a function has no derivative."""
    return _MISSING.search(str(error)) is not None


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
