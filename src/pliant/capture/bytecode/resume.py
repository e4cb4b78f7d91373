"""Functions that go on in the middle of a frame, and functions that do one operation of it.

In:     a `ResumePoint`: code object, offset of the operation to run next, what the stack and the locals hold there.
Out:    `resume_code(point)`: code that rebuilds this state and runs the rest of the frame;
        `step_code(point)`: code that rebuilds it, runs one operation, and calls one function per place it may lead to;
        `generator_code(point)`: code of generators that stand at a `yield`.
Holds:  both take the values of `parameters(point)` in order, and the cells of `resume_freevars(code)` as their closure.
        Values of dead locals are not taken; handlers, lines and names of the original stay.
        A step's last call is outside all handlers of the frame: an exception in it has met those in the resumed code.

A point inside an `except` body also needs the exception that is being handled there: `handled` must be set and the value
is passed between stack and locals. The stack slots of previous exceptions are rebuilt from the thread's own state, so
that `raise`, `sys.exc_info()` and `__context__` are right and the state is restored when the body is left.

`super()` without arguments reads the first slot of the frame, so code that may do this keeps its first argument there.
"""

import inspect
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from types import CodeType
from typing import Any, assert_never

from pliant.capture.bytecode.assemble import assemble
from pliant.capture.bytecode.cfg import Layout, jumped, layouts, live_locals, may_raise, moved, reads_first_argument
from pliant.capture.bytecode.decode import Op, Program, decode, per_program
from pliant.capture.bytecode.instructions import HandlerLabel, Instruction, Item, Label, Mark, Position
from pliant.capture.bytecode.ops import FORMS, OPS, Form, call_pair, operand_count
from pliant.capture.bytecode.versions import (
    AFTER_FOR,
    NULL_BELOW_CALLABLE,
    SLOT_OPCODES,
    call_group,
    checked,
    load_cell,
    without_method,
)
from pliant.errors import Unsupported
from pliant.records import dataclass

HANDLED = ".exc"
RESUMES = ".resumes"
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_OF_GENERATORS = ("RETURN_GENERATOR", "YIELD_VALUE", "SEND", "END_SEND", "CLEANUP_THROW", "RETURN_VALUE")
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


@dataclass(frozen=True, slots=True)
class StepCode:
    """`code` takes a tuple of functions, one per successor, before the point's parameters.

    It returns `functions[i](cells, *values of parameters(successors[i]))`, or does what the operation does if this is
    to return or to raise.
    """

    code: CodeType
    successors: tuple[ResumePoint, ...]


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


@lru_cache(maxsize=4096)
def _resume_code(point: ResumePoint, identity: int) -> CodeType:
    frame = _Frame(point, ())
    items = [*frame.rebuild(), frame.make("JUMP_FORWARD", target=frame.index), *frame.body()]
    return frame.assemble(items)


def resume_code(point: ResumePoint) -> CodeType:
    """The code of a function that goes on at `point`. Unsupported in generators and class bodies."""
    return _resume_code(point, id(point.code))  # equal code objects may differ in lines and positions


@lru_cache(maxsize=1024)
def _generator_code(point: ResumePoint, identity: int) -> CodeType:
    frame = _Generator(point, ())
    start = [frame.make("RETURN_GENERATOR"), frame.make("POP_TOP")]
    items = [*start, *frame.rebuild(), frame.make("JUMP_FORWARD", target=frame.index), *frame.body()]
    return frame.assemble(items)


def generator_code(point: ResumePoint) -> CodeType:
    """The code of a generator function whose generators do the operation at `point` first, and go on from there."""
    return _generator_code(point, id(point.code))


def is_generator(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_GENERATOR)


@lru_cache(maxsize=4096)
def _step_code(point: ResumePoint, identity: int) -> StepCode:
    return _Step(point).build()


def step_code(point: ResumePoint) -> StepCode:
    """The code of a function that runs the operation at `point` and calls what goes on behind it."""
    return _step_code(point, id(point.code))


