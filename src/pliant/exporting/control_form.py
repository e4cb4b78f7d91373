"""Branches, loops and recurrent layers in files: programs inside a program.

In:     a node that runs one; the JSON of one, or anything else.
Out:    JSON; a program whose bodies are graphs, or an exception of `READ_ERRORS`.
Holds:  what a body is given follows from what the node is given, and what it makes from its operators, so neither is in
        the file. What bodies must agree in (both branches; what a loop carries) is checked.
Reads on: `nested.py`, `reading.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import fx

from pliant.entries import constants
from pliant.exporting.values import Json, text, unsaved, whole, written_value
from pliant.graph.body_graph import BodyGraph
from pliant.graph.control_flow import (
    AssociativeScan,
    Branch,
    Program,
    Scan,
    While,
    program_of,
)
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.purity import memory_root
from pliant.graph.recurrent import LAYERS, Layer
from pliant.graph.tensor_spec import keys_of

KINDS: dict[str, type[Program]] = {
    "branch": Branch, "while": While, "scan": Scan, "associative_scan": AssociativeScan, "recurrent": Layer,
}  # fmt: skip
_WORDS = {cls: word for word, cls in KINDS.items()}
_BODIES: dict[type[Program], int] = {Branch: 2, While: 2, Scan: 1, AssociativeScan: 1, Layer: 0}


def values_of(node: fx.Node) -> list[Any]:
    """What the program of a node is given: nodes and numbers."""
    _, tensors, numbers, places = cast(tuple[Any, ...], node.args)
    return [tensors[p] if p >= 0 else numbers[-1 - p] for p in places]


def apart(results: Sequence[fx.Node]) -> list[bool]:
    """Which results of a body have memory that neither its inputs nor results before them have."""
    seen, found = set[fx.Node](), list[bool]()
    for one in results:
        root = memory_root(one)
        found.append(root.op != "placeholder" and root not in seen)
        seen.add(root)
    return found


# ---- writing
def written_control(program: Program, written_node: Callable[[fx.Node], Json]) -> Json:
    """What the node says beside its values."""
    graphs = [body.module for body in program.bodies]
    if type(program) not in _WORDS or not all(isinstance(graph, BodyGraph) for graph in graphs):
        raise unsaved("a branch or loop whose body is no graph of operators")
    fields = {name: _written_field(getattr(program, name)) for name in program.FIELDS}
    return {"runs": _WORDS[type(program)], **fields, "bodies": [_written_body(graph, written_node) for graph in graphs]}


def _written_field(value: Any) -> Json:
    if isinstance(value, torch.dtype):
        return constants.spelled(value)[1]
    return list(map(_written_field, value)) if isinstance(value, (list, tuple)) else value


def _written_body(body: Any, written_node: Callable[[fx.Node], Json]) -> Json:
    nodes = list(body.graph.nodes)
    return {
        "inputs": [node.name for node in nodes if node.op == "placeholder"],
        "nodes": [written_node(node) for node in nodes if node.op == "call_function"],
        "results": [written_value(one) for one in body.results],
    }


# ---- reading
def read_control(said: Json, values: Sequence[Any], read_body: Callable[[Json, Sequence[Any]], BodyGraph]) -> Program:
    """The program that a file tells, for such values (fakes and numbers). `read_body`: a body of what it is given."""
    kind = KINDS[text(said["runs"])]
    fields = {name: _FIELDS[name](said[name]) for name in kind.FIELDS}
    bodies = list(said["bodies"])
    if len(bodies) != _BODIES[kind]:
        raise ValueError("a branch or loop without its bodies")

    def made(program: Program) -> list[BodyGraph]:
        _CHECKS[kind](program, values)
        given = program.first_given(values)
        found = [read_body(one, each) for one, each in zip(bodies, given, strict=True)]
        results = [[node.meta["val"] for node in one.results] for one in found]
        _check_agreement(program, values, given, results)
        return found

    program: Program = kind.of_fields(fields, made)
    return program


def _truth(said: Json) -> bool:
    if type(said) is not bool:
        raise ValueError(f"{said!r} is no truth value")
    return said


def _reads(said: Json) -> tuple[list[int], ...]:
    first, second = said
    return [*map(_place, first)], [*map(_place, second)]


def _place(said: Json) -> int:
    found = whole(said)
    if found < 0:
        raise ValueError(f"{said} is no place")
    return found


def _options(said: Json) -> tuple[Any, ...]:
    biases, layers, dropout, train, both = said
    if dropout != 0.0 or train is not True or not 0 < whole(layers) < 1 << 16:
        raise ValueError("no recurrent layer")
    return _truth(biases), layers, 0.0, True, _truth(both)


def _dtype(said: Json) -> torch.dtype | None:
    found = None if said is None else constants.read(["torch", text(said)])
    if found is not None and not isinstance(found, torch.dtype):
        raise ValueError(f"{said} is no dtype")
    return found


def _layer_kind(said: Json) -> str:
    found = text(said)
    if found not in LAYERS:
        raise ValueError(f"`{found}` is no recurrent layer")
    return found


_FIELDS: Mapping[str, Callable[[Json], Any]] = {
    "reads": _reads, "count": _place, "n_carried": _place, "n_scanned": _place, "dim": _place, "reverse": _truth,
    "kind": _layer_kind, "packed": _truth, "options": _options, "batch_first": _truth, "cast": _dtype,
}  # fmt: skip


# ---- what must hold
def _check_branch(program: Any, values: Sequence[Any]) -> None:
    _tensors(values[:1])


def _check_while(program: Any, values: Sequence[Any]) -> None:
    _tensors(values[: program.count])
    if not 0 < program.count <= len(values):
        raise ValueError("a loop that carries nothing")


def _check_scan(program: Any, values: Sequence[Any]) -> None:
    carried, scanned, _ = program.parts(values)
    _tensors((*carried, *scanned))
    if len(carried) != program.n_carried or len(scanned) != program.n_scanned or not scanned:
        raise ValueError("a scan of other values")
    if any(one.dim() <= program.dim for one in scanned) or len({_size_keys(one)[program.dim] for one in scanned}) > 1:
        raise ValueError("a scan along dimensions of different sizes")


def _check_associative(program: Any, values: Sequence[Any]) -> None:
    program.n_carried = 0
    _check_scan(program, values)


def _check_layer(program: Any, values: Sequence[Any]) -> None:
    """PyTorch's kernels look at these too, though not at all of them: results are as large as the states."""
    _tensors(values)
    first, hidden = values[0], list(values[1 + program.packed : program.first_weight])
    _, layers, _, _, both = program.options
    batch = values[1].shape[0] if program.packed else first.shape[0 if program.batch_first else 1]
    right = len(hidden) == (2 if program.kind == "lstm" else 1) and first.dim() == (2 if program.packed else 3)
    right = right and all(one.dim() == 3 and one.shape[0] == layers * (1 + both) for one in hidden)
    right = right and (program.packed or all(_size_keys(one)[1] == _size_keys(first)[0 if program.batch_first else 1] for one in hidden))
    weights = values[program.first_weight :]
    if not right or batch is None or list(map(_size_keys, weights)) != list(_weight_sizes(program, first, hidden)):
        raise ValueError("a recurrent layer of other sizes")


