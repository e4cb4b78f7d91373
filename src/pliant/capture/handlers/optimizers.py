"""Operators on lists of tensors, as optimizers use them, and the optimizers' choice between their own formulas.

In:     calls of the `_foreach_` operators, of the functions behind `torch.optim`, and of what makes an optimizer's state.
Out:    the same work as operators on single tensors, which later stages fuse as they see fit.
Holds:  the numbers are those of eager's formula up to rounding; nothing is asked of a tensor's value.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import swa_utils
from torch.optim.adadelta import adadelta
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.adamax import adamax
from torch.optim.adamw import adamw
from torch.optim.asgd import asgd
from torch.optim.nadam import nadam
from torch.optim.radam import radam
from torch.optim.rmsprop import rmsprop
from torch.optim.rprop import rprop
from torch.optim.sgd import sgd
from torch.optim.swa_utils import AveragedModel, get_swa_avg_fn, get_swa_multi_avg_fn

from pliant.capture.handlers.optimizer_steps import may_skip, step_by_rows, unscale
from pliant.capture.handlers.table import Rows
from pliant.capture.recording.torch_calls import call_torch
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import is_several
from pliant.capture.value_kinds import is_class, is_number, is_tensor
from pliant.graph.fake_tensor import is_fake
from pliant.interruptions import pass_on
from pliant.torch_adapter import (
    VARIABLE_FUNCTIONS,
    DisableTorchFunction,
    below_python_dispatch,
    devices_of_foreach,
    foreach_pow,
    value_of_optimizer,
)

ROWS = Rows()
handles, TABLE = ROWS.handles, ROWS.callables

# ---- lists of tensors
_PREFIX = "_foreach_"


def _norm(x: Tensor, ord: Any = 2, dtype: torch.dtype | None = None) -> Any:
    return torch.linalg.vector_norm(x, ord, dtype=dtype)


def _clamping(clamp: Callable[..., Tensor], choose: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`maximum` and `minimum` of lists take numbers, too."""
    return lambda x, other: choose(x, other) if is_tensor(other) else clamp(x, other)


