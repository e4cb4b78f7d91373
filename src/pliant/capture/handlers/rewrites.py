"""PyTorch's functions that the graph records as other calls, and those that lead out of every graph.

In:     calls whose own C code would need a class, or a number that only running tells.
Out:    recorded calls of other functions, or a break.

Holds:  values, dtypes and changes are those of the function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.handlers.data_dependent import take_for_granted, to_int
from pliant.capture.handlers.table import Rows
from pliant.capture.numbers.array_memory import is_array
from pliant.capture.numbers.numpy_scalars import is_scalar
from pliant.capture.recording.regions import tensors_of
from pliant.capture.recording.torch_calls import call_torch
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import is_list_or_tuple
from pliant.capture.value_kinds import (
    NUMBERS,
    SYMBOLIC_TYPES,
    concrete,
    exactly,
    is_int,
    is_size,
    is_symbolic,
    plain_class,
    varying,
)
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.tensor_spec import same_dim
from pliant.graph.unbacked import is_unbacked
from pliant.polyfills import tensors
from pliant.targets.registry import known_target
from pliant.torch_adapter import SAVED_TENSOR_HOOKS, dlpack_of_tensor

ROWS = Rows()
handles, instead, takes, CLASSES = ROWS.handles, ROWS.instead, ROWS.takes, ROWS.classes


# ---- the classes of tensors, called
def _construct_tensor(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """`torch.Tensor(3, 4)`, `torch.FloatTensor([1.0])`; of an array, on whose memory it lies if the type is its own"""
    dtype = torch.get_default_dtype() if cls is torch.Tensor else cls.dtype
    if kwargs or len(args) == 1 and is_fake(args[0]):
        raise GraphBreak("unknown-call", f"{cls.__name__} of a tensor")
    data = [t.internalize(a) for a in args]
    if len(data) == 1 and is_array(data[0]) and not is_scalar(data[0]):
        return t.call(torch.as_tensor, (data[0],), {"dtype": dtype})
    if len(data) == 1 and (is_list_or_tuple(data[0]) or type(data[0]) is range):
        return t.call(torch.tensor, (data[0],), {"dtype": dtype})
    return t.call(torch.empty, (data[0] if data and is_size(data[0]) else (data or [0]),), {"dtype": dtype})


_KINDS = "Float Double Half BFloat16 Bool Byte Char Short Int Long".split()
for _cls in (torch.Tensor, *(getattr(torch, f"{kind}Tensor") for kind in _KINDS)):
    CLASSES[_cls] = _construct_tensor


@instead(torch.Tensor.new)
def _new(t: Tracer, tensor: Any, *data: Any) -> Any:
    """`tensor.new(size)`: to a graph a `torch.Size` is a tuple, and `new` takes the items of a tuple for data."""
    size = t.internalize(data[0]) if len(data) == 1 else None
    return (torch.Tensor.new_empty, (tensor, size)) if is_size(size) else None


# ---- tensors made of numbers that vary: of one dimension each, filled and put together. The C functions would ask for the
# numbers' values. They get them where a number may not fit into the data type, which is then an error, and where they
# are told more than type and device.
def _of_numbers(function: Callable[..., Any], t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`function(data, dtype=, device=)`, which may give a tensor back as it is."""
    data = t.internalize(args[0]) if len(args) == 1 else None
    is_copied = function is torch.tensor or not is_fake(data)
    made = _made_of_numbers(t, data, kwargs) if is_copied and kwargs.keys() <= {"dtype", "device"} else None
    return call_torch(t, function, args, kwargs) if made is None else made


ROWS.each((torch.tensor, torch.as_tensor, torch.asarray), _of_numbers)


