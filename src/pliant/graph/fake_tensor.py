"""Tensors without data, and the dispatch mode that computes their sizes, strides, dtypes and devices.

In:     real tensors (`FakeMode.from_real`) or descriptions (`FakeMode.new`), and ATen calls on the results.
Out:    `FakeTensor`s as eager would return them; sizes and strides may be `torch.SymInt`.
Holds:  nothing is ever computed on data; what cannot be known without data raises a typed error.
        Every view is a fresh fake: who needs aliasing tracks it in `FakeMode.record`.
Reads on: `shape_rules/`, `meta_fallback.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from pliant import torch_adapter
from pliant.graph import meta_fallback
from pliant.graph.call_plan import CallPlan, plan_of
from pliant.graph.unsupported import UnsupportedTensor

if TYPE_CHECKING:
    from pliant.symbolic.shape_env import ShapeEnv

_make_wrapper = torch.Tensor._make_wrapper_subclass
_CPU = torch.device("cpu")
CONSTANT_NUMEL = 64  # real tensors up to this many elements may meet fakes in one call (they act as constants)


class FakeTensor(torch.Tensor):
    """A tensor that has everything but elements.

    `size_`, `stride_`, `offset_`: what `size()`, `stride()` and `storage_offset()` return, at the cost of an attribute.
    `node`: free for whoever records (an fx node, a functional value). `constant`: the real tensor this stands for, if any.
    """

    fake_mode: FakeMode
    size_: tuple[Any, ...]
    stride_: tuple[Any, ...]
    offset_: Any
    dtype_: torch.dtype
    device_: torch.device
    node: Any = None
    constant: torch.Tensor | None = None
    is_parameter_: bool = False

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Reached outside the mode: below another mode, or from a decomposition that a shape rule runs. Never recorded.
        kwargs = kwargs or {}
        return find_mode(args, kwargs).compute(func, args, kwargs)

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return torch.nn.Parameter if self.is_parameter_ else torch.Tensor

    @property
    def _is_param(self) -> bool:
        return self.is_parameter_

    def __repr__(self, *, tensor_contents: object = None) -> str:
        sizes = ", ".join(map(str, self.size_))
        return f"Fake {_DTYPE_NAMES.get(self.dtype_, str(self.dtype_))}[{sizes}] {self.device_}"


_DTYPE_NAMES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "b8",
    torch.complex64: "c64", torch.complex128: "c128",
}  # fmt: skip


def is_fake(value: object) -> bool:
    return type(value) is FakeTensor


def find_mode(args: Sequence[Any], kwargs: dict[str, Any]) -> FakeMode:
    """The mode of the first fake among the arguments."""
    for value in (*args, *kwargs.values()):
        if type(value) is FakeTensor:
            return value.fake_mode
        if type(value) in (list, tuple):
            for item in value:
                if type(item) is FakeTensor:
                    return item.fake_mode
    raise AssertionError("no fake tensor among the arguments")


class FakeMode(TorchDispatchMode):
    """Computes on fakes; factory functions called under it make fakes."""

    def __init__(self, shape_env: ShapeEnv | None = None, allow_unbacked: bool = False) -> None:
        super().__init__()
        self.shape_env = shape_env
        self.allow_unbacked = allow_unbacked
        self._shape_only: ShapeOnlyMode | None = None

    # -- making fakes -------------------------------------------------------------------------------------------------
    def new(
        self,
        size: Sequence[Any],
        stride: Sequence[Any],
        dtype: torch.dtype,
        device: torch.device,
        requires_grad: bool = False,
        offset: Any = 0,
    ) -> FakeTensor:
        """A fake leaf of this description."""
        fake: FakeTensor = _make_wrapper(
            FakeTensor, size, strides=stride, storage_offset=offset, dtype=dtype, device=device,
            requires_grad=requires_grad,
        )  # fmt: skip
        fake.fake_mode = self
        fake.size_ = tuple(size)
        fake.stride_ = tuple(stride)
        fake.offset_ = offset
        fake.dtype_ = dtype
        fake.device_ = device
        return fake

    def from_real(
        self, tensor: torch.Tensor, sizes: Sequence[Any] | None = None, strides: Sequence[Any] | None = None
    ) -> FakeTensor:
        """The fake of a real tensor: same description, `requires_grad`, leaf or not, parameter or not."""
        check_supported(tensor)
        if sizes is not None and strides is None:
            raise ValueError("from_real: give strides together with sizes")
        size = tuple(tensor.shape) if sizes is None else sizes
        stride = tensor.stride() if strides is None else strides
        fake = self.new(size, stride, tensor.dtype, tensor.device, tensor.requires_grad, tensor.storage_offset())
        if not tensor.is_leaf:
            fake = self._as_non_leaf(fake)
        fake.is_parameter_ = isinstance(tensor, torch.nn.Parameter)
        return fake

    def _as_non_leaf(self, fake: FakeTensor) -> FakeTensor:
        """A fake with a `grad_fn`, as real intermediate results have."""
        with self.shape_only(), torch.enable_grad():
            return torch.ops.aten.clone.default(fake)

    # -- calls --------------------------------------------------------------------------------------------------------
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        plan = plan_of(func)
        if plan.composite:
            with self:
                outputs = func.decompose(*args, **kwargs)
            if outputs is not NotImplemented:
                return outputs
        return self.record(func, args, kwargs, self.compute(func, args, kwargs))

    def record(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], outputs: Any) -> Any:
        """Hook of tracers: sees every computed call, returns what the program gets."""
        return outputs

    def compute(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Fakes of what `func(*args, **kwargs)` returns; nothing is recorded."""
        plan = plan_of(func)
        if plan.composite:
            with self.shape_only():
                outputs = func.decompose(*args, **kwargs)
            if outputs is not NotImplemented:
                return outputs
        args, kwargs = self._fakes_only(args), self._fakes_only(kwargs)
        return meta_fallback.run(self, plan, args, kwargs)

    def _fakes_only(self, tree: Any) -> Any:
        """The arguments with real tensors replaced by fakes of theirs."""

        def convert(tensor: torch.Tensor) -> torch.Tensor:
            return tensor if type(tensor) is FakeTensor else self.from_real(tensor.detach())

        return tree_map_only(torch.Tensor, convert, tree)

    def shape_only(self) -> ShapeOnlyMode:
        """A context in which calls compute fakes and are not recorded."""
        if self._shape_only is None:
            self._shape_only = ShapeOnlyMode(self)
        return self._shape_only


class ShapeOnlyMode(TorchDispatchMode):
    """Sends every call to `compute` of a fake mode."""

    def __init__(self, owner: FakeMode) -> None:
        super().__init__()
        self.owner = owner

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.owner.compute(func, args, kwargs or {})


def check_supported(tensor: torch.Tensor) -> None:
    """Raise `UnsupportedTensor` for a tensor that a size, a stride and a dtype do not describe."""
    for reason, test in _REFUSED:
        if test(tensor):
            raise UnsupportedTensor(f"a {reason} tensor has no fake", kind="unsupported-tensor")


_REFUSED: tuple[tuple[str, Callable[[torch.Tensor], bool]], ...] = (
    ("fake", is_fake),
    ("subclass", lambda t: type(t) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)),
    ("non-strided", lambda t: t.layout is not torch.strided),
    ("quantized", lambda t: t.is_quantized),
    ("conjugated", lambda t: t.is_conj()),
    ("negated", lambda t: t.is_neg()),
    ("functorch", torch_adapter.is_functorch_wrapped),
)
