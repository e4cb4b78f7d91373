"""Functions that take counts, offsets and places as plain integers in C++, composed from operators that take symbolic ones.

In:     the arguments of such a function, with fakes and symbols among them.
Out:    its result; NotImplemented where C++ can do it: no such number is symbolic, or it raises.
Holds:  the formulas are PyTorch's own, so results have its values, dtypes and layouts, and are views where its are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pliant.graph.shape_rules.views import is_split

FACTORY = frozenset(("dtype", "device"))


def of_floats(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a factory whose result is of floats by default."""
    return {**options, "dtype": options.get("dtype") or torch.get_default_dtype()}


def _varies(*numbers: Any) -> bool:
    return any(type(one) is torch.SymInt for one in numbers)


# -- diagonals --------------------------------------------------------------------------------------------------------
def _diagonal(x: Tensor, offset: Any = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """That in the middle of what is left, once as many rows or columns are cut off."""
    if not _varies(offset) or not all(-x.dim() <= d < x.dim() for d in (dim1, dim2)):
        return NotImplemented
    along, cut = (dim2, offset) if offset >= 0 else (dim1, -offset)
    extent: Any = x.size(along)
    cut = cut if cut <= extent else extent
    return x.narrow(along, cut, extent - cut).diagonal(0, dim1, dim2)


def _diagonal_from_behind(A: Tensor, *, offset: Any = 0, dim1: int = -2, dim2: int = -1) -> Any:
    return _diagonal(A, offset, dim1, dim2)


def _diag_embed(x: Tensor, offset: Any = 0, dim1: int = -2, dim2: int = -1) -> Any:
    if not _varies(offset) or x.dim() < 1 or (dim1, dim2) != (-2, -1):
        return NotImplemented
    return F.pad(torch.diag_embed(x), (offset, 0, 0, offset) if offset >= 0 else (0, -offset, -offset, 0))


def _diag(x: Tensor, diagonal: Any = 0) -> Any:
    if x.dim() == 1:
        return _diag_embed(x, diagonal)
    found = _diagonal(x, diagonal) if x.dim() == 2 else NotImplemented
    return found if found is NotImplemented else found.clone(memory_format=torch.contiguous_format)


def _diagflat(x: Tensor, offset: Any = 0) -> Any:
    return _diag_embed(x.reshape(-1), offset)


# -- parts, turns -----------------------------------------------------------------------------------------------------
def _split_along(dim: int) -> Callable[..., Any]:
    def split(x: Tensor, indices: Any) -> Any:
        if not isinstance(indices, (list, tuple)) or not _varies(*indices) or x.dim() < max(dim + 1, 1):
            return NotImplemented
        return torch.tensor_split(x, tuple(indices), dim)

    def split_or_of_rank_one(x: Tensor, indices: Any) -> Any:
        return _split_along(0)(x, indices) if x.dim() == 1 else split(x, indices)

    return split_or_of_rank_one if dim == 1 else split


def _rot90(x: Tensor, k: Any = 1, dims: Sequence[int] = (0, 1)) -> Any:
    """A guard says how far it is turned, not how often."""
    return torch.rot90(x, next(turns for turns in range(4) if k % 4 == turns), tuple(dims)) if _varies(k) else NotImplemented


def _tensor_split(x: Tensor, sections: Any, dim: int = 0) -> Any:
    """The first parts are one longer where the size is no multiple, which need not be known."""
    if type(sections) is not int or sections < 1 or not -x.dim() <= dim < x.dim() or not _varies(x.size(dim)):
        return NotImplemented
    each, more = x.size(dim) // sections, x.size(dim) % sections
    ends = [i * each + torch.sym_min(i, more) for i in range(sections + 1)]  # type: ignore[no-untyped-call]
    return tuple([x.narrow(dim, ends[i], ends[i + 1] - ends[i]) for i in range(sections)])


def _reshape(x: Tensor, *shape: Any) -> Any:
    """Views that C++ would only see by asking whether memory has gaps."""
    size = shape[0] if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape
    spec: Any = getattr(x, "spec", None)  # of a fake
    plain = spec is not None and all(type(n) in (int, torch.SymInt) for n in size)
    return x.view(*size) if plain and is_split(spec, size) else NotImplemented


# -- powers, differences, windows -------------------------------------------------------------------------------------
def _vander(x: Tensor, N: Any = None, increasing: bool = False) -> Any:
    many = x.size(0) if N is None and x.dim() == 1 else N
    if not _varies(many) or x.dim() != 1 or x.requires_grad or not many > 1:  # whose derivative C++ refuses
        return NotImplemented
    found = _powers(x.to(torch.promote_types(x.dtype, torch.int64)), many)
    return found if increasing else found.flip(1)


def _linalg_vander(x: Tensor, *, N: Any = None) -> Any:
    many = x.size(-1) if N is None and x.dim() > 0 else N
    fits = _varies(many) and x.dim() > 0 and x.dtype is not torch.bool and many > 1
    return _powers(x, many) if fits else NotImplemented


def _powers(x: Tensor, many: Any) -> Tensor:
    found = x.unsqueeze(-1).expand(*x.shape, many - 1).cumprod(-1)
    return torch.cat([found.new_ones((*x.shape, 1)), found], -1)


def _gradient(x: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> Any:
    dims = range(x.dim()) if dim is None else dim if isinstance(dim, (list, tuple)) else [dim]
    is_number = isinstance(spacing, (int, float, torch.SymInt, torch.SymFloat))
    if not is_number or edge_order != 1 or not all(-x.dim() <= d < x.dim() for d in dims):
        return NotImplemented
    sizes: list[Any] = [x.size(d) for d in dims]
    if not _varies(*sizes) or len({d % x.dim() for d in dims}) < len(sizes) or not all(n >= 2 for n in sizes):
        return NotImplemented

    def along(d: int, size: Any) -> Tensor:
        before, behind = (x.narrow(d, at, size - 1) for at in (0, 1))
        ends = (behind - before) / spacing
        middle = (x.narrow(d, 2, size - 2) - x.narrow(d, 0, size - 2)) / spacing
        return torch.cat([ends.narrow(d, 0, 1), middle / 2, ends.narrow(d, size - 2, 1)], d)

    return tuple([along(d, size) for d, size in zip(dims, sizes)])


def _linspace(start: Any, end: Any, steps: Any, **options: Any) -> Any:
    options = of_floats({name: one for name, one in options.items() if one is not _USUAL.get(name, one is None)})
    simple = options["dtype"] in (torch.float32, torch.float64) and all(type(n) in _NUMBERS for n in (start, end))
    if not simple or not options.keys() <= FACTORY or not _varies(steps) or steps.node.hint is None or not steps > 1:
        return NotImplemented
    return evenly(start, end, steps, options)


def evenly(start: Any, end: Any, steps: Any, options: dict[str, Any]) -> Tensor:
    """As the operator computes it: each half from its own end."""
    i = torch.arange(steps, **options)
    step = (end - start) / (steps - 1)
    return torch.where(i < steps // 2, start + step * i, end - step * (steps - 1 - i))


def _logspace(start: Any, end: Any, steps: Any, base: Any = 10.0, **options: Any) -> Any:
    found = _linspace(start, end, steps, **options) if type(base) in _NUMBERS else NotImplemented
    return found if found is NotImplemented else torch.pow(base, found)


_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)
_USUAL = {"layout": torch.strided, "requires_grad": False, "pin_memory": False}


def _bartlett(window_length: Any, periodic: bool = True, **options: Any) -> Any:
    if not _varies(window_length) or not options.keys() <= FACTORY or not window_length > 1:
        return NotImplemented
    span = window_length if periodic else window_length - 1
    at = torch.arange(window_length, **of_floats(options))
    rising = at * (2.0 / span)
    return torch.where(at < span // 2 + 1, rising, 2 - rising)


OF_COUNTS: dict[Any, Callable[..., Any]] = {
    torch.diagonal: _diagonal,
    torch.Tensor.diagonal: _diagonal,
    torch.linalg.diagonal: _diagonal_from_behind,
    torch.diag_embed: _diag_embed,
    torch.Tensor.diag_embed: _diag_embed,
    torch.diag: _diag,
    torch.Tensor.diag: _diag,
    torch.diagflat: _diagflat,
    torch.Tensor.diagflat: _diagflat,
    **{of: _split_along(dim) for dim, name in enumerate(("vsplit", "hsplit", "dsplit")) for of in (getattr(torch, name), getattr(torch.Tensor, name))},
    torch.tensor_split: _tensor_split,
    torch.Tensor.tensor_split: _tensor_split,
    torch.reshape: _reshape,
    torch.Tensor.reshape: _reshape,
    torch.linspace: _linspace,
    torch.logspace: _logspace,
    torch.rot90: _rot90,
    torch.Tensor.rot90: _rot90,
    torch.vander: _vander,
    torch.linalg.vander: _linalg_vander,
    torch.gradient: _gradient,
    torch.bartlett_window: _bartlett,
}
