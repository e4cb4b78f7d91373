"""One call with gradients, compiled beside eager.

In:     a function, its arguments (trees with tensors), how to compile.
Out:    a `Verdict`: "pass", "skip" (eager itself fails), "wrong", "error"; notes on what did not stay in one graph.
Holds:  both sides start from equal copies with equal random state. Results, their history, writes of arguments and
        gradients are compared; a number is wrong if it is off by more than the dtype's usual tolerance.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

import pliant
from pliant.debug import events
from pliant.errors import UserError

TOLERANCE = {
    torch.float32: (2e-4, 1e-5), torch.float64: (1e-7, 1e-9), torch.bfloat16: (5e-2, 3e-2), torch.float16: (5e-3, 5e-3),
    torch.complex64: (2e-4, 1e-5), torch.complex128: (1e-7, 1e-9),
}  # fmt: skip
RANDOM_GRADIENT = 7


@dataclass(frozen=True)
class Verdict:
    status: str
    why: str = ""
    whole: bool = True  # one graph
    fallback: str = ""  # why a graph ran eagerly, if one did


def copied(value: Any) -> Any:
    """The same tree with tensors of its own, laid out alike; leaves want gradients where the given ones do."""
    return tree_map(lambda v: _copy(v) if isinstance(v, torch.Tensor) else v, value)


def _copy(t: torch.Tensor) -> torch.Tensor:
    plain = t.layout is torch.strided and type(t) in (torch.Tensor, torch.nn.Parameter)
    if not plain or t.is_conj() or t.is_neg() or t.is_quantized:
        made = t.detach().clone()
    else:
        storage = t.detach().untyped_storage().clone()
        made = torch.empty(0, dtype=t.dtype, device=t.device)
        made.set_(storage, t.storage_offset(), t.size(), t.stride())
    return made.requires_grad_(t.requires_grad)


@dataclass
class Outcome:
    results: list[Any]
    gradients: list[torch.Tensor | None]
    arguments: list[Any]


def run(function: Callable[..., Any], args: Any, kwargs: Any, backward: bool = True) -> Outcome:
    """Results, gradients of the arguments (for random gradients of the results), and the arguments afterwards.

    A module's parameters and buffers count as arguments.
    """
    args, kwargs = copied((args, kwargs))
    torch.manual_seed(0)
    results = tree_flatten(function(*args, **kwargs))[0]
    leaves = [v for v in tree_flatten((args, kwargs))[0] if isinstance(v, torch.Tensor)]
    if isinstance(function, torch.nn.Module):
        leaves += [*function.parameters(), *function.buffers()]
    wanted = [v for v in leaves if v.requires_grad and v.is_leaf]
    gradients: list[torch.Tensor | None] = []
    ends = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad and r.layout is torch.strided]
    if backward and wanted and ends:
        state = torch.get_rng_state()
        torch.manual_seed(RANDOM_GRADIENT)
        tangents = [torch.randn(r.shape, dtype=r.dtype).to(r.device) for r in ends]
        torch.set_rng_state(state)
        gradients = list(torch.autograd.grad(ends, wanted, tangents, allow_unused=True))
    return Outcome(results, gradients, leaves)


def difference(one: Any, other: Any, what: str, loose: float = 1.0) -> str:
    """What differs; "" if nothing does."""
    if not isinstance(other, torch.Tensor):
        same = type(one) is type(other) and (one == other or one != one and other != other)
        return "" if same else f"{what}: {one!r} for {other!r}"
    if not isinstance(one, torch.Tensor) or type(one) is not type(other):
        return f"{what}: a {type(one).__name__} for a {type(other).__name__}"
    if one.requires_grad != other.requires_grad:
        return f"{what}: requires_grad={one.requires_grad} for {other.requires_grad}"
    if what.startswith("results") and _steps(one) != _steps(other):
        return f"{what}: strides {one.stride()} for {other.stride()}"
    relative, absolute = TOLERANCE.get(other.dtype, (0, 0))
    try:
        torch.testing.assert_close(
            one.detach(), other.detach(), rtol=relative * loose, atol=absolute * loose, equal_nan=True
        )
    except AssertionError as error:
        return f"{what}: {' '.join(str(error).split())[:300]}"
    except (RuntimeError, NotImplementedError):  # a layout or dtype that cannot be compared
        return ""
    return ""


def _steps(tensor: torch.Tensor) -> list[int]:
    """The strides that matter."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return []
    return [stride for stride, size in zip(tensor.stride(), tensor.shape) if size > 1]


def compare(mine: Outcome, theirs: Outcome, shapes_only: bool = False) -> str:
    for what in ("results", "gradients", "arguments"):
        ours, eager = getattr(mine, what), getattr(theirs, what)
        if len(ours) != len(eager):
            return f"{len(ours)} {what} for {len(eager)}"
        for position, (one, other) in enumerate(zip(ours, eager)):
            if shapes_only and isinstance(other, torch.Tensor):
                if (one.shape, one.dtype, one.requires_grad) != (other.shape, other.dtype, other.requires_grad):
                    return f"{what}[{position}]: another shape, dtype or requires_grad"
            elif found := difference(one, other, f"{what}[{position}]"):
                return found
    return ""


def eager_outcome(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Outcome | None, bool]:
    """What eager gives (None: it fails), and whether it has a backward here."""
    try:
        return run(function, args, kwargs), True
    except Exception:
        pass
    try:
        return run(function, args, kwargs, backward=False), False
    except Exception:
        return None, False


def check(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    compiled: Callable[..., Any],
    whole: Callable[..., Any],
    shapes_only: bool = False,
) -> Verdict:
    """Compare. `whole` is the function compiled with `fullgraph=True`, `compiled` without."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, backward = eager_outcome(function, args, kwargs)
        if theirs is None:
            return Verdict("skip", "eager fails")
        status, why, fallback = _try(whole, args, kwargs, backward, theirs, shapes_only)
        if status != "break":
            return Verdict(status, why, fallback=fallback)
        status, reason, fallback = _try(compiled, args, kwargs, backward, theirs, shapes_only)
        return Verdict(status, reason or why, whole=False, fallback=fallback)


def _try(
    compiled: Any, args: Any, kwargs: Any, backward: bool, theirs: Outcome, shapes_only: bool
) -> tuple[str, str, str]:
    """(status, why, fallback)"""
    with events.collect("fallback") as fallbacks:
        try:
            mine = run(compiled, args, kwargs, backward)
        except UserError as error:
            return "break", " ".join(str(error).split())[:300], ""
        except Exception as error:
            return "error", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", ""
    found = compare(mine, theirs, shapes_only)
    return ("wrong" if found else "pass"), found, _reason(fallbacks)


def _reason(fallbacks: list[events.Event]) -> str:
    return " ".join(str(fallbacks[0].fields.get("why", "?")).split())[:300] if fallbacks else ""


def compilers(function: Callable[..., Any], dynamic: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function compiled as it goes, and compiled to one graph or an error."""
    return pliant.compile(function, dynamic=dynamic), pliant.compile(function, dynamic=dynamic, fullgraph=True)
