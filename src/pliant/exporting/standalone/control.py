"""Branches, loops and recurrent layers in the text: C's own, around the kernels and operators of their bodies.

In:     the writer of a program's text, the call of the loop IR that runs one.
Out:    lines; `NoForm` for what the text cannot say.
Holds:  bodies see the sizes of the program, as the lines around them do, and its kernels and weights. What a body is given
        is laid out as it is described; what it returns is copied to where the loop keeps it before anything is released.

    for (int64_t i12 = 0; i12 < s1; i12++) {
    P_TRY(p_lay(c, 14, c->at[3] + (i12*4) * 4, 1, (const int64_t[]){4}, (const int64_t[]){s1*4}, (const int64_t[]){1}, 4));
    ...
    p_copy(c->at[12], ..., c->at[17], ...);
    }
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pliant.exporting.bodies import prepared
from pliant.exporting.standalone.operators import SUFFIXES, NoForm, said
from pliant.graph.body_graph import BodyGraph
from pliant.graph.control_bodies import Body
from pliant.graph.control_flow import AssociativeScan, Branch, Program, Scan, While, program_numbered
from pliant.graph.recurrent import Layer
from pliant.ir.loops import Buffer, Extern, LoopProgram, View, whole
from pliant.lowering.lower import lower
from pliant.lowering.tensors import contiguous_strides
from pliant.records import dataclass
from pliant.schedule.kernel import ExternCall, Schedule
from pliant.schedule.schedule import schedule
from pliant.symbolic.expr import ONE, Expr, Symbol, lit

if TYPE_CHECKING:
    from pliant import config
    from pliant.exporting.standalone.writer import ProgramText

Lines = Iterator[str]


@dataclass(slots=True, eq=False)
class Part:
    """Loops and their schedule: of the program, or of a body in it."""

    loops: LoopProgram
    planned: Schedule


Parts = dict[Extern | None, list[Part]]


def parts_of(loops: LoopProgram, options: config.Schedule) -> Parts:
    """The parts of a program: its own (of None), and those of the bodies that a call runs, once for each such call."""
    found: Parts = {None: [_scheduled(loops, options)]}
    waiting = list(found[None])
    while waiting:
        for step in waiting.pop().planned.steps:
            if isinstance(step, ExternCall) and (program := control_of(step.extern)) is not None:
                found[step.extern] = [_scheduled(_lowered(body, step.extern), options) for body in program.bodies]
                waiting += found[step.extern]
    return found


def _scheduled(loops: LoopProgram, options: config.Schedule) -> Part:
    return Part(loops, schedule(loops, options))


def _lowered(body: Body, extern: Extern) -> LoopProgram:
    if not isinstance(body.module, BodyGraph):
        raise NoForm(f"there are no loops for a branch or loop whose body is no graph of operators: `{said(extern)}`")
    return lower(prepared(body.module.aten))


def control_of(extern: Extern) -> Program | None:
    """What a call runs, if it is one of a branch or loop."""
    if getattr(extern.target, "namespace", None) != "pliant_control":
        return None
    return program_numbered(cast(int, extern.args[0]))


def lines_of_control(text: ProgramText, extern: Extern, program: Program) -> Lines:
    made = _LINES.get(type(program))
    if program.random:
        raise NoForm(f"there are no loops for random numbers: `{said(extern)}`")
    if made is None:
        raise NoForm(f"there are no loops for a {type(program).__name__.strip('_').lower()}: `{said(extern)}`")
    _, tensors, numbers, places = extern.args
    values = [tensors[p] if p >= 0 else numbers[-1 - p] for p in places]
    yield from made(text, program, values, extern)


# ---- parts
def _followed(text: ProgramText, part: Part, given: Sequence[Any], kept: Sequence[View]) -> Lines:
    """A block with the lines of a body. `kept`: where its results are copied to."""
    yield "{"
    laid = []
    for b, one in zip(part.loops.inputs, given, strict=True):
        if isinstance(b, Buffer):
            yield _laid(text, b, one)
            laid.append(b)
        elif isinstance(b, Symbol) and lit(one) is not b:
            yield f"const int64_t {b} = {text.number(one)};"
    yield from text.part(part)
    for value, to in zip(_tensors(part), kept, strict=True):
        yield _copied(text, value, to)
    yield from text.released([*laid, *text.allocated(part)])
    yield "}"


def _laid(text: ProgramText, b: Buffer, given: View) -> str:
    """Has an input of a body lie as it is described: where it is, if it lies so."""
    same = all(a is b or n is ONE for n, a, b in zip(b.shape, given.strides, b.strides, strict=True))
    if same:
        return f"{text.at(b)} = {text.place(given)};"
    arrays = ", ".join(map(text.array, (b.shape, given.strides, b.strides)))
    return f"P_TRY(p_lay(c, {text.index(b)}, {text.place(given)}, {len(b.shape)}, {arrays}, {b.dtype.itemsize}));"


def _tensors(part: Part) -> list[View]:
    """What a body returns."""
    if not all(isinstance(one, View) for one in part.loops.outputs):
        raise NoForm("there are no loops for a body that returns numbers")
    return list[Any](part.loops.outputs)


def _copied(text: ProgramText, value: View, to: View) -> str:
    arrays = f"{text.array(to.strides)}, {text.place(value)}, {text.array(value.strides)}, {text.array(value.shape)}"
    return f"p_copy({text.place(to)}, {arrays}, {len(to.shape)}, {to.dtype.itemsize});"


def _results(outs: Sequence[Buffer | None], others: Sequence[tuple[View, tuple[Expr, ...]]]) -> tuple[list[View], list[Buffer]]:
    """Where results are put, and those of them that nothing else reads. `others`: for each a tensor of its dtype, and its
    size."""
    found, own = [], []
    for out, (like, shape) in zip(outs, others, strict=True):
        b = out
        if b is None:
            b = Buffer("", like.dtype, shape, contiguous_strides(shape), like.buffer.device, "temporary")
            own.append(b)
        found.append(whole(b))
    return found, own


def _allocated(text: ProgramText, views: Sequence[View]) -> Lines:
    yield from (text.allocate(one.buffer) for one in views)


def _slice(one: View, dim: int, at: Expr) -> View:
    """Place `at` of a tensor along a dimension."""
    shape, strides = ((*of[:dim], *of[dim + 1 :]) for of in (one.shape, one.strides))
    return dataclasses.replace(one, shape=shape, strides=strides, offset=one.offset + at * one.strides[dim])


# ---- what runs
def _branch(text: ProgramText, program: Any, values: Sequence[Any], extern: Extern) -> Lines:
    parts = text.parts[extern]
    kept, own = _results(extern.outs, [(one, one.shape) for one in _tensors(parts[0])])
    yield from _allocated(text, kept)
    yield f"if ({_truth(text, values[0])}) {{"
    for number, (part, given) in enumerate(zip(parts, program.first_given(values), strict=True)):
        if number:
            yield "} else {"
        yield from _followed(text, part, given, kept)
    yield "}"
    yield from text.released(own)


def _while(text: ProgramText, program: Any, values: Sequence[Any], extern: Extern) -> Lines:
    (condition, body), first = text.parts[extern], values[: program.count]
    closed = [[values[program.count + i] for i in reads] for reads in program.reads]
    carried, own = _results(extern.outs, [(one, one.shape) for one in first])
    (answer,) = _tensors(condition)
    truth = whole(Buffer("", answer.dtype, answer.shape, answer.strides, answer.buffer.device, "temporary"))
    yield from _allocated(text, [*carried, truth])
    yield from (_copied(text, one, to) for one, to in zip(first, carried))
    yield "for (;;) {"
    yield from _followed(text, condition, [*carried, *closed[0]], [truth])
    yield f"if (!{_truth(text, truth)}) break;"
    yield from _followed(text, body, [*carried, *closed[1]], carried)
    yield "}"
    yield from text.released([*own, truth.buffer])


def _scan(text: ProgramText, program: Any, values: Sequence[Any], extern: Extern) -> Lines:
    first, scanned, closed = program.parts(values)
    (body,) = text.parts[extern]
    length: Expr = scanned[0].shape[program.dim]
    shapes = [(one, one.shape) for one in first] + [(one, (length, *one.shape)) for one in _tensors(body)[program.n_carried :]]
    kept, own = _results(extern.outs, shapes)
    carried, stacks = kept[: program.n_carried], kept[program.n_carried :]
    i = text.counter()
    yield from _allocated(text, kept)
    yield from (_copied(text, one, to) for one, to in zip(first, carried))
    yield f"for (int64_t {i} = 0; {i} < {text.number(length)}; {i}++) {{"
    at = length - 1 - i if program.reverse else i
    slices = [_slice(one, program.dim, at) for one in scanned]
    yield from _followed(text, body, [*carried, *slices, *closed], [*carried, *(_slice(one, 0, at) for one in stacks)])
    yield "}"
    yield from text.released(own)


def _associative(text: ProgramText, program: Any, values: Sequence[Any], extern: Extern) -> Lines:
    _, scanned, closed = program.parts(values)
    kept, own = _results(extern.outs, [(one, one.shape) for one in scanned])
    length: Expr = scanned[0].shape[program.dim]
    i = text.counter()
    at, before = (length - 1 - i, length - i) if program.reverse else (i, i - 1)
    slices, results, so_far = (
        [_slice(one, program.dim, place) for one in of] for of, place in ((scanned, at), (kept, at), (kept, before))
    )
    yield from _allocated(text, kept)
    yield f"for (int64_t {i} = 0; {i} < {text.number(length)}; {i}++) {{"
    yield f"if ({i} == 0) {{"
    yield from (_copied(text, one, to) for one, to in zip(slices, results))
    yield "} else {"
    yield from _followed(text, text.parts[extern][0], [*so_far, *slices, *closed], results)
    yield "} }"
    yield from text.released(own)


def _layer(text: ProgramText, program: Any, values: Sequence[Any], extern: Extern) -> Lines:
    if program.packed or program.cast is not None or values[0].dtype not in SUFFIXES:
        raise NoForm(f"there are no loops for a packed recurrent layer, or one of {values[0].dtype}: `{said(extern)}`")
    steps: Expr = values[0].shape[1 if program.batch_first else 0]
    yield text.fact(steps.gt(0), "a recurrent layer of no steps")
    hidden, weights = values[1 : program.first_weight], values[program.first_weight :]
    biases, layers, _, _, both = program.options
    states = [None if b is None else whole(b) for b in extern.outs[1:]]
    seen = (*values[0].shape[:2], hidden[0].shape[2] * (1 + both))
    (out,), own = _results(extern.outs[:1], [(values[0], seen)])
    yield from _allocated(text, [out, *(one for one in states if one is not None)])
    states, given = ([*of, None][:2] for of in (states, hidden))
    views = ", ".join(map(text.argument, weights))
    numbers = [_LAYERS.index(program.kind), int(biases), layers, int(both), int(program.batch_first)]
    arguments = [*map(text.argument, [out, *states, values[0], *given]), f"(const p_view *const[]){{{views}}}", *map(str, numbers)]
    yield f"P_TRY(p_recurrent_{SUFFIXES[values[0].dtype]}({', '.join(arguments)}));"
    yield from text.released(own)


_LAYERS = ("rnn_tanh", "rnn_relu", "gru", "lstm")


def _truth(text: ProgramText, one: Any) -> str:
    if not isinstance(one, View):
        raise NoForm("there are no loops for a branch by what is no tensor")
    return f"p_truth({text.place(one)}, {text.dtype(one.dtype)})"


_LINES: Mapping[type[Program], Callable[..., Lines]] = {
    Branch: _branch, While: _while, Scan: _scan, AssociativeScan: _associative, Layer: _layer,
}  # fmt: skip
