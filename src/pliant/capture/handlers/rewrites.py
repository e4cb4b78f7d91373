"""PyTorch's functions that the graph records as other calls, and those that lead out of every graph.

In:     calls whose own C code would need a class, or a number that only running tells.
Out:    recorded calls of other functions, or a break.

Holds:  values, dtypes and changes are those of the function.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.handlers.table import Args, Handler, Kwargs, Rows
from pliant.capture.torch_calls import call_torch
from pliant.capture.value_kinds import concrete
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.tensor_spec import same_dim
from pliant.graph.unbacked import is_unbacked
from pliant.targets.registry import known_target
from pliant.torch_adapter import SAVED_TENSOR_HOOKS, dlpack_of_tensor

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer

ROWS = Rows()
handles, TABLE, CLASSES = ROWS.handles, ROWS.callables, ROWS.classes


# ---- the classes of tensors, called
def _construct_tensor(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """`torch.Tensor(3, 4)`, `torch.FloatTensor([1.0])`"""
    dtype = torch.get_default_dtype() if cls is torch.Tensor else cls.dtype
    if kwargs or len(args) == 1 and is_fake(args[0]):
        raise GraphBreak("unknown-call", f"{cls.__name__} of a tensor")
    data = [t.internalize(a) for a in args]
    if len(data) == 1 and type(data[0]) in (list, tuple):
        return t.call(torch.tensor, (data[0],), {"dtype": dtype})
    return t.call(torch.empty, (data[0] if data and type(data[0]) is torch.Size else (data or [0]),), {"dtype": dtype})


_KINDS = "Float Double Half BFloat16 Bool Byte Char Short Int Long".split()
for _cls in (torch.Tensor, *(getattr(torch, f"{kind}Tensor") for kind in _KINDS)):
    CLASSES[_cls] = _construct_tensor


@handles(torch.Tensor.new)
def _new(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`tensor.new(size)`: to a graph a `torch.Size` is a tuple, and `new` takes the items of a tuple for data."""
    size = t.internalize(args[1]) if len(args) == 2 else None
    if type(size) is torch.Size and not kwargs:
        return t.call(torch.Tensor.new_empty, (args[0], size), {})
    return call_torch(t, torch.Tensor.new, args, kwargs)


# ---- statistics whose weight of the past is a number from the graph
def _batch_norm_averaging(
    x: Any, mean: Any, var: Any, weight: Any, bias: Any, training: Any, momentum: Any, eps: Any
) -> Any:
    """`batch_norm` in training, with its running statistics changed by operators on tensors."""
    with torch.no_grad():
        dims = [d for d in range(x.dim()) if d != 1]
        var_now, mean_now = torch.var_mean(x, dims, correction=1)
        mean.copy_((1 - momentum) * mean + momentum * mean_now)
        var.copy_((1 - momentum) * var + momentum * var_now)
    return F.batch_norm(x, None, None, weight, bias, True, 0.0, eps)


