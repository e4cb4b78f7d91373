"""Hooks on saved tensors: what they give back is what gradients are computed from.

In:     the innermost `torch.autograd.graph.saved_tensors_hooks` around a call.
Out:    whether the values may come back changed; the mark by which a program says that they do not.
Holds:  compiled code saves other tensors than eager does, so hooks that change values would change its gradients in
        another way. What PyTorch's own blocks save comes back as it was; of other hooks only their author knows.
"""

from __future__ import annotations

from typing import TypeVar

from pliant.errors import ConfigError
from pliant.torch_adapter import saved_tensor_hooks

Hook = TypeVar("Hook")

_KEEPS = "__pliant_keeps_saved_values__"
_OF_TORCH = ("torch.autograd.graph", "torch.utils.checkpoint")  # save_on_cpu, checkpoints


def keeps_saved_values(hook: Hook) -> Hook:
    """Say of a hook that packs saved tensors that what its unpacking returns equals what it was given, bit for bit.

    For `torch.autograd.graph.saved_tensors_hooks(hook, unpack)`: compiled functions called in the block are compiled
    nevertheless, and hand the hook what they save, which is less than what eager does. Returns the hook. Raises
    `ConfigError` for an object that takes no attributes, such as a bound method: mark the method in its class.
    """
    try:
        setattr(hook, _KEEPS, True)
    except AttributeError as error:
        what = f"cannot mark {hook!r}"
        why, do = "it takes no attributes", "mark the function, or the method in its class"
        raise ConfigError(what, kind="not-callable", why=why, do=do) from error
    return hook


def changing_hook() -> str:
    """The name of a hook that may change saved values; empty if there is none around the call."""
    hooks = saved_tensor_hooks(False)
    if hooks is None or getattr(hooks[0], _KEEPS, False) or getattr(hooks[0], "__module__", "") in _OF_TORCH:
        return ""
    return getattr(hooks[0], "__qualname__", "") or type(hooks[0]).__qualname__
