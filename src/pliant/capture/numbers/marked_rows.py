"""Loops over the places at which a small table has anything: all places take their turn in the graph.

In:     `for place in hits`, `hits` being `nonzero` of what sums up the rows of a mask, as loops over the experts that
        tokens are sent to (`expert_hit = (mask.sum((-1, -2)) > 0).nonzero()`).
Out:    the frame behind the loop, or a break before it.
Holds:  a turn of a place without hits must do nothing: it computes values that nobody sees and that cannot fail where
        they have no rows, and adds rows to a tensor at places that `where` finds in that row of the mask: none.
        Parameters get zeros where eager gives no gradient: so several turns lead to each, and one of these is hit. That
        they are zeros, not 0 * inf, needs products with rows: what a turn computes of weights alone has no gradient.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from pliant.bytecode.cfg import forward, live_locals
from pliant.bytecode.decode import Op, Program
from pliant.capture.frame import HANDLERS, Frame, Handler
from pliant.capture.handlers.data_dependent import element
from pliant.capture.numbers.selections import (
    OPS,
    STAYS,
    STOPS,
    Before,
    Check,
    Refused,
    called,
    checked,
    has_gradient,
    is_operator,
    name_of_call,
)
from pliant.capture.recording.nodes import nodes_behind
from pliant.capture.recording.regions import tensors_of, without_effects
from pliant.capture.signatures import Tracer
from pliant.capture.structures import argument, is_list_or_tuple, is_node, several
from pliant.capture.trace import NULL
from pliant.capture.value_kinds import ByKind, is_function, is_int, is_symbolic, module_of, varying
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.unbacked import is_unbacked, written
from pliant.graph.writes import is_written
from pliant.symbolic.expr import Expr
from pliant.unpatched import BUILTINS

_MOST_PLACES = 32
# What a turn may do, and the functions that it calls: it changes nothing but locals. Calls and subscripts are looked at.
_OPS = OPS | frozenset(
    """LOAD_SUPER_ATTR LOAD_SUPER_METHOD COPY_FREE_VARS DELETE_FAST BINARY_SUBSCR BINARY_SLICE BUILD_SLICE BUILD_LIST
    UNPACK_SEQUENCE JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP CONVERT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC BUILD_STRING""".split()
)
_PURE = frozenset(
    (float, int, bool, str, *map(vars(BUILTINS).get, "abs min max len isinstance hasattr getattr".split()))
)
# Calls that cannot fail where a tensor has no rows, and make values alone.
_COMPUTING = frozenset(
    """getitem tensor add radd sub rsub mul rmul div truediv rtruediv neg pow linear matmul mm addmm silu gelu relu sigmoid
    tanh exp softmax clamp minimum maximum chunk split unbind to float half bfloat16 double type_as reshape view unsqueeze
    squeeze transpose t permute contiguous where nonzero eq ne lt le gt ge size cat stack sqrt rsqrt square abs""".split()
)
# Those whose gradients are what comes in, elsewhere: zeros stay zeros.
_MOVING = frozenset(
    """getitem add radd sub rsub neg chunk split unbind to float half bfloat16 double type_as reshape view unsqueeze squeeze
    transpose t permute contiguous cat stack""".split()
)
_SAME_VALUES = frozenset("permute transpose t view reshape unsqueeze squeeze contiguous clone to long int float".split())
_NEW_MEMORY = frozenset("zeros zeros_like new_zeros full full_like new_full ones ones_like new_ones".split())
_ANY = frozenset("greater gt ne not_equal".split())


def take_turns(frame: Frame, hits: Any) -> bool:
    """Do the whole loop over `hits` that begins behind the frame's current operation; False if it is no such loop."""
    t, loop = frame.tracer, frame.program.ops[frame.ip]
    found = _table_of(t, hits)
    if found is None or loop.name != "FOR_ITER" or frame.generator is not None or frame.noticed:
        return False
    if not _is_plain(frame.program, loop):
        return False
    before = Before(frame)
    try:
        _Loop(frame, loop, *found).run(hits)
    except STOPS as error:
        raise before.left(error, "a loop over the places where a tensor is not zero") from None
    return True


