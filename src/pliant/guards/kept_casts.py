"""Casts of parameters that autocast would have kept, had the code before a graph break run eagerly.

Until the outermost block ends PyTorch keeps each parameter's first cast, and takes it in inner blocks of another dtype too. A
compiled graph keeps none: its entry notes which parameters it cast, and before the program goes on eagerly they are cast once
more, so that PyTorch has them.

In:     the tensors that a graph was given, asked while it is captured; the same tensors of each call.
Out:    `dtype_kept(leaf)`; `note(...)`, called by entries that end in a block; `give()`, called before code runs eagerly.
Holds:  what is noted counts for the blocks that it was noted in: it is forgotten where PyTorch has forgotten a cast that was
        made with it. Notes are a thread's own, as PyTorch's casts are. Compiled code neither gives nor forgets them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class _Told(Exception):
    """The dtype in which a tensor reached an operator; None if it was about to be cast."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.dtype = dtype


class _Listening(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells in which dtype the first argument of a product arrives, which is not computed. `casts`: casts are made."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch wraps the dispatch method of modes that say yes, and imports the peer at the first call."""
        return False

    def __init__(self, casts: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.casts, self.has_cast = casts, False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.mm.default:
            raise _Told(None if self.has_cast else args[0].dtype)
        if not self.casts:
            raise _Told(None)
        self.has_cast = True
        return func(*args, **kwargs or {})


def _ask(leaf: torch.Tensor, dtype: torch.dtype, casts: bool) -> torch.dtype | None:
    """The dtype of the cast that PyTorch keeps of a leaf; None if it keeps none. `casts`: it then keeps one to `dtype`."""
    with torch.enable_grad(), torch.autocast(leaf.device.type, dtype, cache_enabled=True), _Listening(casts):
        try:
            torch.mm(leaf, leaf)
        except _Told as told:
            return told.dtype
    raise AssertionError("a product that no mode saw")


def dtype_kept(leaf: torch.Tensor) -> torch.dtype | None:
    """The dtype of the cast that PyTorch keeps of a tensor in this block; None if it keeps none."""
    may_be_kept = leaf.dtype is torch.float32 and leaf.requires_grad and leaf.is_leaf
    return _ask(leaf, torch.bfloat16, casts=False) if may_be_kept else None


class _Notes(threading.local):
    """What compiled code has cast, by identity of the tensor, and tensors of ours that were cast at the same time."""

    def __init__(self) -> None:
        self.casts: dict[int, tuple[weakref.ref[torch.Tensor], torch.dtype]] = {}
        self.witnesses: dict[str, torch.Tensor] = {}

    def are_valid(self, device: str, dtype: torch.dtype) -> bool:
        """Whether PyTorch still has what it kept when these notes were taken; from now on it has."""
        if device not in self.witnesses:
            self.witnesses[device] = torch.zeros(1, device=device, requires_grad=True)
        return _ask(self.witnesses[device], dtype, casts=True) is not None


_notes = _Notes()


def note(device: str, dtype: torch.dtype, *leaves: torch.Tensor) -> None:
    """Compiled code has cast these in the block that the program is in."""
    if not _notes.are_valid(device, dtype):
        _notes.casts.clear()
    for leaf in leaves:
        known = _notes.casts.get(id(leaf))
        if known is None or known[0]() is not leaf:
            _notes.casts[id(leaf)] = weakref.ref(leaf), dtype


def give() -> None:
    """Have PyTorch keep the casts that are noted, if it would still have them."""
    if not _notes.casts:
        return
    casts, _notes.casts = _notes.casts, {}
    valid: dict[str, bool] = {}
    for reference, dtype in casts.values():
        leaf = reference()
        if leaf is None:
            continue
        device = leaf.device.type
        if device not in valid:
            valid[device] = _notes.are_valid(device, dtype)
        if valid[device]:
            _ask(leaf, dtype, casts=True)
