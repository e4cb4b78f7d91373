"""Passes over an exported program, and the check after each.

In:     a `Program`, passes: functions that edit the graph of the copy that they are given.
Out:    a new program; the first stays as it was.
Holds:  after each pass the program is made anew from its description, so what each node makes is what the rules of its
        operator say. The signature, the results' dtypes, sizes and layouts, and what is asked of sizes are the same as
        before, or it is an `ExportError` that names the pass. Results share no memory that a caller could write.
Reads on: `reading.py` (`read_again`), `decompositions.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import torch
from torch import fx

from pliant.autograd.places import FromInput
from pliant.errors import ConfigError, ExportError
from pliant.exporting.assemble import moved_output
from pliant.exporting.checking import facts_of
from pliant.exporting.decompositions import decomposing
from pliant.exporting.program import CONSTANT, USER, Input, Program
from pliant.exporting.reading import read_again
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.cse import cse
from pliant.graph.passes.dce import dce
from pliant.graph.passes.purity import binds_symbols, has_effect, is_random
from pliant.graph.passes.separate import separate
from pliant.graph.unbacked import CHECKS
from pliant.symbolic.expr import lit
from pliant.symbolic.printer import to_python
from pliant.torch_adapter import RUNS_AS

Pass: TypeAlias = Callable[[Any], object]
Given = TypeVar("Given", bound=Program)

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_LARGEST_FOLDED = 1 << 24  # bytes of a constant that is computed beforehand


def transformed(program: Program, passes: Sequence[str | Pass], made: Callable[[Program], Given]) -> Given:
    """The program after the passes. `made`: from a program to what passes are given."""
    chosen = [(_name(one), _pass(one)) for one in passes]
    found = made(read_again(program))
    for name, change in chosen:
        try:
            change(found)
            separate(found.graph, range(len(found.results)))
            _check_inputs(found)
            again = made(read_again(found))
            _check_same(program, again)
        except ExportError as error:
            raise ExportError(
                f"the pass `{name}` leaves another program", kind="pass", why=error.why or error.what, do="correct the pass",
                doc="docs/export.md#passes",
            ) from None  # fmt: skip
        found = again
    return found


def _pass(one: str | Pass) -> Pass:
    if callable(one):
        return one
    if one not in PASSES:
        raise ConfigError(
            f"there is no pass `{one}`", kind="unknown-pass", why=f"the passes are {', '.join(PASSES)}",
            do="pass one of these, or a function",
        )  # fmt: skip
    return PASSES[one]


def _name(one: str | Pass) -> str:
    return one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)


# ---- the check
def _check_inputs(program: Program) -> None:
    if [node.name for node in program.placeholders] != [one.name for one in program.inputs]:
        raise ExportError("", kind="pass", why="the placeholders are not the inputs: add constants with `program.constant`")


def _check_same(before: Program, after: Program) -> None:
    """The signature, results and facts are those of before."""
    for wrong in _differences(before, after):
        raise ExportError("", kind="pass", why=wrong)


def _differences(before: Program, after: Program) -> Iterator[str]:
    old, new = ([(i.kind, i.target, i.leaf, i.mutated) for i in p.inputs if i.kind != CONSTANT] for p in (before, after))
    if old != new:
        yield f"the inputs are {new}, and were {old}"
    if len(before.results) != len(after.results):
        yield f"there are {len(after.results)} results, and were {len(before.results)}"
    for place, (one, other) in enumerate(zip(before.results, after.results)):
        if _described(one) != _described(other):
            yield f"result {place} is {_described(other)}, and was {_described(one)}"
    known = {to_python(fact) for fact in facts_of(before.shape_env)}
    for fact in facts_of(after.shape_env):
        if to_python(fact) not in known:
            yield f"it holds only where {to_python(fact, after.names)}"


def _described(value: Any) -> str:
    fake = value.meta["val"] if isinstance(value, fx.Node) else value
    if not isinstance(fake, FakeTensor):
        return to_python(fake.node.expr) if isinstance(fake, _SYMBOLIC) else repr(fake)
    sizes, strides = ([to_python(lit(n)) for n in of] for of in (fake.spec.size_key, fake.spec.stride_key))
    return f"{fake.dtype_} of [{', '.join(sizes)}] with strides [{', '.join(strides)}] on {fake.device_}"


# ---- constants
def add_constant(program: Program, name: str, tensor: torch.Tensor) -> fx.Node:
    """A placeholder for it, behind the others that are no arguments."""
    taken = {one.target for one in program.inputs} | {node.name for node in program.graph.nodes}
    base = target = re.sub(r"\W+", "_", name).strip("_") or "constant"
    number = 0
    while target in taken or f"c_{target}" in taken:
        number += 1
        target = f"{base}_{number}"
    place = sum(one.kind != USER for one in program.inputs)
    later = [*program.placeholders, *(n for n in program.graph.nodes if n.op != "placeholder")][place]
    with program.graph.inserting_before(later):
        node = program.graph.placeholder(f"c_{target}")
    node.name = node.target = f"c_{target}"
    mode = next(n.meta["val"].fake_mode for n in program.placeholders if "val" in n.meta)
    node.meta.update(val=mode.from_real(tensor), stage="forward")
    program.state[target] = tensor.detach()
    _place(program, [*program.inputs[:place], Input(node.name, CONSTANT, target), *program.inputs[place:]])
    return node


def drop_constants(program: Program) -> None:
    """Forget constants that nothing reads."""
    returned = {str(one) for one in program.outputs}
    kept = []
    for place, (one, node) in enumerate(zip(program.inputs, program.placeholders, strict=True)):
        if one.kind == CONSTANT and not node.users and not any(str(FromInput(place)) in text for text in returned):
            program.graph.erase_node(node)
            del program.state[one.target]
        else:
            kept.append(one)
    _place(program, kept)


def _place(program: Program, inputs: Sequence[Input]) -> None:
    names = [one.name for one in inputs]
    places = {i: names.index(one.name) for i, one in enumerate(program.inputs) if one.name in names}
    program.outputs = tuple(moved_output(one, places) for one in program.outputs)
    program.inputs = tuple(inputs)


# ---- passes
def dead_code(program: Program) -> None:
    """Remove what no result needs."""
    dce(program.graph)
    drop_constants(program)


def common_subexpressions(program: Program) -> None:
    """Compute once what is computed twice."""
    cse(program.graph)


def fold_constants(program: Program) -> None:
    """Compute beforehand what depends on constants alone. Parameters and buffers are none: they may be loaded anew."""
    known: dict[fx.Node, Any] = {
        node: program.state[one.target]
        for one, node in zip(program.inputs, program.placeholders, strict=True)
        if one.kind == CONSTANT and not one.mutated
    }
    for node in list(program.graph.nodes):
        if node.op == "call_function" and _is_constant(node, known):
            known[node] = _computed(node, known)
    folded = [n for n in known if n.op == "call_function" and isinstance(known[n], torch.Tensor)]
    for node in folded:
        if any(user not in known for user in node.users) and _fits(node, known[node]):
            node.replace_all_uses_with(add_constant(program, node.name, known[node].clone()), lambda user: user not in known)
    dead_code(program)


def _is_constant(node: fx.Node, known: dict[fx.Node, Any]) -> bool:
    if node.target in CHECKS or has_effect(node.target) or is_random(node.target) or binds_symbols(node):
        return False
    values = torch.utils._pytree.tree_leaves((node.args, node.kwargs))
    if any(isinstance(value, _SYMBOLIC) for value in values) or any(n not in known for n in node.all_input_nodes):
        return False
    fakes = torch.utils._pytree.tree_leaves(node.meta["val"])
    return all(isinstance(f, FakeTensor) and all(type(n) is int for n in f.size_) and _small(f) for f in fakes)


def _small(fake: FakeTensor) -> bool:
    bytes_: Any = fake.spec.storage_bytes()
    return type(bytes_) is int and bytes_ <= _LARGEST_FOLDED and fake.device_.type == "cpu"


def _computed(node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    target: Any = RUNS_AS.get(node.target, node.target)
    with torch.no_grad():
        return target(*fx.map_arg(node.args, known.__getitem__), **fx.map_arg(node.kwargs, known.__getitem__))


def _fits(node: fx.Node, value: torch.Tensor) -> bool:
    """Whether a copy has the layout that the graph counts on."""
    fake = node.meta["val"]
    return bool(value.clone().stride() == tuple(fake.stride_) and tuple(value.shape) == tuple(fake.size_))


PASSES: dict[str, Pass] = {
    "dead_code": dead_code,
    "common_subexpressions": common_subexpressions,
    "fold_constants": fold_constants,
    "decompose": decomposing(()),
}
