"""Functions that PyTorch composes in C++ from plain sizes, composed here from operators that take symbolic ones.

In:     the arguments of such a function, with fakes and symbols among them.
Out:    its result; NotImplemented for arguments that are left to C++.
Holds:  the formulas are PyTorch's own, so results have its values, dtypes and layouts; errors are left to C++.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pliant.graph.composed_counts import FACTORY, OF_COUNTS, of_floats
from pliant.graph.composed_images import OF_IMAGES, average_of_rows
from pliant.graph.einsum_order import einsum
from pliant.graph.tensor_spec import DENSE_ORDERS, is_channels_last
from pliant.symbolic.expr import lit
from pliant.symbolic.loans import as_argument

_IF_NECESSARY = "use_mm_for_euclid_dist_if_necessary"


def _kron(a: Tensor, b: Tensor) -> Tensor:
    rank = max(a.dim(), b.dim())
    ones = [(1,) * (rank - one.dim()) for one in (a, b)]
    left = a.reshape([n for size in (*ones[0], *a.shape) for n in (size, 1)])
    right = b.reshape([n for size in (*ones[1], *b.shape) for n in (1, size)])
    sizes = zip((*ones[0], *a.shape), (*ones[1], *b.shape))
    return (left * right).reshape([m * n for m, n in sizes])


def _block_diag(*given: Any) -> Any:
    tensors = given[0] if len(given) == 1 and isinstance(given[0], (list, tuple)) else given
    if not tensors or any(not isinstance(one, Tensor) or one.dim() > 2 for one in tensors):
        return NotImplemented
    if len({one.dtype for one in tensors}) > 1 and any(one.dim() == 0 for one in tensors):  # which counts less
        return NotImplemented
    blocks = [one.reshape(1, -1) if one.dim() < 2 else one for one in tensors]
    width, rows = sum(one.size(1) for one in blocks), []
    left: Any = 0
    for one in blocks:
        rows.append(F.pad(one, (left, width - left - one.size(1))))
        left = left + one.size(1)
    return torch.cat(rows)


def _multi_dot(tensors: Sequence[Tensor], *, out: Any = None) -> Any:
    """Products in the order that needs the fewest multiplications; a guard says which that is."""
    if out is not None or len(tensors) < 3 or any(one.dim() != 2 for one in tensors):
        return NotImplemented
    sizes = [one.size(0) for one in tensors] + [tensors[-1].size(1)]
    best: dict[tuple[int, int], tuple[Any, int]] = {(i, i): (0, i) for i in range(len(tensors))}
    for length in range(1, len(tensors)):
        for i in range(len(tensors) - length):
            j = i + length
            for k in range(i, j):
                cost = best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                if (i, j) not in best or cost < best[i, j][0]:
                    best[i, j] = cost, k

    def product(i: int, j: int) -> Tensor:
        k = best[i, j][1]
        return tensors[i] if i == j else product(i, k) @ product(k + 1, j)

    return product(0, len(tensors) - 1)


def _chain_matmul(*matrices: Any, out: Any = None) -> Any:
    given = matrices[0] if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)) else matrices
    return _multi_dot(given, out=out)


def _cov(x: Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    if fweights is not None or aweights is not None or x.dim() > 2 or x.dtype is torch.bool:
        return NotImplemented
    x = x if x.dim() == 2 else x.reshape(1, -1)
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(torch.get_default_dtype())
    many = x.size(1)
    if many <= correction:  # which warns
        return NotImplemented
    x = x - (x.sum(1) / many).unsqueeze(1)
    return torch.true_divide(x @ x.t().conj(), many - correction).squeeze()


def _corrcoef(x: Tensor) -> Any:
    c = _cov(x) if not x.is_complex() else NotImplemented
    if c is NotImplemented or c.dim() == 0:
        return c if c is NotImplemented else c / c
    deviation = c.diag().sqrt()
    return (c / deviation.view(-1, 1) / deviation.view(1, -1)).clip(-1, 1)


def _frequencies(n: Any, d: float = 1.0, **options: Any) -> Any:
    if type(n) is int or not options.keys() <= FACTORY:
        return NotImplemented
    counted = torch.arange(n, **of_floats(options))
    half = (n + 1) // 2
    return torch.cat([counted[:half], counted[half:] - n]) * (1.0 / (n * d))


def _half_frequencies(n: Any, d: float = 1.0, **options: Any) -> Any:
    if type(n) is int or not options.keys() <= FACTORY or n < 0:  # halves of which C++ rounds up
        return NotImplemented
    return torch.arange(n // 2 + 1, **of_floats(options)) * (1.0 / (n * d))


def _window(*weights: float) -> Callable[..., Any]:
    """A sum of cosines over a window, with these weights unless others are given."""

    def window(n: Any, periodic: bool = True, *others: float, **options: Any) -> Any:
        if type(n) is int or not options.keys() <= FACTORY or others and len(weights) != 2 or not n > 1:
            return NotImplemented
        at = torch.arange(n, **of_floats(options))
        given = (*others, *weights[len(others) :])
        angle = at * (2 * math.pi / (n if periodic else n - 1))
        return sum((-1) ** k * weight * (angle * k).cos() for k, weight in enumerate(given[1:], 1)) + given[0]

    return window


def _take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Any:
    if dim is None:
        return x.reshape(-1).gather(0, indices.reshape(-1))
    others = [[n for d, n in enumerate(one.shape) if d != dim % max(one.dim(), 1)] for one in (x, indices)]
    fits = x.dim() == indices.dim() > 0 and indices.dtype is torch.int64 and others[0] == others[1]
    return x.gather(dim, indices) if fits and -x.dim() <= dim < x.dim() else NotImplemented


def _bilinear(left: Tensor, right: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    given = (left, right, weight, *([] if bias is None else [bias]))
    lead = left.shape[:-1]
    if all(type(n) is int for n in (*lead, *weight.shape)) or len({one.dtype for one in given}) > 1 or weight.dim() != 3 or left.dim() < 1:
        return NotImplemented
    if torch.is_autocast_enabled(left.device.type) or left.dim() != right.dim() or lead != right.shape[:-1]:
        return NotImplemented
    many, wide, deep = weight.shape
    if left.shape[-1] != wide or right.shape[-1] != deep:
        return NotImplemented
    rows = (left.reshape(-1, wide) @ weight.transpose(0, 1).reshape(wide, many * deep)).view(-1, many, deep)
    found = (rows @ right.reshape(-1, deep, 1)).reshape(*lead, many)
    return found if bias is None else found + bias


def _triangle(lower: bool) -> Callable[..., Any]:
    """The places of a triangle, row by row. How many there are follows from the sizes."""

    def indices(row: Any, col: Any, offset: Any = 0, **options: Any) -> Any:
        if not options.keys() <= FACTORY or options.get("dtype") not in (None, torch.int64, torch.int32):
            return NotImplemented
        if all(type(n) is int for n in (row, col, offset)) or not (row > 0 and col > 0):
            return NotImplemented
        below = _size_of_lower(row, col, offset if lower else offset - 1)
        inside = torch.arange(col, device=options.get("device")) - torch.arange(row, device=options.get("device"))[:, None]
        inside = inside <= offset if lower else inside >= offset
        places = torch.nonzero_static(inside, size=below if lower else row * col - below)
        dtype = options.get("dtype") or torch.int64
        return places.t().to(dtype, copy=True, memory_format=torch.contiguous_format)

    return indices


def _size_of_lower(row: Any, col: Any, offset: Any) -> Any:
    """How many places are in the lower triangle: its first rows grow by one each, those below it are full."""
    first = min(col, 1 + offset) if offset > 0 else 1 if row + offset > 0 else 0
    last = max(0, min(col, row + offset))
    rows = max(0, min(row, row + offset))
    growing = last - first + 1
    size = (first + last) * growing // 2
    return size + (rows - growing) * col if rows > growing else size


def _resized(
    x: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """By one operator, which has a derivative that is one, too."""
    operator, linear = _RESIZING.get((mode, x.dim())), "nearest" not in mode
    given = size if scale_factor is None else scale_factor
    numbers = list(given) if isinstance(given, (list, tuple)) else [given] * (x.dim() - 2)
    one = size is None or scale_factor is None and not recompute_scale_factor
    if operator is None or antialias or not one or align_corners is not None and not linear:
        return NotImplemented
    if len(numbers) != x.dim() - 2 or not all(isinstance(n, _DIM if scale_factor is None else _SCALE) for n in numbers):
        return NotImplemented
    scales = [None] * len(numbers) if size is not None or recompute_scale_factor else numbers
    sizes = numbers if size is not None else [_times(n, scale) for n, scale in zip(x.shape[2:], numbers)]
    if all(type(n) is int for n in (*x.shape, *sizes)):
        return NotImplemented
    for one_size in sizes:
        _expect_size(one_size)
    return operator(x, sizes, *([bool(align_corners)] if linear else []), *map(as_argument, scales))


def _expect_size(size: Any) -> None:
    """What only running the graph tells is taken to be a size, and checked; which sizes may be, the operator knows."""
    if isinstance(size, torch.SymInt):
        size.node.expect_size()


def _varies(number: Any) -> bool:
    return type(number) is torch.SymFloat


def _times(size: Any, scale: Any) -> Any:
    if not _varies(scale) and scale == int(scale):
        return size * int(scale)
    return torch.sym_int(size * scale)  # type: ignore[no-untyped-call]


_DIM, _SCALE = (int, torch.SymInt), (int, float, torch.SymFloat)
_RESIZING: dict[tuple[str, int], Callable[..., Any]] = {
    (mode, rank + 2): getattr(torch.ops.aten, f"{name}{rank}d").default
    for mode, name, ranks in (
        ("nearest", "upsample_nearest", (1, 2, 3)),
        ("nearest-exact", "_upsample_nearest_exact", (1, 2, 3)),
        ("linear", "upsample_linear", (1,)),
        ("bilinear", "upsample_bilinear", (2,)),
        ("bicubic", "upsample_bicubic", (2,)),
        ("trilinear", "upsample_trilinear", (3,)),
    )
    for rank in ranks
}


def _alpha_dropout(of_channels: bool) -> Callable[..., Any]:
    """Dropout that keeps mean and variance, at a probability that varies."""

    def dropout(x: Tensor, p: Any = 0.5, training: bool = False, inplace: bool = False) -> Any:
        if not _varies(p) or not training or inplace or not 0 < p < 1 or x.numel() == 0 or of_channels and x.dim() < 2:
            return NotImplemented
        shape = [*x.shape[:2], *[1] * (x.dim() - 2)] if of_channels else x.shape
        kept = torch.empty(shape, dtype=x.dtype, device=x.device) if of_channels else torch.empty_like(x)
        kept.bernoulli_(1 - p)
        scale = 1.0 / torch.sym_sqrt((_SATURATED * _SATURATED * p + 1) * (1 - p))
        moved = (kept + -1).mul_(_SATURATED * scale).add_(_SATURATED * scale * p)
        return (x * kept.mul_(scale)).add_(moved)

    return dropout


_SATURATED = 1.7580993408473766  # what SELU's other end is


def _rms_norm(x: Tensor, normalized_shape: Sequence[Any], weight: Any = None, eps: Any = None) -> Any:
    """A GPU's operator takes plain sizes, and C++ gives it what symbols are in memory: they become numbers before."""
    if not x.is_cuda or all(type(n) is int for n in normalized_shape):
        return NotImplemented
    return torch.rms_norm(x, [int(n) for n in normalized_shape], weight, eps)


