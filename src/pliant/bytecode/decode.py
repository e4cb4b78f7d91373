"""Decode a code object into operations that are the same on CPython 3.11, 3.12 and 3.13.

In:     a `types.CodeType` of the running interpreter.
Out:    `Program`: its normalised operations, with jumps and exception handlers as indices of operations.
Holds:  the stack before each operation is CPython's real stack, slot for slot, NULLs included.
Reads on: `ops.py` (every operation, and the call convention), `versions.py` (what is normalised how), `resume.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, cached_property
from types import CodeType
from typing import TypeVar, cast

from pliant.bytecode.instructions import Handler, Instruction, Label, Position, instructions
from pliant.bytecode.versions import AFTER_FOR, Names, Part, Real, expand, group_length
from pliant.errors import Unsupported
from pliant.records import dataclass


@dataclass(frozen=True, slots=True)
class Op:
    """One normalised operation; `ops.py` says what each name means.

    `offset` is the byte offset of the original instruction; when that one is two operations, the second has the odd
    number above it, so that an offset names an operation. `target` and `handler` are indices into `Program.ops`.
    """

    name: str
    arg: object
    index: int
    offset: int
    position: Position
    target: int | None
    handler: Handler | None

    @property
    def line(self) -> int | None:
        return self.position[0]


@dataclass(frozen=True, eq=False)
class Program:
    """A decoded code object. `sources[i]`: the real names and arguments of `ops[i]`, and the offset of the last."""

    code: CodeType
    ops: tuple[Op, ...]
    sources: tuple[tuple[Real, int], ...]

    @cached_property
    def real(self) -> tuple[tuple[Instruction, ...], ...]:
        """For each operation its real instructions; their labels are indices into `ops`."""
        return tuple(map(_real, self.ops, self.sources))

    @cached_property
    def _by_offset(self) -> dict[int, int]:
        return {op.offset: op.index for op in self.ops}

    @cached_property
    def cell_slots(self) -> frozenset[int]:
        """The indices of the slots that hold cells: cell and free variables."""
        names = Names(self.code)
        return frozenset(slot for slot in range(len(names.slots)) if names.is_cell(slot))

    def index_of(self, offset: int) -> int:
        """The index of the operation at an `Op.offset`."""
        index = self._by_offset.get(offset)
        if index is None:
            raise Unsupported(f"no operation of {self.code.co_qualname} is at offset {offset}", kind="resume-frame")
        return index

    def delegation(self, index: int) -> Op | None:
        """The SEND operation of the `yield from` whose YIELD_VALUE is at `index`; None if that is a plain `yield`."""
        after = self.ops[index + 1]
        if after.name != "JUMP" or after.target is None or self.ops[after.target].name != "SEND":
            return None
        return self.ops[after.target]

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)


_T = TypeVar("_T")


def per_program(function: Callable[[Program], _T]) -> Callable[[Program], _T]:
    """The function, computed once for each program and forgotten with it."""

    def cached(program: Program) -> _T:
        facts = program.__dict__
        if function.__name__ not in facts:
            facts[function.__name__] = function(program)
        return cast(_T, facts[function.__name__])

    return cached


_REMEMBERED = 512  # programs; a process that makes code objects without end must not fill its memory
_programs: dict[int, Program] = {}


def decode(code: CodeType) -> Program:
    """The program of `code`, computed once per code object (by identity: equal code objects may differ in lines)."""
    program = _programs.get(id(code))
    if program is None or program.code is not code:
        program = _decode(code)
        if len(_programs) >= _REMEMBERED:
            _programs.clear()
        _programs[id(code)] = program
    return program


def _decode(code: CodeType) -> Program:
    names = Names(code)
    parts: list[tuple[Part, int, Instruction]] = []
    index_of: dict[Label, int] = {}
    for group in _groups(code):
        offset = group[0].offset
        index_of[offset] = len(parts)
        for number, part in enumerate(expand(names, tuple([(item.name, item.arg) for item in group]))):
            parts.append((part, offset + number, group[-1]))

    @cache
    def placed(real: Handler) -> Handler:
        return replace(real, target=index_of[real.target])

    ops: list[Op] = []
    for index, (part, offset, last) in enumerate(parts):
        target = index_of[last.target] if last.target is not None else None
        if part.name == "FOR_ITER" and target is not None:
            target += len(AFTER_FOR)
        handler = None if last.handler is None else placed(last.handler)
        ops.append(Op(part.name, part.arg, index, offset, last.position, target, handler))
    return Program(code, tuple(ops), tuple([(part.real, last.offset) for part, _, last in parts]))


def _real(op: Op, source: tuple[Real, int]) -> tuple[Instruction, ...]:
    names, offset = source
    target = op.target
    if op.name == "FOR_ITER" and target is not None:
        target -= len(AFTER_FOR)
    return tuple(Instruction(name, arg, target, op.position, op.handler, offset) for name, arg in names)


def _groups(code: CodeType) -> Iterator[tuple[Instruction, ...]]:
    """The real instructions, those together that are one operation together."""
    items = instructions(code)
    names = [item.name for item in items]
    start = 0
    while start < len(items):
        length = group_length(names, start)
        yield tuple(items[start : start + length])
        start += length