def _with_value(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`addcdiv` and the like take their factor by name only."""
    return lambda x, a, b, value=1: function(x, a, b, value=value)


# Those that are not called as the operator on single tensors is.
_SINGLE: dict[str, Callable[..., Any]] = {
    **{n: _with_value(getattr(Tensor, n)) for n in ("addcdiv", "addcdiv_", "addcmul", "addcmul_")},
    "norm": _norm,
    "maximum": _clamping(torch.clamp_min, torch.maximum),
    "minimum": _clamping(torch.clamp_max, torch.minimum),
    "maximum_": _clamping(Tensor.clamp_min_, lambda x, other: x.copy_(torch.maximum(x, other))),
    "minimum_": _clamping(Tensor.clamp_max_, lambda x, other: x.copy_(torch.minimum(x, other))),
}


def _each(function: Any, name: str, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    base = name.removeprefix(_PREFIX)
    single = _SINGLE.get(base) or getattr(Tensor, base)
    given = [_listed(t, value) for value in (*args, *kwargs.values())]
    lengths = {count for _, count in given} - {None}
    if len(lengths) != 1 or 0 in lengths:
        return call_torch(t, function, args, kwargs)
    names = ["value" if name == "scalars" else name for name in kwargs]
    results = [
        call_torch(t, single, row[: len(args)], dict(zip(names, row[len(args) :])))
        for row in zip(*[values for values, _ in given])
    ]
    return None if base.endswith("_") else tuple(results)


def _listed(t: Tracer, value: Any) -> tuple[Iterable[Any], int | None]:
    """The tensors or numbers, and how many they are; one tensor of several numbers is these, any other value is for all."""
    if is_several(value):
        values = [t.internalize(one) for one in t.sequence(value)]
        return values, len(values)
    value = t.internalize(value)
    if is_fake(value) and value.dim() == 1:
        values = list(value.unbind(0))
        return values, len(values)
    return itertools.repeat(value), None


def _pow_of_number(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`_foreach_pow(2.0, exponents)` has its list second."""
    if args and is_number(args[0]):
        return tuple(call_torch(t, torch.pow, (args[0], one), {}) for one in _listed(t, args[1])[0])
    return _each(foreach_pow, foreach_pow.__name__, t, args, kwargs)


for _name in dir(VARIABLE_FUNCTIONS):
    if _name.startswith(_PREFIX) and _name != foreach_pow.__name__ and (hasattr(Tensor, _name[9:]) or _name[9:] in _SINGLE):
        ROWS.each((getattr(torch, _name),), _each, _name)
TABLE[foreach_pow] = _pow_of_number


# ---- the functions behind optimizers
def _unfused(function: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """The hand-written kernel of a whole step is for programs that are not compiled."""
    if not kwargs.get("fused"):
        return step_by_rows(t, function, args, kwargs)
    found, scale = (t.internalize(kwargs.get(name)) for name in ("found_inf", "grad_scale"))
    kwargs = {**kwargs, "fused": False, "foreach": False, "grad_scale": None, "found_inf": None}
    skipped = None if found is None else call_torch(t, torch.ne, (found, 0), {})
    if scale is not None:
        unscale(t, args[1], scale, skipped)
    return may_skip(t, skipped, lambda: step_by_rows(t, function, args, kwargs))


def _without_branches(function: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """With `capturable` these select between values where they would branch on the number of the step."""
    on_cpu = all(t.internalize(p).device.type == "cpu" for p in t.sequence(args[0]))
    return step_by_rows(t, function, args, {**kwargs, "capturable": True} if on_cpu else kwargs)


def _number_of(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """A count of steps, or what is computed from it, as a number in eager: it stays on the device, as precise as that."""
    (value,) = (t.internalize(one) for one in (*args, *kwargs.values()))
    return (
        call_torch(t, Tensor.double, (value,), {}) if is_tensor(value) and value.is_floating_point() else value
    )


TABLE[value_of_optimizer] = _number_of
ROWS.each((adam, adamw, sgd, adagrad), _unfused)
ROWS.each(
    (adadelta, adamax, nadam, rmsprop), lambda function, t, args, kwargs: step_by_rows(t, function, args, kwargs)
)
ROWS.each((radam, asgd, rprop), _without_branches)


_FUSED = [name for name in dir(VARIABLE_FUNCTIONS) if re.fullmatch("_fused_(ada|sgd).*_", name)]
ROWS.refuses(
    (getattr(torch, name) for name in _FUSED),
    "unsupported-operator",
    "a hand-written kernel for lists of tensors, called by the program",
)


# ---- what an optimizer keeps
def _with_state(function: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """The state is made before it is read, as the step would make it, so that the first step is like every other."""
    optimizer = args[0]
    if t.world.is_foreign(optimizer) and _is_untouched(t, optimizer):
        with DisableTorchFunction(), below_python_dispatch(), torch.no_grad():
            for group in optimizer.param_groups:
                if any(p.grad is not None and not optimizer.state.get(p) for p in group["params"]):
                    _make_state(function, optimizer, group)
    return t.inline(function, args, kwargs)


def _is_untouched(t: Tracer, optimizer: torch.optim.Optimizer) -> bool:
    """Whether the trace has stored nothing that its state is made from."""
    containers = (optimizer.state, *optimizer.param_groups)
    return not t.world.has_stored("grad") and not any(map(t.world.has_changes, containers))


def _make_state(function: Any, optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
    count = len(inspect.signature(function).parameters) - 2  # lists to fill, besides `self` and the group
    try:
        function(optimizer, group, *[[] for _ in range(count)])
    except Exception as error:  # the step itself raises it, at its place
        pass_on(error)


def _init_groups() -> list[Any]:
    found = [vars(cls).get("_init_group") for cls in vars(torch.optim).values() if is_class(cls)]
    return [one for one in found if one is not None]


ROWS.each(_init_groups(), _with_state)


# ---- averages of models: whether anything was averaged before, which only data answers, is chosen by an operator
_UPDATE: Any = AveragedModel.update_parameters


@handles(_UPDATE)
def _update_parameters(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    averages = [t.get_attr(args[0], name) for name in ("avg_fn", "multi_avg_fn")]
    ours = all(one is None or _is_ours(one) for one in averages)
    function: Any = _updated if ours else _UPDATE
    return t.inline(function, args, kwargs)


def _is_ours(function: Any) -> bool:
    return getattr(inspect.unwrap(function), "__module__", None) == swa_utils.__name__


def _updated(self: Any, model: Any) -> None:
    """Interpreted in place of the method, where the averages are PyTorch's own: others are called where eager calls them."""
    several = [
        list(itertools.chain(one.parameters(), one.buffers()) if self.use_buffers else one.parameters())
        for one in (self.module if self.use_buffers else self, model)
    ]
    pairs = [(own.detach(), given.detach().to(own.device)) for own, given in zip(*several)]
    is_first = self.n_averaged == 0
    kinds: dict[Any, list[Any]] = {}
    for own, given in pairs:
        kinds.setdefault((own.device, own.dtype), []).append((own, given))
    for (device, _), some in kinds.items():
        _average(self, [own for own, _ in some], [given for _, given in some], self.n_averaged.to(device))
    for own, given in pairs:
        own.copy_(torch.where(is_first, given, own))
    if not self.use_buffers:
        for own, given in zip(self.module.buffers(), model.buffers(), strict=True):
            own.detach().copy_(given.detach().to(own.device))
    self.n_averaged += 1


def _average(self: Any, own: list[Any], given: list[Any], count: Any) -> None:
    if self.multi_avg_fn:
        self.multi_avg_fn(own, given, count)
    elif self.avg_fn is None and own[0].device.type in devices_of_foreach():
        get_swa_multi_avg_fn()(own, given, count)  # type: ignore[no-untyped-call]
    else:
        average = self.avg_fn or get_swa_avg_fn()  # type: ignore[no-untyped-call]
        for one, other in zip(own, given):
            one.copy_(average(one, other, count))