@handles(torch.Tensor.new_tensor)
def _like_tensor(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`like.new_tensor(data, dtype=, device=)`"""
    made = None
    if len(args) == 2 and is_fake(args[0]) and not is_fake(args[1]) and kwargs.keys() <= {"dtype", "device"}:
        own = {"dtype": args[0].dtype_, "device": args[0].device}
        given = {name: value for name, value in kwargs.items() if value is not None}
        made = _made_of_numbers(t, t.internalize(args[1]), {**own, **given})
    return call_torch(t, torch.Tensor.new_tensor, args, kwargs) if made is None else made


def _made_of_numbers(t: Tracer, data: Any, kwargs: Kwargs) -> Any:
    """The tensor of numbers some of which vary, or are read from tensors; None of others."""
    numbers = _numbers_in(data)
    if _UNKNOWN.isdisjoint(map(type, numbers)) or any(is_fake(one) and one.size_ for one in numbers):
        return None
    if not all(_fits(one, kwargs.get("dtype")) for one in numbers):
        return None
    if is_symbolic(data):
        return _scalar(t, data, kwargs)
    return _stacked(t, data, {**kwargs, "dtype": kwargs.get("dtype") or _common_dtype(numbers)})


def _fits(number: Any, dtype: Any) -> bool:
    """Whether a number is one that the type has, as a guard says if need be."""
    if varying(number) is not int or is_unbacked(number) or dtype not in _INTEGERS:
        return True
    limits = torch.iinfo(dtype)
    return bool(concrete(number >= limits.min) and concrete(number <= limits.max))


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32)


_is_row = exactly(list, tuple, torch.Size)


def _numbers_in(data: Any) -> list[Any]:
    """All items of lists of lists."""
    return [one for part in data for one in _numbers_in(part)] if _is_row(data) else [data]


def _stacked(t: Tracer, data: Any, kwargs: Kwargs) -> Any:
    if not _is_row(data):
        return _scalar(t, data, kwargs)
    parts = [_stacked(t, part, kwargs) for part in data]
    return call_torch(t, torch.stack, (parts,), {}) if parts else call_torch(t, torch.empty, ((0,),), kwargs)


def _scalar(t: Tracer, number: Any, kwargs: Kwargs) -> Any:
    if is_fake(number):
        return call_torch(t, torch.Tensor.to, (call_torch(t, torch.Tensor.detach, (number,), {}),), kwargs)
    dtype = kwargs.get("dtype") or _common_dtype([number])
    value = to_int(t, number) if varying(number) is bool else number
    return call_torch(t, torch.full, ((), value), {**kwargs, "dtype": dtype})


def _common_dtype(numbers: list[Any]) -> torch.dtype:
    of_tensors = [number.dtype_ for number in numbers if is_fake(number)]
    if of_tensors:
        rest = [number for number in numbers if not is_fake(number)]
        return functools.reduce(torch.promote_types, of_tensors + ([_common_dtype(rest)] if rest else []))
    kinds = set(map(plain_class, numbers))
    if not kinds <= NUMBERS:
        raise GraphBreak("data-dependent", "a tensor made of symbolic numbers and other things")
    return torch.get_default_dtype() if float in kinds else torch.int64 if int in kinds else torch.bool


_UNKNOWN = SYMBOLIC_TYPES | {FakeTensor}


# ---- statistics whose weight of the past is a number from the graph
@instead(F.batch_norm)
def _batch_norm(
    t: Tracer, input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: Any = False, momentum: Any = 0.1, eps: Any = 1e-5,
) -> Any:  # fmt: skip
    averages = training is True and is_fake(running_mean) and is_unbacked(momentum)
    given = (input, running_mean, running_var, weight, bias, training, momentum, eps)
    return (tensors.batch_norm_averaging, given) if averages else None


# ---- parts whose sizes C++ code works out as plain numbers
@instead(torch.masked_select, torch.Tensor.masked_select)
def _masked_select(t: Tracer, input: Any, mask: Any) -> Any:
    """Its derivative wants plain sizes, that of an index does not."""
    by_index = is_fake(input) and is_fake(mask) and input.requires_grad and mask.dtype_ is torch.bool
    return (tensors.selected, (input, mask)) if by_index else None


@instead(torch.tensor_split, torch.Tensor.tensor_split)
def _tensor_split(
    t: Tracer, input: Any, sections: Any = None, dim: Any = 0, *, tensor_indices_or_sections: Any = None
) -> Any:
    """At places that a tensor holds."""
    places: Any = sections if tensor_indices_or_sections is None else tensor_indices_or_sections
    whole = is_fake(places) and places.dtype_ is torch.int64
    inside = is_fake(input) and is_int(dim) and -input.dim() <= dim < input.dim()
    if whole and inside and places.dim() == 1 and places.device_.type == "cpu":
        return tensors.parts_at, (input, places, dim)
    if whole and (number := t.recorder.elements.number(places) if places.dim() == 0 else None) is not None:
        return torch.tensor_split, (input, concrete(number), dim)  # how many results there are: a plain number
    return None


@takes(torch.cov, torch.Tensor.cov)
def _cov(t: Tracer, input: Any, *, correction: Any = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """With weights: branches on their values that only warn or raise, which are not recorded."""
    if t.mode.allow_unbacked and _can_be_weighted(input, fweights, aweights):
        x = input if input.dim() == 2 else input.reshape(1, -1)
        try:
            return t.call(tensors.weighted, (x, fweights, aweights, correction), {})
        except Raised as raised:
            if type(raised.error) is not tensors.Left:
                raise
    return call_torch(t, torch.cov, (input,), {"correction": correction, "fweights": fweights, "aweights": aweights})


def _can_be_weighted(x: Any, weights: Any, importance: Any) -> bool:
    """Whether the kinds of arguments are those that `cov` takes, and none of few observations."""
    tensors = tensors_of((x, weights, importance))
    if len(tensors) < 2 or tensors[0] is not x or len(tensors) != 3 - (weights is None) - (importance is None):
        return False
    kinds = weights is None or not (weights.is_floating_point() or weights.is_complex() or weights.dtype_ is torch.bool)
    kinds = kinds and (importance is None or importance.is_floating_point())
    many = x.size_[-1] if x.dim() else 0
    vectors = all(one.dim() == 1 and one.size_[0] == many for one in tensors[1:])
    return kinds and vectors and x.dim() in (1, 2) and (x.is_floating_point() or x.is_complex()) and many > 1


def with_mask(args: Args, kwargs: Kwargs, mask: Any) -> tuple[Args, Kwargs]:
    """The arguments of attention with another mask, and the others as they were given, by place or by name."""
    return ((*args[:3], mask, *args[4:]), kwargs) if len(args) > 3 else (args, {**kwargs, "attn_mask": mask})


def _wants_dense(mask: FakeTensor) -> bool:
    target = known_target(mask.device_)
    return target is not None and target.dense_masks


@handles(F.scaled_dot_product_attention)
def _attention(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """Fused kernels of some targets take no mask whose last dimension is not dense: one that is broadcast is made so,
    which is little beside the attention itself."""
    given = dict(zip(("query", "key", "value", "attn_mask"), args)) | kwargs
    mask = given.get("attn_mask")
    if is_fake(mask) and mask.dim() > 1 and not mask.requires_grad and _wants_dense(mask):
        stride = mask.stride_
        if not same_dim(stride[-1], 1):
            flat = [d for d in range(mask.dim() - 2) if not is_symbolic(stride[d]) and stride[d] == 0]
            broadcast = tuple(d for d in flat if is_symbolic(mask.size_[d]) or mask.size_[d] > 0)
            args, kwargs = with_mask(args, kwargs, t.call(tensors.dense_mask, (mask, broadcast), {}))
    return call_torch(t, F.scaled_dot_product_attention, args, kwargs)


# ---- `torch.istft`, composed of operators that take symbolic sizes: the formula is PyTorch's own. That windows leave no gap is
# assumed: where they do, eager says so. Other forms of the call, and wrong ones, break: PyTorch's function for symbolic sizes does
# not look for gaps.
_REFUSED = ("data-dependent", "whether the windows of istft leave a gap")
@takes(torch.istft, torch.Tensor.istft)
def _istft(
    t: Tracer, input: Any, n_fft: Any, hop_length: Any = None, win_length: Any = None, window: Any = None, center: Any = True,
    normalized: Any = False, onesided: Any = None, length: Any = None, return_complex: Any = False,
) -> Any:  # fmt: skip
    spectra, window = t.internalize(input), t.internalize(window)
    size, width = n_fft, n_fft if win_length is None else win_length
    hop = size // 4 if hop_length is None and is_int(size) else hop_length
    changed = t.recorder.overrides.modes or t.recorder.overrides.has_subclasses
    if changed or return_complex or not (length is None or is_int(length) or varying(length) is int):
        raise GraphBreak(*_REFUSED)
    if not _is_usual(t, spectra, window, (size, hop, width), onesided):
        raise GraphBreak(*_REFUSED)
    total = size + hop * (spectra.size_[-1] - 1)
    start = size // 2 if center else 0
    end = total - start if length is None else start + length
    if not concrete(end <= total) or not concrete(end > start):  # the first has a warning
        raise GraphBreak(*_REFUSED)
    norm = "ortho" if normalized else "backward"
    signals, overlaps, is_dense = t.call(tensors.overlapped, (spectra, window, size, hop, width, total, start, end, norm), {})
    take_for_granted(t, is_dense, *_REFUSED)
    return t.call(torch.div, (signals, overlaps), {})


def _is_usual(t: Tracer, spectra: Any, window: Any, numbers: tuple[Any, ...], one_sided: Any) -> bool:
    """Whether PyTorch takes these arguments, of its usual form."""
    if not t.mode.allow_unbacked or one_sided not in (None, True) or not all(map(is_int, numbers)):
        return False
    size, hop, width = numbers
    if not is_fake(spectra) or not spectra.dtype_.is_complex or spectra.dim() not in (2, 3) or not 0 < hop <= width <= size:
        return False
    if not is_fake(window) or not window.dtype_.is_floating_point or window.dim() != 1:  # without one it warns
        return False
    return bool(concrete(window.size_[0] == width) and concrete(spectra.size_[-2] == size // 2 + 1) and all(concrete(n > 0) for n in spectra.size_))


# ---- what leads out of the graph
ROWS.refuses((torch.range,), "unsupported-operator", "torch.range, which C++ makes of plain numbers", "use torch.arange")
ROWS.refuses(
    (torch.utils.dlpack.from_dlpack, vars(torch.utils.dlpack)["to_dlpack"], dlpack_of_tensor),
    "unknown-call",
    "memory is passed through DLPack",
)
ROWS.refuses(
    (forward_ad.enter_dual_level, forward_ad.exit_dual_level, forward_ad.make_dual, forward_ad.unpack_dual),
    "unknown-call",
    "forward-mode differentiation by dual tensors",
    "use torch.func.jvp, which is captured",
)
ROWS.refuses(SAVED_TENSOR_HOOKS, "backward-hook", "hooks on saved tensors", "enter the block around the compiled call")
