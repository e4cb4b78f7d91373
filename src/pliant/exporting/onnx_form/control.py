"""Branches, loops and recurrent layers: ONNX's `If`, `Loop` and `Scan`, whose bodies are graphs, and its `LSTM`, `GRU`, `RNN`.

In:     the writer, a node that runs a program.
Out:    names of its results.
Holds:  bodies see what is computed around them, sizes too, so they take only what changes from step to step. What they
        compute is known in them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import fx

from pliant.exporting.control_form import values_of
from pliant.graph.control_bodies import Body
from pliant.graph.control_flow import AssociativeScan, Branch, Program, Scan, While
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.recurrent import Layer

if TYPE_CHECKING:
    from pliant.exporting.onnx_form.writer import Writer

Given: TypeAlias = "Sequence[tuple[str, FakeTensor]]"  # names in ONNX, and what they are


def written_control(w: Writer, node: fx.Node, program: Program) -> list[str]:
    row = _ROWS.get(type(program))
    if row is None or program.random:
        raise w.refused("a branch or loop that draws random numbers" if row else "the derivative of a branch or loop")
    if not all(hasattr(body.module, "results") for body in program.bodies):
        raise w.refused(f"a branch or loop: {node.meta.get('kept', 'its body is no graph of operators')}")
    return row(w, program, values_of(node))


# ---- graphs in the graph
@contextmanager
def _inside(w: Writer) -> Iterator[list[Any]]:
    """Nodes that are made meanwhile are of a graph of their own. Constants are of the model, wherever they were needed."""
    outer, known, node = w.nodes, w.computed, w.node
    w.nodes, w.computed = [], dict(known)
    try:
        yield w.nodes
    finally:
        constants = {key: name for key, name in w.computed.items() if isinstance(key, tuple)}
        w.nodes, w.computed, w.node = outer, known | constants, node


def _graph(w: Writer, given: Given, make: Callable[[], Given]) -> Any:
    """A graph that takes these, and gives what is made."""
    with _inside(w) as nodes:
        results = [(w.op("Identity", name), fake) for name, fake in make()]
        inputs, outputs = ([w.described(name, fake) for name, fake in each] for each in (given, results))
        return w.onnx.helper.make_graph(nodes, w.fresh(), inputs, outputs)


def _followed(w: Writer, body: Body, names: Sequence[str]) -> Given:
    """What a body makes of these: its nodes where the writer is. Numbers it has from around it."""
    graph: Any = body.module
    tensors = [node for node in graph.graph.find_nodes(op="placeholder") if isinstance(node.meta["val"], FakeTensor)]
    w.values.update(zip(tensors, names, strict=True))
    outer = w.node
    w.follow(graph.graph)
    w.node = outer
    return [(w.value(one), w.fake(one)) for one in graph.results]


def _named(w: Writer, values: Sequence[Any]) -> list[str]:
    """Names of tensors: numbers are in the bodies' sizes."""
    return [w.value(one) for one in values if isinstance(one, fx.Node)]


def _new(w: Writer, fakes: Sequence[FakeTensor]) -> list[tuple[str, FakeTensor]]:
    return [(w.fresh(), fake) for fake in fakes]


def _single(fake: FakeTensor, dtype: torch.dtype) -> FakeTensor:
    """What a tensor of one element is."""
    return cast(FakeTensor, fake.new_empty((), dtype=dtype))


# ---- branches and loops
def _branch(w: Writer, program: Any, values: Sequence[Any]) -> list[str]:
    graphs = [
        _graph(w, (), lambda body=body, one=one: _followed(w, body, _named(w, one)))  # type: ignore[misc]
        for body, one in zip(program.bodies, program.first_given(values), strict=True)
    ]
    chosen = w.value(values[0], torch.bool)
    return w.ops("If", len(graphs[0].output), chosen, then_branch=graphs[0], else_branch=graphs[1])


def _while(w: Writer, program: Any, values: Sequence[Any]) -> list[str]:
    """ONNX asks before the first step for a condition that is computed, and after each step of it for the next."""
    condition, body = program.bodies
    closed = [_named(w, [values[program.count + i] for i in reads]) for reads in program.reads]
    carried = [w.value(one) for one in values[: program.count]]

    def goes_on(names: Sequence[str]) -> str:
        ((name, fake),) = _followed(w, condition, [*names, *closed[0]])
        name = name if fake.dtype_ is torch.bool else w.op("Cast", name, to=w.type(torch.bool))
        return w.op("Reshape", name, w.constant(torch.zeros(0, dtype=torch.int64)))

    given = _new(w, list(map(w.fake, values[: program.count])))
    truth, count = (_single(w.fake(values[0]), dtype) for dtype in (torch.bool, torch.int64))

    def step() -> Given:
        made = _followed(w, body, [*(name for name, _ in given), *closed[1]])
        return [(goes_on([name for name, _ in made]), truth), *made]

    first = goes_on(carried)
    graph = _graph(w, [(w.fresh(), count), (w.fresh(), truth), *given], step)
    return w.ops("Loop", len(carried), "", first, *carried, body=graph)


def _scan(w: Writer, program: Any, values: Sequence[Any]) -> list[str]:
    carried, scanned, closed = program.parts(values)
    return _scanned(w, program, list(map(w.value, carried)), list(map(w.value, scanned)), values, closed)