@handles(F.batch_norm)
def _batch_norm(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    given: dict[str, Any] = {"weight": None, "bias": None, "training": False, "momentum": 0.1, "eps": 1e-5}
    given |= dict(zip(names, args)) | kwargs
    momentum = given["momentum"]
    averages = given["training"] is True and is_fake(given["running_mean"])
    if not is_unbacked(momentum) or not averages:
        return call_torch(t, F.batch_norm, args, kwargs)
    return t.call(_batch_norm_averaging, tuple(given[name] for name in names), {})


# ---- parts whose sizes C++ code works out as plain numbers
def _selected(x: Any, mask: Any) -> Any:
    x, mask = torch.broadcast_tensors(x, mask)  # type: ignore[no-untyped-call]
    return x[mask]


@handles(torch.masked_select, torch.Tensor.masked_select)
def _masked_select(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """Its derivative wants plain sizes, that of an index does not."""
    given = dict(zip(("input", "mask"), args)) | kwargs
    x, mask = given.get("input", given.get("self")), given.get("mask")
    if not is_fake(x) or not is_fake(mask) or not x.requires_grad or "out" in kwargs:
        return call_torch(t, torch.masked_select, args, kwargs)
    return (
        t.call(_selected, (x, mask), {})
        if mask.dtype_ is torch.bool
        else call_torch(t, torch.masked_select, args, kwargs)
    )


def _parts(x: Any, sections: int, dim: int) -> Any:
    each, more = x.size(dim) // sections, x.size(dim) % sections
    ends = [i * each + min(i, more) for i in range(sections + 1)]
    return tuple([x.narrow(dim, ends[i], ends[i + 1] - ends[i]) for i in range(sections)])


def _parts_at(x: Any, places: Any, dim: int) -> Any:
    ends = [0, *places.tolist(), x.size(dim)]
    before = (slice(None),) * (dim % x.dim())
    return tuple([x[(*before, slice(ends[i], ends[i + 1]))] for i in range(len(ends) - 1)])


@handles(torch.tensor_split, torch.Tensor.tensor_split)
def _tensor_split(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """The first parts are one longer where the size is no multiple, which need not be known."""
    given: dict[str, Any] = {"dim": 0} | dict(zip(("input", "sections", "dim"), args)) | kwargs
    x: Any = given.get("input", given.get("self"))
    sections, dim = given.get("sections"), given["dim"]
    places: Any = given.get("tensor_indices_or_sections", sections)
    if is_fake(x) and is_fake(places) and places.dtype_ is torch.int64 and places.dim() == 1:
        if type(dim) is int and -x.dim() <= dim < x.dim() and places.device_.type == "cpu":
            return t.call(_parts_at, (x, places, dim), {})
    number = t.recorder.elements.number(places) if is_fake(places) and places.dim() == 0 else None
    if number is not None and places.dtype_ is torch.int64:  # how many results there are: a plain number
        return t.call(torch.tensor_split, (x, concrete(number), dim), {})
    if not is_fake(x) or type(sections) is not int or type(dim) is not int or sections < 1:
        return call_torch(t, torch.tensor_split, args, kwargs)
    if not -x.dim() <= dim < x.dim() or type(x.size_[dim]) is int:
        return call_torch(t, torch.tensor_split, args, kwargs)
    return t.call(_parts, (x, sections, dim), {})


class _Left(Exception):
    """What the operator itself is to warn of or to refuse."""


def _weighted(x: Any, weights: Any, importance: Any, correction: Any) -> Any:
    """`cov` of float rows with a weight a column."""
    for one in (weights, importance):
        if one is not None and one.lt(0).any():
            raise _Left
    if weights is None or importance is None:
        both = importance if weights is None else weights
    else:
        both = weights * importance
    total = both.sum()
    if total == 0:
        raise _Left
    degrees = total - correction
    if importance is not None and correction != 0:
        degrees = total - correction * (both * importance).sum() / total
    if degrees <= 0:
        raise _Left
    x = x - ((x * both).sum(1) / total).unsqueeze(1)
    return torch.true_divide(x @ (x * both).t().conj(), degrees).squeeze()


@handles(torch.cov, torch.Tensor.cov)
def _cov(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """With weights: branches on their values that only warn or raise, which are not recorded."""
    given: dict[str, Any] = {"correction": 1, "fweights": None, "aweights": None} | kwargs
    x: Any = args[0] if args else given.pop("input", None)
    weights, importance, correction = given.pop("fweights"), given.pop("aweights"), given.pop("correction")
    if args[1:] or given or not t.mode.allow_unbacked or not _can_be_weighted(x, weights, importance):
        return call_torch(t, torch.cov, args, kwargs)
    try:
        return t.call(_weighted, (x if x.dim() == 2 else x.reshape(1, -1), weights, importance, correction), {})
    except Raised as raised:
        if type(raised.error) is not _Left:
            raise
        return call_torch(t, torch.cov, args, kwargs)


def _can_be_weighted(x: Any, weights: Any, importance: Any) -> bool:
    """Whether the kinds of arguments are those that `cov` takes, and none of few observations."""
    tensors = [one for one in (x, weights, importance) if type(one) is FakeTensor]
    if len(tensors) < 2 or tensors[0] is not x or len(tensors) != 3 - (weights is None) - (importance is None):
        return False
    kinds = weights is None or not (weights.is_floating_point() or weights.is_complex() or weights.dtype_ is torch.bool)
    kinds = kinds and (importance is None or importance.is_floating_point())
    many = x.size_[-1] if x.dim() else 0
    vectors = all(one.dim() == 1 and one.size_[0] == many for one in tensors[1:])
    return kinds and vectors and x.dim() in (1, 2) and (x.is_floating_point() or x.is_complex()) and many > 1


def _pooled(x: Any, size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    pooled = F.max_pool2d(x.unsqueeze(-2), (1, size), (1, stride), (0, padding), (1, dilation), ceil_mode)
    return pooled.squeeze(-2)


def _max_pool1d(function: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """The operator takes plain sizes, that over two dimensions does not."""
    names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
    given: dict[str, Any] = {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False}
    given |= dict(zip((*names, "return_indices"), args)) | kwargs
    x: Any = given.get("input")
    numbers: list[Any] = [given.get(name) for name in names[1:5]]
    size, stride, *rest = (n[0] if type(n) in (tuple, list) and len(n) == 1 else n for n in numbers)
    numbers = [size, size if stride is None or stride == [] or stride == () else stride, *rest]
    indices = given.pop("return_indices", False)
    varies = not indices and is_fake(x) and not {int}.issuperset(map(type, x.size_))
    if not varies or len(given) > len(names) or not {int}.issuperset(map(type, numbers)):
        return call_torch(t, function, args, kwargs)
    return t.call(_pooled, (x, *numbers, given["ceil_mode"]), {})


for _max_pool in (torch.max_pool1d, F.max_pool1d):
    TABLE[_max_pool] = functools.partial(_max_pool1d, _max_pool)


def _dense_mask(mask: Any, broadcast: tuple[int, ...]) -> Any:
    for d in broadcast:
        mask = mask.narrow(d, 0, 1)
    return mask.contiguous()


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
            flat = [d for d in range(mask.dim() - 2) if type(stride[d]) is int and stride[d] == 0]
            broadcast = tuple(d for d in flat if type(mask.size_[d]) is not int or mask.size_[d] > 0)
            args, kwargs = with_mask(args, kwargs, t.call(_dense_mask, (mask, broadcast), {}))
    return call_torch(t, F.scaled_dot_product_attention, args, kwargs)


def _evenly(start: Any, end: Any, steps: int, dtype: torch.dtype, device: Any) -> Any:
    """As the operator computes it: each half from its own end."""
    i = torch.arange(steps, dtype=dtype, device=device)
    step = (end - start) / (steps - 1)
    return torch.where(i < steps // 2, start + step * i, end - step * (steps - 1 - i))


@handles(torch.linspace)
def _linspace(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """The operator takes a plain number of steps."""
    given: dict[str, Any] = dict(zip(("start", "end", "steps"), args)) | kwargs
    steps, dtype = given.get("steps"), given.get("dtype") or torch.get_default_dtype()
    simple = given.keys() <= {"start", "end", "steps", "dtype", "device"} and dtype in (torch.float32, torch.float64)
    numbers = all(type(given.get(end)) in (int, float, torch.SymInt, torch.SymFloat) for end in ("start", "end"))
    if not (simple and numbers) or type(steps) is not torch.SymInt or is_unbacked(steps) or not t.truth(steps > 1):
        return call_torch(t, torch.linspace, args, kwargs)
    return t.call(_evenly, (given["start"], given["end"], steps, dtype, given.get("device")), {})


def _grid(theta: torch.Tensor, size: list[int], spread: list[float]) -> torch.Tensor:
    """Coordinates from -1 to 1, `spread` apart from the ends, of each point of the output, times the matrices."""
    options: dict[str, Any] = {"dtype": theta.dtype, "device": theta.device}
    ends = [torch.linspace(-1, 1, n, **options) * scale for n, scale in zip(size[2:], spread)]
    points = [*torch.meshgrid(ends, indexing="ij")][::-1] + [torch.ones(size[2:], **options)]
    rows = torch.stack(points, -1).reshape(1, -1, len(size) - 1).expand(size[0], -1, -1)
    return rows.bmm(theta.transpose(1, 2)).view([size[0], *size[2:], len(size) - 2])


@handles(torch.nn.functional.affine_grid)
def _affine_grid(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """The operator's derivative takes plain sizes."""
    given: dict[str, Any] = dict(zip(("theta", "size", "align_corners"), args)) | kwargs
    theta, size, align = given.get("theta"), t.internalize(given.get("size")), given.get("align_corners")
    if not _is_grid(theta, size) or type(align) is not bool or not all(t.truth(n > 1) for n in size[2:]):
        return call_torch(t, torch.nn.functional.affine_grid, args, kwargs)
    return t.call(_grid, (theta, list(size), [1 if align else (n - 1) / n for n in size[2:]]), {})


def _is_grid(theta: Any, size: Any) -> bool:
    """Whether the arguments fit, and some sizes are not known."""
    if not is_fake(theta) or theta.dtype_ not in (torch.float32, torch.float64):
        return False
    if not isinstance(size, (tuple, list)) or theta.dim() != 3 or len(size) not in (4, 5):
        return False
    symbols = [n for n in size if type(n) is torch.SymInt]
    fits = tuple(theta.shape) == (size[0], len(size) - 2, len(size) - 1)
    return bool(symbols) and fits and not any(map(is_unbacked, symbols))


# ---- what leads out of the graph
def _refuse(detail: str, do: str = "", kind: str = "unknown-call") -> Handler:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
        raise GraphBreak(kind, detail, do)

    return handler


_DLPACK = (torch.utils.dlpack.from_dlpack, vars(torch.utils.dlpack)["to_dlpack"], dlpack_of_tensor)
_DUAL = (forward_ad.enter_dual_level, forward_ad.exit_dual_level, forward_ad.make_dual, forward_ad.unpack_dual)
TABLE |= {function: _refuse("memory is passed through DLPack") for function in _DLPACK}
_JVP = "use torch.func.jvp, which is captured"
TABLE |= {function: _refuse("forward-mode differentiation by dual tensors", _JVP) for function in _DUAL}
TABLE |= {
    function: _refuse("hooks on saved tensors", "enter the block around the compiled call", "backward-hook")
    for function in SAVED_TENSOR_HOOKS
}
