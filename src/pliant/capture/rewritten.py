"""Python functions of PyTorch that are traced as other code, which does the same.

In:     the code of a function that is going to be inlined.
Out:    the code to inline: the same parameters and free variables, the same globals.
Holds:  a rewritten function has eager's effects; it is written anew because its own code asks for the peer.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
import torch.optim.optimizer as optimizer


def _nested(function: Callable[..., Any], name: str) -> types.CodeType:
    """The code of the function defined in this one."""
    code = function.__code__  # type: ignore[attr-defined]
    return next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)


def _use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """An optimizer's step under its own grad mode. PyTorch's asks its compiler to break the graph here."""

    def _use_grad(*args: Any, **kwargs: Any) -> Any:
        prev_grad = torch.is_grad_enabled()
        try:
            torch.set_grad_enabled(args[0].defaults["differentiable"])
            ret = func(*args, **kwargs)
        finally:
            torch.set_grad_enabled(prev_grad)
        return ret

    return _use_grad


REWRITTEN: dict[types.CodeType, types.CodeType] = {
    _nested(optimizer._use_grad_for_differentiable, "_use_grad"): _nested(_use_grad_for_differentiable, "_use_grad"),
}
