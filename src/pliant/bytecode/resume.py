"""Functions that go on in the middle of a frame.

In:     a `ResumePoint`: code object, offset of the operation to run next, what the stack and the locals hold there.
Out:    `resume_code(point)`: code that rebuilds this state and runs the rest of the frame;
        `generator_code(point)`: code of generators that stand at a `yield`.
Holds:  all take the values of `parameters(point)` in order, and the cells of `resume_freevars(code)` as their closure.
        Values of dead locals are not taken; handlers, lines and names of the original stay.

A point inside an `except` body also needs the exception that is being handled there: `handled` must be set and the value
is passed between stack and locals. The stack slots of previous exceptions are rebuilt from the thread's own state, so
that `raise`, `sys.exc_info()` and `__context__` are right and the state is restored when the body is left.

`super()` without arguments reads the first slot of the frame, so code that may do this keeps its first argument there.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from types import CodeType
from typing import Any, TypeVar

from pliant.bytecode.cfg import Layout, layouts, live_locals, reads_first_argument
from pliant.bytecode.decode import Program, decode, per_program
from pliant.bytecode.instructions import Instruction, Item, Label, Mark, Position, assemble
from pliant.bytecode.ops import operand_count
from pliant.bytecode.versions import SLOT_OPCODES, Names, checked
from pliant.errors import Unsupported
from pliant.records import dataclass

T = TypeVar("T")
HANDLED = ".exc"
RESUMES = ".resumes"
GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_FUNCTION = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The state before the operation at `offset` (an `Op.offset`).

    `stack[i]` is False where the slot is NULL; `locals` are the bound, live locals that are no cells, and dead ones that
    are to be kept until the frame ends.
    `handled` is set in the body of an `except` or `finally` that handles an exception.
    `entered`: the operation has entered a function that broke. In place of its operands lies one callable, which ends
    that function (`capture.protocols.tail_calls`): for FOR_ITER an iterator whose next item is the pair (item, iterator).
    """

    code: CodeType
    offset: int
    stack: tuple[bool, ...]
    locals: tuple[str, ...]
    handled: bool = False
    entered: bool = False


def resume_freevars(code: CodeType) -> tuple[str, ...]:
    """The free variables of all code made for `code`, in the order of the closure: its own cells come first."""
    return (*code.co_cellvars, *code.co_freevars)


def parameters(point: ResumePoint) -> tuple[str, ...]:
    """The names of a resume function's parameters: stack slots from the bottom, handled exception, locals."""
    slots = tuple(f".s{place}" for place, bound in enumerate(point.stack) if bound)
    return (*slots, *((HANDLED,) if point.handled else ()), *point.locals)


def point_at(
    program: Program,
    index: int,
    stack: Iterable[bool],
    local_names: Iterable[str],
    keep: Collection[str] = (),
    entered: bool = False,
) -> ResumePoint:
    """The point before operation `index`; names of cells, and of dead locals that are not to be kept, are left out."""
    layout = layouts(program)[index]
    if layout is None:
        raise Unsupported("no path leads to this operation", kind="bytecode")
    if layout.without_cell:
        raise Unsupported("an inlined comprehension has shelved a cell", kind="resume-frame")
    live = live_locals(program, index)
    cells = program.code.co_cellvars
    kept = tuple(name for name in local_names if (name in live or name in keep) and name not in cells)
    return ResumePoint(program.code, program.ops[index].offset, tuple(stack), kept, bool(layout.handling), entered)


def per_point(make: Callable[[ResumePoint], T]) -> Callable[[ResumePoint], T]:
    """The function, computed once for each point: equal code objects may differ in lines and positions."""
    made = lru_cache(maxsize=4096)(lambda point, identity: make(point))
    return lambda point: made(point, id(point.code))


@per_point
def resume_code(point: ResumePoint) -> CodeType:
    """The code of a function that goes on at `point`. Unsupported in generators and class bodies."""
    return FrameCode(point, ()).whole()


@per_point
def generator_code(point: ResumePoint) -> CodeType:
    """The code of a generator function whose generators do the operation at `point` first, and go on from there."""
    frame = _Generator(point, ())
    return frame.whole(frame.make("RETURN_GENERATOR"), frame.make("POP_TOP"))


