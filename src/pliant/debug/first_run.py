"""Compare a compiled graph with eager the first time it runs: the option `verify="first"`.

In:     the captured graph and what was compiled from it.
Out:    a callable like the compiled one. Its first call runs both on copies of the inputs, with the same random
        numbers, and compares results, writes to inputs, and gradients.
Holds:  the caller's inputs and random state are as they were before the comparison; where rounding alone could explain
        a difference, eager in float64 decides; after a disagreement eager serves, with one warning and a repro script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from pliant.debug import events
from pliant.debug.repro import write_repro
from pliant.errors import FallbackWarning
from pliant.graph.contracts import CapturedGraph

_Run = Callable[[list[Any]], Sequence[Any]]
# Largest difference over the largest magnitude, beyond which float64 is asked.
_CLOSE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
_WORSE = 4.0  # times eager's own error
_SLACK = 10.0  # times `_CLOSE`: errors that nobody would call wrong


def checked(captured: CapturedGraph, compiled: _Run) -> _Run:
    """`compiled`, compared with the captured graph at its first call."""
    forward = captured.module.forward

    def eager(inputs: list[Any]) -> Sequence[Any]:
        return tuple(forward(*inputs))

    chosen: _Run | None = None

    def run(inputs: list[Any]) -> Sequence[Any]:
        nonlocal chosen
        if chosen is None:
            why = difference(compiled, eager, inputs)
            chosen = compiled if why is None else eager
            if why is not None:
                _report(captured, inputs, why)
        return chosen(inputs)

    return run


def difference(compiled: _Run, eager: _Run, inputs: list[Any]) -> str | None:
    """How the two disagree on these inputs, or None."""
    found = dict(_outcome(compiled, inputs, None))
    expected = dict(_outcome(eager, inputs, None))
    exact: dict[str, Any] | None = None
    for name, value in expected.items():
        other = found[name]
        if _close(other, value, 1.0):
            continue
        if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor) or not value.is_floating_point():
            return f"{name} is {_text(other)}, eager's is {_text(value)}"
        exact = exact if exact is not None else _in_float64(eager, inputs)
        truth = exact.get(name)
        if truth is None or not _as_good(other, value, truth):
            return f"{name} differs from eager's by {_error(other, value):.1e} of its largest value"
    return None


def _report(captured: CapturedGraph, inputs: list[Any], why: str) -> None:
    path = write_repro(captured.module, inputs, AssertionError(why), stage="verify")
    events.record("fallback", name=captured.name, why="verify", detail=why, where=None)
    message = f"a compiled graph of {captured.name} disagrees with eager, which serves from now on: {why}"
    events.warn_once(f"verify:{captured.name}:{why}", f"{message}. Report it with {path}", FallbackWarning)


# ---- running on copies
def _outcome(run: _Run, inputs: list[Any], dtype: torch.dtype | None) -> Iterator[tuple[str, Any]]:
    """(what, value): results, inputs afterwards, gradients."""
    copies = _copies(inputs, dtype)
    wanted = {k: v for k, v in enumerate(copies) if isinstance(v, torch.Tensor) and v.requires_grad}
    # What is no leaf may be written in place.
    copies = [v.clone() if k in wanted and not inputs[k].is_leaf else v for k, v in enumerate(copies)]
    with torch.random.fork_rng(devices=[]):
        outputs = list(run(list(copies)))
        yield from ((f"result {k}", _plain(v)) for k, v in enumerate(tree_leaves(outputs)))
        yield from ((f"input {k} afterwards", _plain(v)) for k, v in enumerate(copies) if isinstance(v, torch.Tensor))
        reached = [o for o in tree_leaves(outputs) if isinstance(o, torch.Tensor) and o.requires_grad]
        if wanted and reached:
            gradients = torch.autograd.grad(reached, list(wanted.values()), _tangents(reached), allow_unused=True)
            yield from ((f"gradient of input {k}", g) for k, g in zip(wanted, gradients))


def _in_float64(eager: _Run, inputs: list[Any]) -> dict[str, Any]:
    try:
        return dict(_outcome(eager, inputs, torch.float64))
    except Exception:  # the program names a dtype: there is no judge, eager's value is the truth
        return {}


def _copies(inputs: list[Any], dtype: torch.dtype | None) -> list[Any]:
    """The inputs on memory of their own, which they share among themselves as the originals do."""
    memory: dict[int, torch.UntypedStorage] = {}
    same: dict[int, Any] = {}
    return [same.setdefault(id(v), _copy(v, dtype, memory)) if isinstance(v, torch.Tensor) else v for v in inputs]


def _copy(tensor: torch.Tensor, dtype: torch.dtype | None, memory: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    plain = tensor.detach()
    if dtype is not None and plain.is_floating_point():
        copy = plain.to(dtype)
    else:
        storage = plain.untyped_storage()
        mine = memory.setdefault(storage._cdata, storage.clone())
        copy = torch.empty(0, dtype=plain.dtype, device=plain.device)
        copy.set_(mine, plain.storage_offset(), plain.shape, plain.stride())
    return copy.requires_grad_(tensor.requires_grad)


def _plain(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _tangents(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """A gradient for each output, the same at every call."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(o.shape, generator=generator, dtype=torch.float64).to(o) for o in outputs]


# ---- comparing
def _close(found: Any, expected: Any, slack: float) -> bool:
    if not isinstance(expected, torch.Tensor) or not isinstance(found, torch.Tensor):
        return type(found) is type(expected) and bool(found == expected or found != found)
    if (found.shape, found.dtype, found.device) != (expected.shape, expected.dtype, expected.device):
        return False
    if not expected.is_floating_point() and not expected.is_complex():
        return torch.equal(found, expected)
    return _error(found, expected) <= slack * _CLOSE.get(expected.dtype, 1e-5)


def _error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference over the largest magnitude; infinity where one is not finite and the other differs."""
    a, b = found.detach().to(torch.complex128), expected.detach().to(torch.complex128)
    finite = torch.isfinite(a) & torch.isfinite(b)
    same = finite | (a == b) | (torch.isnan(a) & torch.isnan(b))
    if not bool(same.all()):
        return float("inf")
    a, b = torch.where(finite, a, 0), torch.where(finite, b, 0)
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) if a.numel() else 0.0


def _as_good(found: torch.Tensor, expected: torch.Tensor, truth: torch.Tensor) -> bool:
    own = _error(expected, truth)
    return _error(found, truth) <= max(_WORSE * own, _SLACK * _CLOSE.get(expected.dtype, 1e-5))


def _text(value: Any) -> str:
    return f"{tuple(value.shape)} of {value.dtype}" if isinstance(value, torch.Tensor) else repr(value)
