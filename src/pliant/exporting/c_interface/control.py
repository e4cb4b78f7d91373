"""Branches, loops and recurrent layers in the text: C's own, around the operators of their bodies.

In:     the writer of a program's text, a node that runs one.
Out:    lines; `NoForm` for what the text cannot say.
Holds:  bodies see the sizes of the program, as the lines around them do. What they are given is copied to slots of their own,
        laid out as they are described; what they return has memory of its own.

    if (p_truth(f, 3)) {
    ...
    p_value(f, 9); p_gather(f, 1, 5);
    } else {
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.exporting.control_form import apart, values_of
from pliant.graph.body_graph import BodyGraph
from pliant.graph.control_bodies import Body
from pliant.graph.control_flow import AssociativeScan, Branch, Program, Scan, While
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.recurrent import Layer
from pliant.graph.tensor_spec import keys_of
from pliant.symbolic.expr import lit

if TYPE_CHECKING:
    from pliant.exporting.c_interface.writer import ProgramText

_aten = torch.ops.aten
Lines = Iterator[str]


def lines_of_control(text: ProgramText, node: fx.Node, program: Program) -> Lines:
    made = _LINES.get(type(program))
    if made is None:
        raise text.no_form("the derivative of a branch or loop")
    if not all(isinstance(body.module, BodyGraph) for body in program.bodies):
        raise text.no_form(f"a branch or loop: {node.meta.get('kept', 'its body is no graph of operators')}")
    yield from made(text, program, values_of(node), text.slot(node))


# ---- parts
def _followed(text: ProgramText, body: Body, given: Sequence[int]) -> Lines:
    """The lines of a body of such slots, which leave its results on the stack."""
    graph: Any = body.module
    tensors = [one for one in graph.graph.find_nodes(op="placeholder") if isinstance(one.meta["val"], FakeTensor)]
    for node, slot in zip(tensors, given, strict=True):
        strides = [text.number(lit(n)) for n in keys_of(node.meta["val"].stride_)]
        yield f"{{ const int64_t strides[] = {{{', '.join(strides) or '0'}}}; p_lay(f, {slot}, {text.slot(node)}, {len(strides)}, strides); }}"
    yield from text.nodes(graph.graph)
    for one, own in zip(graph.results, apart(graph.results), strict=True):
        yield _pushed(text.slot(one), copied=not own)


def _pushed(slot: int, copied: bool = False) -> str:
    return f"p_value(f, {slot});" + (" p_copied(f);" if copied else "")


def _slots(text: ProgramText, values: Sequence[Any]) -> list[int]:
    """Slots of tensors: numbers are among the program's sizes."""
    return [text.slot(one) for one in values if isinstance(one, fx.Node)]


def _started(text: ProgramText, values: Sequence[int]) -> tuple[list[int], list[str]]:
    """Slots for what is carried, and lines that fill them."""
    carried = [text.new_slot() for _ in values]
    return carried, [f"{_pushed(one, copied=True)} p_store(f, {to});" for one, to in zip(values, carried)]


def _stored(carried: Sequence[int]) -> str:
    return " ".join(f"p_store(f, {slot});" for slot in reversed(carried))


def _gathered(slots: Sequence[int], into: int) -> str:
    return " ".join([*map(_pushed, slots), f"p_gather(f, {len(slots)}, {into});"])


# ---- what runs
def _branch(text: ProgramText, program: Any, values: Sequence[Any], into: int) -> Lines:
    yield f"if (p_truth(f, {text.slot(values[0])})) {{"
    for number, (body, given) in enumerate(zip(program.bodies, program.first_given(values), strict=True)):
        if number:
            yield "} else {"
        yield from _followed(text, body, _slots(text, given))
        yield f"p_gather(f, {len(body.module.results)}, {into});"
    yield "}"


def _while(text: ProgramText, program: Any, values: Sequence[Any], into: int) -> Lines:
    (condition, body), truth = program.bodies, text.new_slot()
    closed = [_slots(text, [values[program.count + i] for i in reads]) for reads in program.reads]
    carried, lines = _started(text, _slots(text, values[: program.count]))
    yield from lines
    yield "for (;;) {"
    yield from _followed(text, condition, [*carried, *closed[0]])
    yield f"p_store(f, {truth}); if (!p_truth(f, {truth})) break;"
    yield from _followed(text, body, [*carried, *closed[1]])
    yield f"{_stored(carried)} }}"
    yield _gathered(carried, into)


def _scan(text: ProgramText, program: Any, values: Sequence[Any], into: int) -> Lines:
    given, scanned, closed = program.parts(values)
    chains = isinstance(program, AssociativeScan)
    count = len(scanned) if chains else len(given)
    carried, lines = ([text.new_slot() for _ in scanned], []) if chains else _started(text, _slots(text, given))
    slices = [text.new_slot() for _ in scanned]
    lists = [text.new_slot() for _ in range(count if chains else len(program.body.module.results) - count)]
    length, i = text.number(lit(keys_of(scanned[0].meta["val"].size_)[program.dim])), f"i{into}"
    yield from lines
    yield " ".join(f"p_start(f, {one});" for one in lists)
    yield f"for (int64_t {i} = 0; {i} < {length}; {i}++) {{"
    at = f"{length} - 1 - {i}" if program.reverse else i
    yield " ".join(f"p_slice(f, {text.slot(one)}, {program.dim}, {at}, {to});" for one, to in zip(scanned, slices))
    if chains:
        yield f"if ({i} == 0) {{ {' '.join(map(_pushed, slices))} }} else {{"
    yield from _followed(text, program.body, [*carried, *slices, *_slots(text, closed)])
    yield "}" if chains else " ".join(f"p_append(f, {one});" for one in reversed(lists))
    yield _stored(carried)
    if chains:
        yield " ".join(f"{_pushed(one)} p_append(f, {to});" for one, to in zip(carried, lists))
    yield "}"
    dim, back = program.dim if chains else 0, int(program.reverse)
    yield " ".join(f"p_stack(f, {one}, {dim}, {back});" for one in lists)
    yield _gathered([*([] if chains else carried), *lists], into)


def _layer(text: ProgramText, program: Any, values: Sequence[Any], into: int) -> Lines:
    if program.cast is not None:
        raise text.no_form("a recurrent layer under autocast")
    hidden, weights = list(values[1 + program.packed : program.first_weight]), list(values[program.first_weight :])
    operator = getattr(getattr(_aten, program.kind), "data" if program.packed else "input")
    layout = () if program.packed else (program.batch_first,)
    given = [*values[: 1 + program.packed], hidden if program.kind == "lstm" else hidden[0], weights, *program.options, *layout]
    yield text.call(operator, given, {}, into)


_LINES: Mapping[type[Program], Callable[..., Lines]] = {
    Branch: _branch, While: _while, Scan: _scan, AssociativeScan: _scan, Layer: _layer,
}  # fmt: skip
