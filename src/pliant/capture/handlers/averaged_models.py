"""`AveragedModel.update_parameters` without its question whether anything was averaged before, which only data answers.

In:     calls of the method.
Out:    the same averages, chosen between by an operator.
Holds:  only for PyTorch's own averages: functions of the program are called where eager calls them.
"""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import torch
from torch.optim import swa_utils
from torch.optim.swa_utils import AveragedModel, get_swa_avg_fn, get_swa_multi_avg_fn

from pliant.capture.handlers.table import Rows
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.torch_adapter import devices_of_foreach

ROWS = Rows()
handles = ROWS.handles

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
    """Interpreted in place of the method."""
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
