"""Settings of PyTorch that results depend on, changed between calls of programs whose results may depend on them.

`SETTINGS`: how each is put to another value (a context). `PROGRAMS`: text of what is run, of a float tensor `x` [6, 8], a
square weight `w`, a convolution `conv` and an image `im`. `PAIRS`: which are tried in the suite.

    python -m tests.guards.result_settings      tries every program under every setting
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

import pliant

Change = Callable[[], contextlib.AbstractContextManager[Any]]


def _value(ask: Callable[[], Any], put: Callable[[Any], Any], new: Any) -> Change:
    """A context in which `put(new)` holds, and what `ask` said before is put again behind it."""

    @contextlib.contextmanager
    def change() -> Iterator[None]:
        old = ask()
        with torch.backends.__allow_nonbracketed_mutation():
            put(new)
            try:
                yield
            finally:
                put(old)

    return change


def _attribute(owner: Any, name: str, new: Any) -> Change:
    return _value(lambda: getattr(owner, name), lambda value: setattr(owner, name, value), new)


def _deterministic(warn_only: bool) -> Change:
    @contextlib.contextmanager
    def change() -> Iterator[None]:
        torch.use_deterministic_algorithms(True, warn_only=warn_only)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(False)

    return change


@contextlib.contextmanager
def _no_denormals() -> Iterator[None]:
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


_BACKENDS = torch.backends
SETTINGS: dict[str, Change] = {
    "default dtype": _value(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "half as default dtype": _value(torch.get_default_dtype, torch.set_default_dtype, torch.bfloat16),
    "default device": _value(lambda: None, torch.set_default_device, "meta"),
    "deterministic": _deterministic(warn_only=False),
    "deterministic, warning": _deterministic(warn_only=True),
    "no denormals": _no_denormals,
    "threads": _value(torch.get_num_threads, torch.set_num_threads, torch.get_num_threads() + 1),
    "matmul precision": _value(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    "no onednn": _attribute(_BACKENDS.mkldnn, "enabled", False),
    "deterministic onednn": _attribute(_BACKENDS.mkldnn, "deterministic", True),
    "precision of onednn": _attribute(_BACKENDS.mkldnn, "fp32_precision", "bf16"),
    "precision of products": _attribute(_BACKENDS.mkldnn.matmul, "fp32_precision", "bf16"),
    "precision of convolutions": _attribute(_BACKENDS.mkldnn.conv, "fp32_precision", "bf16"),
    "precision of recurrent layers": _attribute(_BACKENDS.mkldnn.rnn, "fp32_precision", "bf16"),
    "precision of all": _attribute(_BACKENDS, "fp32_precision", "ieee"),
    "no nnpack": lambda: _BACKENDS.nnpack.flags(False),
    "no orders of einsum": _attribute(_BACKENDS.opt_einsum, "enabled", False),
    "no cudnn": lambda: _BACKENDS.cudnn.flags(enabled=False),
    "no flash attention": _value(_BACKENDS.cuda.flash_sdp_enabled, _BACKENDS.cuda.enable_flash_sdp, False),
    "no math attention": _value(_BACKENDS.cuda.math_sdp_enabled, _BACKENDS.cuda.enable_math_sdp, False),
    "no fast path": _value(_BACKENDS.mha.get_fastpath_enabled, _BACKENDS.mha.set_fastpath_enabled, False),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "grad off": torch.no_grad,
    "inference": torch.inference_mode,
    "overwriting modules": _value(
        torch.__future__.get_overwrite_module_params_on_conversion,
        torch.__future__.set_overwrite_module_params_on_conversion,
        True,
    ),
}

PROGRAMS = {
    "numbers": "x + 0.1, torch.tensor(0.1), torch.arange(3) / 2, torch.ones(2, dtype=torch.int64).sqrt(), torch.full((2,), 0.3)",
    "factories": "torch.zeros(3), torch.linspace(0, 1, 3), torch.eye(2), torch.tensor([1, 2.5]), torch.Tensor([1, 2])",
    "uninitialized": "torch.empty(3).isnan() | free, x.new_empty(4).isnan() | free, torch.empty_like(x).isnan() | free",
    "resized": "torch.zeros(2).resize_(5)[3:].isnan() | free",
    "put": "x.clone().put_(torch.tensor([1, 1]), torch.tensor([2.0, 2.0]))",
    "gather": "x.clone().index_put_((torch.tensor([0, 1]),), x[:2]), x.clone().scatter_add_(0, torch.zeros(1, 8).long(), x), x.cumsum(0)",
    "denormals": "x * 1e-39 * 1.5, (x * 1e-39).sum(), torch.exp(x * 0 - 100), (x.double() * 1e-310) * 0.5",
    "product": "x @ w, F.linear(x, w).relu(), torch.baddbmm(x[None], x[None], w[None])",
    "linear layer": "linear(x).tanh()",
    "convolution": "conv(im).relu(), F.conv2d(im, conv.weight[:, :, :1, :1])",
    "recurrent": "rnn(x[None])[0]",
    "einsum": "torch.einsum('ij,jk,lk->il', x, w, x)",
    "attention": "F.scaled_dot_product_attention(im, im, im)",
    "layers": "norm(x), F.dropout(x, 0.5, False), mha(x[None], x[None], x[None])[0]",
    "mean": "(x > 0).float().mean(), x.long() / 3, torch.sigmoid((x > 0)), torch.std(x), torch.where(x > 0, 0.5, 1)",
    "grad": "x.requires_grad, (linear(x) * 2).requires_grad, (x * 2).is_inference()",
}
PAIRS = [
    ("default dtype", "numbers"), ("default dtype", "factories"), ("default dtype", "mean"), ("default device", "factories"),
    ("deterministic", "uninitialized"), ("deterministic", "put"),
    ("deterministic", "resized"), ("no denormals", "denormals"),
    ("threads", "product"), ("matmul precision", "product"), ("matmul precision", "linear layer"), ("no onednn", "convolution"),
    ("no onednn", "linear layer"), ("precision of convolutions", "convolution"), ("precision of products", "product"),
    ("precision of onednn", "linear layer"), ("no orders of einsum", "einsum"), ("no flash attention", "attention"),
    ("no fast path", "layers"), ("autocast", "linear layer"), ("grad off", "grad"),
    ("inference", "grad"),
]  # fmt: skip


def _space() -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "torch": torch, "F": F, "x": torch.randn(6, 8), "w": torch.randn(8, 8), "im": torch.randn(2, 4, 8, 8), "conv": torch.nn.Conv2d(4, 4, 3),
        "linear": torch.nn.Linear(8, 8), "rnn": torch.nn.GRU(8, 8, batch_first=True), "norm": torch.nn.LayerNorm(8),
        "mha": torch.nn.MultiheadAttention(8, 2, batch_first=True).eval(),
    }  # fmt: skip


def _function(program: str) -> Callable[..., Any]:
    names = _space()
    free = "free = not torch.are_deterministic_algorithms_enabled()"  # then memory holds anything
    exec(f"def f(x, w, im):\n    {free}\n    return ({program},)", names)
    return names["f"]


def _seen(function: Callable[..., Any], given: list[torch.Tensor]) -> Any:
    torch.manual_seed(1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = function(*given)
        except Exception as error:
            return type(error).__name__, str(error).split("\n")[0][:60]
    warned = sorted({str(w.message)[:40] for w in told if "determinis" in str(w.message)})
    flat = [t for one in found for t in (one if isinstance(one, tuple) else (one,))]
    return [_described(t) for t in flat], warned


def _described(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    facts = (tuple(value.shape), value.dtype, value.device.type, value.requires_grad, value.is_inference())
    return facts, None if value.device.type == "meta" else value.detach().double().clone()


def _alike(mine: Any, theirs: Any, tolerance: float) -> bool:
    if isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor):
        tiny = theirs.abs() < 1e-37  # where a denormal is told from zero
        close = torch.allclose(mine, theirs, tolerance, tolerance, equal_nan=True)
        return close and torch.allclose(mine[tiny], theirs[tiny], 1e-2, 0.0)
    if isinstance(mine, (list, tuple)) and isinstance(theirs, (list, tuple)):
        return len(mine) == len(theirs) and all(_alike(a, b, tolerance) for a, b in zip(mine, theirs))
    return bool(mine == theirs)


def disagreement(setting: str, program: str, first: bool, **options: Any) -> str:
    """What differs from eager when the program is called thrice, the setting changed for the second call (`first`: for
    the first and third); empty if nothing."""
    pliant.reset()
    eager, compiled = _function(PROGRAMS[program]), pliant.compile(_function(PROGRAMS[program]), **options)
    given = [_space()[name] for name in ("x", "w", "im")]
    half = any(word in setting for word in ("precision", "autocast", "half"))
    for call in range(3):
        around = SETTINGS[setting] if (call != 1) is first else contextlib.nullcontext
        with around():
            want, got = _seen(eager, given), _seen(compiled, given)
        if not _alike(got, want, 3e-2 if half else 1e-5):
            return f"{program} under `{setting}`, call {call}: {got} instead of {want}"
    return ""


def main() -> int:
    wrong = 0
    for setting in SETTINGS:
        for program in PROGRAMS:
            for first in (False, True):
                if found := disagreement(setting, program, first):
                    wrong += 1
                    print(found, flush=True)
    print(f"{len(SETTINGS)} settings, {len(PROGRAMS)} programs: {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
