"""What PyTorch asks of sizes that the program does not.

In:     a `Program`, PyTorch's program of it.
Out:    an `ExportError` that names the condition, or nothing; facts that PyTorch believes without a check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from pliant.errors import ExportError
from pliant.exporting.program import Program
from pliant.exporting.torch_form.refusal import refused
from pliant.exporting.torch_form.sizes import Sizes
from pliant.symbolic.expr import Constant, Expr, Symbol
from pliant.symbolic.facts import Facts
from pliant.symbolic.printer import to_python
from pliant.torch_adapter import OpOverload

_aten = torch.ops.aten
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def check_as_wide(program: Program, sizes: Sizes, made: Any) -> None:
    """That it takes every size that the program takes: PyTorch adds conditions of its own without a word."""
    known, nodes = sizes.known(), list(made.graph.find_nodes(op="placeholder"))
    given = nodes[len(nodes) - program.form.arguments.num_leaves :]
    found: dict[fx.Node, Any] = {}
    for leaf, fake in sizes.fakes.items():
        found[given[leaf]] = [program.shape_env.wrap(size) for size in sizes.of(fake)]
        for size, theirs in zip(sizes.of(fake), given[leaf].meta["val"].shape, strict=True):
            _check_range(sizes, size, theirs, made.range_constraints)
    for node in made.graph.nodes:
        if node.target is _aten._assert_scalar.default:
            _check_condition(program, known, found.get(node.args[0]))
        elif node.op == "call_function" and all(one in found for one in node.all_input_nodes):
            _follow(node, found)


def _check_condition(program: Program, known: Facts, condition: Any) -> None:
    """That a condition on sizes always holds. None: it is of what only running tells, or of nothing that is known."""
    if condition is None and not any(node.meta.get("binds") for node in program.graph.nodes):
        raise _narrower("a condition on results")
    if condition is False:
        raise _narrower("what never holds")
    if isinstance(condition, torch.SymBool) and not known.prove_fully(condition.node.expr):
        raise _narrower(to_python(condition.node.expr, program.names))


def _check_range(sizes: Sizes, size: Expr, theirs: Any, ranges: Mapping[Any, Any]) -> None:
    """That a size varies, from where to where the program's does."""
    if isinstance(size, Constant):
        return
    text = to_python(size, sizes.program.names)
    if isinstance(theirs, int):
        raise _narrower(f"{text} == {theirs}")
    wanted = sizes.env.facts.range_of(size)
    for symbol, found in ranges.items():
        if str(symbol) == str(theirs) and isinstance(size, Symbol) and (found.lower > wanted.lo or found.upper < wanted.hi):
            raise _narrower(f"{found.lower} <= {text} <= {found.upper}")


def _narrower(text: str) -> ExportError:
    return refused(
        f"PyTorch's program would need `{text}`", "the program itself does not: it takes more sizes",
        "export it with `dynamic_shapes` in which this always holds",
    )  # fmt: skip


def _follow(node: fx.Node, found: dict[fx.Node, Any]) -> None:
    """Note what a node that computes with sizes makes, in the program's own symbols."""
    if node.target is _aten.sym_size.int:
        found[node] = found[node.args[0]][node.args[1]]  # type: ignore[index]
    elif not isinstance(node.target, OpOverload) and not isinstance(node.target, str):
        args = fx.map_arg(node.args, found.__getitem__)
        if all(isinstance(one, (*_SYMBOLIC, int, float)) for one in args):
            found[node] = node.target(*args)


def dropped(facts: Sequence[Expr]) -> list[Expr]:
    """Facts that hold for sizes from 2 on, and not for all: PyTorch believes them, and checks them nowhere."""
    sizes, twos = Facts(), Facts()
    for symbol in {symbol for fact in facts for symbol in fact.free}:
        sizes.learn(symbol.ge(0))
        twos.learn(symbol.ge(2))
    return [fact for fact in facts if twos.prove_fully(fact) and not sizes.prove_fully(fact)]
