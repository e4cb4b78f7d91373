"""What the elements of small tensors of integers are, where inputs, sizes and constants tell them.

In:     a fake tensor, whose node says how the graph computes it.
Out:    `Elements.number`, `Elements.flat`: its elements as numbers, constant or symbolic, as if the caller had passed
        them; `Elements.behind`: what an unbacked symbol is that the graph read from such a tensor. None where only
        running the graph tells.
Holds:  nothing is asked, and no guard added, before the program needs a number to go on: until then the elements are
        data. Tensors that were written are data.
Reads on: `element_rules.py` (how operators act on elements).
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.capture.numbers.element_rules import (
    HOLDS,
    MOST_ELEMENTS,
    READABLE,
    RULES,
    SUMMED,
    Grid,
    Unknown,
    as_python,
    as_tensor_of,
    by_type,
    grid,
)
from pliant.capture.numbers.node_values import Constants
from pliant.capture.numbers.ranges import end_of_range, ends_of_range
from pliant.capture.structures import is_node, is_several, several
from pliant.capture.value_kinds import concrete, is_symbolic, varying
from pliant.graph.contracts import known_name
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.unbacked import is_unbacked, written
from pliant.graph.writes import is_written
from pliant.symbolic.expr import Expr, Symbol
from pliant.torch_adapter import DisableTorchFunction, below_python_dispatch

if TYPE_CHECKING:
    from pliant.capture.outside.inputs import Inputs
    from pliant.graph.symbol_nodes import SymbolNodes

FIRST = "first"  # of a node: what the first element of its result is, where the others are not known
_FROM_FRONT = frozenset(("getitem", "__getitem__", "select"))
_LONGEST = 256  # calls between an input and what is asked for


class Elements:
    """The elements of tensors of one capture, worked out where they are asked for."""

    def __init__(self, inputs: Inputs, symbols: SymbolNodes) -> None:
        self.inputs = inputs
        self.symbols = symbols
        self.constants = Constants()
        self._found: dict[int, tuple[FakeTensor, Grid]] = {}

    def forget(self, tensor: FakeTensor | None = None) -> None:
        """Let go of what is known: of a tensor that is another one from here on, or of all."""
        if tensor is None:
            self._found.clear()
            self.constants.forget_all()
        else:
            self._found.pop(id(tensor), None)
            self.constants.forget(tensor)

    def is_known(self, fake: FakeTensor) -> bool:
        """Whether a tensor without dimensions stands for a number that is known, be it one that varies."""
        return self.constants.of(fake) is not None or self.number(fake) is not None

    def may_be_known(self, fake: FakeTensor) -> bool:
        """Whether there is anything to be found out of its elements."""
        if self.constants.is_noted(fake) or all(not is_symbolic(size) and size == 1 for size in fake.size_):
            return True
        return not fake.dtype_.is_floating_point and (_first_of(fake) is not None or self._is_known(fake, True, {}))

    def number(self, fake: Any, ask: bool = True) -> Any:
        """The only element; None if it is not known. `ask`: elements of inputs, too, which adds guards."""
        single = is_fake(fake) and all(not is_symbolic(size) and size == 1 for size in fake.size_)
        found = self.flat(fake, ask) if single else None
        return None if found is None else found[0]

    def flat(self, fake: FakeTensor, ask: bool = True) -> list[Any] | None:
        """All elements in order, as Python numbers: those of a tensor of floats are floats."""
        if (first := _first_of(fake)) is not None:
            return [first]
        with DisableTorchFunction(), below_python_dispatch():
            try:
                return [as_python(n) for n in self._of(fake).flat()] if self._is_known(fake, ask, {}) else None
            except Unknown:
                return None

    def behind(self, symbol: Symbol) -> Expr | None:
        """What an unbacked symbol is, if it is an element, or a size that elements tell."""
        bound = self.symbols.bound(symbol)
        if bound is None:
            return None
        node: Any = bound[0]
        place = bound[1]
        item, dim = place.item, place.dim
        value: Any
        if node.target == "size":
            node, dim = node.args
        summed = SUMMED.get(known_name(node))
        if dim is None:
            value = self.number(node.args[0].meta["val"]) if node.target == "item" else None
            value = bool(concrete(value)) if varying(value) is bool else value
        elif summed is not None:
            read = summed(node)
            numbers = self.flat(read.meta["val"]) if is_node(read) else None
            value = None if numbers is None else functools.reduce(operator.add, numbers, 0)
        else:
            result = node.meta["val"] if item is None else node.meta["val"][item]
            value = self._found[id(result)][1].places.shape[dim] if self.flat(result) is not None else None
        return None if value is None else self.inputs.shape_env.expr_of(value)

    def learn_sizes(self, result: Any) -> None:
        """Sizes that data gives are these from here on, where constants alone lead to the data."""
        env = self.inputs.shape_env
        for fake in several(result):
            if not self.constants.is_noted(fake) or not any(map(is_unbacked, fake.size_)):
                continue
            made = self.constants.of(fake)
            for size, number in zip(fake.size_, () if made is None else made.shape, strict=made is not None):
                if is_unbacked(size):
                    env.facts.learn(written(size).eq(env.expr_of(number)))

    # ---- before guards: whether it can be told
    def _is_known(self, fake: FakeTensor, ask: bool, seen: dict[int, bool]) -> bool:
        if id(fake) not in seen:
            seen[id(fake)] = len(seen) < _LONGEST and self._may_be_known(fake, ask, seen)
        return seen[id(fake)]

    def _may_be_known(self, fake: FakeTensor, ask: bool, seen: dict[int, bool]) -> bool:
        if fake.dtype_ not in HOLDS or fake.device_.type not in READABLE or is_written(fake):
            return False
        if id(fake) in self._found or self.constants.of(fake) is not None:
            return True
        node = fake.node
        if node is None or not self._is_small(fake):
            return False
        if node.op == "placeholder":
            return ask and self.inputs.has_elements(fake)
        if node.op not in ("call_method", "call_function"):
            return False
        return self._is_computed(node, lambda one: self._is_known(one, ask, seen))

    def _is_computed(self, node: fx.Node, is_known: Callable[[FakeTensor], bool]) -> bool:
        if known_name(node) not in RULES:
            return False
        if ends_of_range(node) is not None:
            return True
        for one in node.all_input_nodes:
            value = one.meta.get("val")
            if is_several(value):  # of an operator with several results
                if not self._is_computed(one, is_known):
                    return False
            elif not (is_known(value) if is_fake(value) else type(value) in (int, bool, torch.SymInt)):
                return False
        return True

    def _is_small(self, fake: FakeTensor) -> bool:
        env = self.inputs.shape_env
        sizes = [env.hint(env.expr_of(size)) for size in fake.size_]
        return math.prod([1 if size is None else int(size) for size in sizes]) <= MOST_ELEMENTS

    # ---- the elements
    def _of(self, fake: FakeTensor) -> Grid:
        known = self._found.get(id(fake))
        if known is None:
            known = self._found[id(fake)] = fake, self._worked_out(fake)
        return known[1]

    def _worked_out(self, fake: FakeTensor) -> Grid:
        if (known := self.constants.of(fake)) is not None:
            return grid(known.flatten().tolist(), tuple(known.shape))
        node = fake.node
        if node is not None and node.op != "placeholder":
            return as_tensor_of(self._result(node), fake.dtype_)
        sizes = tuple(concrete(size) for size in fake.size_)
        numbers = self.inputs.elements(fake)
        if numbers is None:
            raise Unknown
        return grid(numbers, sizes)

    def _result(self, node: Any) -> Any:
        if known_name(node) == "getitem" and is_several(node.args[0].meta["val"]):
            return self._result(node.args[0])[node.args[1]]
        if (end := end_of_range(node)) is not None:
            return grid([end], ())
        args, kwargs = by_type({fx.Node: self._argument}, (tuple(node.args), dict(node.kwargs)))
        rule = RULES[known_name(node)]
        try:
            given = inspect.signature(rule).bind(node, *args, **kwargs)
        except TypeError:  # a form of the call that the row does not know
            raise Unknown from None
        return rule(*given.args, **given.kwargs)

    def _argument(self, node: fx.Node) -> Any:
        value = node.meta["val"]
        return self._of(value) if is_fake(value) else value


def _first_of(fake: FakeTensor) -> Any:
    """The number that a tensor holds as the first element of one that says what that is."""
    node = fake.node
    if node is None or node.op not in ("call_method", "call_function") or known_name(node) not in _FROM_FRONT:
        return None
    of, *index = node.args
    if not is_node(of) or FIRST not in of.meta or is_written(of.meta["val"]) or is_written(fake):
        return None
    return of.meta[FIRST] if index[-1] in (0, (0,)) and not fake.size_ else None