def _is_channels_last(x: Any) -> bool:
    """Whether a tensor of a program for sizes other than those at hand lies so. C++ asks that by whether sizes are more than
    1, and an answer would be a guard of each."""
    spec: Any = getattr(x, "spec", None)  # of a fake
    sizes = [] if spec is None else [n for n in spec.size if isinstance(n, torch.SymInt)]
    wanted = any(n.node.shape_env.takes_copies for n in sizes) and not torch.is_autocast_enabled(x.device.type)
    return wanted and is_channels_last(spec)


def _lies_like_channels_last(spec: Any) -> bool | None:
    """What C++ says of its strides, if that is the same for all sizes: dimensions lie around one another in that order."""
    env = next(n.node.shape_env for n in spec.size if isinstance(n, torch.SymInt))
    order = DENSE_ORDERS.get(spec.ndim)
    if order is None:
        return False
    steps, sizes = ([lit(of[d]) for d in order] for of in (spec.stride_key, spec.size_key))
    if any(env.statically_known(one.gt(other)) for one, other in itertools.pairwise(steps)):
        return False
    around = (env.statically_known((one * size).le(other)) for (one, size), other in zip(zip(steps, sizes), steps[1:]))
    return True if all((*around, env.statically_known(steps[0].gt(0)), env.statically_known(steps[-2].gt(steps[0])))) else None


