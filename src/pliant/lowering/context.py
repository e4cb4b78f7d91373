"""The state of one lowering: buffers, emitted computations, index symbols.

In:     rules call `reduce`, `realize`, `extern`, `load`, `indirect`.
Out:    `computations` in a valid order.
Holds:  sizes are simplified once with what the shape environment knows; nothing here asks it to decide, so no guard is
        added. A tensor's loop is emitted when its first reader needs it, after the loops that it reads itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from pliant.graph.unbacked import Binding
from pliant.ir.loops import NOWHERE, Axis, Buffer, Computation, Extern, Origin, Pointwise, Reduction, Scan, View, whole
from pliant.ir.scalar import Scalar, apply, cast, const, index_value, load, where
from pliant.lowering import moves, seams
from pliant.lowering.indexing_rules import IndexRanges
from pliant.lowering.single_terms import sum_of_single_term
from pliant.lowering.tensors import At, Index, Shape, Tensor, aligned_strides, contiguous_strides, opmath
from pliant.symbolic import expr as sym
from pliant.symbolic.expr import ONE, ZERO, Expr, Integer, Symbol, symbol
from pliant.symbolic.shape_env import ShapeEnv

_SHARE_LIMIT = 2  # cost above which a value with several readers is kept
_INLINE_LIMIT = 96  # cost above which a value is kept even for one reader
_BROADCAST_LIMIT = 4  # cost above which a value read along a broadcast dimension is kept


class Lowering:
    """See the module's docstring. `origin` names the ATen node being lowered."""

    share_limit = _SHARE_LIMIT

    def __init__(self, shape_env: ShapeEnv) -> None:
        self.shape_env = shape_env
        self.computations: list[Computation] = []
        self.constants: list[Buffer] = []
        self.origin = NOWHERE
        self.exact_layout = False  # while outputs are made: a view lies in its base as eager has it
        self.binds: tuple[Binding, ...] = ()  # what the node being lowered binds
        self.ranges = IndexRanges(shape_env)
        self._sizes: dict[Expr, Expr] = {}
        self._shapes: dict[tuple[Any, ...], Shape] = {}
        self._buffers = 0
        self._indirect: dict[Scalar, Symbol] = {}
        self._before: dict[Buffer, Shape] = {}  # sizes of what zeros lie behind
        self._bound: dict[Symbol, Scalar] = {}

    # -- sizes --------------------------------------------------------------------------------------------------------
    def size(self, value: Any) -> Expr:
        """A size, stride, offset or number of the graph as a simplified expression."""
        if type(value) is int:
            return Integer(value)
        e = value if isinstance(value, Expr) else self.shape_env.expr_of(value)
        found = self._sizes.get(e)
        if found is None:
            found = self._sizes[e] = self.shape_env.simplify(e)
        return found

    def sizes(self, values: Iterable[Any]) -> Shape:
        key = tuple(values)
        try:
            found = self._shapes.get(key)
        except TypeError:  # symbolic integers are not hashable
            return tuple([self.size(v) for v in key])
        if found is None:
            found = tuple([self.size(v) for v in key])
            if all(type(v) is int for v in key):
                self._shapes[key] = found
        return found

    def shape_of(self, fake: torch.Tensor) -> Shape:
        return self.sizes(fake.shape)

    def strides_of(self, fake: torch.Tensor) -> Shape:
        return self.sizes(fake.stride())

    def known(self, condition: Expr) -> bool:
        """True if `condition` holds for all sizes in range."""
        return self.shape_env.statically_known(condition) is True

    def same(self, a: Expr, b: Expr) -> bool:
        return a is b or (a - b).as_int() == 0 or self.known(a.eq(b))

    # -- buffers ------------------------------------------------------------------------------------------------------
    def buffer(self, dtype: torch.dtype, shape: Shape, strides: Shape, device: torch.device, role: str) -> Buffer:
        self._buffers += 1
        return Buffer(f"buf{self._buffers - 1}", dtype, shape, strides, device, role)

    def temporary(self, dtype: torch.dtype, shape: Shape, device: torch.device, strides: Shape | None = None) -> View:
        buffer = self.buffer(dtype, shape, strides or contiguous_strides(shape), device, "temporary")
        return whole(buffer)

    def constant(self, value: torch.Tensor) -> Tensor:
        """A tensor known when compiling."""
        shape, strides = self.sizes(value.shape), self.sizes(value.stride())
        buffer = self.buffer(value.dtype, shape, strides, value.device, "constant")
        buffer.value = value
        self.constants.append(buffer)
        return Tensor(self, value.dtype, shape, view=whole(buffer))

    # -- elements -----------------------------------------------------------------------------------------------------
    def load(self, view: View, index: Index) -> Scalar:
        flat = view.offset
        for position, stride in zip(index, view.strides):
            if position is not ZERO:
                flat = flat + position * stride
        flat = self.ranges.simplify(flat)
        return load(view.buffer, flat, self.bindings(flat))

    def bindings(self, e: Expr) -> tuple[tuple[Symbol, Scalar], ...]:
        """The indirect symbols of an index with their values."""
        if not self._bound:
            return ()
        used = [s for s in e.free if s in self._bound]
        return tuple([(s, self._bound[s]) for s in sorted(used, key=lambda s: int(s.name[1:]))])

    def indirect(self, value: Scalar) -> Symbol:
        """A symbol that stands for an integer scalar in index expressions."""
        found = self._indirect.get(value)
        if found is None:
            found = symbol(f"j{len(self._indirect)}")
            self._indirect[value] = found
            self._bound[found] = value
        return found

    def number(self, e: Expr, dtype: torch.dtype = torch.int64) -> Scalar:
        """The value of an index expression, which may use indirect symbols."""
        e = self.ranges.simplify(e)
        if self._bound and any(s in self._bound for s in e.free):
            return cast(self._arithmetic(e), dtype)
        return index_value(e, dtype)

    def _arithmetic(self, e: Expr) -> Scalar:
        """An integer expression written out with scalar operators."""
        bound = self._bound.get(e) if isinstance(e, Symbol) else None
        if bound is not None:
            return cast(bound, torch.int64)
        if not any(s in self._bound for s in e.free):
            return index_value(e)
        parts = [self._arithmetic(a) for a in e.args]
        match e:
            case sym.Sum():
                total: Scalar = const(e.const, torch.int64)
                for mono, coef in e.terms:
                    total = apply("add", total, apply("mul", self._arithmetic(mono), const(coef, torch.int64)))
                return total
            case sym.Product() | sym.Factored():
                return _fold("mul", parts)
            case sym.FloorDiv():
                return _fold("floordiv", parts)
            case sym.Mod():
                return _fold("remainder", parts)
            case sym.Min():
                return _fold("minimum", parts)
            case sym.Max():
                return _fold("maximum", parts)
            case _:
                raise NotImplementedError(f"index arithmetic on {e}")

    # -- emission -----------------------------------------------------------------------------------------------------
    def axes(self, shape: Sequence[Expr], prefix: str = "i") -> tuple[tuple[Axis, ...], list[Expr]]:
        """The loops over `shape` and the index of their point; dimensions of size 1 need no loop."""
        axes: list[Axis] = []
        index: list[Expr] = []
        for size in shape:
            if size is ONE:
                index.append(ZERO)
                continue
            position = symbol(f"{prefix}{len(axes)}")
            axes.append(Axis(position, size))
            index.append(position)
        return tuple(axes), index

    def realize(self, t: Tensor) -> View:
        """Where the elements of `t` lie; emits the loop that computes them if they are not in memory yet."""
        if t.view is not None:
            return t.view
        make = t.materialize or t.rebase
        t.view = make() if make is not None else self.store(t, self.layout(t))
        return t.view

    def layout(self, t: Tensor) -> Shape | None:
        """The strides eager gives this tensor if they are those of a dense tensor, else None (row-major)."""
        strides = None if t.fake is None else self.strides_of(t.fake)
        strides = strides if strides is not None and self._dense(t.shape, strides) else None
        if not t.row_bytes or self.exact_layout:
            return strides
        return aligned_strides(t.shape, strides or contiguous_strides(t.shape), t.dtype.itemsize, t.row_bytes)

    def lies_by_rows(self, t: Tensor) -> bool:
        """Whether the tensor lies, or is to lie, in memory row by row."""
        strides = t.view.strides if t.view is not None else self.strides_of(t.fake) if t.fake is not None else None
        return strides is None or strides == contiguous_strides(t.shape)

    def _dense(self, shape: Shape, strides: Shape) -> bool:
        contiguous = contiguous_strides(shape)
        if strides == contiguous:
            return True
        dims = [(n, s) for n, s in zip(shape, strides) if n is not ONE]
        step: Expr = ONE
        while dims:
            found = next((d for d in dims if d[1] is step), None)
            if found is None:
                return False
            dims.remove(found)
            step = step * found[0]
        return True

    def store(self, t: Tensor, strides: Shape | None = None) -> View:
        """A new buffer with the elements of `t`."""
        if t.zeros and not self.exact_layout and strides in (None, self._rows(t, t.shape)):
            return self._store_before_zeros(t)
        view = self.temporary(t.dtype, t.shape, t.device, strides)
        self.store_into(view, t.computed_at, t.origin)
        return view

    def _store_before_zeros(self, t: Tensor) -> View:
        """A new row-major buffer with the elements of `t` and zeros behind some dimensions."""
        extents = tuple([n + t.zeros.get(d, 0) for d, n in enumerate(t.shape)])
        view = self.temporary(t.dtype, extents, t.device, self._rows(t, extents))

        def at(index: Index) -> Scalar:
            value = t.computed_at(index)
            for d in t.zeros:  # a `where` evaluates only its chosen argument, so no load is out of range
                inside = apply("lt", self.number(index[d]), self.number(t.shape[d]))
                value = where(inside, value, const(0, t.dtype))
            return value

        self.store_into(view, at, t.origin)
        self._before[view.buffer] = t.shape
        return View(view.buffer, t.shape, view.strides, ZERO, t.dtype)

    def _rows(self, t: Tensor, shape: Shape) -> Shape:
        """Row-major strides for `shape`, its rows aligned as `t` wants them."""
        return aligned_strides(shape, contiguous_strides(shape), t.dtype.itemsize, t.row_bytes)

    def with_zeros(self, view: View) -> View:
        """The view, as far as the zeros behind it go: behind the dimensions of which it has the whole."""
        buffer, shape = view.buffer, self._before.get(view.buffer)
        if shape is None or view.offset is not ZERO:
            return view
        wide = {(n, step): all_of for n, step, all_of in zip(shape, buffer.strides, buffer.shape)}
        extents = [wide.get((n, step), n) for n, step in zip(view.shape, view.strides)]
        return View(buffer, tuple(extents), view.strides, view.offset, view.dtype)

    def store_into(self, view: View, at: At, origin: Origin) -> None:
        axes, index = self.axes(view.shape)
        with self.ranges.over(axes):
            value = at(index)
            flat = view.offset
            for position, stride in zip(index, view.strides):
                flat = flat + position * stride
        whole = [(axes, flat, value)]  # on a GPU each thread chooses by itself
        parts = seams.parts(axes, flat, moves.moved(value)) if self.device.type == "cpu" else whole
        for ranged, place, part in parts:
            self.computations.append(Pointwise(view.buffer, ranged, place, part, origin=origin, part=len(parts) > 1))

    device = torch.device("cpu")  # of the call that is being lowered

    # -- tensors ------------------------------------------------------------------------------------------------------
    def pointwise(self, dtype: torch.dtype, shape: Shape, at: At, weight: int) -> Tensor:
        """A tensor computed by `at`; one that is dear is kept even for a single reader."""
        if weight > _INLINE_LIMIT:
            return self.kept(dtype, shape, at, weight)
        return Tensor(self, dtype, shape, at, weight=weight)

    def kept(self, dtype: torch.dtype, shape: Shape, at: At, weight: int = 0) -> Tensor:
        """A tensor that is put in memory whoever reads it. `weight`: what counts for those that read it, which need only
        load it."""
        t = Tensor(self, dtype, shape, at, weight=weight)
        t.materialize = lambda: self.store(t, self.layout(t))
        return t

    def for_broadcast(self, t: Tensor, out_shape: Shape) -> Tensor:
        """`t`, marked to be kept if it would be computed anew along broadcast dimensions."""
        if t.view is None and t.weight > _BROADCAST_LIMIT and t.shape != out_shape:
            t.uses = max(t.uses, 2)
        return t

    def reduce(
        self, x: Tensor, dims: Sequence[int], op: str, dtype: torch.dtype, accumulate: torch.dtype | None = None,
    ) -> Tensor:  # fmt: skip
        """`x` reduced over `dims`, which the result does not have."""
        kept = [d for d in range(len(x.shape)) if d not in dims]
        shape = tuple([x.shape[d] for d in kept])
        accumulated = accumulate or opmath(x.dtype)

        def index_of(outer: Index, inner: Index) -> list[Expr]:
            index: list[Expr] = [ZERO] * len(x.shape)
            for d, e in zip(kept, outer):
                index[d] = e
            for d, e in zip(dims, inner):
                index[d] = e
            return index

        if all(x.shape[d] is ONE for d in dims):
            return self._trivial_reduction(x, op, dtype, shape, index_of, accumulated)
        t = Tensor(self, dtype, shape, weight=_INLINE_LIMIT)
        t.materialize = lambda: self._emit_reduction(t, x, dims, op, accumulated, index_of)
        return t

    def _trivial_reduction(
        self,
        x: Tensor,
        op: str,
        dtype: torch.dtype,
        shape: Shape,
        index_of: Callable[[Index, Index], Index],
        acc: torch.dtype,
    ) -> Tensor:
        """A reduction over dimensions of size 1."""
        if op in ("argmax", "argmin"):
            return Tensor(self, dtype, shape, lambda index: const(0, torch.int64))
        single = [ZERO] * (len(x.shape) - len(shape))
        if op in ("any", "all"):
            return Tensor(self, dtype, shape, lambda i: cast(x.at(index_of(i, single)), torch.bool), weight=x.weight)
        final = opmath(dtype)

        def at(index: Index) -> Scalar:
            alone = cast(x.math_at(index_of(index, single)), acc)
            if op == "sum" and acc.is_floating_point:
                alone = apply("add", alone, const(0.0, acc))  # a sum of negative zeros is zero
            return cast(alone, final)

        return Tensor(self, dtype, shape, at, weight=x.weight)

    def _emit_reduction(
        self,
        t: Tensor,
        x: Tensor,
        dims: Sequence[int],
        op: str,
        acc: torch.dtype,
        index_of: Callable[[Index, Index], Index],
    ) -> View:
        view = self.temporary(t.dtype, t.shape, t.device, self.layout(t))

        def target(outer: Index) -> Expr:
            return sum((e * step for e, step in zip(outer, view.strides)), view.offset)

        reduced = [x.shape[d] for d in dims]
        self.fold_into(view, t.shape, reduced, op, acc, lambda i, r: x.math_at(index_of(i, r)), target, t.origin)
        return view

    def fold_into(
        self,
        out: View,
        shape: Shape,
        reduced: Sequence[Expr],
        op: str,
        acc: torch.dtype,
        at: Callable[[Index, Index], Scalar],
        target: Callable[[Index], Expr],
        origin: Origin,
    ) -> None:
        """For each point of `shape`: store `at(point, r)` folded over the points `r` of `reduced` at the flat position
        `target(point)`."""
        axes, outer = self.axes(shape)
        reduce_axes, inner = self.axes(reduced, "r")
        with self.ranges.over((*axes, *reduce_axes)):
            value = at(outer, inner)
            flat = self.ranges.simplify(target(outer))
        if op in ("any", "all"):
            value, acc = cast(value, torch.bool), torch.bool
        elif op not in ("argmax", "argmin"):
            value = cast(value, acc)
        else:
            acc = value.dtype
        single = sum_of_single_term(value, reduce_axes) if op == "sum" else None
        if single is not None:
            self.computations.append(Pointwise(out.buffer, axes, flat, cast(single, out.buffer.dtype), origin=origin))
            return
        self.computations.append(Reduction(out.buffer, axes, reduce_axes, op, flat, value, acc, origin))

    def scan_into(
        self, out: View, strides: Shape, shape: Shape, dim: int, op: str, acc: torch.dtype, at: At, origin: Origin
    ) -> None:
        """For each point of `shape`: store `at` folded along a dimension up to the point, where `strides` say."""
        axes, index = self.axes([*shape[:dim], *shape[dim + 1 :]])
        axis = Axis(symbol(f"i{len(axes)}"), shape[dim])
        point = [*index[:dim], axis.symbol, *index[dim:]]
        with self.ranges.over((*axes, axis)):
            value = cast(at(point), acc)
            flat = self.ranges.simplify(sum((e * step for e, step in zip(point, strides)), out.offset))
        self.computations.append(Scan(out.buffer, axes, axis, op, flat, value, acc, origin))

    def scatter(self, out: View, shape: Shape, at: At, target: Callable[[Index], Expr], accumulate: str | None) -> None:
        """For each point of `shape`: store (or accumulate) `at(point)` at the flat position `target(point)`."""
        axes, index = self.axes(shape)
        with self.ranges.over(axes):
            value = cast(at(index), out.dtype)
            flat = self.ranges.simplify(target(index))
        self.computations.append(Pointwise(out.buffer, axes, flat, value, accumulate, self.bindings(flat), self.origin))

    # -- externs ------------------------------------------------------------------------------------------------------
    def argument(self, value: Any) -> Any:
        """An argument of an extern call: views for tensors, expressions for symbolic numbers."""
        if isinstance(value, Tensor):
            return self.realize_readable(value)
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.size(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self.argument(v) for v in value)
        return value

    def realize_readable(self, t: Tensor) -> View:
        """Where elements equal to those of `t` may be read, in the layout eager gives `t`."""
        if t.view is None and t.source is not None and self.may_lie_as(t.source, t):
            source = self.realize_readable(t.source)
            if t.fake is None or self.same_layout(source.strides, t):
                return source
        return self.realize(t)

    def may_lie_as(self, source: Tensor, t: Tensor) -> bool:
        """Whether elements that are not in memory yet would come to lie as `t` does: those that lie are looked at."""
        if source.view is not None or source.fake is None or t.fake is None:
            return True
        return self.same_layout(self.strides_of(source.fake), t)

    def same_layout(self, strides: Shape, t: Tensor) -> bool:
        return all(a is b or n is ONE for n, a, b in zip(t.shape, strides, self.strides_of(t.fake)))

    def extern(
        self, target: Any, args: Sequence[Any], kwargs: dict[str, Any], fakes: Sequence[Any], out_variant: Any = None,
        row_bytes: int = 0, columns: Expr | None = None,
    ) -> list[Tensor | None]:  # fmt: skip
        """Emit a call; one tensor for each fake of `fakes`. `row_bytes`: how rows of results are aligned. `columns`: how many
        are computed."""
        given = tuple([self.argument(a) for a in args])
        named = {k: self.argument(v) for k, v in kwargs.items()}
        results: list[Tensor | None] = []
        for fake in fakes:
            results.append(self._extern_result(fake, row_bytes, columns) if isinstance(fake, torch.Tensor) else None)
        outs = tuple([None if t is None or t.view is None else t.view.buffer for t in results])
        self.computations.append(
            Extern(target, given, named, outs, out_variant=out_variant, defines=self.binds, origin=self.origin)
        )
        return results

    def _extern_result(self, fake: torch.Tensor, row_bytes: int, columns: Expr | None) -> Tensor:
        shape = self.shape_of(fake)
        strides = aligned_strides(shape, self.strides_of(fake), fake.dtype.itemsize, row_bytes)
        extents = shape if columns is None else (*shape[:-1], columns)
        buffer = self.buffer(fake.dtype, extents, strides, fake.device, "extern")
        t = Tensor(self, fake.dtype, shape, view=View(buffer, shape, strides, ZERO, fake.dtype))
        t.fake = fake
        return t


def _fold(op: str, parts: Sequence[Scalar]) -> Scalar:
    result = parts[0]
    for part in parts[1:]:
        result = apply(op, result, part)
    return result
