"""Functions of PyTorch that are traced as others, which do the same.

In:     the code of a function that is going to be inlined; a call of an operator that would ask a tensor for its value.
Out:    the code to inline: the same parameters and free variables, the same globals; the operator's result by others.
Holds:  what is rewritten has eager's effects. Code is written anew because its own asks for the peer.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from pliant.capture.signatures import Args, Kwargs
from pliant.capture.structures import leaves
from pliant.capture.value_kinds import is_tensor
from pliant.errors import Unsupported
from pliant.graph.effects import TORCH
from pliant.graph.overlaps import may_share
from pliant.torch_adapter import differentiable_step, is_composite, kept_from_the_peer


def _nested(function: Callable[..., Any], name: str) -> types.CodeType:
    """The code of the function defined in this one."""
    code = function.__code__
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


def _disable_dynamo(fn: Callable[..., Any], recursive: bool) -> Callable[..., Any]:
    """What PyTorch keeps from its own compiler (`Optimizer.zero_grad`); what this one cannot take, it breaks on."""

    def inner(*args: Any, **kwargs: Any) -> Any:
        recursive  # noqa: B018  # a variable of the original
        return fn(*args, **kwargs)

    return inner


def _init_handle(self: Any, hooks_dict: Any, *, extra_dict: Any = None) -> None:
    """A handle of a hook, whose key is another one in each call."""
    from pliant.capture.outside.identity import take_hook_id

    self.hooks_dict_ref = weakref.ref(hooks_dict)
    self.id = take_hook_id()
    extra = [extra_dict] if isinstance(extra_dict, dict) else extra_dict or []
    self.extra_dict_ref = tuple([weakref.ref(one) for one in extra])


REWRITTEN: dict[types.CodeType, types.CodeType] = {
    _nested(differentiable_step, "_use_grad"): _nested(_use_grad_for_differentiable, "_use_grad"),
    RemovableHandle.__init__.__code__: _init_handle.__code__,
    _nested(kept_from_the_peer, "inner"): _nested(_disable_dynamo, "inner"),
}


# ---- a factor that is a tensor
def with_factor(func: Any, args: Args, kwargs: Kwargs) -> Any:
    """x + factor * (what is added), if the factor is a tensor, whose value the operator would read; else None.

    A factor that decides about the result's dtype is not for here: the operator takes none from it.
    """
    name, add, combine = FACTORS[func]
    factor = kwargs.get(name)
    if not is_tensor(factor) or factor.requires_grad or len(kwargs) > 1:
        return None
    added = combine(*args[1:]) if combine else args[1]
    if not is_tensor(added) or torch.result_type(added, factor) != added.dtype:
        return None
    return add(args[0], added * factor)


# operator -> (name of its factor, how the product is added, how the rest is combined)
FACTORS: dict[Any, tuple[str, Callable[..., Any], Callable[..., Any] | None]] = {
    owner_function: (factor, add, combine)
    for base, factor, combine in (
        ("add", "alpha", None), ("sub", "alpha", None), ("addcmul", "value", torch.mul), ("addcdiv", "value", torch.div),
    )
    for owner_function, add in (
        (getattr(torch, base), torch.sub if base == "sub" else torch.add),
        (getattr(torch.Tensor, base), torch.sub if base == "sub" else torch.add),
        (getattr(torch.Tensor, base + "_"), torch.Tensor.sub_ if base == "sub" else torch.Tensor.add_),
    )
}  # fmt: skip


# ---- results written into given tensors
_FROM_NUMBERS = frozenset("zeros ones full eye arange linspace logspace".split())
_DESCRIBES = frozenset("dtype device layout requires_grad pin_memory".split())


def into_out(func: Any, args: Args, kwargs: Kwargs) -> Any:
    """What a composition, or a call that makes a tensor of numbers, writes into `out`, computed apart and copied; None for others.

    Compositions in C++ write through views that they do not declare as such.
    """
    out, name = kwargs["out"], getattr(func, "__name__", "")
    if not is_tensor(out):
        return None
    others: dict[str, Any] = {name: value for name, value in kwargs.items() if name != "out"}
    if name == "randn":
        return _drawn_into(out, args, others)
    if name in _FROM_NUMBERS and not out.requires_grad and not others.keys() & _DESCRIBES:
        others |= {"dtype": out.dtype, "device": out.device}
    elif not _is_composition(name):
        return None
    elif any(is_tensor(one) and may_share(out, one) for one in leaves(args, others)):
        raise Unsupported(f"`{name}` writes memory that it reads", kind="shared-memory")
    made = func(*args, **others)
    if not is_tensor(made) or made.shape != out.shape or not torch.can_cast(made.dtype, out.dtype):
        raise Unsupported(f"`{func.__name__}` resizes or refuses `out`", kind="resize")
    if made.device != out.device:
        raise Unsupported(f"`{func.__name__}` with `out` on another device", kind="several-devices")
    return out.copy_(made)


def _drawn_into(out: Any, args: Args, others: dict[str, Any]) -> Any:
    """Normal numbers of the type of `out`, in the order of its memory."""
    generator = others.pop("generator", None)
    if out.requires_grad or others.keys() & _DESCRIBES or torch.empty(*args, **others).shape != out.shape:
        raise Unsupported("`randn` resizes or refuses `out`", kind="resize")
    return out.normal_(generator=generator)


def refuse_cast(func: Any, args: Args, kwargs: Kwargs) -> None:
    """Refuse a call whose result has another dtype than `out`. Only some operators of eager cast, none to every dtype.

    Functions that take no tensor make their result of the dtype of `out`; operators of the program's own do what they do.
    """
    packet = getattr(func, "overloadpacket", func)
    _, is_operator, namespace = (getattr(packet, "__module__", None) or "").rpartition("_ops.")
    if is_operator and namespace not in TORCH:
        return
    outs = [kwargs["out"]] if is_tensor(kwargs["out"]) else kwargs["out"]
    others = {name: value for name, value in kwargs.items() if name != "out"}
    if not outs or not any(map(is_tensor, leaves(args, others))):
        return
    made = packet(*args, **others)
    for one, out in zip([made] if is_tensor(made) else made, outs):
        if one.dtype != out.dtype:
            name = getattr(func, "__name__", func)
            raise Unsupported(f"`{name}` writes {one.dtype} into `out` of {out.dtype}", kind="out-dtype")


@functools.cache
def _is_composition(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    out = getattr(packet, "out", None) if packet is not None else None
    return out is not None and is_composite(out)
