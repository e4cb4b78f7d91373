"""Decode a code object into operations that are the same on CPython 3.11, 3.12 and 3.13.

In:     a `types.CodeType` of the running interpreter.
Out:    `Program`: its normalised operations, with jumps and exception handlers as indices of operations.
Holds:  the stack before each operation is CPython's real stack, slot for slot, NULLs included.
Reads on: `ops.py` (every operation, and the call convention), `versions.py` (what is normalised how), `resume.py`.
"""

import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from types import CodeType

from pliant.capture.bytecode.instructions import (
    HandlerLabel,
    Instruction,
    Label,
    Mark,
    Position,
    disassemble,
)
from pliant.capture.bytecode.versions import AFTER_FOR, Names, expand, group_length


@dataclass(frozen=True, slots=True)
class Handler:
    """Where an exception goes: the stack is cut to `depth`, then the offset (if `lasti`) and the exception are pushed."""

    target: int
    depth: int
    lasti: bool


@dataclass(frozen=True, slots=True)
class Op:
    """One normalised operation; `ops.py` says what each name means.

    `offset` is the byte offset of the original instruction; when that one is several operations, `part` counts them.
    `target` and `handler` speak of indices into `Program.ops`.
    """

    name: str
    arg: object
    index: int
    offset: int
    part: int
    position: Position
    target: int | None
    handler: Handler | None

    @property
    def line(self) -> int | None:
        return self.position[0]


@dataclass(frozen=True, eq=False)
class Program:
    """A decoded code object. `real[i]` are the real instructions of `ops[i]`; their labels are indices into `ops`."""

    code: CodeType
    ops: tuple[Op, ...]
    real: tuple[tuple[Instruction, ...], ...]

    @cached_property
    def _by_place(self) -> dict[tuple[int, int], int]:
        return {(op.offset, op.part): op.index for op in self.ops}

    def index_of(self, offset: int, part: int = 0) -> int:
        """The index of the operation at an original byte offset."""
        return self._by_place[offset, part]

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)


@dataclass(frozen=True, slots=True)
class _Group:
    """Real instructions that belong together, under the offset of the first."""

    instructions: tuple[Instruction, ...]

    @property
    def last(self) -> Instruction:
        return self.instructions[-1]


_programs: "dict[int, tuple[weakref.ref[CodeType], Program]]" = {}
_lock = threading.Lock()


def decode(code: CodeType) -> Program:
    """The program of `code`, computed once per code object (by identity: equal code objects may differ in lines)."""
    found = _programs.get(id(code))
    if found is not None and found[0]() is code:
        return found[1]
    program = _decode(code)
    with _lock:
        _programs[id(code)] = (weakref.ref(code), program)
    return program


def _decode(code: CodeType) -> Program:
    names = Names(code)
    parts: list[tuple[str, object, int, int, tuple[Instruction, ...], Instruction]] = []
    index_of: dict[Label, int] = {}
    for group in _groups(code):
        index_of[group.instructions[0].offset] = len(parts)
        pairs = tuple((item.name, item.arg) for item in group.instructions)
        for number, part in enumerate(expand(names, pairs)):
            real = tuple(replace(group.last, name=name, arg=arg) for name, arg in part.real)
            parts.append((part.name, part.arg, group.instructions[0].offset, number, real, group.last))
    ops, reals = [], []
    for index, (name, arg, offset, number, real, last) in enumerate(parts):
        target = index_of[last.target] if last.target is not None else None
        handler = _handler(last.handler, index_of)
        label = HandlerLabel(handler.target, handler.depth, handler.lasti) if handler else None
        reals.append(tuple(replace(item, target=target, handler=label) for item in real))
        if name == "FOR_ITER" and target is not None:
            target += len(AFTER_FOR)
        ops.append(Op(name, arg, index, offset, number, last.position, target, handler))
    return Program(code, tuple(ops), tuple(reals))


def _handler(label: HandlerLabel | None, index_of: dict[Label, int]) -> Handler | None:
    return Handler(index_of[label.target], label.depth, label.lasti) if label is not None else None


def _groups(code: CodeType) -> Iterator[_Group]:
    instructions = [item for item in disassemble(code) if not isinstance(item, Mark)]
    names = [item.name for item in instructions]
    start = 0
    while start < len(instructions):
        length = group_length(names, start)
        yield _Group(tuple(instructions[start : start + length]))
        start += length
