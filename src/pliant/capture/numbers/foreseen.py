"""Branches on what masks and ids say: the side that is taken now is recorded, and the running graph checks that it is.

In:     a conditional jump on a number or 0-d tensor that only the graph knows.
Out:    `foreseen`: its outcome for the inputs at hand, if it is worked out from integers of inputs and a module's few floats alone,
        or by `torch.equal`, of any tensors, or by whether a factorization succeeds.
Holds:  nothing is run but the calls that lead from inputs to the condition, of `_CALLS`: they draw nothing and write
        nothing; stores into what they read are done on copies. What it says is checked, so it may be a guess.
        A call of which it does not hold runs eagerly, and no later code assumes it: the other outcome may be (a module
        is set up by its first call), and where that does not hold either, the graph breaks there. Not with `fullgraph`,
        where the program is told of the branch.
Source: speculation with a check, as in tracing compilers (Gal et al., "Trace-based just-in-time type specialization", 2009).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from pliant.bytecode.decode import Op
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.numbers.element_rules import MOST_ELEMENTS, RULES, Unknown
from pliant.capture.numbers.node_values import NodeValues
from pliant.capture.signatures import Frame, Tracer
from pliant.capture.structures import is_node, several
from pliant.capture.value_kinds import is_plain_tensor, is_symbolic, is_tensor, varying
from pliant.graph.contracts import known_name
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.unbacked import written
from pliant.graph.writes import is_written
from pliant.guards.parts import root_of
from pliant.symbolic.expr import Expr
from pliant.symbolic.traverse import evaluate
from pliant.torch_adapter import DisableTorchFunction, below_python_dispatch

_MOST_TURNS = 128  # outcomes of one branch in a trace: more are a loop's
# Those that masks are made by: they draw nothing, and write nothing.
_CALLS = frozenset(RULES) | set(
    """where masked_fill zeros ones zeros_like ones_like full_like new_zeros new_ones new_full scalar_tensor float half
    bfloat16 double abs isin bitwise_and bitwise_or bitwise_not tril triu unique nonzero argmax argmin sort
    matmul cummax index_select gather logical_xor cumprod diff max min amax amin scatter scatter_add scatter_reduce index_add
    index_fill fill zero bincount expand_as view_as type_as""".split()
)
_STORES = frozenset("__setitem__ __iadd__ __isub__ __imul__ __iand__ __ior__ __ixor__".split())


def foreseen(frame: Frame, op: Op, value: Any) -> bool | None:
    """The outcome of a test of `value`, an unbacked number or a 0-d tensor; None where the graph is to break."""
    t = frame.tracer
    if not _may_be(t, frame, op):
        return None
    told = _told(t, lambda run: run.value(value.node) if is_fake(value) else run.number(written(value)))
    return None if told is None or name_of(frame, op, told) in t.inputs.policy.outcomes else told


def foreseen_truth(t: Tracer, condition: Expr) -> bool | None:
    """The truth of what is asked of sizes and other numbers, with some that only the graph knows."""
    return _told(t, lambda run: run.number(condition)) if t.recorder.region is None else None


def _told(t: Tracer, ask: Callable[[_Run], Any]) -> bool | None:
    try:
        with torch.no_grad(), DisableTorchFunction(), below_python_dispatch():
            return bool(ask(_Run(t)))
    except (Unknown, GraphBreak, RuntimeError, IndexError):
        return None


def name_of(frame: Frame, op: Op, outcome: bool) -> str:
    """What names the branch in messages, and the outcome among those that did not hold."""
    return f"the outcome of the branch at {frame.location()} (operation {op.offset}: {outcome})"


def _may_be(t: Tracer, frame: Frame, op: Op) -> bool:
    names = [name_of(frame, op, outcome) for outcome in (False, True)]
    if not t.inputs.policy.may_break or t.inputs.policy.outcomes.issuperset(names) or t.recorder.region is not None:
        return False
    return sum(str(one) in names for one in t.shape_env.runtime_asserts) < _MOST_TURNS


class _Run(NodeValues):
    """What calls of the graph give for the inputs at hand."""

    def __init__(self, t: Tracer) -> None:
        super().__init__()
        self.t = t

    def number(self, expr: Any) -> Any:
        """A symbolic number."""
        env = self.t.shape_env
        found = {symbol: self._symbol(symbol) for symbol in env.unbacked_symbols(expr)}
        return evaluate(expr, {**env.hints, **found})

    def _symbol(self, symbol: Any) -> Any:
        bound = self.t.recorder.symbols.bound(symbol)
        if bound is None:
            raise Unknown
        node, place = bound
        if place.dim is not None:  # of the results of `nonzero`
            made = self.value(node)
            return (made if place.item is None else made[place.item]).shape[place.dim]
        if known_name(node) == "equal":
            return _Compared(self.t).are_equal(node)
        if node.target != "item" or place.item is not None:
            raise Unknown
        read: Any = node.args[0]
        return self.value(read).item()

    def run(self, node: fx.Node) -> Any:
        return self._after_writes(node, self._worked_out(node))

    def _after_writes(self, node: fx.Node, value: Any) -> Any:
        """A copy in which the stores into the tensor are done, if there were any."""
        if not is_tensor(value) or not is_written(node.meta["val"]):
            return value
        copy = value.clone()

        def now(one: fx.Node) -> Any:
            return copy if one is node else self.value(one)

        for user in node.users:
            name = known_name(user)
            if user.args[:1] != (node,) or not (name in _STORES or name.endswith("_") and not name.endswith("__")):
                continue
            if user.op != "call_method" or name not in _STORES and name[:-1] not in _CALLS:
                raise Unknown
            args, kwargs = fx.node.map_arg((user.args[1:], user.kwargs), now)
            getattr(copy, name)(*args, **kwargs)
        return copy

    def _worked_out(self, node: fx.Node) -> Any:
        known: Any = node.meta.get("val")
        if varying(known) in (int, bool):
            return self.number(written(known))
        if node.op == "placeholder":
            return self._input(known)
        if _tells_of_failure(node):
            return torch.zeros(self._sizes(node), dtype=known.dtype_, device=known.device_)
        if known_name(node) not in _CALLS:
            raise Unknown
        return self.called(node)

    def _sizes(self, node: Any) -> list[Any]:
        made = node.meta.get("val") if is_node(node) else None
        if not is_fake(made):
            raise Unknown
        return [self.number(self.t.shape_env.expr_of(size)) for size in made.size_]

    def _input(self, fake: Any) -> torch.Tensor:
        inputs = self.t.inputs
        example = inputs.example_of(fake) if is_fake(fake) else None
        if example is None or not is_plain_tensor(example):
            raise Unknown
        if not self._may_decide(fake, example):
            raise Unknown
        return example

    def _may_decide(self, fake: FakeTensor, example: torch.Tensor) -> bool:
        return example.dtype in _WHOLE or self._is_setting(fake, example)

    def _is_setting(self, fake: FakeTensor, example: torch.Tensor) -> bool:
        """Whether it is a few floats that a module keeps, as a buffer: probabilities by which it is set up, not its data."""
        world = self.t.inputs.world
        source = world.source_of(fake)
        is_kept = source is not None and (root_of(source).is_held or world.is_of_module(source))
        return is_kept and example.numel() <= MOST_ELEMENTS and not example.requires_grad


class _Compared(_Run):
    """The same for two tensors that are compared as a whole, floats too: whether they are equal is told by how they were made,
    which is the same in each call, where the sign of a sum is not."""

    def are_equal(self, compared: fx.Node) -> bool:
        one, other = _leaves_of(compared)
        if self._sizes(one) != self._sizes(other):
            return False
        return self._is_made_alike(one, other) or torch.equal(self.value(one), self.value(other))

    def _may_decide(self, fake: FakeTensor, example: torch.Tensor) -> bool:
        return True

    def _is_made_alike(self, one: Any, other: Any) -> bool:
        """Whether the same calls of the same inputs lead to both; where one draws, that is a guess."""
        if one is other:
            return True
        if not (is_node(one) and is_node(other)):
            return bool(self._plain(one) == self._plain(other))
        self._left -= 1
        if one.op == other.op == "placeholder":
            return self._sizes(one) == self._sizes(other) and torch.equal(self.value(one), self.value(other))
        if self._left <= 0 or one.target != other.target or _is_changed(one) or _is_changed(other):
            return False
        parts = _leaves_of(one), _leaves_of(other)
        return len(parts[0]) == len(parts[1]) and all(map(self._is_made_alike, *parts))

    def _plain(self, argument: Any) -> Any:
        return self.number(written(argument)) if is_symbolic(argument) else argument


def _leaves_of(node: fx.Node) -> list[Any]:
    """The arguments of the node's call, and what containers among them hold, in order."""
    found: list[Any] = []
    fx.node.map_aggregate((node.args, node.kwargs), found.append)
    return found


def _tells_of_failure(node: fx.Node) -> bool:
    """Whether it is what a factorization says of its success, the last of its results: 0, as a rule."""
    if known_name(node) != "getitem":
        return False
    factorization: Any = node.args[0]
    name = known_name(factorization) if is_node(factorization) else ""
    return name.removeprefix("linalg_") in _FACTORIZATIONS and bool(node.args[1] == len(factorization.meta["val"]) - 1)


_FACTORIZATIONS = frozenset(("cholesky_ex", "inv_ex", "lu_factor_ex", "ldl_factor_ex", "solve_ex"))


def _is_changed(node: fx.Node) -> bool:
    """Whether what the node's call gave was written since."""
    return any(is_fake(value) and is_written(value) for value in several(node.meta.get("val")))


_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
