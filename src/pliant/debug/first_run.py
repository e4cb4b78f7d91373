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

from pliant import config
from pliant.debug import events
from pliant.debug.repro import is_symbolic, write_repro
from pliant.errors import FallbackWarning
from pliant.graph.contracts import CapturedGraph
from pliant.graph.late_module import with_code
from pliant.interruptions import pass_on

_Run = Callable[[list[Any]], Sequence[Any]]
# Largest difference over the largest magnitude, beyond which float64 is asked.
_CLOSE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
_WORSE = 4.0  # times eager's own error
_SLACK = 10.0  # times `_CLOSE`: errors that nobody would call wrong
_SMALL = 1e-2  # of the largest gradient: what is smaller may be all rounding (the gradient of an attention's key bias)


def checked(captured: CapturedGraph, compiled: _Run) -> _Run:
    """`compiled`, compared with the captured graph at its first call."""
    forward = with_code(captured.module).forward

    def eager(inputs: list[Any]) -> Sequence[Any]:
        return tuple(forward(*inputs))

    chosen: _Run | None = None
    report = config.kept(_report)  # its script has the options of this compile

    def run(inputs: list[Any]) -> Sequence[Any]:
        nonlocal chosen
        if chosen is None:
            why = difference(compiled, eager, inputs)
            chosen = compiled if why is None else eager
            if why is not None:
                report(captured, inputs, why)
        return chosen(inputs)

    return run


def difference(compiled: _Run, eager: _Run, inputs: list[Any]) -> str | None:
    """How the two disagree on these inputs, or None."""
    found = dict(_outcome(compiled, inputs, None))
    expected = dict(_outcome(eager, inputs, None))
    floor = _SMALL * max([_largest(v) for name, v in expected.items() if name.startswith("gradient")], default=0.0)
    exact: dict[str, Any] | None = None
    for name, value in expected.items():
        other, least = found[name], floor if name.startswith("gradient") else 0.0
        if _close(other, value, least):
            continue
        if not _comparable(other, value):
            return f"{name} is {_text(other)}, eager's is {_text(value)}"
        exact = exact if exact is not None else _in_float64(eager, inputs)
        truth = exact.get(name, value)
        if not _as_good(other, value, truth, least):
            return f"{name} differs from eager's by {_error(other, value, least):.1e} of its largest value"
    return None


def _report(captured: CapturedGraph, inputs: list[Any], why: str) -> None:
    dynamic = True if any(is_symbolic(i.fake) for i in captured.inputs) else None
    path = write_repro(captured.module, inputs, AssertionError(why), stage="verify", dynamic=dynamic)
    events.record("fallback", name=captured.name, why="verify", detail=why, where=None)
    message = f"a compiled graph of {captured.name} disagrees with eager, which serves from now on: {why}"
    events.warn_once(f"verify:{captured.name}:{why}", f"{message}. Report it with {path}", FallbackWarning)


# ---- running on copies
def _outcome(run: _Run, inputs: list[Any], dtype: torch.dtype | None) -> Iterator[tuple[str, Any]]:
    """(what, value): results, inputs afterwards, gradients."""
    copies = _copies(inputs, dtype)
    wanted = {k: v for k, v in enumerate(copies) if isinstance(v, torch.Tensor) and v.requires_grad}
    # What is no leaf may be written in place.
    copies = [_moved(v) if k in wanted and not inputs[k].is_leaf else v for k, v in enumerate(copies)]
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
    except Exception as error:  # the program names a dtype: there is no judge, eager's value is the truth
        pass_on(error)
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
        mine = memory.setdefault(storage._cdata, storage.clone())  # type: ignore[no-untyped-call]
        copy = torch.empty(0, dtype=plain.dtype, device=plain.device)
        copy.set_(mine, plain.storage_offset(), plain.shape, plain.stride())
    return copy.requires_grad_(tensor.requires_grad)


class _Moved(torch.autograd.Function):
    """The tensor in memory of its own, laid out the same."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return _copy(tensor, None, {})

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


_moved: Callable[[torch.Tensor], torch.Tensor] = _Moved.apply


def _plain(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _tangents(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """A gradient for each output, the same at every call."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(o.shape, generator=generator, dtype=torch.float64).to(o) for o in outputs]


# ---- comparing
def _comparable(found: Any, expected: Any) -> bool:
    """Whether the two may differ by rounding."""
    if not isinstance(expected, torch.Tensor) or not isinstance(found, torch.Tensor):
        return False
    same = (found.shape, found.dtype, found.device) == (expected.shape, expected.dtype, expected.device)
    return same and (expected.is_floating_point() or expected.is_complex())


def _close(found: Any, expected: Any, least: float) -> bool:
    if _comparable(found, expected):
        return _error(found, expected, least) <= _CLOSE.get(expected.dtype, 1e-5)
    if isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor):
        return found.dtype == expected.dtype and torch.equal(found, expected)
    return type(found) is type(expected) and bool(found == expected or found != found)


def _as_good(found: torch.Tensor, expected: torch.Tensor, truth: torch.Tensor, least: float) -> bool:
    own = _error(expected, truth, least)
    return _error(found, truth, least) <= max(_WORSE * own, _SLACK * _CLOSE.get(expected.dtype, 1e-5))


def _error(found: torch.Tensor, expected: torch.Tensor, least: float) -> float:
    """Largest difference over the largest magnitude; infinity where one is not finite and the other differs."""
    a, b = found.detach().to(torch.complex128), expected.detach().to(torch.complex128)
    finite = torch.isfinite(a) & torch.isfinite(b)
    same = finite | (a == b) | (torch.isnan(a) & torch.isnan(b))
    if not bool(same.all()):
        return float("inf")
    a, b = torch.where(finite, a, 0), torch.where(finite, b, 0)
    return _largest(a - b) / max(_largest(b), least, 1e-30)


def _largest(value: Any) -> float:
    return float(value.detach().abs().max()) if isinstance(value, torch.Tensor) and value.numel() else 0.0


def _text(value: Any) -> str:
    return f"{tuple(value.shape)} of {value.dtype}" if isinstance(value, torch.Tensor) else repr(value)
