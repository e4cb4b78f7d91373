"""One activation of a code object inside the trace, and the loop that steps it.

In:     a decoded program, traced locals, cells.
Out:    `run()` gives a `Returned` or `Yielded`; exceptions of the program leave as `Raised`, graph breaks as `GraphBreak`.
Holds:  `stack` is CPython's stack, slot for slot (NULL included); `saved` is the stack before the current operation.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from pliant.bytecode.decode import Op, Program, decode
from pliant.bytecode.ops import OPS, OpInfo
from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.iterators.endings import let_go
from pliant.capture.signatures import Tracer
from pliant.capture.tracebacks import note_passing
from pliant.dispatch.own_frames import OWN_FILES
from pliant.dispatch.tracebacks import chain
from pliant.records import dataclass
from pliant.source import SourceLocation
from pliant.tables import Table


@dataclass(frozen=True, slots=True, eq=False)
class Returned:
    yields: ClassVar[bool] = False
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Yielded:
    yields: ClassVar[bool] = True
    value: Any


Handler = Callable[["Frame", Op], Any]


class Handlers(Table[str, Handler]):
    """Handlers of normalised operations, by name."""

    def takes(self, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """The decorated function is the row, as of `on_operands`, of these operations."""

        def add(row: Callable[..., Any]) -> Callable[..., Any]:
            self.on_operands(dict.fromkeys(names, row))
            return row

        return add

    def on_operands(self, rows: Mapping[str, Callable[..., Any]]) -> None:
        """Operations of which the table says what they take off the stack and what they leave: `row(tracer, op, *operands)`
        gives it, several values as a sequence."""
        for name, row in rows.items():
            self[name] = _on_operands(row, OPS[name])


def _on_operands(row: Callable[..., Any], info: OpInfo) -> Handler:
    pops, leaves = info.pops, info.pushes

    def handler(frame: Frame, op: Op) -> None:
        stack = frame.stack
        if pops == 1:  # most of them
            made = row(frame.tracer, op, stack.pop())
        elif pops == 2:
            right = stack.pop()
            made = row(frame.tracer, op, stack.pop(), right)
        else:
            made = row(frame.tracer, op, *frame.popn(pops(op.arg) if callable(pops) else pops))
        if leaves == 1:
            stack.append(made)
        elif leaves:
            stack.extend(made)

    return handler


HANDLERS = Handlers()  # all of them: `opcodes/__init__.py` lists the groups


class Frame:
    """`linked`: the caller's current operation does with what this frame returns what its form says (`bytecode.ops.FORMS`),
    and nothing else (so a break can split both)."""

    __slots__ = (
        "tracer", "program", "code", "globals", "locals", "cells", "stack", "ip", "op", "saved", "steps_at_op",
        "linked", "generator", "name", "class_locals", "nodes_at_op", "noticed", "is_polyfill", "is_the_users", "turning", "_located",
    )

    def __init__(
        self,
        tracer: Tracer,
        code: types.CodeType,
        namespace: dict[str, Any],
        local: dict[str, Any],
        cells: dict[str, types.CellType],
        name: str,
        linked: bool,
    ) -> None:
        self.tracer = tracer
        self.program: Program = decode(code)
        self.code = code
        self.globals = namespace
        self.locals = local
        self.cells = cells
        self.stack: list[Any] = []
        self.ip = 0
        self.op: Op = self.program.ops[0]
        self.saved: list[Any] = []
        self.steps_at_op = 0
        self.nodes_at_op = 0
        self.linked = linked
        self.generator: Any = None  # what it is the frame of, while an operation that can be cut drives it
        self.name = name
        self.is_polyfill = code.co_filename in OWN_FILES  # the program has no such frame
        self.is_the_users = not self.is_polyfill and "/torch/" not in code.co_filename
        self.turning = -1, 0, 0  # how many nodes there were when a loop began, at which step, at which operation
        self._located: tuple[Op, SourceLocation] | None = None  # the last answer: several guards are of one operation
        self.class_locals: dict[str, Any] | None = None
        # By id what the frame must not lose within the trace, and what says that it has ended.
        self.noticed: dict[int, tuple[Any, Callable[[Any], bool]]] = {}

    def run(self) -> Returned | Yielded:
        """Step until the frame returns or yields."""
        tracer = self.tracer
        tracer.enter(self)
        try:
            result = self.go_on(tracer.handlers(self.program))
            assert result is not None
            return result
        except GraphBreak:
            tracer.note_break()
            raise
        finally:
            tracer.leave(self)

    def value(self) -> Any:
        """What the frame returns."""
        return self.run().value

    def go_on(self, handlers: Sequence[Handler], end: int | None = None) -> Returned | Yielded | None:
        """Step until the frame returns or yields, or comes before the operation `end`."""
        tracer, ops, stack = self.tracer, self.program.ops, self.stack
        while True:
            ip = self.ip
            if ip == end:
                return None
            self.op = op = ops[ip]
            self.ip = ip + 1
            self.saved = stack.copy()
            tracer.steps += 1
            self.steps_at_op = tracer.steps
            self.nodes_at_op = tracer.recorder.count
            try:
                handler = handlers[ip] if tracer.steps != tracer.stop_at else tracer.stop(self)
                result = handler(self, op)
            except Raised as raised:
                result = None
                self._unwind(raised, op)
            except BaseException as error:
                if not tracer.is_carried(error):
                    raise
                result = None
                self._unwind(tracer.raised(error), op)  # through our code that iterates what is the program's
            if result is not None:
                return result  # type: ignore[no-any-return]
            if self.noticed:
                self.check_let_go((*stack, *self.locals.values()))

    def forget(self) -> None:
        """Hold nothing any more."""
        self.locals, self.cells, self.saved, self.noticed, self.generator = {}, {}, [], {}, None
        self.stack.clear()

    def check_let_go(self, kept: Iterable[Any]) -> None:
        """Break if the frame has lost an object that only CPython can end at the right moment."""
        ids = set(map(id, kept))
        for key, (value, has_ended) in self.noticed.items():
            if key not in ids and not has_ended(value):
                self.tracer.steps += 1  # the operation is done: the break is not before it yet
                raise let_go(value)

    def throw(self, error: BaseException) -> Returned | Yielded:
        """Go on with an exception raised at the current (yield) operation."""
        raised = Raised(error)
        raised.has_context = True
        try:
            self._unwind(raised, self.op)
        finally:  # a cycle of it, its traceback and this frame would keep what the callers hold
            del raised
        return self.run()

    def delegate(self) -> Any:
        """The iterator of the `yield from` at which the frame is suspended, or None."""
        return self.stack[-1] if self._send_op() is not None else None

    def _send_op(self) -> Op | None:
        """The SEND operation that `yield from` goes back to from here."""
        return self.program.delegation(self.ip - 1)

    def end_delegation(self, value: Any) -> Returned | Yielded:
        """Go on behind the `yield from` with its value."""
        op = self._send_op()
        assert op is not None and op.target is not None
        if not op.arg:  # 3.11 pops the iterator here, later versions with END_SEND
            self.stack.pop()
        self.stack.append(value)
        self.ip = op.target
        return self.run()

    def _unwind(self, raised: Raised, op: Op) -> None:
        """Go to the handler that covers the operation, as the exception table says; without one, leave."""
        handler = op.handler
        error = raised.error
        own = not self.tracer.world.is_foreign(error)
        if own and error.__traceback__ is None and not raised.has_context:  # raised just now
            if error.__context__ is None and error is not self.tracer.current_exception:
                chain(error, self.tracer.handling())
        self._note_passing(error, op)
        if handler is None:
            raised.where = raised.where or self.location()
            try:
                raise raised
            finally:  # no cycle of it, its traceback and this frame
                del raised
        del self.stack[handler.depth :]
        if handler.lasti:
            self.stack.append(op.offset // 2)
        self.stack.append(raised.error)
        self.ip = handler.target

    def _note_passing(self, error: BaseException, op: Op) -> None:
        """CPython adds an entry to the traceback, but not where an exception is raised again."""
        raises_again = op.name == "RERAISE" or op.name == "RAISE_VARARGS" and op.arg == 0
        if not raises_again or error.__traceback__ is None and id(error) not in self.tracer.passed:
            line = op.line or self.code.co_firstlineno
            note_passing(self.tracer, error, self.code, self.globals, op.offset, line)

    # ---- small helpers of handlers
    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        return self.stack.pop()

    def popn(self, count: int) -> list[Any]:
        if count == 0:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def location(self) -> SourceLocation:
        op = self.op
        if self._located is None or self._located[0] is not op:
            self._located = op, SourceLocation(self.code.co_filename, op.line or self.code.co_firstlineno, self.name)
        return self._located[1]
