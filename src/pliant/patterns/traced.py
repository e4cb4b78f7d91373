"""A plain Python function of tensors as a functional ATen graph.

In:     the function, tensors (or descriptions of them), keyword numbers.
Out:    `Traced`: the graph that the function records on these, and its outputs.
Holds:  the function writes none of its arguments, and each output is a tensor; else a `PatternError` says which does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from pliant.autograd.aliases import Alias, alias_of
from pliant.autograd.functionalize import FunctionalMode, new_input
from pliant.errors import PatternError
from pliant.graph.fake_tensor import FakeTensor
from pliant.records import dataclass
from pliant.torch_adapter import append_placeholder, set_grad_enabled


@dataclass(slots=True, eq=False)
class Traced:
    """`fresh`: for each output, whether it has memory of its own. `several`: the function returns a tuple. `constants`: tensors
    that the function holds, by their placeholders."""

    graph: fx.Graph
    inputs: list[fx.Node]
    outputs: list[fx.Node]
    fakes: list[FakeTensor]
    fresh: list[bool]
    several: bool
    constants: dict[fx.Node, torch.Tensor]

    @property
    def calls(self) -> list[fx.Node]:
        return [node for node in self.graph.nodes if node.op == "call_function"]


def trace(
    function: Callable[..., Any], tensors: Sequence[Any], numbers: Mapping[str, Any], shape_env: Any, follows: Sequence[bool]
) -> Traced:
    """The graph of `function(*tensors, **numbers)`. `follows`: which tensors autograd follows."""
    graph = fx.Graph()
    mode = FunctionalMode(shape_env, graph)
    mode.allow_unbacked = False
    inputs, nodes = [], []
    for place, (like, follow) in enumerate(zip(tensors, follows, strict=True)):
        node = mode.last_primal = append_placeholder(graph, f"x{place}")
        fake = _fake(mode, like, follow)
        node.meta["val"] = fake
        new_input(node, fake, place)
        inputs.append(fake)
        nodes.append(node)
    before = torch.is_grad_enabled()
    set_grad_enabled(any(follows))
    try:
        with mode:
            made = function(*inputs, **numbers)
    finally:
        set_grad_enabled(before)
    name = getattr(function, "__name__", str(function))
    if any(fake.node.base.version for fake in inputs):
        raise PatternError(f"`{name}` writes an argument", kind="writes", why="a pattern is a function that only computes")
    several = isinstance(made, (tuple, list))
    results = list(made) if several else [made]
    aliases = [_place(name, one) for one in results]
    outputs = [mode.read(alias) for alias in aliases]
    own = [alias.base.input is None and alias.base.node.op != "placeholder" for alias in aliases]
    fresh = [is_own and [a.base for a in aliases].count(alias.base) == 1 for is_own, alias in zip(own, aliases)]
    held = {fake.node.base.node: tensor for tensor, fake in mode.constants.values()}
    traced = Traced(graph, nodes, outputs, results, fresh, several, held)
    _drop_dead(traced)
    return traced


def _fake(mode: FunctionalMode, like: Any, follow: bool) -> FakeTensor:
    if type(like) is FakeTensor:
        spec = like.spec
        return mode.new(spec.size, spec.stride, spec.dtype, spec.device, follow, spec.offset)
    return mode.new(like.shape, like.stride(), like.dtype, like.device, follow)


def _place(name: str, value: Any) -> Alias:
    if type(value) is not FakeTensor:
        raise PatternError(
            f"`{name}` returns {value!r}", kind="result", why=f"it is a {type(value).__name__}, and no tensor that it computed",
            do="return a tensor, or a tuple of tensors",
        )  # fmt: skip
    return alias_of(value)


def _drop_dead(traced: Traced) -> None:
    kept = {*traced.outputs, *traced.inputs, *traced.constants}
    for node in reversed(list(traced.graph.nodes)):
        if not node.users and node not in kept:
            traced.graph.erase_node(node)
