"""Check that a loop program obeys the rules that its types cannot express.

In:     a `LoopProgram`, and the name of the pass that made it.
Out:    nothing, or `VerifyError` that shows the offending computation in its printed form.
Holds:  the interpreter and the code generators assume what is checked here and check nothing again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, assert_never

import torch

from pliant.errors import VerifyError
from pliant.ir.loops import Axis, Buffer, Computation, Extern, LoopProgram, Pointwise, Reduction, Scan, View
from pliant.ir.ops import OPS
from pliant.ir.printer import computation_text, scalar_text
from pliant.ir.scalar import Apply, Load, Scalar, walk
from pliant.symbolic.expr import Expr, Symbol

REDUCTIONS = frozenset(("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"))
SCANS = frozenset(("sum", "prod"))
SCATTERS = frozenset(("sum", "max", "min"))
_HALF = (torch.bfloat16, torch.float16)


def verify(program: LoopProgram, pass_name: str = "lower") -> None:
    """Raise `VerifyError` at the first broken rule."""
    checker = _Checker(program, pass_name)
    for position, computation in enumerate(program.computations):
        checker.position = position
        checker.check(computation)
    checker.position = len(program.computations)
    checker.check_outputs(program)


class _Checker:
    def __init__(self, program: LoopProgram, pass_name: str) -> None:
        self.pass_name = pass_name
        self.position = 0
        self.current: Computation | None = None
        self.inputs = {b for b in program.inputs if isinstance(b, Buffer)}
        self.written: set[Buffer] = {*self.inputs, *program.constants}
        self.updated: set[Buffer] = set()
        self.symbols: set[Symbol] = {s for s in program.inputs if isinstance(s, Symbol)}
        for buffer in self.written:
            self.symbols.update(_symbols((*buffer.shape, *buffer.strides)))

    def fail(self, what: str) -> None:
        node = None if self.current is None else computation_text(self.current)
        where = None if self.current is None else self.current.origin.text
        raise VerifyError(what, pass_name=self.pass_name, node=node, where=where)

    def check(self, c: Computation) -> None:
        self.current = c
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

    # -- computations -------------------------------------------------------------------------------------------------
    def _pointwise(self, c: Pointwise) -> None:
        inner = self._axes(c.axes)
        self._scalar(c.value, inner)
        self._dtype("the stored value", c.value.dtype, c.out.dtype)
        self._indirect(c.indirect, inner)
        self._index(c.index, inner | {symbol for symbol, _ in c.indirect})
        if c.accumulate is not None and c.accumulate not in SCATTERS:
            self.fail(f"unknown accumulation `{c.accumulate}`")
        self._write(c.out, again=c.accumulate is not None or c.indirect != () or c.part, part=c.part)

    def _reduction(self, c: Reduction) -> None:
        outer = self._axes(c.axes)
        inner = self._axes((*c.axes, *c.reduce_axes))
        self._scalar(c.value, inner)
        self._index(c.index, outer)
        if c.op not in REDUCTIONS:
            self.fail(f"unknown reduction `{c.op}`")
        if c.op in ("argmax", "argmin"):
            self._dtype("an index", torch.int64, c.out.dtype)
        elif c.op in ("any", "all"):
            self._dtype("a condition", c.value.dtype, torch.bool)
        else:
            self._dtype("the reduced value", c.value.dtype, c.accumulate_dtype)
        self._write(c.out, again=False)

    def _scan(self, c: Scan) -> None:
        inner = self._axes((*c.axes, c.axis))
        self._scalar(c.value, inner)
        self._index(c.index, inner)
        if c.op not in SCANS:
            self.fail(f"unknown scan `{c.op}`")
        self._dtype("the scanned value", c.value.dtype, c.accumulate_dtype)
        self._write(c.out, again=False)

    def _extern(self, c: Extern) -> None:
        for view in _views((c.args, tuple(c.kwargs.values()))):
            self._read(view.buffer)
            self._known((view.offset, *view.shape, *view.strides), set())
        self.symbols.update(binding.symbol for binding in c.defines)
        for out in c.outs:
            if out is not None:
                self._known((*out.shape, *out.strides), set())
                self._write(out, again=out in c.mutates)
        for buffer in c.mutates:
            self._read(buffer)

    def check_outputs(self, program: LoopProgram) -> None:
        self.current = None
        for output in program.outputs:
            if isinstance(output, View):
                if output.buffer not in self.written:
                    self.fail(f"output {output.buffer.name} is never written")
                self._known((output.offset, *output.shape, *output.strides), set())
            elif isinstance(output, Expr):
                self._known((output,), set())

    # -- parts --------------------------------------------------------------------------------------------------------
    def _axes(self, axes: Sequence[Axis]) -> set[Symbol]:
        symbols = {axis.symbol for axis in axes}
        if len(symbols) < len(axes):
            self.fail("two axes share a symbol")
        if clash := symbols & self.symbols:
            self.fail(f"axis {min(map(str, clash))} is also a size symbol")
        self._known([axis.extent for axis in axes], set())
        return symbols

    def _scalar(self, x: Scalar, axes: set[Symbol]) -> None:
        for node in walk(x):
            match node:
                case Load():
                    self._read(node.buffer)
                    self._dtype("a load", node.dtype, node.buffer.dtype)
                    self._indirect(node.indirect, axes)
                    self._index(node.index, axes | {symbol for symbol, _ in node.indirect})
                case Apply():
                    self._apply(node)
                case _:
                    self._known((getattr(node, "expr", None),), axes)

    def _apply(self, x: Apply) -> None:
        row = OPS.get(x.op)
        if row is None:
            self.fail(f"unknown operator `{x.op}`")
            return
        if len(x.args) != row.arity:
            self.fail(f"`{x.op}` takes {row.arity} arguments: {scalar_text(x)}")
        if x.op == "cast":
            return
        compared = x.args[1:] if x.op == "where" else x.args
        if x.op == "where":
            self._dtype("the condition of `where`", x.args[0].dtype, torch.bool)
        if len({a.dtype for a in compared}) > 1:
            self.fail(f"arguments of `{x.op}` have different dtypes: {scalar_text(x)}")
        if x.op != "where" and (compared[0].dtype in _HALF or row.c_template(compared[0].dtype) is None):
            self.fail(f"`{x.op}` is not defined for {compared[0].dtype}: {scalar_text(x)}")
        expected = {"bool": torch.bool, "second": x.args[-1].dtype}.get(row.result, x.args[0].dtype)
        self._dtype(f"the result of `{x.op}`", x.dtype, expected)

    def _indirect(self, indirect: Iterable[tuple[Symbol, Scalar]], axes: set[Symbol]) -> None:
        for symbol, value in indirect:
            if value.dtype.is_floating_point or value.dtype is torch.bool:
                self.fail(f"{symbol} is bound to {scalar_text(value)}, which is no integer")
            self._scalar(value, axes)

    def _index(self, index: Expr, allowed: set[Symbol]) -> None:
        self._known((index,), allowed)

    def _known(self, exprs: Iterable[Expr | None], allowed: set[Symbol]) -> None:
        for e in exprs:
            if e is None:
                continue
            for symbol in e.free:
                if symbol not in allowed and symbol not in self.symbols:
                    self.fail(f"{symbol} in `{e}` is not defined here")

    def _dtype(self, what: str, actual: torch.dtype, expected: torch.dtype) -> None:
        if actual is not expected:
            self.fail(f"{what} has dtype {actual}, expected {expected}")

    def _read(self, buffer: Buffer) -> None:
        if buffer not in self.written:
            self.fail(f"{buffer.name} is read before it is written")
        if buffer in self.updated:
            self.fail(f"{buffer.name} is read after it was updated in place")

    def _write(self, out: Buffer, again: bool, part: bool = False) -> None:
        if out in self.inputs:
            self.updated.update(() if part else (out,))
        elif out in self.written and not again:
            self.fail(f"{out.name} is written twice")
        self.written.add(out)


def _symbols(exprs: Iterable[Expr]) -> Iterator[Symbol]:
    for e in exprs:
        yield from e.free


def _views(tree: Any) -> Iterator[View]:
    match tree:
        case View():
            yield tree
        case list() | tuple():
            for item in tree:
                yield from _views(item)
        case dict():
            yield from _views(list(tree.values()))
