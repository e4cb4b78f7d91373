"""Tensors below their public interface: how they are made, what they are of, their memory.

In:     tensors.
Out:    facts of them, others on the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.torch_adapter.modes import below_python_dispatch


def dlpack_exchange_capsule() -> Any | None:
    """The capsule of DLPack's C exchange table (torch >= 2.10): reads a tensor's address without a Python call."""
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


dispatch_keys = torch._C._dispatch_keys  # of a tensor: what the dispatcher goes by
make_subclass: Any = torch.Tensor._make_subclass
make_wrapper_subclass: Any = torch.Tensor._make_wrapper_subclass
BYTES_OF_TENSOR = torch.Tensor.__basicsize__  # of its Python object
# Copies on write; none where this torch cannot make them.
lazy_clone: Callable[[torch.Tensor], torch.Tensor] | None = getattr(torch, "_lazy_clone", None)


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A plain tensor on the memory of one of a subclass, whose `__torch_function__` is not asked."""
    with torch._C.DisableTorchFunction():
        return tensor.as_subclass(torch.Tensor)


def as_in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as its memory has it: what is conjugated or negated only when it is read, without that."""
    with torch._C.DisableTorchFunction(), below_python_dispatch():
        for view in lazy_views(tensor):
            tensor = view(tensor)
    return tensor


def lazy_views(tensor: torch.Tensor) -> tuple[Callable[..., torch.Tensor], ...]:
    """What makes a tensor of its memory, and its memory of the tensor."""
    return (torch._neg_view,) * tensor.is_neg() + (torch.conj,) * tensor.is_conj()


def is_functorch_wrapped(tensor: torch.Tensor) -> bool:
    """Whether `vmap` or `grad` wrapped the tensor (no public test exists)."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


_is_wrapped: Callable[[torch.Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor
_is_batched: Callable[[torch.Tensor], bool] = torch._C._functorch.is_legacy_batchedtensor


def is_transformed(tensor: torch.Tensor | None) -> bool:
    """Whether the tensor stands for others inside a transform, `is_grads_batched` among them (no public form)."""
    return tensor is not None and (_is_wrapped(tensor) or _is_batched(tensor))


def set_geometry(tensor: torch.Tensor, size: Any, stride: Any, offset: Any) -> None:
    """Give a tensor without storage other sizes in place, below autograd (public code has no such call)."""
    with torch._C._AutoDispatchBelowADInplaceOrView():
        torch.ops.aten.as_strided_.default(tensor, size, stride, offset)


def set_lazy(tensor: torch.Tensor, conjugated: bool, negated: bool) -> None:
    """Say whether a tensor's elements are conjugated or negated when they are read."""
    torch._C._set_conj(tensor, conjugated)
    torch._C._set_neg(tensor, negated)


# tensor -> the number of its storage object (`untyped_storage()._cdata`, without making an object for it).
storage_of: Callable[[torch.Tensor], int] = torch._C._storage_id  # type: ignore[attr-defined]  # not in its stubs


# number of a storage (see `storage_of`) -> how many tensors and others hold it (no public form).
storage_users: Callable[[int], int] = torch._C._storage_Use_Count


def copy_all(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Copy each source to its target: of many in a few launches (documented for other operators alone)."""
    if len(targets) == 1:
        targets[0].copy_(sources[0])
    elif targets:
        torch._foreach_copy_(list(targets), list(sources))