# ---- what is looped over
def _table_of(t: Tracer, hits: Any) -> tuple[fx.Node, int] | None:
    """The mask of whose rows these are the numbers of those that have any element set, and how many rows it has."""
    if not is_fake(hits) or hits.dim() != 2 or not is_unbacked(hits.size_[0]) or is_written(hits):
        return None
    if t.recorder.region is not None or not t.mode.allow_unbacked:
        return None
    if (node := hits.node) is None or name_of_call(node) != "nonzero":
        return None
    found = _argument(node)
    if len(node.args) != 1 or node.kwargs.get("as_tuple") or found is None:
        return None
    if name_of_call(found) in _ANY and found.args[1:] == (0,):
        found = _argument(found)
    table = None if found is None or name_of_call(found) not in ("sum", "any") else _argument(found)
    if found is None or table is None or not _is_of_zeros_and_ones(table):
        return None
    known: FakeTensor = table.meta["val"]
    rows = known.size_[0]
    if is_symbolic(rows) or rows > _MOST_PLACES or not _by_rows(found, known.dim()):
        return None
    return table, rows


def _argument(node: fx.Node, place: int = 0) -> fx.Node | None:
    """An argument, if it is a tensor that nothing was stored into."""
    found: Any = node.args[place] if len(node.args) > place else None
    known = argument(found)
    return found if is_fake(known) and not is_written(known) else None


def _is_of_zeros_and_ones(table: fx.Node | None) -> bool:
    """So that no elements of a row with a one add up to zero."""
    if table is None or table.meta["val"].dtype_ is torch.bool:
        return table is not None
    name = name_of_call(table)
    reinterpreted = name == "view" and torch.dtype in map(type, table.args)
    if name == "mul":
        return _is_of_zeros_and_ones(_argument(table)) and _is_of_zeros_and_ones(_argument(table, 1))
    return name in _SAME_VALUES and not reinterpreted and _is_of_zeros_and_ones(_argument(table))


def _by_rows(node: fx.Node, rank: int) -> bool:
    """Whether a sum is over all dimensions but the first."""
    dims: Any = several(node.args[1] if len(node.args) > 1 else node.kwargs.get("dim"))
    if None in dims or len(node.args) > 2 or not set(node.kwargs) <= {"dim"}:
        return False
    return sorted(d % rank for d in dims) == list(range(1, rank))


# ---- the loop
def _is_plain(program: Program, loop: Op) -> bool:
    """Whether its body comes back to its head on all ways, and what it does may be looked at."""
    body = forward(program, loop.index + 1, loop.index, loop)
    if body is None or loop.target is None or loop.handler is not None:
        return False
    inside = all(loop.index < index < loop.target for index in body)
    return inside and all(program.ops[index].name in _OPS - {"RETURN_VALUE"} for index in body)


