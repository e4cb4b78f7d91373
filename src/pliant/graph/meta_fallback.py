"""Run an operator on meta tensors (static sizes), where no direct rule exists.

In:     an operator and arguments whose tensors are fakes with plain sizes.
Out:    fakes of its outputs; arguments that the operator returns or resizes keep their identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from pliant import torch_adapter
from pliant.errors import DataDependentError
from pliant.graph.call_plan import CallPlan, argument
from pliant.graph.unsupported import UnsupportedOperator

if TYPE_CHECKING:
    from pliant.graph.fake_tensor import FakeMode

_META = torch.device("meta")


def run(mode: FakeMode, plan: CallPlan, args: Any, kwargs: dict[str, Any]) -> Any:
    """Fakes of the outputs of `plan.func`, from its meta kernel."""
    depends = torch.Tag.data_dependent_output in plan.tags or torch.Tag.dynamic_output_shape in plan.tags
    if depends and not _integer_index(plan, args):
        raise DataDependentError(f"`{plan.func}` needs the values of its input", kind="data-dependent")
    flat, spec = tree_flatten((args, kwargs))
    device = common_device(flat)
    with torch_adapter.below_python_dispatch():
        metas = [_to_meta(value) for value in flat]
        meta_args, meta_kwargs = tree_unflatten(metas, spec)
        try:
            outputs = plan.func(*meta_args, **meta_kwargs)
        except NotImplementedError as error:
            raise UnsupportedOperator(f"`{plan.func}` has no meta kernel", kind="no-meta-kernel") from error
        for value, meta in zip(flat, metas):
            if isinstance(meta, torch.Tensor) and tuple(meta.shape) != value.size_:
                raise UnsupportedOperator(f"`{plan.func}` resizes an argument", kind="resize")
        return _wrap(mode, plan, outputs, args, kwargs, device)


def _integer_index(plan: CallPlan, args: Any) -> bool:
    """Whether this is an index by integers, whose result's size is known (only masks depend on data)."""
    if plan.func is not torch.ops.aten.index.Tensor:
        return False
    return all(i is None or i.dtype not in (torch.bool, torch.uint8) for i in args[1])


def common_device(values: list[Any]) -> torch.device:
    """The device of the result: named, else of the first tensor that is not a number on the CPU."""
    found = None
    for value in values:
        if isinstance(value, torch.device):
            return value
        if isinstance(value, torch.Tensor) and (found is None or (found.type == "cpu" and value.dim() > 0)):
            found = value.device
    return found if found is not None else torch.get_default_device()


def _to_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        fake: Any = value
        base = torch.empty(0, dtype=fake.dtype_, device=_META)
        return base.as_strided(fake.size_, fake.stride_, fake.offset_)
    return _META if isinstance(value, torch.device) else value


def _wrap(mode: FakeMode, plan: CallPlan, outputs: Any, args: Any, kwargs: Any, device: torch.device) -> Any:
    def fake(meta: Any) -> Any:
        if isinstance(meta, torch.Tensor):
            return mode.new(tuple(meta.shape), meta.stride(), meta.dtype, device, offset=meta.storage_offset())
        return meta

    def one(key: tuple[int, str] | None, output: Any) -> Any:
        return argument(key, args, kwargs) if key is not None else tree_map(fake, output)

    if len(plan.returned) == 0:
        return None
    if len(plan.returned) == 1:
        return one(plan.returned[0], outputs)
    return tuple(one(key, output) for key, output in zip(plan.returned, outputs))
