"""Casts of `torch.autocast` around a program's forward and around its backward, which need not be in the same blocks.

In:     the devices whose casts are on, with the dtypes; the products of a backward.
Out:    blocks in which just these casts are done; whether casts around a backward would change its products.
Holds:  a backward is traced, and compiled, where no casts are done. Where those around it would do its products in another
        dtype, gradients come from a program that was traced among them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from pliant.torch_adapter import any_autocast

Casts = tuple[tuple[str, torch.dtype], ...]  # of each device whose casts are on, the dtype
Products = list[tuple[str, torch.dtype]]  # devices and dtypes of what is multiplied
_DEVICES = ("cpu", "cuda", "xpu", "mps")
_OF_PRODUCTS = frozenset("mm bmm addmm addbmm baddbmm mv addmv addr dot linalg_vecdot convolution _prelu_kernel".split())
_CAST = (torch.float32, torch.float16, torch.bfloat16)


def casts_now() -> Casts:
    if not any_autocast():
        return ()
    return tuple((d, torch.get_autocast_dtype(d)) for d in _DEVICES if torch.is_autocast_enabled(d))


def casting(casts: Casts) -> contextlib.AbstractContextManager[Any]:
    """A block of just these casts, of which none is kept: what a program computes anew is cast anew."""
    now = casts_now()
    if now == casts:
        return contextlib.nullcontext()
    block = contextlib.ExitStack()
    for device in {device for device, _ in now} - {device for device, _ in casts}:
        block.enter_context(torch.autocast(device, enabled=False))
    for device, dtype in casts:
        block.enter_context(torch.autocast(device, dtype, cache_enabled=False))
    return block


def among(casts: Casts, run: Callable[..., Any], *args: Any) -> Any:
    with casting(casts):
        return run(*args)


def products_of(nodes: Iterable[fx.Node]) -> Products:
    """What the products of a backward multiply, as far as casts concern it."""
    found = set()
    for node in nodes:
        name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        if node.meta.get("stage") == "backward" and name in _OF_PRODUCTS:
            values = [one.meta.get("val") for one in node.all_input_nodes]
            found |= {(v.device.type, v.dtype) for v in values if isinstance(v, torch.Tensor) and v.dtype in _CAST}
    return sorted(found, key=str)


def change(products: Products) -> bool:
    """Whether casts around a backward would do its products in another dtype."""
    casts = dict(casts_now())
    return any(casts.get(device, dtype) is not dtype for device, dtype in products)