class _Loop:
    """`table`: the mask. `rows`: how many turns there are."""

    def __init__(self, frame: Frame, loop: Op, table: fx.Node, rows: int) -> None:
        self.frame, self.loop, self.table, self.rows = frame, loop, table, rows
        self.t: Tracer = frame.tracer
        self.turn: _Turn
        self.sources: list[set[fx.Node]] = []
        self.targets: dict[fx.Node, bool] = {}  # whether it had a gradient before the loop

    def run(self, hits: FakeTensor) -> None:
        t, frame = self.t, self.frame
        done = (t.draws.copy(), t.mode.draws)
        with without_effects(t, "a loop over the places where a tensor is not zero"), _looked_at(self):
            for row in range(self.rows):
                self._turn(row, hits)
        if done != (t.draws, t.mode.draws) or frame.noticed:
            raise Refused("a turn does more than compute")
        self._check_gradients(hits)
        frame.pop()
        frame.ip = self.loop.target  # type: ignore[assignment]

    def _turn(self, row: int, hits: FakeTensor) -> None:
        t, frame = self.t, self.frame
        stack, known = frame.stack.copy(), {**frame.locals}
        last = next(iter(reversed(t.graph.nodes)))
        item = t.call(torch.tensor, ([row],), {"device": hits.device_})
        self.turn = _Turn(self.table, row, item.node)
        frame.push(item)
        frame.ip = self.loop.index + 1
        ended = frame.go_on(t.handlers(frame.program), self.loop.index)
        if ended is not None or len(stack) != len(frame.stack) or any(a is not b for a, b in zip(stack, frame.stack)):
            raise Refused("a turn ends elsewhere")
        for name in live_locals(frame.program, self.loop.index):
            if frame.locals.get(name, NULL) is not known.get(name, NULL):
                raise Refused(f"`{name}` is another one behind a turn")
        self.turn.look()
        self._check_nodes(last)

    def _check_nodes(self, last: fx.Node) -> None:
        sources = set()
        inside = set(nodes_behind(last))
        for node in nodes_behind(last):
            if name_of_call(node) == "index_add_":
                self._check_added(node)
            elif not _computes(node):
                raise Refused(f"`{name_of_call(node)}` in a turn without rows may do something")
            elif has_gradient(node) and name_of_call(node) not in _MOVING and not self.turn.has_rows(node):
                raise Refused(f"the gradient of `{name_of_call(node)}` in a turn without rows may be no zero")
            sources |= {one for one in node.all_input_nodes if one not in inside and has_gradient(one)}
        self.sources.append(sources - set(self.targets))

    def _check_added(self, node: fx.Node) -> None:
        """Whether rows are added at places of the turn, to a tensor that the trace has made."""
        target, _, places = (*node.args, None, None)[:3]
        at = argument(places)
        if len(node.args) != 4 or not is_node(target) or name_of_call(target) not in _NEW_MEMORY:
            raise Refused("a turn writes a tensor that it has not made")
        count = at.size_[0] if is_fake(at) and at.dim() == 1 else None
        if not is_unbacked(count) or written(count) not in self.turn.none_if_unset:
            raise Refused("a turn writes at places that are not those of its row")
        self.targets.setdefault(target, False)

    def _check_gradients(self, hits: FakeTensor) -> None:
        """Have the graph check that each tensor to which gradients come from turns gets one, as it would of all turns."""
        if not any(has_gradient(target) for target in self.targets):
            return
        for turns in sorted({self._turns_of(source) for source in set().union(*self.sources)} or {tuple(range(self.rows))}):
            if len(turns) == self.rows:
                is_hit, which = hits.size_[0] >= 1, "some place"
            elif len(turns) > 1:
                is_hit, which = self._any_of([*turns]), f"one of the places {turns}"
            else:
                raise Refused("a turn gives gradients to tensors to which no other turn gives any")
            if not self.t.recorder.assume(is_hit, f"{which} of the loop at {self.frame.location()} is hit"):
                raise Refused("there is no place")

    def _turns_of(self, source: fx.Node) -> tuple[int, ...]:
        """The turns that give gradients to a tensor."""
        return tuple([row for row, sources in enumerate(self.sources) if source in sources])

    def _any_of(self, turns: list[int]) -> Any:
        """Whether one of these rows of the mask has an element set."""
        t, table = self.t, self.table.meta["val"]
        rows = t.call(operator.getitem, (table, turns), {})
        return t.truth(element(t, t.call(torch.any, (rows,), {})), linked=True)


class _Turn:
    """`none_if_unset`: sizes that are zero where the row of the mask has no element set."""

    def __init__(self, table: fx.Node, row: int, item: fx.Node) -> None:
        self.table, self.row = table, row
        self.numbers = {item}  # the row's number as a tensor
        self.rows: set[fx.Node] = set()  # the row of the mask
        self.none_if_unset: set[Expr] = set()
        self.answers: dict[Expr, bool] = {}  # to questions whether there are any, where the row has an element set
        self.last = item

    def look(self) -> None:
        """Note what was recorded since."""
        for node in nodes_behind(self.last):
            self.note(node)
            self.last = node

    def note(self, node: fx.Node) -> None:
        read: Any = node.args[0] if node.args else None
        at: Any = node.args[1] if len(node.args) > 1 else None
        name = name_of_call(node)
        if read in self.numbers and (name in ("squeeze", "long", "int") or name == "getitem" and is_int(at)):
            self.numbers.add(node)
        elif self._is_of_row(read, name, at):
            self.rows.add(node)
        elif read in self.rows and name in ("where", "nonzero") and len(node.args) == 1:
            self._note_sizes([found.size_[0] for found in tensors_of(several(node.meta["val"]))])

    def _is_of_row(self, read: Any, name: str, at: Any) -> bool:
        """Whether it is the row of the mask, or its elements in another shape."""
        if read is self.table and name == "getitem":
            return is_int(at) and at == self.row or is_node(at) and at in self.numbers
        return read in self.rows and name in _SAME_VALUES

    def has_rows(self, node: fx.Node) -> bool:
        """Whether a value has no elements where the row of the mask has none set."""
        tensors = tensors_of(several(node.meta["val"]))
        return all(any(is_unbacked(n) and written(n) in self.none_if_unset for n in one.size_) for one in tensors)

    def _note_sizes(self, sizes: list[Any]) -> None:
        for size in filter(is_unbacked, sizes):
            self.none_if_unset.add(written(size))
            self.answers |= {written(one): True for one in (size, size > 0, size >= 1, size != 0)}
            self.answers |= {written(one): False for one in (size == 0, size <= 0, size < 1)}


