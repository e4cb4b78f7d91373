"""The sizes of a program's arguments, as PyTorch's Dims.

In:     a `Program`.
Out:    `Sizes`: what is known of them, the example's, and `dynamic_shapes` of them: a size is a Dim, or derived of one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from torch.utils import _pytree as pytree

from pliant.exporting.checking import facts_of, homes_of
from pliant.exporting.program import Program
from pliant.exporting.torch_form.refusal import refused
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import keys_of
from pliant.symbolic.expr import Constant, Expr, Symbol, lit
from pliant.symbolic.facts import Facts
from pliant.symbolic.printer import to_python
from pliant.symbolic.traverse import evaluate, substitute

_MOST = 64  # the largest step of a size that is looked for


class Sizes:
    """The sizes of a program's arguments. `fakes`: by the leaf of the call."""

    def __init__(self, program: Program) -> None:
        nodes = program.placeholders
        self.program, self.env = program, program.shape_env
        self.fakes: dict[int, FakeTensor] = {one.leaf: nodes[i].meta["val"] for i, one in program.user_inputs()}  # type: ignore[misc]
        self.symbols = list(homes_of([fake.spec for fake in self.fakes.values()]))
        self.hints = {symbol: self._hint(symbol) for symbol in self.symbols}

    def _hint(self, symbol: Symbol) -> int:
        """The size that the program was captured with, if it is neither 0 nor 1, which PyTorch would fix."""
        value = int(self.env.hints[symbol])
        if value < 2:
            raise refused(
                f"the size `{self.program.names.get(symbol, symbol)}` is {value} in the example",
                "PyTorch takes sizes of 0 and 1 for fixed", "export the program with an example of larger sizes",
            )  # fmt: skip
        return value

    def known(self) -> Facts:
        """What holds of the sizes of every call."""
        found = Facts()
        for symbol in self.symbols:
            found.set_range(symbol, self.env.facts.range_of(symbol))
        for fact in facts_of(self.env):
            found.learn(fact)
        return found

    def example(self, size: Any) -> int:
        return int(evaluate(lit(size), self.hints))

    def of(self, fake: FakeTensor) -> list[Expr]:
        """Of one tensor; those that turned out to be numbers are numbers."""
        return [self.env.simplify(lit(size)) for size in keys_of(fake.size_)]

    def said(self, dim: Any, names: Sequence[str]) -> dict[str, Any]:
        """`dynamic_shapes` by parameter."""
        dims = _Dims(self, dim)
        leaves: list[Any] = [None] * self.program.form.arguments.num_leaves
        for leaf, fake in self.fakes.items():
            leaves[leaf] = {i: found for i, size in enumerate(self.of(fake)) if (found := dims.of(size)) is not None}
        args, kwargs = pytree.tree_unflatten(leaves, self.program.form.arguments)
        return dict(zip(names, [*args, *kwargs.values()], strict=True))

    def step(self, symbol: Symbol) -> tuple[int, int]:
        """(2, 1) if the size is 2*n + 1 for every n."""
        value, known = self.hints[symbol], self.known()
        if any(fact.free == {symbol} and "%" in to_python(fact) for fact in facts_of(self.env)):
            for step in range(_MOST, 1, -1):
                if known.prove_fully(((symbol - value % step) % step).eq(0)):
                    return step, value % step
        return 1, 0


class _Dims:
    """PyTorch's Dims, one for a size. `make`: their class. `roots`: those that sizes are derived of, and how the symbol is."""

    def __init__(self, sizes: Sizes, make: Any) -> None:
        self.sizes, self.make = sizes, make
        self.made: dict[Expr, Any] = {}
        self.roots: dict[Symbol, tuple[Any, int, int]] = {}

    def of(self, size: Expr) -> Any:
        """None of a size that does not vary."""
        if isinstance(size, Constant):
            return None
        if size not in self.made:
            self.made[size] = self._derived(size) or self._own(size)
        return self.made[size]

    def _own(self, size: Expr) -> Any:
        """A Dim of its own: that it is what the program says is a fact that the graph checks."""
        name = "_" + re.sub("[^0-9a-zA-Z]+", "_", to_python(size, self.sizes.program.names))
        found = self.sizes.env.facts.range_of(size)
        return self.make(f"{name}_{len(self.made)}", **_bounds(found.lo, found.hi))

    def _derived(self, size: Expr) -> Any:
        """text: 2*n + 1"""
        if len(size.free) != 1:
            return None
        (symbol,) = size.free
        root, step, first = self._root(symbol)
        of_root = substitute(size, {symbol: symbol * step + first})
        zero, one = (int(evaluate(of_root, {symbol: value})) for value in (0, 1))
        factor = one - zero
        if factor < 1 or not isinstance(symbol * factor + zero - of_root, Constant):
            return None
        return root if (factor, zero) == (1, 0) else factor * root + zero

    def _root(self, symbol: Symbol) -> tuple[Any, int, int]:
        if symbol not in self.roots:
            step, first = self.sizes.step(symbol)
            found = self.sizes.env.facts.range_of(symbol)
            name = self.sizes.program.names.get(symbol, symbol.name) + ("_" if step > 1 else "")
            bounds = _bounds(-((first - found.lo) // step), (found.hi - first) // step)
            self.roots[symbol] = self.make(name, **bounds), step, first
        return self.roots[symbol]


def _bounds(lo: float, hi: float) -> dict[str, int]:
    return {"min": max(int(lo), 0)} | ({} if math.isinf(hi) or math.isnan(hi) else {"max": int(hi)})
