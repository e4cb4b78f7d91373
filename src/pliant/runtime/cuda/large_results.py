"""Large results are made outside recordings, which would keep memory for them beside the caller's and copy them there.

In:     a `LoopProgram` that is to be recorded as a CUDA graph.
Out:    `split`: the program up to the library call that makes its large results, and the rest; `made_apart`: a function
        that runs one after the other.
Holds:  together they do what the program does. Logits of a language model are the usual case: hundreds of megabytes, made
        by the last product.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from pliant.graph.contracts import Runnable
from pliant.ir.loops import Buffer, Computation, Extern, LoopProgram, Pointwise, View, whole
from pliant.records import dataclass
from pliant.schedule.dependencies import access
from pliant.schedule.sizes import Sizes
from pliant.symbolic.expr import Symbol
from pliant.wrappers.remade import remade

LARGE = 1 << 24  # bytes of results: to copy less takes no longer than what is launched for them
MOST_STEPS = 16  # loops and calls behind the split, a loss of the results for one: they are launched at every call


@dataclass(frozen=True, slots=True)
class Split:
    """`end` takes what `begin` returns from place `shown` on, then the program's inputs at the places `passed`. `only`: those
    of them that `begin` does not take. `order`: where the program's results are among those of `begin` that are shown and
    those of `end`."""

    begin: LoopProgram
    end: LoopProgram
    shown: int
    passed: list[int]
    only: list[int]
    order: list[int]

    def private(self, of_program: frozenset[int]) -> frozenset[int]:
        """The results of `begin` that nobody sees for longer than a call, and those of the program's that lie there."""
        own = {place for result, place in enumerate(self.order) if result in of_program and place < self.shown}
        return frozenset(own) | frozenset(range(self.shown, len(self.begin.outputs)))


def split(program: LoopProgram, private: Collection[int] = ()) -> Split | None:
    """The program before and from its last library call on, or the first of those that make parts of one result, if large
    results come from there and little else does.
    `private`: results that the backward finds where they lay at the last call, so they stay in the recording's memory."""
    steps = program.computations
    start = _last_call(steps)
    symbols = _symbols(program)
    if start == 0 or len(steps) - start > MOST_STEPS or symbols is None:
        return None
    touched = [access(step) for step in steps]
    written = {b for one in touched[start:] for b in one.writes}
    earlier = {b for one in touched[:start] for b in one.writes}
    if (written | earlier) & set(program.inputs) or written & earlier:
        return None
    results = {k: o.buffer for k, o in enumerate(program.outputs) if isinstance(o, View) and o.buffer in written}
    if Sizes(program).sum(set(results.values())) < LARGE or not results.keys().isdisjoint(private):
        return None
    read = {b for one in touched[start:] for b in one.reads}
    live = sorted(read & earlier, key=lambda b: b.name)
    return _split(program, start, live, read, written, symbols)


def _last_call(steps: list[Computation]) -> int:
    """The place of the last library call, or of the first of those whose results a loop each reads that makes a part."""
    calls = [k for k, step in enumerate(steps) if isinstance(step, Extern)]
    start = calls.pop() if calls else 0
    made = next((step.out for step in steps[start:] if isinstance(step, Pointwise) and step.part), None)
    while calls and any(isinstance(s, Pointwise) and s.part and s.out is made for s in steps[calls[-1] : start]):
        start = calls.pop()
    return start


def _symbols(program: LoopProgram) -> list[Symbol] | None:
    """The sizes and numbers that the program is given, as they are or as sizes of tensors; None: it has others."""
    given = [*program.inputs, *(n for b in program.inputs if isinstance(b, Buffer) for n in (*b.shape, *b.strides))]
    known = list(dict.fromkeys(one for one in given if isinstance(one, Symbol)))
    others = {s for b in program.inputs if isinstance(b, Buffer) for s in _free(b)} - set(known)
    return None if others else known


def _split(
    program: LoopProgram, start: int, live: list[Buffer], read: set[Buffer], written: set[Buffer], symbols: list[Symbol]
) -> Split:
    late = [isinstance(o, View) and o.buffer in written for o in program.outputs]
    shown = [o for o, is_late in zip(program.outputs, late) if not is_late]
    passed = [k for k, b in enumerate(program.inputs) if b in read]
    needed = {b for step in program.computations[:start] for b in access(step).reads}
    needed |= {o.buffer for o in shown if isinstance(o, View)}
    only = [k for k in passed if (b := program.inputs[k]) not in needed and isinstance(b, Buffer) and not _free(b)]
    begin = dataclasses.replace(
        program,
        inputs=[None if k in only else given for k, given in enumerate(program.inputs)],
        computations=program.computations[:start],
        constants=[b for b in program.constants if b in needed],
        outputs=[*shown, *map(whole, live), *symbols],
    )
    inputs = [*live, *symbols, *[program.inputs[k] for k in passed]]
    end = LoopProgram(
        inputs,
        program.computations[start:],
        [o for o, is_late in zip(program.outputs, late) if is_late],
        f"{program.name}_results",
        [b for b in program.constants if b in read],
        program.hints,
        held=frozenset(range(len(inputs))),  # a recording's memory is nobody's to take
    )
    places = {False: iter(range(len(shown))), True: iter(range(len(shown), len(late)))}
    return Split(begin, end, len(shown), passed, only, [next(places[is_late]) for is_late in late])


def _free(b: Buffer) -> set[Symbol]:
    return {s for n in (*b.shape, *b.strides) for s in n.free}


@remade
def made_apart(
    begin: Runnable, end: Runnable, shown: int, passed: list[int], only: list[int], order: list[int]
) -> Runnable:
    """The function of a split program, of those of its parts."""

    def call(inputs: list[Any]) -> list[Any]:
        given = [inputs[k] for k in passed]
        for k in only:
            inputs[k] = None
        first = begin(inputs)
        given[:0] = first[shown:]
        results = first[:shown]
        del first
        results += end(given)
        return [results[k] for k in order]

    return call
