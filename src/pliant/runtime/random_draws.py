"""Dropout's draws, made many at a time: the same bits as eager's, from the same generator.

In:     a tensor, the probability, a generator.
Out:    `bind(names)`: puts `bernoulli` in the place of what draws in a wrapper's names.
Holds:  results and the generator's state afterwards are PyTorch's to the bit. That is found by experiment, once; where
        it does not hold PyTorch draws. So it does where the process has other threads, since the state is read and written
        in two steps, and where there are few draws.
Units:  12 ns a draw in PyTorch, 1.7 here, on one core with AVX-512.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import torch

from pliant.runtime.load import takes_tensors
from pliant.torch_adapter import RUNS_AS

LEAST = 1024  # draws: reading and writing the state takes as long as 300
DRAWN = RUNS_AS[torch.ops.aten.bernoulli.p]


def bernoulli(x: torch.Tensor, p: float = 0.5, *, generator: Any = None) -> torch.Tensor:
    """As `empty_like(x).bernoulli_(p)`."""
    if x.numel() < LEAST or threading.active_count() > 1 or not 0 <= p <= 1 or not _is_served(x) or not _agrees():
        return DRAWN(x, p, generator=generator)  # type: ignore[no-any-return]
    result = torch.empty_like(x)
    _draw(result, p, torch.default_generator if generator is None else generator)
    return result


def _is_served(x: torch.Tensor) -> bool:
    return x.dtype is torch.float32 and x.device.type == "cpu" and type(x) is torch.Tensor


def _draw(result: torch.Tensor, p: float, generator: torch.Generator) -> None:
    state = generator.get_state()
    native = _native()
    assert native is not None  # `_agrees` has looked
    native(state, result, result.numel(), math.ceil(math.ldexp(p, 53)))
    generator.set_state(state)


def _native() -> Callable[..., Any] | None:
    from pliant.runtime import auxiliary  # which most calls do not need

    return auxiliary.function(auxiliary.BERNOULLI)


@functools.cache
def _agrees() -> bool:
    """Whether this PyTorch draws as the native code does."""
    if not takes_tensors() or _native() is None or torch.Generator().get_state().numel() < 24 + 8 * 624:
        return False
    return all(_alike(seed, p, size) for seed, (p, size) in enumerate(_TRIALS))


_TRIALS = ((0.1, 1), (0.5, 311), (0.9, 312), (1 / 3, 313), (1e-3, 5000), (0.0, 20), (1.0, 20))


def _alike(seed: int, p: float, size: int) -> bool:
    ours, theirs = torch.Generator(), torch.Generator()
    for generator in (ours, theirs):
        generator.manual_seed(seed)
        torch.randint(0, 9, (seed,), generator=generator)  # from another place of the state
    result = torch.empty(size)
    _draw(result, p, ours)
    same = torch.equal(result, torch.empty(size).bernoulli_(p, generator=theirs))
    return same and torch.equal(ours.get_state(), theirs.get_state())


def bind(names: dict[str, Any]) -> None:
    """Put `bernoulli` among a wrapper's names."""
    for name, value in names.items():
        if value is DRAWN:
            names[name] = bernoulli
