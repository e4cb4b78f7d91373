"""Arrays of the trace and the tensors under them: each made of the other, on the same memory.

In:     tensors whose `numpy()` is asked, arrays that PyTorch's functions take, arrays from outside.
Out:    the one on the memory of the other; what cannot share it as NumPy and PyTorch do is a break, and so are elements of arrays
        and buffers from outside that no tensor stands for: PyTorch would read what no guard knows.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.numbers import numpy_scalars
from pliant.capture.numbers.numpy_scalars import is_scalar
from pliant.capture.recording.stand_ins import check_layout
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import leaves
from pliant.capture.value_kinds import has_method, is_tuple
from pliant.graph.fake_tensor import FakeTensor
from pliant.torch_adapter import NUMPY, DisableTorchFunction, below_python_dispatch, numpy_on_tensors

_MODULES = (f"{NUMPY}._ndarray", numpy_scalars.__name__)


def is_array(value: Any) -> bool:
    """Whether it is the traced form of an array or of a scalar that is computed."""
    return type(value).__module__ in _MODULES and hasattr(value, "tensor")


def wrap(tensor: Any) -> Any:
    return numpy_on_tensors().ndarray(tensor)


def unhashable(value: Any) -> TypeError:
    """Python's complaint about a value, in NumPy's terms for an array."""
    try:
        hash(sys.modules["numpy"].empty(0) if is_array(value) else value)
    except TypeError as error:
        return TypeError(*error.args)
    raise AssertionError("it has a hash")


def dtype_of(array: Any) -> Any:
    return sys.modules["numpy"].dtype(str(array.tensor.dtype).removeprefix("torch."))


def is_index(array: Any) -> bool:
    """Whether a tensor takes the array for an index as it takes a tensor of its elements."""
    return array.tensor.dtype in (torch.int64, torch.int32, torch.uint8, torch.bool)


def key_of(key: Any) -> Any:
    """An index with tensors in place of arrays."""
    if is_tuple(key):
        return tuple(map(key_of, key))
    return key.tensor if is_array(key) else key


def to_array(t: Tracer, tensor: FakeTensor) -> Any:
    """tensor.numpy()"""
    has_none = tensor.requires_grad or tensor.device_.type != "cpu" or tensor.dtype_ is torch.bfloat16
    if has_none or tensor.spec.lazy:  # elements that are conjugated or negated when they are read
        raise GraphBreak("unknown-call", "numpy() of a tensor that has none")
    return wrap(_own_data(t, tensor))


def _own_data(t: Tracer, tensor: FakeTensor) -> Any:
    """A tensor on the same memory that is no view and counts its own writes, made in the mode of now."""
    if t.call(torch.Tensor.is_inference, (tensor,), {}) is not t.call(torch.is_inference_mode_enabled, (), {}):
        raise GraphBreak("unknown-call", "an array and a tensor of which one is of inference mode share memory")
    return t.get_attr(tensor, "data")


def to_tensor(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """torch.from_numpy, torch.as_tensor and their like of an array."""
    if not is_array(args[0]):
        raise GraphBreak("unknown-call", f"{getattr(function, '__name__', function)} with an array")
    check_layout(t, args[0].tensor)  # negative strides are refused
    tensor = _own_data(t, args[0].tensor)
    if function is torch.from_numpy and not is_scalar(args[0]):
        return tensor
    if function in (torch.as_tensor, torch.asarray) and not args[1:] and kwargs.keys() <= {"dtype", "device"}:
        wanted = {name: value for name, value in kwargs.items() if value is not None}
        return t.call(t.get_attr(tensor, "to"), (), wanted) if wanted else tensor
    if function is torch.tensor and not args[1:] and set(kwargs) <= {"dtype", "device"}:
        return t.call(t.get_attr(t.native(torch.Tensor.clone, tensor), "to"), (), kwargs or {"dtype": tensor.dtype_})
    raise GraphBreak("unknown-call", f"{getattr(function, '__name__', function)} of an array")


def real_tensor(array: Any) -> torch.Tensor:
    """The tensor on the memory of an array from outside."""
    with DisableTorchFunction(), below_python_dispatch():
        return torch.from_numpy(array)


def can_be_traced(value: Any) -> bool:
    """Whether an array from outside has a tensor on its memory."""
    numpy = sys.modules["numpy"]
    return (
        type(value) is numpy.ndarray
        and value.flags.writeable
        and value.dtype.isnative
        and (value.dtype.kind in "fi" or value.dtype.name in ("bool", "uint8", "complex64", "complex128"))
        and value.dtype.name != "float128"
        and all(step >= 0 and step % value.itemsize == 0 for step in value.strides)
    )


def refuse_elements(t: Tracer, *values: Any) -> None:
    """Break where PyTorch would read the elements of an array from outside which no tensor stands for."""
    for value in leaves(*values):
        if t.world.is_opaque(value) and _has_elements(value):
            raise GraphBreak("unknown-object", f"the elements of a {type(value).__name__} from outside")


def _has_elements(value: Any) -> bool:
    if any(has_method(type(value), name) for name in ("__array__", "__array_interface__", "__dlpack__")):
        return True
    try:
        memoryview(value).release()
    except (TypeError, ValueError, BufferError):
        return False
    return True
