"""Eager in other circumstances, where a difference between it and compiled code may be no fault of either.

`Shaken`: operators round otherwise. `in_one_function`: results and writes share one function of autograd's graph, as those of a
compiled function do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Operators that move or choose values, which is exact.
_EXACT = re.compile(
    r"(_?to_copy|clone|copy|fill|zero|zeros|ones|empty|full|new_|cat|stack|index(?!_add|_reduce)|gather|scatter_?$|select|slice|"
    r"masked|where|clamp|relu|abs|neg|sort|topk|max|min|amax|amin|aminmax|flip|roll|repeat|round|sign|lift|detach|"
    r"uniform|normal|bernoulli|rand|native_dropout|set_|resize|complex|real|imag|view|alias|as_strided|constant_pad|"
    r"_efficientzerotensor)"  # has no memory: a kernel that reads it below a mode ends the process
)
_UNITS = 4  # in the last place


class Shaken(TorchDispatchMode):
    """What operators compute is off by some units in the last place."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if not func.is_view and not _EXACT.match(func.overloadpacket.__name__):
            for one in tree_leaves(found):
                if isinstance(one, torch.Tensor) and one.is_floating_point() or isinstance(one, torch.Tensor) and one.is_complex():
                    self._shake(one)
        return found

    def _shake(self, value: torch.Tensor) -> None:
        off = torch.rand(value.shape, generator=self.chance, dtype=torch.float64) * 2 - 1
        factor = (1 + off * (_UNITS * torch.finfo(value.dtype).eps)).to(value.device)
        value.copy_(value * factor)


def spread(theirs: Any, shaken: list[Any]) -> Any:
    """How far eager's value is from those of eager that rounds otherwise, by element; None where it has no such measure."""
    if isinstance(theirs, torch.Tensor):
        alike = [one for one in shaken if isinstance(one, torch.Tensor) and one.shape == theirs.shape and one.dtype == theirs.dtype]
        return torch.stack([(one - theirs).abs() for one in alike]).amax(0) if len(alike) == len(shaken) else None
    if isinstance(theirs, float) and all(isinstance(one, float) for one in shaken):
        return max(abs(one - theirs) for one in shaken)
    if isinstance(theirs, (list, tuple)):
        parts = [one for one in shaken if isinstance(one, (list, tuple)) and len(one) == len(theirs)]
        return [spread(*pair) for pair in zip(theirs, map(list, zip(*parts)))] if len(parts) == len(shaken) else None
    return None


def within(mine: Any, theirs: Any, measure: Any, same: Callable[[Any, Any], bool], often: float = 30) -> bool:
    """Whether what is not the same is explained by how far rounding alone may lead."""
    if same(mine, theirs):
        return True
    if measure is None:
        return False
    if isinstance(theirs, torch.Tensor):
        if not isinstance(mine, torch.Tensor) or mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return False
        near = torch.isclose(mine, theirs, 1e-8, 1e-8, equal_nan=True)
        return bool((near | ((mine - theirs).abs() <= often * measure)).all())
    if isinstance(theirs, float):
        return isinstance(mine, float) and abs(mine - theirs) <= often * float(measure)
    if not isinstance(mine, (list, tuple)) or len(mine) != len(theirs):
        return False
    return all(within(*each, same, often) for each in zip(mine, theirs, measure))


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple([one.clone() for one in given])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        return gradients


def in_one_function(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` whose results that have a history, and what it writes into arguments that have one, share one function."""

    def joined(*given: Any) -> Any:
        arguments = {id(one): one for one in tree_leaves(given) if isinstance(one, torch.Tensor)}.values()
        before = [_version(one) for one in arguments]
        results = list(f(*given))
        written = [one for one, old in zip(arguments, before) if one.grad_fn is not None and _version(one) != old]
        memory = {one.untyped_storage().data_ptr() for one in written}
        places = [i for i, one in enumerate(results) if _has_history(one) and one.untyped_storage().data_ptr() not in memory]
        own = [*[results[i] for i in places], *written]
        made = _Joined.apply(*own) if own else ()
        for place, one in zip(places, made):
            results[place] = one
        for target, one in zip(written, made[len(places) :]):
            with torch.autograd._unsafe_preserve_version_counter(target):  # which `f` saved, too
                target.copy_(one)
        if written:  # what was computed from what was written leads through the same function
            own = [*[results[i] for i in places], *written]
            for place, one in zip(places, _Joined.apply(*own)):
                results[place] = one
        return results

    return joined


def _has_history(one: Any) -> bool:
    return isinstance(one, torch.Tensor) and one.grad_fn is not None


def _version(one: torch.Tensor) -> int:
    return -1 if one.is_inference() else one._version


def without_extra(mine: list[Any], theirs: list[Any], prefix: str) -> list[Any]:
    """The entries but those of this prefix that eager has not at this place."""
    found: list[Any] = []
    for one in mine:
        expected = theirs[len(found)][0] if len(found) < len(theirs) else None
        if not one[0].startswith(prefix) or one[0] == expected:
            found.append(one)
    return found


def same_number(steps: Iterator[Any], number: int) -> Any:
    """The step of this number; None if there are fewer, or an error ends them."""
    try:
        for place, step in enumerate(steps):
            if place == number:
                return step
    except Exception:
        return None
    return None
