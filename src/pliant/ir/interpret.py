"""The reference meaning of loop programs: run one on real tensors with torch, no code generated.

In:     a `LoopProgram` and its arguments (tensors and numbers).
Out:    its outputs; inputs that the program updates in place are updated.
Holds:  computations run in program order, each over its whole iteration space at once; results are what a compiled
        program must give, up to the rounding of sums and of library functions. Loads outside a buffer raise, except in
        the argument that a `where` does not choose.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

import torch
from torch.utils import _pytree as pytree

from pliant.ir.loops import Axis, Buffer, Computation, Extern, LoopProgram, Pointwise, Reduction, Scan, View
from pliant.ir.ops import OPS
from pliant.ir.scalar import Apply, Const, IndexValue, Load, Scalar
from pliant.symbolic import expr as sym
from pliant.symbolic.expr import Expr, Symbol
from pliant.symbolic.traverse import MEANING

Value = Any  # a number or an integer tensor


def run(program: LoopProgram, args: Sequence[Any]) -> list[Any]:
    """The outputs of `program` on `args`."""
    state = _State(program)
    state.bind(program, args)
    for computation in program.computations:
        state.execute(computation)
    return [state.result(output) for output in program.outputs]


class _State:
    """Memory of every buffer as a flat tensor, and the values of the size symbols."""

    def __init__(self, program: LoopProgram) -> None:
        self.memory: dict[Buffer, torch.Tensor] = {}
        self.sizes: dict[Symbol, Value] = {}
        for constant in program.constants:
            assert constant.value is not None
            self.memory[constant] = _flat(constant.value)

    def bind(self, program: LoopProgram, args: Sequence[Any]) -> None:
        for target, value in zip(program.inputs, args, strict=True):
            if isinstance(target, Symbol):
                self.sizes[target] = value
            elif isinstance(target, Buffer):
                self._bind_tensor(target, value)

    def _bind_tensor(self, buffer: Buffer, value: torch.Tensor) -> None:
        self.memory[buffer] = _flat(value)
        described = zip((*buffer.shape, *buffer.strides), (*value.shape, *value.stride()))
        for expected, actual in described:
            if isinstance(expected, Symbol):
                self.sizes.setdefault(expected, actual)

    def number(self, e: Expr) -> Any:
        return evaluate(e, self.sizes)

    def allocate(self, buffer: Buffer) -> torch.Tensor:
        span = 1
        for size, stride in zip(buffer.shape, buffer.strides):
            extent = self.number(size)
            span = 0 if extent == 0 else span and span + (extent - 1) * self.number(stride)
        self.memory[buffer] = torch.zeros(span, dtype=buffer.dtype, device=buffer.device)
        return self.memory[buffer]

    def tensor(self, view: View) -> torch.Tensor:
        shape, strides = [self.number(e) for e in view.shape], [self.number(e) for e in view.strides]
        memory = self.memory[view.buffer]
        flat = memory.as_strided(shape, strides, memory.storage_offset() + self.number(view.offset))
        return flat if flat.dtype is view.dtype else flat.view(view.dtype)

    def result(self, output: Any) -> Any:
        match output:
            case View():
                return self.tensor(output)
            case Expr():
                return self.number(output)
            case _:
                return output

    # -- computations -------------------------------------------------------------------------------------------------
    def execute(self, c: Computation) -> None:
        match c:
            case Pointwise():
                self._pointwise(c)
            case Reduction():
                self._reduction(c)
            case Scan():
                self._scan(c)
            case Extern():
                self._extern(c)
            case _:
                assert_never(c)

    def _memory_of(self, out: Buffer) -> torch.Tensor:
        return self.memory[out] if out in self.memory else self.allocate(out)

    def _pointwise(self, c: Pointwise) -> None:
        memory = self._memory_of(c.out)
        point = _Point(self, c.axes)
        if point.is_empty:
            return
        value = point.full(point.scalar(c.value)).reshape(-1)
        index = point.full(point.index(c.index, c.indirect)).reshape(-1)
        match c.accumulate:
            case None:
                memory[index] = value
            case "sum":
                memory.index_put_((index,), value, accumulate=True)
            case op:
                memory.scatter_reduce_(0, index, value, {"max": "amax", "min": "amin"}[op])

    def _reduction(self, c: Reduction) -> None:
        memory = self._memory_of(c.out)
        point = _Point(self, (*c.axes, *c.reduce_axes))
        kept = point.shape[: len(c.axes)]
        if 0 in kept:
            return
        count = _product(point.shape[len(c.axes) :])
        values = point.full(point.scalar(c.value)) if count else torch.empty(point.shape, dtype=c.value.dtype)
        reduced = _REDUCE[c.op](values.reshape(*kept, count), c.accumulate_dtype)
        outer = _Point(self, c.axes)
        memory[outer.full(outer.index(c.index, ())).reshape(-1)] = reduced.reshape(-1).to(c.out.dtype)

    def _scan(self, c: Scan) -> None:
        memory = self._memory_of(c.out)
        point = _Point(self, (*c.axes, c.axis))
        if point.is_empty:
            return
        scanned = _SCAN[c.op](point.full(point.scalar(c.value)), -1, dtype=c.accumulate_dtype)
        memory[point.full(point.index(c.index, ())).reshape(-1)] = scanned.reshape(-1).to(c.out.dtype)

    def _extern(self, c: Extern) -> None:
        args, kwargs = self._arguments(c.args), self._arguments(c.kwargs)
        returned = c.target(*args, **kwargs)
        results = pytree.tree_leaves(returned) if isinstance(returned, (tuple, list)) else [returned]
        self.sizes.update({binding.symbol: binding.value(returned) for binding in c.defines})
        for out, result in zip(c.outs, results):
            if out is not None and isinstance(result, torch.Tensor):
                self._store(out, result)

    def _store(self, out: Buffer, result: torch.Tensor) -> None:
        if out in self.memory:  # updated in place: nothing to copy
            return
        self.allocate(out)
        whole = View(out, out.shape, out.strides, sym.ZERO, out.dtype)
        target = self.tensor(whole)
        if target.shape != result.shape:
            raise ValueError(f"{out.name}: expected sizes {tuple(target.shape)}, got {tuple(result.shape)}")
        target.copy_(result)

    def _arguments(self, tree: Any) -> Any:
        match tree:
            case View():
                return self.tensor(tree)
            case Buffer():
                return self.memory[tree]
            case Expr():
                return self.number(tree)
            case dict():
                return {k: self._arguments(v) for k, v in tree.items()}
            case list() | tuple():
                return type(tree)(self._arguments(v) for v in tree)
            case _:
                return tree


class _Point:
    """All points of an iteration space at once: each axis symbol is an arange along its own dimension."""

    def __init__(self, state: _State, axes: Sequence[Axis]) -> None:
        self.state = state
        self.shape = [state.number(axis.extent) for axis in axes]
        self.is_empty = 0 in self.shape
        self.symbols: dict[Symbol, Value] = dict(state.sizes)
        self.memo: dict[tuple[Scalar, bool], torch.Tensor] = {}
        for k, axis in enumerate(axes):
            sizes = [1] * len(axes)
            sizes[k] = self.shape[k]
            self.symbols[axis.symbol] = torch.arange(self.shape[k]).view(sizes)

    def full(self, value: torch.Tensor) -> torch.Tensor:
        return value.expand(self.shape)

    def index(self, e: Expr, indirect: Sequence[tuple[Symbol, Scalar]], guarded: bool = False) -> torch.Tensor:
        bound = {symbol: self.scalar(value, guarded) for symbol, value in indirect}
        return torch.as_tensor(evaluate(e, {**self.symbols, **bound} if bound else self.symbols), dtype=torch.int64)

    def scalar(self, x: Scalar, guarded: bool = False) -> torch.Tensor:
        """The value at every point; broadcastable to the whole space. `guarded`: it may not be chosen by a `where`."""
        key = (x, guarded)
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self._compute(x, guarded)
        return found

    def _compute(self, x: Scalar, guarded: bool) -> torch.Tensor:
        match x:
            case Const():
                return torch.tensor(x.value, dtype=x.dtype)
            case IndexValue():
                return torch.as_tensor(evaluate(x.expr, self.symbols)).to(x.dtype)
            case Load():
                return self._load(x, guarded)
            case Apply(op="cast"):
                return self.scalar(x.args[0], guarded).to(x.dtype)
            case Apply(op="where"):
                condition = self.scalar(x.args[0], guarded)
                return torch.where(condition, self.scalar(x.args[1], True), self.scalar(x.args[2], True))
            case Apply(op="check_index") if guarded:
                index, size = self.scalar(x.args[0], True), self.scalar(x.args[1], True)
                return torch.where(index < 0, index + size, index)
            case Apply():
                return torch.as_tensor(OPS[x.op].meaning(*[self.scalar(a, guarded) for a in x.args]))
            case _:
                raise TypeError(f"not a scalar: {x!r}")

    def _load(self, x: Load, guarded: bool) -> torch.Tensor:
        memory = self.state.memory[x.buffer]
        index = self.index(x.index, x.indirect, guarded)
        outside = (index < 0) | (index >= memory.numel())
        if bool(outside.any()):
            if not guarded:
                raise IndexError(f"load({x.buffer.name}, {x.index}) is out of range")
            if memory.numel() == 0:
                return torch.zeros_like(index, dtype=x.dtype)
            index = torch.where(outside, 0, index)
        return memory[index]


# -- expressions over tensors -----------------------------------------------------------------------------------------


def _extremum(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def meaning(*args: Any) -> Any:
        return functools.reduce(lambda a, b: function(torch.as_tensor(a), torch.as_tensor(b)), args)

    return meaning


# where tensors need another function than numbers
_TENSOR_MEANING: dict[type[Expr], Callable[..., Any]] = {
    sym.Min: _extremum(torch.minimum),
    sym.Max: _extremum(torch.maximum),
    sym.Select: lambda c, a, b: torch.where(torch.as_tensor(c), a, b),
    sym.And: _extremum(torch.logical_and),
    sym.Or: _extremum(torch.logical_or),
    sym.Not: lambda a: ~torch.as_tensor(a),
    sym.ToFloat: lambda a: torch.as_tensor(a, dtype=torch.float64),
    sym.Product: lambda *a: functools.reduce(lambda p, q: p * q, a),
}


def evaluate(e: Expr, values: Mapping[Symbol, Value]) -> Value:
    """The value of `e` where symbols may stand for integer tensors."""
    if isinstance(e, sym.Constant):
        return e.value
    if isinstance(e, Symbol):
        return values[e]
    if type(e) is sym.Sum:
        total: Any = e.const
        for mono, coef in e.terms:
            total = total + coef * evaluate(mono, values)
        return total
    args = [evaluate(a, values) for a in e.args]
    over_tensors = any(isinstance(a, torch.Tensor) for a in args)
    meaning = (_TENSOR_MEANING.get(type(e)) if over_tensors else None) or MEANING[type(e)]
    return meaning(*args)


# -- reductions over the last dimension -------------------------------------------------------------------------------


def _extreme(values: torch.Tensor, dtype: torch.dtype, largest: bool) -> torch.Tensor:
    values = values.to(dtype)
    if values.shape[-1] == 0:
        return torch.full(values.shape[:-1], _identity(dtype, largest), dtype=dtype)
    return values.amax(-1) if largest else values.amin(-1)


def _identity(dtype: torch.dtype, largest: bool) -> Any:
    """The neutral element of max (or of min)."""
    if dtype is torch.bool:
        return not largest
    if dtype.is_floating_point:
        return float("-inf") if largest else float("inf")
    return torch.iinfo(dtype).min if largest else torch.iinfo(dtype).max


def _first_extreme(values: torch.Tensor, largest: bool) -> torch.Tensor:
    """The index of the first largest (or smallest) value; the first NaN if there is one."""
    extreme = _extreme(values, values.dtype, largest).unsqueeze(-1)
    hit = (values == extreme) | (values != values)
    positions = torch.arange(values.shape[-1]).expand(values.shape)
    return torch.where(hit, positions, values.shape[-1]).amin(-1)


def _product(sizes: Sequence[int]) -> int:
    return functools.reduce(lambda a, b: a * b, sizes, 1)


_REDUCE: dict[str, Callable[[torch.Tensor, torch.dtype], torch.Tensor]] = {
    "sum": lambda v, d: v.sum(-1, dtype=d),
    "prod": lambda v, d: v.prod(-1, dtype=d),
    "max": lambda v, d: _extreme(v, d, True),
    "min": lambda v, d: _extreme(v, d, False),
    "any": lambda v, d: v.any(-1),
    "all": lambda v, d: v.all(-1),
    "argmax": lambda v, d: _first_extreme(v, True),
    "argmin": lambda v, d: _first_extreme(v, False),
}


_SCAN: dict[str, Callable[..., torch.Tensor]] = {"sum": torch.cumsum, "prod": torch.cumprod}


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor from its first element to its last, as one dimension."""
    span = 0 if tensor.numel() == 0 else 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    return tensor.detach().as_strided((span,), (1,), tensor.storage_offset())
