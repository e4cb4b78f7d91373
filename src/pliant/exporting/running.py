"""Call an exported program: its arguments are checked, the graph runs, mutated inputs get their new values.

In:     a `Program`, what runs its graph.
Out:    `Caller`: takes the model's own arguments, returns the model's own tree.
Holds:  arguments of other dtypes, devices, ranks or sizes than the program is for are a `ConstraintError` that names
        every one. A tensor that is laid out otherwise than the example was is copied first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pliant import config
from pliant.autograd.outputs import OutputMaker
from pliant.autograd.places import MadeOutputs
from pliant.errors import ConstraintError
from pliant.exporting.bodies import bodies_in, own_bodies, prepared, run_by
from pliant.exporting.checking import Checks
from pliant.exporting.program import CallForm, Program
from pliant.exporting.written_back import writing_graph
from pliant.graph.contracts import Runnable
from pliant.graph.interpret import eager
from pliant.torch_adapter import set_grad_enabled

# What no tree of arguments goes into.
_LEAVES = frozenset((torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None)))


class Caller:
    """What a user calls."""

    def __init__(self, program: Program, run: Runnable) -> None:
        self.program, self.run = program, run
        self.form = program.form
        self.checks = Checks(program)
        self.quick = quick_arguments(program.form)
        self.take_state()
        self.leaves = [one.leaf for one in program.inputs if one.leaf is not None]
        first = len(self.state)
        self.written = [i - first for i in program.mutated if i >= first]
        self.maker = OutputMaker(MadeOutputs(list(program.outputs), len(program.results), [], [], [], []), wrote=False)

    def take_state(self) -> None:
        """Use the parameters, buffers and constants that the program has now."""
        self.state = [self.program.state[one.target] for one in self.program.inputs if one.leaf is None]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = self.quick(args, kwargs) or flat_arguments(self.form, args, kwargs)
        given = [leaves[leaf] for leaf in self.leaves]
        tensors = self.checks.prepared(given, leaves)
        recording = torch.is_grad_enabled()
        set_grad_enabled(False)
        try:
            results = self.run([*self.state, *tensors])
            for i in self.written:
                if tensors[i] is not given[i]:
                    given[i].copy_(tensors[i])
            made = self.maker.make([*self.state, *given], results)
        finally:
            set_grad_enabled(recording)
        return pytree.tree_unflatten(made, self.form.result)


def interpreted(program: Program) -> Caller:
    """The program run operator by operator."""
    return Caller(program, eager(writing_graph(program)))


def compiled(program: Program, options: Mapping[str, object]) -> Caller:
    """The program as compiled code."""
    from pliant.runtime.kernels_or_operators import kernels_or_operators

    with config.use(config.get().with_options(options)):
        graph = writing_graph(program, optimized=True, prepare=own_bodies(program))
        for _, body, aten in bodies_in(graph.graph):
            run_by(body, aten, kernels_or_operators(prepared(aten)))
        return Caller(program, kernels_or_operators(graph))


def quick_arguments(form: CallForm) -> Callable[[tuple[Any, ...], dict[str, Any]], list[Any] | None]:
    """`flat_arguments` of calls that are written as the example's was and hold no lists or dictionaries; else None."""
    args, kwargs = pytree.tree_unflatten([None] * form.arguments.num_leaves, form.arguments)
    count, names = len(args), list(kwargs)
    flat = count + len(names) == form.arguments.num_leaves and all(one is None for one in (*args, *kwargs.values()))

    def quick(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        if not flat or len(args) != count or list(kwargs) != names:
            return None
        leaves = [*args, *kwargs.values()]
        return leaves if all(type(leaf) in _LEAVES for leaf in leaves) else None

    return quick


def flat_arguments(form: CallForm, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The leaves of a call. Arguments may be given by position or by name, whichever the example did."""
    wanted = form.arguments
    leaves, found = pytree.tree_flatten((tuple(args), dict(kwargs)))
    if found == wanted:
        return leaves
    args, kwargs = _as_exported(form, args, kwargs)
    leaves, found = pytree.tree_flatten((tuple(args), dict(kwargs)))
    if found == wanted:
        return leaves
    raise ConstraintError(
        "the call has not the arguments that the program was exported with", kind="arguments",
        why=f"it was exported with {_shape(wanted)}\nand is called with {_shape(found)}",
        do="pass the same arguments, tuples, lists and dictionaries", doc="docs/export.md#calling",
    )  # fmt: skip


def _shape(tree: pytree.TreeSpec) -> str:
    args, kwargs = pytree.tree_unflatten(["*"] * tree.num_leaves, tree)
    texts = [str(one) for one in args] + [f"{name}={one}" for name, one in kwargs.items()]
    return f"({', '.join(texts)})".replace("'*'", "*")


def _as_exported(form: CallForm, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments by position that were, the others by name in the example's order."""
    positions, keywords = pytree.tree_unflatten([None] * form.arguments.num_leaves, form.arguments)
    rest, moved = dict(kwargs), list(args)
    for name in form.names[len(moved) : len(positions)]:
        if name not in rest:
            break
        moved.append(rest.pop(name))
    for name, value in zip(form.names[len(positions) :], moved[len(positions) :]):
        if name not in rest and name in keywords:
            rest[name] = value
    if len(moved) > len(positions):
        moved = moved[: len(positions)] if len(moved) <= len(form.names) else moved
    return moved, {**{k: rest[k] for k in keywords if k in rest}, **{k: v for k, v in rest.items() if k not in keywords}}
