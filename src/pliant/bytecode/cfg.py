"""What holds before each operation of a program: the stack's layout, and which slots may still be read.

In:     a decoded `Program`.
Out:    `layouts(program)`: a `Layout` per operation, None where control never comes; `live_locals(program, index)`.
Holds:  every path to an operation brings the same stack depth (CPython's compiler guarantees it; else `Unsupported`).
        Liveness follows exception edges too, and keeps everything where `locals()` could look.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from operator import and_
from typing import Any, TypeVar

from pliant.bytecode.decode import Op, Program, per_program
from pliant.bytecode.ops import OPS, effect, jump_effect
from pliant.errors import Unsupported
from pliant.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """What is known of a stack slot.

    text "value"; "previous": the exception handled before the one that the frame handles now, pushed at depth `place`,
    to be restored; "iterator": a loop's, which only FOR_ITER uses; "cell": the cell of slot `place`, shelved by an inlined comprehension; "mixed": differs by path.
    """

    text: str
    place: int = -1


VALUE = Kind("value")
MIXED = Kind("mixed")
ITERATOR = Kind("iterator")


@dataclass(frozen=True, slots=True)
class Layout:
    """The stack before an operation, bottom first, and the cell slots that do not hold their cell just now."""

    stack: tuple[Kind, ...]
    without_cell: frozenset[int]

    @property
    def handling(self) -> tuple[int, ...]:
        """Stack places of the exceptions to restore: one per exception that is being handled, outermost first."""
        return tuple(place for place, kind in enumerate(self.stack) if kind.text == "previous" and kind.place == place)


def loop_variables(program: Program, index: int) -> Iterator[str]:
    """Locals into which the loops around an operation put what they count: their items, or the first part of these."""
    for head in program.ops[:index]:
        if head.name == "FOR_ITER" and head.target is not None and index < head.target:
            after = program.ops[head.index + 1]
            store = program.ops[after.index + 1] if after.name == "UNPACK_SEQUENCE" else after
            if store.name == "STORE_FAST":
                yield str(store.arg)


def moved(op: Op, stack: Sequence[T], fresh: Callable[[], T]) -> tuple[T, ...]:
    """The stack after `op` (when it does not jump); what it pushes anew is `fresh()`."""
    depth: Any = op.arg
    if op.name == "COPY":
        return *stack, stack[-depth]
    if op.name == "SWAP":
        changed = list(stack)
        changed[-depth], changed[-1] = changed[-1], changed[-depth]
        return tuple(changed)
    pops, pushes = effect(op)
    return *stack[: len(stack) - pops], *(fresh() for _ in range(pushes))


def jumped(op: Op, stack: Sequence[T], fresh: Callable[[], T]) -> tuple[T, ...]:
    """The stack after `op` when it jumps."""
    kept = stack[: len(stack) + jump_effect(op)]
    return (*kept[:-1], fresh()) if op.name == "SEND" else tuple(kept)


@per_program
def layouts(program: Program) -> tuple[Layout | None, ...]:
    """The layout before each operation."""
    found: list[Layout | None] = [None] * len(program.ops)
    pending = [(0, Layout((), frozenset()))]
    while pending:
        index, layout = pending.pop()
        merged = _merge(found[index], layout, program.ops[index])
        if merged != found[index]:
            found[index] = merged
            pending += _after(program, index, merged)
    return tuple(found)


# The compiler covers PUSH_EXC_INFO by the handler that expects what it pushes.
_NEVER_RAISE = frozenset(
    ("PUSH_EXC_INFO", "POP_EXCEPT", "COPY", "SWAP", "PUSH_NULL", "LOAD_CONST", "POP_TOP", "JUMP", "RETURN_VALUE")
)


def may_raise(op: Op) -> bool:
    """Whether control can go from `op` to its handler."""
    return op.name not in _NEVER_RAISE


def _merge(old: Layout | None, new: Layout, op: Op) -> Layout:
    if old is None or old == new:
        return new
    if len(old.stack) != len(new.stack):
        raise Unsupported(f"the stack at {op.name} has no fixed depth", kind="bytecode")
    stack = tuple(_merge_kinds(a, b) for a, b in zip(old.stack, new.stack, strict=True))
    return Layout(stack, old.without_cell | new.without_cell)


def _merge_kinds(a: Kind, b: Kind) -> Kind:
    if a == b:
        return a
    return VALUE if {a, b} == {VALUE, ITERATOR} else MIXED


def _after(program: Program, index: int, layout: Layout) -> Iterator[tuple[int, Layout]]:
    op = program.ops[index]
    if op.handler is not None and may_raise(op):
        pushed = (VALUE,) * (op.handler.lasti + 1)
        yield op.handler.target, Layout(layout.stack[: op.handler.depth] + pushed, layout.without_cell)
    if op.target is not None:
        yield op.target, Layout(jumped(op, layout.stack, lambda: VALUE), layout.without_cell)
    if not OPS[op.name].ends:
        yield index + 1, _next_layout(program, index, layout)


def _next_layout(program: Program, index: int, layout: Layout) -> Layout:
    op = program.ops[index]
    stack = list(moved(op, layout.stack, lambda: VALUE))
    without_cell = layout.without_cell
    match op.name:
        case "GET_ITER":
            stack[-1] = ITERATOR
        case "LOAD_FAST" if op.arg == ".0":  # of a comprehension
            stack[-1] = ITERATOR
        case "PUSH_EXC_INFO":
            stack[-2] = Kind("previous", len(stack) - 2)
        case "POP_EXCEPT":  # copies of what was restored have no meaning any more
            stack = [VALUE if kind == layout.stack[-1] else kind for kind in stack]
        case "LOAD_FAST_AND_CLEAR" | "STORE_FAST" | "MAKE_CELL":
            slot = program.real[index][0].arg
            if slot in program.cell_slots:
                shelved = Kind("cell", slot)
                if op.name == "LOAD_FAST_AND_CLEAR" and slot not in without_cell:
                    stack[-1] = shelved
                holds_cell = op.name == "MAKE_CELL" or (op.name == "STORE_FAST" and layout.stack[-1] == shelved)
                without_cell = without_cell - {slot} if holds_cell else without_cell | {slot}
    return Layout(tuple(stack), without_cell)


@lru_cache(maxsize=128)
def can_end(program: Program, start: int, without: int) -> bool:
    """Whether a path from operation `start` returns, raises or yields, other than through operation `without`."""
    found = _reached(program, start, without)
    return len(program.ops) in found or any(program.ops[index].name == "YIELD_VALUE" for index in found)


def _reached(program: Program, start: int, without: int) -> set[int]:
    """The operations that control may come to from one, other than through another; their number stands for the end."""
    pending, seen = [start], set[int]()
    while pending:
        index = pending.pop()
        if index != without and index not in seen:
            seen.add(index)
            pending += _followers(program, program.ops[index]) if index < len(program.ops) else []
    return seen


def _followers(program: Program, op: Op) -> list[int]:
    """Where control may go from an operation that does not raise."""
    found = [] if op.target is None else [op.target]
    if not OPS[op.name].ends:
        found.append(op.index + 1)
    return found or [len(program.ops)]


# ---- branches -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sides:
    """Of a branch: the operation where both sides meet (None: behind the frame's end), those of each side before it, and, as
    Python writes short ends of functions once for each side from 3.12 on, where each side comes to its copy of one end."""

    meet: int | None
    between: tuple[tuple[int, ...], tuple[int, ...]]
    copies: tuple[int, int] | None = None


@lru_cache(maxsize=128)
def sides(program: Program, jump: int) -> Sides | None:
    """What lies between a conditional jump and where control meets again; None if a loop does, or a handler that is
    not the jump's."""
    op, end = program.ops[jump], len(program.ops)
    if op.target is None or OPS[op.name].ends:
        return None
    common = _always_met(program)[jump] & ~(1 << jump)
    inner = [index for index in range(end + 1) if common >> index & 1]
    meet = next((index for index in inner if _always_met(program)[index] & common == common), end)
    between = tuple(forward(program, start, meet, op) for start in (jump + 1, op.target))
    if any(side is None for side in between):
        return None
    one, other = between
    assert one is not None and other is not None
    return Sides(None if meet == end else meet, (one, other), _copies(program, one, other) if meet == end else None)


def _copies(program: Program, one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, int] | None:
    """Where two sides, each with one way out, begin to do the same up to the end."""
    if any(sum(program.ops[index].name == "RETURN_VALUE" for index in side) != 1 for side in (one, other)):
        return None
    same = 0
    for a, b in zip(reversed(one), reversed(other)):
        if (a, b) != (one[-1] - same, other[-1] - same) or not _are_copies(program.ops[a], program.ops[b]):
            break
        same += 1
    return (one[-1] - same + 1, other[-1] - same + 1) if same > 1 else None


def _are_copies(one: Op, other: Op) -> bool:
    if one.name != other.name or one.target is not None or other.target is not None:
        return False
    return one.arg is other.arg or (one.name != "LOAD_CONST" and one.arg == other.arg)  # 1 and True are equal, too


def forward(program: Program, start: int, meet: int, jump: Op) -> tuple[int, ...] | None:
    """The operations from one to another, in order; None if there is a way back among them."""
    inside = sorted(_reached(program, start, meet) - {len(program.ops)})
    for op in (program.ops[index] for index in inside):
        if op.target is not None and op.target <= op.index and op.target != meet or op.handler != jump.handler:
            return None
    return tuple(inside)


def _backward(program: Program, found: list[T], rule: Callable[[Op, list[T]], T]) -> tuple[T, ...]:
    """What holds before each operation, as the rule makes it of what holds before those that follow."""
    changed = True
    while changed:
        changed = False
        for op in reversed(program.ops):
            before = rule(op, found)
            if before != found[op.index]:
                found[op.index], changed = before, True
    return tuple(found)


@per_program
def _always_met(program: Program) -> tuple[int, ...]:
    """Of each operation, as bits, those that every path from it to the end comes to, itself among them."""
    count = len(program.ops)
    start = [(1 << count + 1) - 1] * count + [1 << count]
    return _backward(
        program, start, lambda op, met: 1 << op.index | reduce(and_, [met[one] for one in _followers(program, op)])
    )


# ---- liveness -------------------------------------------------------------------------------------------------------

_READS = frozenset(
    """LOAD_FAST LOAD_FAST_AND_CLEAR DELETE_FAST LOAD_CLOSURE LOAD_DEREF DELETE_DEREF STORE_DEREF LOAD_CLASSDEREF
    LOAD_FROM_DICT_OR_DEREF""".split()
)
_WRITES = frozenset(("STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"))
_LOOK_AT_ALL = frozenset(("locals", "vars", "dir", "eval", "exec", "f_locals", "_getframe", "currentframe", "getargvalues"))


def live_locals(program: Program, index: int) -> frozenset[str]:
    """Names of locals and cells whose slot may be read from operation `index` on."""
    return _liveness(program)[index]


@per_program
def _liveness(program: Program) -> tuple[frozenset[str], ...]:
    code = program.code
    always: frozenset[str] = frozenset()
    if looks_at_locals(program):
        always = frozenset((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
    elif reads_first_argument(program):
        always = frozenset(code.co_varnames[:1])
    return _backward(program, [always] * (len(program.ops) + 1), lambda op, live: _live_before(op, live, always))


def _live_before(op: Op, live: list[frozenset[str]], always: frozenset[str]) -> frozenset[str]:
    result = frozenset() if OPS[op.name].ends else live[op.index + 1]
    if op.target is not None:
        result |= live[op.target]
    if op.name in _WRITES:
        result -= {str(op.arg)}
    if op.name in _READS:
        result |= {str(op.arg)}
    if op.handler is not None and may_raise(op):
        result |= live[op.handler.target]
    return result | always


@per_program
def unread_locals(program: Program) -> frozenset[str]:
    """Names of locals that no operation reads; none where the code may look at all of them, or inner code shares them."""
    code = program.code
    if looks_at_locals(program) or reads_first_argument(program):
        return frozenset()
    read = {str(op.arg) for op in program.ops if op.name in _READS}
    return frozenset(code.co_varnames) - read - frozenset(code.co_cellvars)


def looks_at_locals(program: Program) -> bool:
    """Whether the code may look at all of its frame's locals."""
    return not _LOOK_AT_ALL.isdisjoint(program.code.co_names)


def reads_first_argument(program: Program) -> bool:
    """Whether `super()` without arguments may look at the frame's first argument."""
    code = program.code
    return "__class__" in code.co_freevars and code.co_argcount > 0