def _associative(w: Writer, program: Any, values: Sequence[Any]) -> list[str]:
    """The first slice is what the result starts with: its step is thrown away, since runtimes fail at scans of no slices."""
    _, scanned, closed = program.parts(values)
    names, first = list(map(w.value, scanned)), -1 if program.reverse else 0
    at = w.scalar(first, torch.int64)
    starts = [w.op("Gather", one, at, axis=program.dim) for one in names]
    return _scanned(w, program, starts, names, values, closed)[len(starts) + 1 :]


def _scanned(
    w: Writer, program: Any, carried: Sequence[str], scanned: Sequence[str], values: Sequence[Any], closed: Sequence[Any]
) -> list[str]:
    """A `Scan` from these: what is carried at its end, and what its steps made."""
    fakes = [w.fake(one) if isinstance(one, fx.Node) else one for one in values]
    more, count, chains = _named(w, closed), len(scanned), isinstance(program, AssociativeScan)
    steps = [one for one in program.first_given(fakes)[0] if isinstance(one, FakeTensor)]
    given = _new(w, steps[: len(carried) + count])
    begins = (w.fresh(), _single(fakes[0], torch.bool))

    def step() -> Given:
        made = _followed(w, program.body, [*(name for name, _ in given), *more])
        if not chains:
            return made
        slices = [name for name, _ in given[count:]]
        made = [(w.op("Where", begins[0], own, name), fake) for own, (name, fake) in zip(slices, made, strict=True)]
        return [(w.constant(torch.tensor(False)), begins[1]), *made, *made]

    graph = _graph(w, [begins, *given] if chains else given, step)
    starts = [w.constant(torch.tensor(True)), *carried] if chains else carried
    made = len(graph.output) - len(starts)
    ways = {"scan_input_directions": [1] * count, "scan_output_directions": [1] * made} if program.reverse else {}
    return w.ops(
        "Scan", len(graph.output), *starts, *scanned, body=graph, num_scan_inputs=count, scan_input_axes=[program.dim] * count,
        scan_output_axes=[program.dim if chains else 0] * made, **ways,
    )  # fmt: skip


# ---- recurrent layers
# Places of ATen's gates in the order of ONNX: input, output, forget, cell; update, reset, new.
_GATES: Mapping[str, tuple[int, ...]] = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}


def _layer(w: Writer, program: Any, values: Sequence[Any]) -> list[str]:
    """A node for each layer, of both directions."""
    biases, layers, _, _, both = program.options
    hidden, weights = values[1 : program.first_weight], values[program.first_weight :]
    states = [w.fake(one) for one in hidden]
    if program.packed or program.cast or len({one.shape[2] for one in states}) > 1 or _has_projection(weights, biases, layers, both):
        raise w.refused("a recurrent layer of packed sequences, or with projections")
    ways = 1 + both
    given = w.value(values[0])
    given = w.op("Transpose", given, perm=[1, 0, 2]) if program.batch_first else given
    starts = [w.ops("Split", layers, w.value(one), axis=0, num_outputs=layers) for one in hidden]
    each, ends = len(weights) // layers, []
    for number in range(layers):
        found = _one_layer(w, program, given, [one[number] for one in starts], weights[number * each : (number + 1) * each])
        given = w.op("Transpose", found[0], perm=[0, 2, 1, 3])
        given = w.op("Reshape", given, w.constant(torch.tensor([0, 0, ways * states[0].shape[2]])))
        ends.append(found[1:])
    given = w.op("Transpose", given, perm=[1, 0, 2]) if program.batch_first else given
    return [given, *(w.op("Concat", *each, axis=0) for each in zip(*ends, strict=True))]


def _has_projection(weights: Sequence[Any], biases: bool, layers: int, both: bool) -> bool:
    return len(weights) != layers * (1 + both) * (4 if biases else 2)


def _one_layer(w: Writer, program: Any, given: str, starts: Sequence[str], weights: Sequence[Any]) -> list[str]:
    biases, _, _, _, both = program.options
    ways, gates = 1 + both, _GATES[program.kind]
    of_one = len(weights) // ways
    parts = [weights[i : i + of_one] for i in range(0, len(weights), of_one)]
    inputs, states = (_stacked(w, [_ordered(w, one[k], gates) for one in parts]) for k in (0, 1))
    added = _stacked(w, [w.op("Concat", *(_ordered(w, one[k], gates) for k in (2, 3)), axis=0) for one in parts]) if biases else ""
    options: dict[str, Any] = {"hidden_size": w.fake(weights[1]).shape[1], "direction": "bidirectional" if both else "forward"}
    if program.kind == "gru":
        options["linear_before_reset"] = 1
    if program.kind == "rnn_relu":
        options["activations"] = ["Relu"] * ways
    kind = program.kind.partition("_")[0].upper()
    return w.ops(kind, 1 + len(starts), given, inputs, states, added, "", *starts, **options)


def _stacked(w: Writer, parts: Sequence[str]) -> str:
    """One behind the other along a new dimension."""
    return w.op("Concat", *(w.op("Unsqueeze", one, w.sizes([0])) for one in parts), axis=0)


def _ordered(w: Writer, weight: fx.Node, gates: Sequence[int]) -> str:
    """The weight with its gates in this order."""
    if len(gates) == 1:
        return w.value(weight)
    parts = w.ops("Split", len(gates), w.value(weight), axis=0, num_outputs=len(gates))
    return w.op("Concat", *(parts[one] for one in gates), axis=0)


_ROWS: Mapping[type[Program], Callable[..., list[str]]] = {
    Branch: _branch, While: _while, Scan: _scan, AssociativeScan: _associative, Layer: _layer,
}  # fmt: skip