class _Frame:
    """Slots and instructions of code that starts by rebuilding the state of `point`."""

    refused = _GENERATORS
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
        if layout.without_cell:
            raise Unsupported("an inlined comprehension has shelved a cell", kind="resume-frame")
        if any(kind.text == "mixed" for kind in layout.stack):
            raise Unsupported("whether an exception is handled depends on the path", kind="resume-frame")
        if point.handled != bool(layout.handling):
            raise Unsupported("the exception that is being handled is needed", kind="resume-in-except")
        return layout

    def _original_slots(self) -> tuple[dict[int, str], dict[int, int]]:
        """For each slot of the original its local's name; of those that hold cells, the cell's slot here."""
        code = self.point.code
        merged = [name for name in code.co_cellvars if name not in code.co_varnames]
        own = list(enumerate((*code.co_varnames, *merged)))
        cells = {slot: self.cell(name) for slot, name in own if name in code.co_cellvars}
        cells |= {slot: self.cell(name) for slot, name in enumerate(code.co_freevars, len(own))}
        return {slot: name for slot, name in own if slot not in cells}, cells

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
        items += [self.delete(name) for name in self.parameters if _is_temporary(name)]
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

    def assemble(self, items: Sequence[Item]) -> CodeType:
        code = self.point.code
        free = len(self.freevars)
        start: list[Item] = [Instruction("COPY_FREE_VARS", free, position=self.position)] if free else []
        return assemble(
            [*start, *map(self._placed, items)],
            code,
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


class _Generator(_Frame):
    """Code of a generator."""

    refused = _GENERATORS & ~inspect.CO_GENERATOR


class _Step(_Frame):
    """Code that runs one operation. The functions to call afterwards lie at the bottom of its stack."""

    refused = _GENERATORS & ~inspect.CO_GENERATOR
    flags = ~_GENERATORS

    def __init__(self, point: ResumePoint) -> None:
        super().__init__(point, (RESUMES,))
        self.successors: list[ResumePoint] = []

    def build(self) -> StepCode:
        if is_generator(self.point.code) and (self.op.name in _OF_GENERATORS or self.point.handled):
            raise Unsupported(f"a generator stands at {self.op.name}", kind="resume-frame")
        items = [*self.rebuild(), *self._operation()]
        if not OPS[self.op.name].ends:
            stack = _bound_after(self.op, self.operands, self.point.locals)
            items += self._go_on(self.index + 1, stack, self._locals_after())
        if self.op.target is not None:
            items += [Mark(_JUMPED), *self._after_for()]
            stack = jumped(self.op, self.operands, lambda: True)
            items += self._go_on(self.op.target, stack, self.point.locals)
        if self.op.handler is not None and may_raise(self.op):
            items += [Mark(_RAISED), *self._handler()]
        return StepCode(self.assemble(items), tuple(self.successors))

    def rebuild(self) -> list[Item]:
        items = super().rebuild()
        if self.op.name == "RETURN_VALUE":  # nothing follows it, and a returning frame leaves an empty stack
            return items
        start = 1 + len(self.prologue)
        functions = [self.load(RESUMES), self.delete(RESUMES)]
        return [*items[:start], *functions, *items[start:]]

    def _operation(self) -> list[Item]:
        """The real instructions, with the step's own labels and handler."""
        real: Sequence[Instruction] = self.program.real[self.index]
        if self.op.name in ("LOAD_METHOD", "LOAD_SUPER_METHOD"):
            plain = without_method(tuple((item.name, item.arg) for item in real))
            real = [replace(real[0], name=name, arg=arg) for name, arg in plain]
        if self.point.entered:
            real = self._entered(real)
        if self.op.name == "JUMP":
            return [self.make("JUMP_FORWARD", target=_JUMPED)]
        handler = self.op.handler
        covered = handler is not None and may_raise(self.op)
        label = HandlerLabel(_RAISED, handler.depth + 1, handler.lasti) if handler and covered else None
        target = _JUMPED if self.op.target is not None else None
        # 3.13 looks for the handler of an exception in a callee just before the calling instruction.
        before = [replace(self.make("NOP"), handler=label)] if covered else []
        jumps = ((self.moved(item), target if item.target is not None else None) for item in real)
        return [*before, *(replace(item, target=to, handler=label) for item, to in jumps)]

    def _entered(self, real: Sequence[Instruction]) -> Sequence[Instruction]:
        """Instructions that call what lies in place of the operands, and leave what the operation leaves."""
        null = [self.make("PUSH_NULL"), *([self.make("SWAP", 2)] if NULL_BELOW_CALLABLE else [])]
        call = [*null, *(self.make(*each) for each in call_group(0))]
        pair, pop = self.make("UNPACK_SEQUENCE", 2), self.make("POP_TOP")
        match FORMS.get(self.op.name, Form.VALUE):
            case Form.VALUE:
                return call
            case Form.NOTHING:
                return [*call, pop]
            case Form.TEST:
                return [*call, *real]
            case Form.PAIR:
                return [*call, pair]
            case Form.METHOD:
                return [*call, *null]
            case Form.NEXT:
                return [*real, pair, self.make("SWAP", 3), pop, self.make("SWAP", 2)]
            case Form.KEEP:
                test = self.op.name.removeprefix("JUMP_").removesuffix("_OR_POP")
                return [*call, pair, replace(real[0], name=f"POP_JUMP_FORWARD_{test}"), pop]
            case never:
                assert_never(never)

    def _after_for(self) -> list[Item]:
        return [self.make(name) for name in AFTER_FOR] if self.op.name == "FOR_ITER" else []

    def _locals_after(self) -> tuple[str, ...]:
        before = self.point.locals
        local = self.locals_at.get(self.program.real[self.index][0].arg)
        match self.op.name:
            case "STORE_FAST" if local is not None:
                rest = tuple(name for name in before if name != local)
                return (*rest, local) if self.point.stack[-1] else rest
            case "DELETE_FAST" | "LOAD_FAST_AND_CLEAR":
                return tuple(name for name in before if name != local)
            case _:
                return before

    def _handler(self) -> list[Item]:
        """Go on at the handler; the offset that CPython pushed is that of the step, so put the original one."""
        handler = self.op.handler
        assert handler is not None
        stack = (*self.point.stack[: handler.depth], *(True,) * (handler.lasti + 1))
        items = self._go_on(handler.target, stack, self.point.locals)
        if not handler.lasti:
            return items
        offset = self.make("LOAD_CONST", self.const(self.op.offset // 2))
        swap, drop = self.make("SWAP", 2), self.make("POP_TOP")
        return [swap, drop, offset, swap, *items]

    def _go_on(self, index: int, stack: tuple[bool, ...], local_names: tuple[str, ...]) -> list[Item]:
        """Take the state apart and call the successor's function with it."""
        keep = frozenset(self.point.locals) - live_locals(self.program, self.index)
        point = point_at(self.program, index, stack, local_names, keep)
        layout = layouts(self.program)[index]
        assert layout is not None
        number = len(self.successors)
        self.successors.append(point)
        items: list[Item] = [self.store(f".t{place}") for place in reversed(range(len(stack)))]
        if point.handled:
            items += self._leave_handlers(f".t{layout.handling[0]}")
        items += [self.make("LOAD_CONST", self.const(number)), self.make("BINARY_SUBSCR")]
        items += [self.make("PUSH_NULL"), *([self.make("SWAP", 2)] if NULL_BELOW_CALLABLE else [])]
        items += [self.make(load_cell(), self.cell(name)) for name in self.freevars]
        items.append(self.make("BUILD_TUPLE", len(self.freevars)))
        names = [f".t{name[2:]}" if name.startswith(".s") else name for name in parameters(point)]
        for name in names:
            items += [self.load(name), self.delete(name)]
        items += [self.make(*each) for each in call_group(len(names) + 1)]
        return [*items, self.make("RETURN_VALUE")]

    def _leave_handlers(self, outermost: str) -> list[Item]:
        """Keep the exception handled now as a local, and give the thread back the state from before the frame's."""
        return [
            self.make("LOAD_CONST", self.const(None)),
            self.make("PUSH_EXC_INFO"),
            self.make("POP_TOP"),
            self.store(HANDLED),
            self.load(outermost),
            self.make("POP_EXCEPT"),
        ]


_FREE = 1 << 20  # above any number of locals
_JUMPED = "jumped"
_RAISED = "raised"


def _is_temporary(name: str) -> bool:
    return name.startswith(".s") or name == HANDLED


def _bound_after(op: Op, stack: tuple[bool, ...], local_names: tuple[str, ...]) -> tuple[bool, ...]:
    """Which slots hold values after `op`."""
    match op.name:
        case "PUSH_NULL":
            return *stack, False
        case "LOAD_FAST_AND_CLEAR":
            return *stack, op.arg in local_names
        case "LOAD_METHOD":
            return *stack[:-1], *_CALL_PAIR
        case "LOAD_SUPER_METHOD":
            return *stack[:-3], *_CALL_PAIR
        case _:
            return moved(op, stack, lambda: True)


_CALL_PAIR = call_pair(True, False)


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