def _weight_sizes(program: Any, first: Any, hidden: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The sizes of the weights that a layer of such states has, in order."""
    biases, layers, _, _, both = program.options
    outer, inner = _size_keys(hidden[0])[2], _size_keys(hidden[-1])[2]
    gates = {"lstm": 4, "gru": 3}.get(program.kind, 1) * inner
    width = _size_keys(first)[-1]
    for _ in range(layers):
        for _ in range(1 + both):
            yield (gates, width)
            yield (gates, outer)
            yield from [(gates,)] * (2 * biases)
            yield from [(outer, inner)] * (outer != inner)
        width = outer * (1 + both)


_CHECKS: Mapping[type[Program], Callable[[Any, Sequence[Any]], None]] = {
    Branch: _check_branch, While: _check_while, Scan: _check_scan, AssociativeScan: _check_associative, Layer: _check_layer,
}  # fmt: skip


def _tensors(values: Sequence[Any]) -> None:
    if not values or not all(isinstance(one, FakeTensor) for one in values):
        raise ValueError("a branch or loop of what is no tensor")


def _size_keys(fake: FakeTensor) -> tuple[Any, ...]:
    return tuple(keys_of(fake.size_))


def _check_agreement(program: Program, values: Sequence[Any], given: Sequence[Any], results: Sequence[Sequence[Any]]) -> None:
    """The bodies return what the operator is described to."""
    for one in (value for each in results for value in each):
        if not isinstance(one, FakeTensor):
            raise ValueError("a body that returns what is no tensor")
    match program:
        case Branch():
            pairs = [(results[0], results[1])]
        case While():
            pairs = [(results[1], values[: program.count])]
            if len(results[0]) != 1 or results[0][0].numel() != 1:
                raise ValueError("a condition that is no single element")
        case AssociativeScan():
            pairs = [(results[0], given[0][: program.n_scanned])]
        case Scan():
            pairs = [(results[0][: program.n_carried], values[: program.n_carried])]
        case _:
            pairs = []
    for some, others in pairs:
        if [_kind(one) for one in some] != [_kind(one) for one in others]:
            raise ValueError("bodies of a branch or loop that disagree")


def _kind(fake: FakeTensor) -> Any:
    return fake.dtype_, _size_keys(fake), fake.device_


def control_of(node: fx.Node) -> Program | None:
    """The program that a node runs, if it runs one."""
    return program_of(node) if node.op == "call_function" else None
