"""Large products whose rows lie apart and are results too: made in blocks of rows, which lie one after the other in one
place.

In:     a `LoopProgram`.
Out:    the program with `part_k = product of block k` and `result[rows of block k] = ... part_k ...` in place of such a
        product and the loop that makes the result of it; other loops read the result.
Holds:  each row is in one block. Columns to spare, which make a product fast, cost the memory of a block and not that of
        the whole result: logits of a language model are the usual case.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import torch

from pliant.ir.loops import Axis, Buffer, Computation, Extern, LoopProgram, Pointwise, View
from pliant.ir.scalar import Scalar, index_expressions, load, loads, replace
from pliant.ir.scalar import substitute as substitute_scalar
from pliant.lowering.tensors import numel
from pliant.records import dataclass
from pliant.schedule.align import merge_axes
from pliant.schedule.dependencies import access
from pliant.schedule.sizes import Sizes
from pliant.symbolic.expr import ZERO, Expr, from_terms, symbol
from pliant.symbolic.traverse import substitute

BLOCKS = 4  # more would save an eighth of the result at most, and a call each
LARGE = 1 << 24  # bytes of a product
_PRODUCTS = (torch.ops.aten.mm.out, torch.ops.aten.addmm.out)  # their last arguments are the factors


@dataclass(frozen=True, slots=True)
class _Copied:
    """A product, and the loop that makes a result of each of its elements, as if it ran over `row` and `column`."""

    product: Extern
    loop: Pointwise
    row: Axis
    column: Axis
    index: Expr
    value: Scalar

    @property
    def out(self) -> Buffer:
        (out,) = self.product.outs
        assert out is not None
        return out

    @property
    def step(self) -> int:
        """Elements from a row of the product to the next one."""
        return self.out.strides[0].as_int() or 0


def in_blocks_of_rows(program: LoopProgram) -> LoopProgram:
    """The program with large products that are copied to results made in blocks."""
    sizes = Sizes(program)
    for product in program.computations:
        if isinstance(product, Extern) and product.out_variant in _PRODUCTS:
            (out,) = product.outs
            if out is not None and sizes.bytes(out) >= LARGE:
                program = _in_blocks(program, product, out)
    return program


def _in_blocks(program: LoopProgram, product: Extern, out: Buffer) -> LoopProgram:
    results = {o.buffer for o in program.outputs if isinstance(o, View)} - set(program.inputs)
    if out in results:
        return program
    readers = [one for one in program.computations if out in access(one).reads]
    for loop in readers:
        if isinstance(loop, Pointwise) and loop.out in results and (copied := _by_rows(product, loop, out)) is not None:
            changed = _readers_of_the_result(copied, [one for one in readers if one is not loop])
            if changed is not None and _is_ready(program, copied):
                changed |= {id(product): list(_blocks(copied)), id(loop): []}
                computations = [new for one in program.computations for new in changed.get(id(one), [one])]
                return dataclasses.replace(program, computations=computations)
    return program


def _by_rows(product: Extern, loop: Pointwise, out: Buffer) -> _Copied | None:
    """If the product has columns to spare, and each point of the loop reads one element of it."""
    step = out.strides[0].as_int()
    if loop.accumulate or loop.indirect or loop.part or step is None or numel(loop.out.shape) is out.shape[0] * step:
        return None
    axes, place = merge_axes(loop.axes, [loop.index, *index_expressions(loop.value)], frozenset())
    if len(axes) != 2:
        return None
    value, index = substitute_scalar(loop.value, place), substitute(loop.index, place)
    places = {x.index for x in loads(value) if x.buffer is out}
    for row, column in itertools.permutations(axes):
        if row.extent is out.shape[0] and places == {row.symbol * step + column.symbol}:
            return _Copied(product, loop, row, column, index, value)
    return None


def _is_ready(program: LoopProgram, copied: _Copied) -> bool:
    """Whether the loop could run where the product is computed."""
    steps = program.computations
    between = steps[steps.index(copied.product) + 1 : steps.index(copied.loop)]
    return all(access(one).writes.isdisjoint(access(copied.loop).reads) for one in between)


# ---- other loops read the result


def _readers_of_the_result(copied: _Copied, readers: list[Computation]) -> dict[int, list[Computation]] | None:
    """By the identities of these loops: loops that read what they compute of the product from the result. None: some of it
    is not what the result holds."""
    changed: dict[int, list[Computation]] = {}
    for one in readers:
        if isinstance(one, Extern):
            return None
        value = replace(one.value, {})  # equal parts are one object again
        found = dataclasses.replace(one, value=replace(value, _held(copied, value)))
        if copied.out in access(found).reads:
            return None
        changed[id(one)] = [found]
    return changed


def _held(copied: _Copied, value: Scalar) -> dict[Scalar, Scalar]:
    """What of a loop's value is an element of the result, and the loads of these elements."""
    found: dict[Scalar, Scalar] = {}
    for x in loads(value):
        if x.buffer is copied.out:
            row = from_terms(x.index.const // copied.step, {m: c // copied.step for m, c in x.index.terms if c % copied.step == 0})
            place = {copied.row.symbol: row, copied.column.symbol: x.index - row * copied.step}
            computed = substitute_scalar(copied.value, place, chosen=x.indirect)
            found[computed] = load(copied.loop.out, substitute(copied.index, place), x.indirect)
    return found


# ---- the blocks


def _blocks(copied: _Copied) -> Iterator[Computation]:
    *bias, left, right = copied.product.args
    rows, out = copied.row.extent, copied.out
    for k in range(BLOCKS):
        first, end = rows * k // BLOCKS, rows * (k + 1) // BLOCKS
        here = Axis(symbol(f"{copied.row.symbol.name}_in"), end - first)
        part = dataclasses.replace(out, name=f"{out.name}_{k}", shape=(here.extent, out.shape[1]))
        factor = dataclasses.replace(
            left, shape=(here.extent, left.shape[1]), offset=left.offset + first * left.strides[0]
        )
        yield dataclasses.replace(copied.product, args=(*bias, factor, right), outs=(part,))
        place = {copied.row.symbol: first + here.symbol}
        yield dataclasses.replace(
            copied.loop,
            axes=(here, copied.column),
            index=substitute(copied.index, place),
            value=substitute_scalar(copied.value, place, moved={out: (part, ZERO - first * copied.step)}),
            part=True,
        )
