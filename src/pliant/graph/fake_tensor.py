"""Tensors without data: sizes, strides, a dtype and a device.

In:     a description; `fake_mode.py` makes them and computes on them.
Out:    what a fake is, which memory it lies in, and which real tensors can have one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from pliant import torch_adapter
from pliant.graph.concrete_sizes import QUESTIONS
from pliant.graph.tensor_spec import Dim, Sizes, TensorSpec
from pliant.graph.unsupported import UnsupportedTensor
from pliant.torch_adapter import DisableTorchFunction, no_torch_function

if TYPE_CHECKING:
    from pliant.graph.fake_mode import FakeMode

_aten = torch.ops.aten
_TO_COPY, _FULL = _aten._to_copy.default, _aten.full.default
_CONJ = _aten._conj.default
_OF_NUMBERS = (_TO_COPY, _CONJ)  # found by which one it is: their hash is a call of Python
_DATA: Any = torch.Tensor.data
CONSTANT_NUMEL = 64  # real tensors up to this many elements may meet fakes in one call (they act as constants)


class FakeTensor(torch.Tensor):
    """A tensor that has everything but elements.

    `spec`: its description; `size_`, `stride_`... read it, faster than `size()` and `stride()` do.
    `node`: free for whoever records (an fx node, a functional value).
    """

    fake_mode: FakeMode
    spec: TensorSpec
    node: Any = None
    is_parameter_: bool = False
    subclass_: type | None = None  # the program's class, for who captures one
    viewed: FakeTensor | None = None  # whose memory it lies in, where inference mode keeps autograd from knowing (`_base`)
    stored: int = 0  # how often it was written as, or through, a tensor of inference mode: autograd does not count these

    __torch_function__ = no_torch_function

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Reached outside the mode: below another mode, or from a decomposition that a shape rule runs. Never recorded.
        if func in QUESTIONS:
            return QUESTIONS[func](args[0])
        kwargs = kwargs or {}
        return find_mode(args, kwargs).compute(func, args, kwargs)

    @property
    def size_(self) -> Sizes:
        return self.spec.size

    @property
    def stride_(self) -> Sizes:
        return self.spec.stride

    @property
    def offset_(self) -> Dim:
        return self.spec.offset

    @property
    def dtype_(self) -> torch.dtype:
        return self.spec.dtype

    @property
    def device_(self) -> torch.device:
        return self.spec.device

    @property
    def writes_(self) -> int:
        """How often its memory was written, through `.data` too."""
        apart = self.fake_mode.apart
        with DisableTorchFunction():
            memory = memory_of(self)
            if memory.is_inference():
                return memory.stored
            group = apart.get(id(memory)) if apart else None
            return memory.stored + (memory._version if group is None else sum([one._version for one in group]))

    @property
    def data(self) -> torch.Tensor:
        alone: torch.Tensor = _DATA.__get__(self)
        self.fake_mode.note_data(alone)
        return alone

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        _DATA.__set__(self, other)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.subclass_ or (torch.nn.Parameter if self.is_parameter_ else torch.Tensor)

    @property
    def _is_param(self) -> bool:  # type: ignore[override]
        return self.is_parameter_

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        sizes = ", ".join(map(str, self.size_))
        return f"Fake {_DTYPE_NAMES.get(self.dtype_, str(self.dtype_))}[{sizes}] {self.device_}"


_DTYPE_NAMES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "b8",
    torch.complex64: "c64", torch.complex128: "c128",
}  # fmt: skip


def tensor_of_number(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, Sequence[Any], dict[str, Any]]:
    """The call. A cast of a number, which vmap takes for a tensor, makes a tensor of it; so does the conjugate of one, which
    autograd asks for where the program multiplied by it."""
    if func not in _OF_NUMBERS or isinstance(args[0], torch.Tensor):
        return func, args, kwargs
    if func is _CONJ:
        return _FULL, ((), args[0].conjugate()), {"dtype": torch.complex128}
    return _FULL, ((), args[0]), {k: v for k, v in kwargs.items() if k in ("dtype", "layout", "device", "pin_memory")}


def is_fake(value: object) -> TypeGuard[FakeTensor]:
    return type(value) is FakeTensor


def base_of(tensor: torch.Tensor) -> torch.Tensor:
    """What it is a view of; a tensor that is no view is its own."""
    with DisableTorchFunction():  # who records the program asks nothing of it
        base = tensor._base
    return tensor if base is None else base


def memory_of(fake: FakeTensor) -> FakeTensor:
    """The same, of views that inference mode keeps from autograd too."""
    while fake.viewed is not None:
        fake = fake.viewed
    return base_of(fake)  # type: ignore[return-value]


AS_IT_IS = contextlib.nullcontext()


def counting_as(tensor: torch.Tensor) -> AbstractContextManager[Any]:
    """Fakes of the tensor, and of its views, count writes if it does: not every tensor in inference mode was made there.
    Not of one that requires grad, whose views have a history outside the mode alone."""
    if not torch.is_inference_mode_enabled():
        return AS_IT_IS
    with DisableTorchFunction():  # as above
        counts = not tensor.requires_grad and not tensor.is_inference()
    return torch.inference_mode(False) if counts else AS_IT_IS


def is_on_constant(tensor: torch.Tensor) -> bool:
    """Whether it requires gradients, and is a view of a tensor that does not: a leaf, or the result of a custom function.
    As its base, views of it that are made while nothing is recorded require none."""
    with DisableTorchFunction():
        return tensor.requires_grad and not base_of(tensor).requires_grad


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


def is_own_parameter(cls: type) -> bool:
    """Whether it is a program's class of parameters that are ordinary ones but for methods and attributes."""
    derived = issubclass(cls, torch.nn.Parameter) and cls is not torch.nn.Parameter
    plain = getattr(cls, "__torch_dispatch__", None) is torch_adapter.dispatch_of_tensor
    return derived and plain and getattr(cls, "__torch_function__", None) is no_torch_function


def check_supported(tensor: torch.Tensor) -> None:
    """Raise `UnsupportedTensor` for a tensor that a size, a stride and a dtype do not describe."""
    for reason, test in _REFUSED:
        if test(tensor):
            raise UnsupportedTensor(f"a {reason} tensor", kind="unsupported-tensor")


def undescribed(tensor: torch.Tensor) -> str:
    """In what form its elements lie, where a size, a stride and a dtype do not tell; empty if they do."""
    return next((form for form, test in _FORMS if test(tensor)), "")


NON_STRIDED = "non-strided"
_FORMS: tuple[tuple[str, Callable[[torch.Tensor], bool]], ...] = (
    ("nested", lambda t: t.is_nested),
    (NON_STRIDED, lambda t: t.layout is not torch.strided),
    ("quantized", lambda t: t.is_quantized),
)
_REFUSED: tuple[tuple[str, Callable[[torch.Tensor], bool]], ...] = (
    ("fake", is_fake),
    ("subclass", lambda t: type(t) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and not is_own_parameter(type(t))),
    *_FORMS,
    ("conjugated", lambda t: t.is_conj()),
    ("negated", lambda t: t.is_neg()),
    ("functorch", torch_adapter.is_functorch_wrapped),
)