def _to(x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """In order of rows it is the tensor itself, if nothing else is to change and it does not lie with channels last."""
    spec: Any = getattr(x, "spec", None)  # of a fake
    given = dict(kwargs)
    if given.pop("memory_format", None) is not torch.contiguous_format or spec is None:
        return NotImplemented
    varies = any(isinstance(n, torch.SymInt) and n.node.shape_env.takes_copies for n in spec.size)
    same = all(one is x.dtype or one is False or one is None for one in (*args, *given.values()))
    last = _lies_like_channels_last(spec) if varies and same else None
    return NotImplemented if last is None else x.clone(memory_format=torch.contiguous_format) if last else x.to(*args, **given)


def _group_norm(x: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    if not _is_channels_last(x) or type(num_groups) is not int:
        return NotImplemented
    rows, channels, area = x.size(0), x.size(1), math.prod(x.shape[2:])
    fits = all(one is None or tuple(one.shape) == (channels,) for one in (weight, bias))
    if not fits or type(channels) is not int or channels == 1 or num_groups < 1 or channels % num_groups:
        return NotImplemented
    dense = x.clone(memory_format=torch.contiguous_format)  # the operator refuses other orders where a size of 1 hides them
    found = torch.native_group_norm(dense, weight, bias, rows, channels, area, num_groups, eps)[0]
    return found.clone(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


def _attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, *args: Any, **kwargs: Any) -> Any:
    """C++ asks of a mask's sides whether they are the attention's, and if not whether they are 1: of a side of 1 no answer to
    the first needs a guard."""
    spec: Any = getattr(attn_mask, "spec", None)  # of a fake
    if spec is None or spec.ndim != 4 or query.dim() != 4 or key.dim() != 4:
        return NotImplemented
    sides: Any = zip(spec.size, (query.size(0), query.size(1), query.size(2), key.size(2)))
    spread = [n for own, n in sides if type(own) is int and own == 1 and isinstance(n, torch.SymInt)]
    asked = [(n.node.shape_env, n.node.expr.eq(1)) for n in spread if n.node.shape_env.takes_copies]
    asked = [(env, e) for env, e in asked if env.statically_known(e) is None]
    if not asked:
        return NotImplemented
    for env, e in asked:
        env.answers[e] = False
    try:
        return F.scaled_dot_product_attention(query, key, value, attn_mask, *args, **kwargs)
    finally:
        for env, e in asked:
            env.answers.pop(e, None)


def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = _IF_NECESSARY) -> Any:
    """C++ takes a product if one of them has more than 25 rows, and asks it of the first even where the second has."""
    if type(p) not in (int, float) or p != 2 or compute_mode not in (_IF_NECESSARY, None) or min(x1.dim(), x2.dim()) < 2:
        return NotImplemented
    both: tuple[Any, Any] = (x1.size(-2), x2.size(-2))
    rows = [n for n in both if type(n) is int or n.node.hint is not None]
    rows.sort(key=lambda n: (type(n) is not int, -n if type(n) is int else -n.node.hint))  # whose answer needs no guard
    if not any(n > 25 for n in rows):
        return NotImplemented
    return torch.cdist(x1, x2, p, "use_mm_for_euclid_dist")


def _mean_of_image(x: Tensor, output_size: Any) -> Any:
    wanted = tuple(output_size) if isinstance(output_size, (list, tuple)) else (output_size,) * 2
    if wanted != (1, 1) or x.dim() != 4 or not _is_channels_last(x):
        return NotImplemented
    return x.permute(0, 2, 3, 1).mean((1, 2), keepdim=True).permute(0, 3, 1, 2)


def _mean_of_row(x: Tensor, output_size: Any) -> Any:
    one = output_size in (1, (1,), [1]) and isinstance(x, Tensor) and x.dim() == 3
    found = _mean_of_image(x.unsqueeze(-2), 1) if one else NotImplemented
    return average_of_rows(x, output_size) if found is NotImplemented else found.squeeze(-2)


def _fill_diagonal(x: Tensor, fill_value: Any, wrap: Any = False) -> Any:
    if wrap is not False or x.dim() != 2 or isinstance(fill_value, Tensor):
        return NotImplemented
    x.diagonal().fill_(fill_value)
    return x


COMPOSITIONS: dict[Any, Callable[..., Any]] = {
    **OF_COUNTS,
    **OF_IMAGES,
    torch.Tensor.fill_diagonal_: _fill_diagonal,
    F.group_norm: _group_norm,
    torch.Tensor.to: _to,
    F.scaled_dot_product_attention: _attention,
    torch.cdist: _cdist,
    F.adaptive_avg_pool2d: _mean_of_image,
    torch.adaptive_avg_pool1d: _mean_of_row,
    torch.kron: _kron,
    torch.block_diag: _block_diag,
    torch.linalg.multi_dot: _multi_dot,
    torch.chain_matmul: _chain_matmul,
    torch.einsum: einsum,
    torch.cov: _cov,
    torch.corrcoef: _corrcoef,
    torch.take_along_dim: _take_along_dim,
    torch.Tensor.kron: _kron,
    torch.Tensor.cov: _cov,
    torch.Tensor.corrcoef: _corrcoef,
    torch.Tensor.take_along_dim: _take_along_dim,
    torch.bilinear: _bilinear,
    torch.tril_indices: _triangle(lower=True),
    torch.triu_indices: _triangle(lower=False),
    F.interpolate: _resized,
    F.rms_norm: _rms_norm,
    torch.rms_norm: _rms_norm,
    torch.alpha_dropout: _alpha_dropout(of_channels=False),
    F.alpha_dropout: _alpha_dropout(of_channels=False),
    torch.feature_alpha_dropout: _alpha_dropout(of_channels=True),
    F.feature_alpha_dropout: _alpha_dropout(of_channels=True),
    torch.fft.fftfreq: _frequencies,
    torch.fft.rfftfreq: _half_frequencies,
    torch.hann_window: _window(0.5, 0.5),
    torch.hamming_window: _window(0.54, 0.46),
    torch.blackman_window: _window(0.42, 0.5, 0.08),
}

# The names of the first arguments of these, where a composition has its own: programs may give them by name.
_FIRST: dict[Any, tuple[str, ...]] = {
    torch.kron: ("input", "other"),
    torch.Tensor.kron: ("self", "other"),
    torch.bilinear: ("input1", "input2"),
    torch.hann_window: ("window_length",),
    torch.hamming_window: ("window_length", "periodic", "alpha", "beta"),
    torch.blackman_window: ("window_length",),
    torch.linalg.diagonal: ("A",),
    torch.vander: ("x",),
    torch.linspace: ("start", "end", "steps"),
    torch.logspace: ("start", "end", "steps"),
    F.affine_grid: ("theta",),
    torch.linalg.vander: ("x",),
    torch.alpha_dropout: ("input", "p", "train"),
    torch.feature_alpha_dropout: ("input", "p", "train"),
}


def composed(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a function of `COMPOSITIONS` gives; not implemented for arguments that its composition does not know (`out=`)."""
    composition, names = COMPOSITIONS[func], _FIRST.get(func, ("input",))
    if kwargs:
        args, kwargs = list(args), dict(kwargs)
        while len(args) < len(names) and names[len(args)] in kwargs:
            args.append(kwargs.pop(names[len(args)]))
        try:
            inspect.signature(composition).bind(*args, **kwargs)
        except TypeError:
            return NotImplemented
    return composition(*args, **kwargs)
