"""Compare fakes with what eager kernels return, one ATen call at a time.

In:     a program on real tensors, run under `EagerCheck`.
Out:    per operator: how often the description was right, wrong (with the call), or not known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from pliant.errors import DataDependentError
from pliant.graph.fake_mode import FakeMode
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.unsupported import UnsupportedOperator, UnsupportedTensor
from pliant.symbolic.shape_env import ShapeEnv


class EagerCheck(TorchDispatchMode):
    def __init__(self, symbolic: bool) -> None:
        super().__init__()
        self.symbolic = symbolic
        self.right: Counter[str] = Counter()
        self.unknown: dict[str, str] = {}
        self.wrong: dict[str, list[str]] = defaultdict(list)
        self._seen: dict[tuple[Any, str], bool] = {}  # whether calls of arguments that look alike were described right

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        described = describe(args, kwargs)
        call = func, described
        if call in self._seen:  # samples make most calls again and again
            self.right[str(func)] += self._seen[call]
            return func(*args, **kwargs)
        mode = FakeMode(ShapeEnv()) if self.symbolic else FakeMode()
        try:
            fake_args, fake_kwargs = tree_map(lambda v: self._fake(mode, v), (args, kwargs))
        except UnsupportedTensor:
            return func(*args, **kwargs)
        real = func(*args, **kwargs)
        self._seen[call] = False
        try:
            with mode.shape_only():
                fake = mode.compute(func, fake_args, fake_kwargs)
        except (UnsupportedOperator, DataDependentError) as refusal:
            self.unknown[str(func)] = str(refusal)
        except Exception as error:
            self.wrong[str(func)].append(f"{described}: {type(error).__name__}: {error}"[:300])
        else:
            difference = compare(real, fake)
            if difference:
                self.wrong[str(func)].append(f"{described}: {difference}"[:400])
            else:
                self.right[str(func)] += 1
                self._seen[call] = True
        return real

    def _fake(self, mode: FakeMode, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        value = value.detach()
        return symbolic_fake(mode, value) if self.symbolic else mode.from_real(value)


def symbolic_fake(mode: FakeMode, tensor: torch.Tensor) -> FakeTensor:
    """A fake with a symbol for every size above 1; strides of dense dimensions are products of these."""
    env = mode.shape_env
    sizes = [env.wrap(env.create_symbol(n, None)) for n in tensor.shape]
    strides: list[Any] = list(tensor.stride())
    step: Any = 1
    for d in sorted(range(tensor.dim()), key=lambda d: (tensor.stride(d), -d)):
        if int(step) == tensor.stride(d):
            strides[d] = step
        step = step * sizes[d]
    return mode.from_real(tensor, sizes, strides)


def describe(args: Any, kwargs: Any) -> str:
    def text(v: Any) -> Any:
        if isinstance(v, torch.Tensor) and v.layout is torch.strided:
            seen_as = [f" {name}" for name, lazily in (("conj", v.is_conj()), ("neg", v.is_neg())) if lazily]
            return f"{str(v.dtype)[6:]}{list(v.shape)}/{list(v.stride())}+{v.storage_offset()}{''.join(seen_as)}"
        return v

    return str(tree_map(text, (args, kwargs)))


def compare(real: Any, fake: Any) -> str:
    """What differs between a real result and its fake; empty if nothing does."""
    if isinstance(real, (list, tuple)):
        if not isinstance(fake, (list, tuple)) or len(fake) != len(real):
            return f"{len(real)} results, fake {fake}"
        return "; ".join(filter(None, map(compare, real, fake)))
    if not isinstance(real, torch.Tensor):
        return "" if isinstance(fake, type(real)) or fake == real else f"{real!r}, fake {fake!r}"
    if type(fake) is not FakeTensor:
        return f"a tensor, fake {fake!r}"
    for name, wanted, found in (
        ("dtype", real.dtype, fake.dtype_),
        ("device", real.device, fake.device_),
        ("size", list(real.shape), list(map(int, fake.size_))),
        ("stride", significant(real.shape, real.stride()), significant(real.shape, fake.stride_)),
        ("offset", real.storage_offset() if real.numel() else 0, int(fake.offset_) if real.numel() else 0),
    ):
        if wanted != found:
            return f"{name} {wanted}, fake {found}"
    if list(fake.shape) != list(fake.size_) or list(fake.stride()) != list(fake.stride_):
        return f"the tensor says {fake.shape}, its spec {fake.size_}"
    return ""


def significant(size: Any, stride: Any) -> list[int]:
    """Strides that tell where an element is: none for empty tensors, nor of sizes 1."""
    return [] if 0 in size else [int(s) for n, s in zip(size, stride) if n > 1]