def is_generator(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_GENERATOR)


class FrameCode:
    """Slots and instructions of code that starts by rebuilding the state of `point`."""

    refused = GENERATORS
    flags = -1  # which of the code's flags stay

    def __init__(self, point: ResumePoint, first: tuple[str, ...]) -> None:
        code = point.code
        self.point = point
        self.program = decode(code)
        self.index = self.program.index_of(point.offset)
        self.op = self.program.ops[self.index]
        self.operands = point.stack  # which slots hold values as the operation itself expects them
        if point.entered:
            self.operands = *point.stack[:-1], *(True,) * operand_count(self.op)
        self.layout = self._checked_layout()
        self.position: Position = self.op.position
        self.consts: list[Any] = list(code.co_consts)
        self.parameters = (*first, *parameters(point))
        self.names = list(self.parameters)
        self.names += [n for n in code.co_varnames if n not in self.names and n not in code.co_cellvars]
        self.freevars = resume_freevars(code)
        self.locals_at, self.cells_at = self._original_slots()
        self.prologue = self._place_first_argument()

    def _checked_layout(self) -> Layout:
        point, code = self.point, self.point.code
        if code.co_flags & self.refused or code.co_flags & _FUNCTION != _FUNCTION:
            raise Unsupported(f"cannot go on in the middle of {code.co_qualname}", kind="resume-frame")
        layout = layouts(self.program)[self.index]
        if layout is None or self.index < _prefix(self.program):
            raise Unsupported(f"no frame stands at {self.op.name}", kind="resume-frame")
        if len(layout.stack) != len(self.operands):
            raise Unsupported(
                f"{len(layout.stack)} slots at {self.op.name}, not {len(self.operands)}", kind="resume-frame"
            )
        if any(kind.text == "mixed" for kind in layout.stack):
            raise Unsupported("whether an exception is handled depends on the path", kind="resume-frame")
        if point.handled != bool(layout.handling):
            raise Unsupported("the exception that is being handled is needed", kind="resume-in-except")
        return layout

    def _original_slots(self) -> tuple[dict[int, str], dict[int, int]]:
        """For each slot of the original its local's name; of those that hold cells, the cell's slot here."""
        slots = dict(enumerate(Names(self.point.code).slots))
        cells = {slot: self.cell(slots[slot]) for slot in self.program.cell_slots}
        return {slot: name for slot, name in slots.items() if slot not in cells}, cells

    # ---- slots and instructions
    def local(self, name: str) -> int:
        """The slot of a local, made if there is none."""
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def const(self, value: object) -> int:
        self.consts.append(value)
        return len(self.consts) - 1

    def make(self, name: str, arg: int = 0, target: Label | None = None) -> Instruction:
        """A new instruction."""
        return Instruction(name, arg, target, self.position)

    def load(self, local: str) -> Instruction:
        return self.make("LOAD_FAST", self.local(local))

    def store(self, local: str) -> Instruction:
        return self.make("STORE_FAST", self.local(local))

    def delete(self, local: str) -> Instruction:
        return self.make("DELETE_FAST", self.local(local))

    def cell(self, name: str) -> int:
        """The slot of a cell: counted from `_FREE` until the number of locals before the cells is known."""
        return _FREE + self.freevars.index(name)

    def _place_first_argument(self) -> list[Item]:
        """Bring the original's first argument into slot 0, where `super()` looks for it."""
        code = self.point.code
        if not reads_first_argument(self.program):
            return []
        name = code.co_varnames[0]
        if name in code.co_cellvars:
            return self._copy_first_cell(name)
        if name not in self.parameters:  # unbound: `super()` must find an empty slot
            return self._free_first_slot()
        place = self.names.index(name)
        if place == 0:
            return []
        first = self.names[0]
        self.names[0], self.names[place] = name, first
        return [self.load(first), self.load(name), self.store(first), self.store(name)]

    def _free_first_slot(self) -> list[Item]:
        """Move the first parameter to a slot of its own and leave slot 0 empty."""
        if not self.parameters:
            return []
        first = self.names[0]
        self.names[0] = ".first"
        self.names.append(first)
        return [self.load(".first"), self.store(first), self.delete(".first")]

    def _copy_first_cell(self, name: str) -> list[Item]:
        """Put what the first argument's cell holds into slot 0."""
        if not self.parameters or stores_to(self.point.code, name):
            raise Unsupported("super() needs a first argument that is a cell", kind="resume-frame")
        moved_away = self._free_first_slot()
        return [*moved_away, self.make("LOAD_DEREF", self.cell(name)), self.store(".first")]

    # ---- pieces of code
    def rebuild(self) -> list[Item]:
        """Instructions that bring the stack and the handled exceptions into the state of the point."""
        items: list[Item] = [self.make("RESUME"), *self.prologue]
        restore = self.layout.handling
        handled = [*(f".s{place}" for place in restore[1:]), HANDLED]  # what each of them stands below
        for place, bound in enumerate(self.point.stack):
            if place in restore:
                items += [self.load(handled[restore.index(place)]), self.make("PUSH_EXC_INFO")]
                items.append(self.make("POP_TOP"))
            else:
                items.append(self.load(f".s{place}") if bound else self.make("PUSH_NULL"))
        items += [self.delete(name) for name in self.parameters if name.startswith(".s") or name == HANDLED]
        return items

    def moved(self, item: Instruction) -> Instruction:
        """An original instruction with its slot's place here."""
        if item.name not in SLOT_OPCODES:
            return item
        if item.arg in self.cells_at:
            return replace(item, arg=self.cells_at[item.arg])
        return replace(item, name=checked(item.name), arg=self.local(self.locals_at[item.arg]))

    def body(self) -> list[Item]:
        """The whole original, without the start that fills cells."""
        items: list[Item] = []
        for op in self.program.ops:
            items.append(Mark(op.index))
            if op.index >= _prefix(self.program):
                real = self.program.real[op.index]
                items += map(self.moved, real)
                if op.name == "YIELD_VALUE":  # here `close` and `throw` see whether it stands in a `yield from`
                    items.append(replace(real[-1], name="RESUME", arg=2 if self.program.delegation(op.index) else 1))
        return items

    def whole(self, *start: Item) -> CodeType:
        """The code of all that is behind the point."""
        return self.assemble([*start, *self.rebuild(), self.make("JUMP_FORWARD", target=self.index), *self.body()])

    def assemble(self, items: Sequence[Item]) -> CodeType:
        code = self.point.code
        free = len(self.freevars)
        start: list[Item] = [Instruction("COPY_FREE_VARS", free, position=self.position)] if free else []
        return assemble(
            [*start, *map(self._placed, items)],
            code,
            len(self.parameters) + free,
            co_varnames=tuple(self.names),
            co_nlocals=len(self.names),
            co_cellvars=(),
            co_freevars=self.freevars,
            co_consts=tuple(self.consts),
            co_argcount=len(self.parameters),
            co_posonlyargcount=len(self.parameters),
            co_kwonlyargcount=0,
            co_flags=code.co_flags & self.flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
        )

    def _placed(self, item: Item) -> Item:
        """The item with its cell behind all locals."""
        if isinstance(item, Instruction) and item.name in SLOT_OPCODES and item.arg >= _FREE:
            return replace(item, arg=item.arg - _FREE + len(self.names))
        return item


class _Generator(FrameCode):
    """Code of a generator."""

    refused = GENERATORS & ~inspect.CO_GENERATOR


_FREE = 1 << 20  # above any number of locals


@per_program
def _prefix(program: Program) -> int:
    """How many operations at the start fill the cells of a new frame."""
    return next(op.index for op in program.ops if op.name not in ("MAKE_CELL", "COPY_FREE_VARS"))


def stores_to(code: CodeType, name: str) -> bool:
    """Whether the code, or code inside it that shares the variable, may change its cell."""
    if any(op.name in ("STORE_DEREF", "DELETE_DEREF") and op.arg == name for op in decode(code)):
        return True
    inner = (const for const in code.co_consts if isinstance(const, CodeType) and name in const.co_freevars)
    return any(stores_to(const, name) for const in inner)
