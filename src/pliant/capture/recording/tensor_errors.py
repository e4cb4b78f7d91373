"""The exceptions that operations on tensors raise for sizes, dtypes and wrong arguments, as eager words them.

In:     a call on fakes that failed.
Out:    the exception that the same call raises on tensors of zeros and on tensors of ones; None if it raises none, or two,
        or wrote or drew random numbers before.
Holds:  sizes that were symbolic are specialized: whether the call fails depends on them.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.capture.signatures import Args, Kwargs
from pliant.capture.structures import leaves, mapped
from pliant.capture.value_kinds import concrete, is_constant, is_symbolic, is_tensor
from pliant.graph.fake_tensor import is_fake, memory_of
from pliant.graph.given_warnings import collected
from pliant.interruptions import pass_on
from pliant.torch_adapter import DisableTorchFunction, below_python_dispatch, is_view, set_grad_enabled

_MANY = 1 << 24  # elements; larger stand-ins cost too much


class _Unfit(Exception):
    """An argument has no stand-in."""


def error_of_eager(function: Any, args: Args, kwargs: Kwargs) -> Exception | None:
    """What the call raises in eager."""
    owner = getattr(function, "__self__", None)
    if is_fake(owner):  # a bound method
        function, args = getattr(torch.Tensor, function.__name__), (owner, *args)
    elif getattr(function, "__objclass__", None) not in torch.Tensor.mro():  # a method in C has no module
        if not (getattr(function, "__module__", None) or "").startswith(("torch", "_operator")):
            return None
    fakes = [one for one in leaves(args, tuple(kwargs.values())) if is_fake(one)]
    if len(set(map(id, map(memory_of, fakes)))) < len(set(map(id, fakes))):
        return None  # stand-ins do not share memory
    errors = [_error(function, args, kwargs, fill) for fill in (0, 1)]  # one that depends on elements is the data's
    if any(error is None for error in errors) or str(errors[0]) != str(errors[1]):
        return None
    return errors[0]


def _error(function: Any, args: Args, kwargs: Kwargs, fill: int) -> Exception | None:
    try:
        real_args, real_kwargs = mapped((args, kwargs), lambda value: _stand_in(value, fill))
    except _Unfit:
        return None
    grad, state, before = torch.is_grad_enabled(), torch.get_rng_state(), _state(real_args, real_kwargs)
    try:
        with collected(), DisableTorchFunction(), below_python_dispatch():  # eager tells what it warns of
            function(*real_args, **real_kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        pass_on(error)
        if _state(real_args, real_kwargs) != before:
            return None  # the graph would lack what the call did until then
        return error.with_traceback(None)  # which would hold the frames that hold the program's
    except Exception as error:
        pass_on(error)
        return None
    finally:
        set_grad_enabled(grad)
        torch.set_rng_state(state)
    return None


def _state(args: Args, kwargs: Kwargs) -> Any:
    """What a call may change: the state of the random numbers, and tensors: how often they were written, or, where that is
    not counted, their elements."""
    with DisableTorchFunction(), below_python_dispatch():
        given = filter(is_tensor, leaves(args, tuple(kwargs.values())))
        told = [one.tolist() if one.is_inference() else one._version for one in given]
        return torch.get_rng_state().tolist(), told


def _stand_in(value: Any, fill: int) -> Any:
    """What stands for a value that is no container."""
    if is_fake(value):
        sizes, strides = [concrete(n) for n in value.size_], [concrete(n) for n in value.stride_]
        if value.device_.type != "cpu" or torch.Size(sizes).numel() > _MANY or value.subclass_ is not None:
            raise _Unfit
        with DisableTorchFunction(), below_python_dispatch():
            made = torch.empty_strided(sizes, strides, dtype=value.dtype_).fill_(fill)
            if value.requires_grad and (is_view(value) or not value.is_leaf):  # autograd complains of leaves that are written
                if any(n > 1 and not step for n, step in zip(sizes, strides)):
                    raise _Unfit  # nothing is written to elements that share memory
                with torch.enable_grad():
                    return made.fill_(torch.full((), fill, dtype=value.dtype_, requires_grad=True))
            return made.requires_grad_(value.requires_grad)
    if is_symbolic(value):
        return concrete(value)
    if is_constant(value):
        return value
    raise _Unfit
