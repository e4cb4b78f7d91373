"""Describe the results of an operator that has no direct rule.

In:     an operator and arguments whose tensors are fakes.
Out:    fakes of its results; arguments that the operator returns keep their identity.
Holds:  static sizes: the operator's meta kernel. Symbolic sizes: torch's Python meta function, decomposition or
        reference, run on the fakes below a mode that records nothing; where none exists, the meta kernel on sizes that
        are specialized. Otherwise `UnsupportedOperator`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only, tree_unflatten

from pliant import torch_adapter
from pliant.errors import DataDependentError
from pliant.graph import custom_ops
from pliant.graph.call_plan import CallPlan, argument
from pliant.graph.concrete_sizes import concrete
from pliant.graph.effects import refusal
from pliant.graph.fake_tensor import NON_STRIDED, undescribed
from pliant.graph.tensor_spec import TensorSpec, require_same
from pliant.graph.unsupported import UnsupportedOperator

if TYPE_CHECKING:
    from pliant.graph.fake_mode import FakeMode

_META = torch.device("meta")
_OWN = ("aten", "prims")
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def run(mode: FakeMode, plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Fakes of the outputs of `plan.func`."""
    if why := refusal(plan.func):
        raise UnsupportedOperator(why, kind="unsaid-effect")
    if plan.func.namespace in _OWN:
        return _run(mode, plan, args, kwargs)
    outputs = custom_ops.run_fake(mode, plan, args, kwargs)
    if outputs is NotImplemented:
        outputs = _run(mode, plan, args, kwargs)
    outputs = custom_ops.with_unknown_numbers(mode, plan.func, outputs)
    custom_ops.need_derivative(plan.func, (args, kwargs), outputs)
    return outputs


def _run(mode: FakeMode, plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if torch.Tag.data_dependent_output in plan.tags or torch.Tag.dynamic_output_shape in plan.tags:
        raise DataDependentError(f"`{plan.func}` needs the values of its input", kind="data-dependent")
    flat, tree = tree_flatten((tuple(args), kwargs))
    specs: list[TensorSpec] = [value.spec for value in flat if isinstance(value, torch.Tensor)]  # type: ignore[attr-defined]
    device = common_device(flat)
    outputs = NotImplemented
    if any(map(_is_symbolic, specs)) or any(isinstance(value, _SYMBOLIC) for value in flat):
        outputs = _run_symbolic(mode, plan, *tree_unflatten(flat, tree))  # lists of its own: some functions write them
    if outputs is NotImplemented:
        outputs = _run_static(plan, flat, tree)
    return _wrap(mode, plan, outputs, args, kwargs, device)


def _is_symbolic(spec: TensorSpec) -> bool:
    return any(type(value) is not int for value in (*spec.size, *spec.stride, spec.offset))


def common_device(values: list[Any]) -> torch.device:
    """The device of the result: named, else of the first tensor that is not a number on the CPU."""
    found = None
    for value in values:
        if isinstance(value, torch.device):
            return value
        if isinstance(value, torch.Tensor) and (found is None or (found.type == "cpu" and value.dim() > 0)):
            found = value.device
    return found if found is not None else torch.get_default_device()


def _run_static(plan: CallPlan, flat: list[Any], tree: Any) -> Any:
    """The outputs as meta tensors. Symbolic sizes are specialized once the operator has taken their hints."""
    with torch_adapter.below_python_dispatch():
        metas = [_to_meta(value) for value in flat]
        args, kwargs = tree_unflatten(metas, tree)
        try:
            outputs = plan.func(*args, **kwargs)
        except NotImplementedError as error:
            raise UnsupportedOperator(f"`{plan.func}` has no meta kernel", kind="no-meta-kernel") from error
    for value, meta in zip(flat, metas):
        if isinstance(meta, torch.Tensor) and tuple(meta.shape) != _hints(value.spec.size):
            raise UnsupportedOperator(f"`{plan.func}` resizes an argument", kind="resize")
    for value in flat:
        concrete(_layout(value.spec) if isinstance(value, torch.Tensor) else value)  # type: ignore[attr-defined]
    return outputs


def _layout(spec: TensorSpec) -> tuple[Any, ...]:
    return (spec.size, spec.stride, spec.offset)


def _hints(tree: Any) -> Any:
    """The tree with the hints of its symbolic numbers; `DataDependentError` where one has none."""
    return tree_map_only(_SYMBOLIC, lambda value: value.node.require_hint(), tree)


def _to_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        spec = value.spec  # type: ignore[attr-defined]
        return torch.empty(0, dtype=spec.dtype, device=_META).as_strided(*_hints(_layout(spec)))
    return _META if isinstance(value, torch.device) else _hints(value)


def _run_symbolic(mode: FakeMode, plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The outputs by torch's Python function; NotImplemented if there is none, or one that reaches such an operator."""
    function = _python_function(plan)
    if function is None:
        return NotImplemented
    try:
        with mode.shape_only():
            return function(*args, **kwargs)
    except UnsupportedOperator:
        return NotImplemented


def _python_function(plan: CallPlan) -> Callable[..., Any] | None:
    """Torch's Python function that describes the operator's results, the most exact one about strides."""
    for table in torch_adapter.shape_functions():
        function: Callable[..., Any] | None = table.get(plan.func)
        if function is not None:
            return function
    return None


def _wrap(mode: FakeMode, plan: CallPlan, outputs: Any, args: Any, kwargs: Any, device: torch.device) -> Any:
    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if (kind := undescribed(value)) and not (kind == NON_STRIDED and mode.hands_on_sparse):
            raise UnsupportedOperator(f"`{plan.func}` returns a {kind} tensor", kind="undescribed-result")
        if hasattr(value, "spec"):
            return value if value.spec.device.type != "meta" or device.type == "meta" else on_device(value)
        return mode.new(tuple(value.shape), value.stride(), value.dtype, device, offset=value.storage_offset())

    def on_device(value: Any) -> Any:
        spec = value.spec
        return mode.new(spec.size, spec.stride, spec.dtype, device, offset=spec.offset)

    def one(key: tuple[int, str] | None, output: Any) -> Any:
        if key is None:
            return tree_map(fake, output)
        own = argument(key, args, kwargs)
        if isinstance(own, torch.Tensor) and isinstance(output, torch.Tensor):
            require_same(own.spec.size, tuple(output.shape), "the result does not fit `out`")  # type: ignore[attr-defined]
        return own

    if not plan.returned:
        return None
    if len(plan.returned) == 1:
        return one(plan.returned[0], outputs)
    return tuple([one(key, output) for key, output in zip(plan.returned, outputs)])