def _computes(node: fx.Node) -> bool:
    """Whether a node makes a value and nothing else, and cannot fail for want of rows."""
    known = node.meta.get("val")
    if node.op in ("placeholder", "get_attr"):
        return True
    if node.op not in ("call_function", "call_method") or "out" in node.kwargs or node.kwargs.get("inplace"):
        return False
    if varying(known) is int:
        return name_of_call(node) in ("size", "add", "mul", "sub")
    name = name_of_call(node)
    sizes = [one.meta.get("val") for one in node.all_input_nodes[1:]]
    if name in ("view", "reshape") and any(varying(one) is int and is_unbacked(one) for one in sizes):
        return False  # of no rows, a size that is left open is any
    if name == "dropout":
        return (*node.args[2:3], node.kwargs.get("training"))[0] is False
    return name in _COMPUTING and all(map(is_fake, several(known)))


# ---- what a turn runs
@contextmanager
def _looked_at(loop: _Loop) -> Iterator[None]:
    """A block in which the interpreter refuses what does more than compute, and takes it that a turn has rows: if it has
    none, it does nothing whatever it does."""
    t = loop.t

    def jump(frame: Frame, op: Op) -> None:
        value = frame.stack[-1]
        if varying(value) in (bool, int) and is_unbacked(value):
            loop.turn.look()
            frame.stack[-1] = loop.turn.answers.get(written(value), value)
        HANDLERS[op.name](frame, op)

    def looked_at(handlers: tuple[Handler, ...], program: Program) -> tuple[Handler, ...]:
        pairs = zip(program.ops, checked(handlers, program, _CHECKS), strict=True)
        return tuple([jump if op.name in _JUMPS else handler if op.name in _OPS else _refuse for op, handler in pairs])

    before, t.looked_at = t.looked_at, looked_at
    try:
        yield
    finally:
        t.looked_at = before


def _refuse(frame: Frame, op: Op) -> None:
    raise Refused(f"a turn does more than compute: {op.name}")


def _may_unpack(frame: Frame, op: Op) -> bool:
    return is_fake(frame.stack[-1]) or is_list_or_tuple(frame.stack[-1])


def _may_call(frame: Frame, op: Op) -> bool:
    function, given = called(frame, op)
    return _is_safe(function) and not any(hasattr(type(one), "__next__") for one in given)


_JUMPS = ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "TO_BOOL", "UNARY_NOT")
_CHECKS: dict[str, Check] = {
    "CALL": (_may_call, "a turn calls what may have effects, or takes items of an iterator"),
    "BINARY_SUBSCR": (lambda frame, op: STAYS.of(frame.stack[-2]), "a turn reads what may change when it is read"),
    "BINARY_OP": (lambda frame, op: not str(op.arg).endswith("="), "a turn changes a value in its place"),
    "UNPACK_SEQUENCE": (_may_unpack, "a turn takes items of an iterator"),
}


def _is_safe(function: Any) -> bool:
    """Whether a call does nothing beside what nodes show, and what the interpreter looks at in turn."""
    if is_fake(getattr(function, "__self__", None)):
        name = function.__name__
        return name in _METHODS or name.strip("_") in _COMPUTING
    return _IS_SAFE.of(function)(function)


def _is_looked_at(function: types.FunctionType) -> bool:
    """Whether a Python function is the program's, or one of PyTorch's that computes."""
    module = module_of(function)
    return not module.startswith("torch") or module.startswith(("torch.nn.functional", "torch.nn.modules"))


_METHODS = ("item", "numel", "dim", "index_add_")
_IS_SAFE: ByKind[Callable[[Any], bool]] = ByKind(
    lambda function: False,
    {
        type: lambda function: function in _PURE,
        types.FunctionType: _is_looked_at,
        types.MethodType: lambda method: is_function(method.__func__) and _is_looked_at(method.__func__),
        types.BuiltinFunctionType: lambda function: function in _PURE or is_operator(function),
    },
    {torch.nn.Module: lambda module: True},
)
