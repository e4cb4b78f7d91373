"""Functions that do one operation of a frame, and call what goes on behind it.

In:     a `ResumePoint`.
Out:    `step_code(point)`: code that rebuilds the frame's state, runs one operation, and calls one function per place it may
        lead to.
Holds:  a step takes the same values and cells as the code that goes on (`resume.py`), after the functions to call.
        Its last call is outside all handlers of the frame: an exception in it has met those in the resumed code.
"""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from types import CodeType
from typing import assert_never

from pliant.bytecode.cfg import jumped, layouts, live_locals, may_raise, moved
from pliant.bytecode.decode import Op
from pliant.bytecode.instructions import Handler, Instruction, Item, Mark
from pliant.bytecode.ops import FORMS, OPS, Form, call_pair, effect
from pliant.bytecode.resume import (
    GENERATORS,
    HANDLED,
    RESUMES,
    FrameCode,
    ResumePoint,
    is_generator,
    parameters,
    per_point,
    point_at,
)
from pliant.bytecode.versions import AFTER_FOR, NULL_BELOW_CALLABLE, call_group, load_cell, without_method
from pliant.errors import Unsupported
from pliant.records import dataclass

_OF_GENERATORS = ("RETURN_GENERATOR", "YIELD_VALUE", "SEND", "END_SEND", "CLEANUP_THROW", "RETURN_VALUE")


@dataclass(frozen=True, slots=True)
class StepCode:
    """`code` takes a tuple of functions, one per successor, before the point's parameters.

    It returns `functions[i](cells, *values of parameters(successors[i]))`, or does what the operation does if this is
    to return or to raise.
    """

    code: CodeType
    successors: tuple[ResumePoint, ...]


@per_point
def step_code(point: ResumePoint) -> StepCode:
    """The code of a function that runs the operation at `point` and calls what goes on behind it."""
    return _Step(point).build()


class _Step(FrameCode):
    """Code that runs one operation. The functions to call afterwards lie at the bottom of its stack."""

    refused = GENERATORS & ~inspect.CO_GENERATOR
    flags = ~GENERATORS

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
            after_for = AFTER_FOR if self.op.name == "FOR_ITER" else ()
            items += [Mark(_JUMPED), *map(self.make, after_for)]
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
        label = Handler(_RAISED, handler.depth + 1, handler.lasti) if handler and covered else None
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


_JUMPED = "jumped"
_RAISED = "raised"


def _bound_after(op: Op, stack: tuple[bool, ...], local_names: tuple[str, ...]) -> tuple[bool, ...]:
    """Which slots hold values after `op`."""
    match op.name:
        case "PUSH_NULL":
            return *stack, False
        case "LOAD_FAST_AND_CLEAR":
            return *stack, op.arg in local_names
        case "LOAD_METHOD" | "LOAD_SUPER_METHOD":
            return *stack[: -effect(op)[0]], *_CALL_PAIR
        case _:
            return moved(op, stack, lambda: True)


_CALL_PAIR = call_pair(True, False)
