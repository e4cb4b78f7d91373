"""Run a captured torch-level graph node by node, telling which node runs.

In:     `CapturedGraph.module` and its arguments (fakes, symbols).
Out:    the tuple of its outputs, and which tensors its nodes gave.
Holds:  calls that change the shape of a tensor in place (`unsqueeze_`, `t_`) are run as views, and every later use of
        the same object sees the view: a fake's shape never changes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from pliant.autograd.aliases import Alias
from pliant.autograd.functional_ops import UnsupportedMutation
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.gradients import gradients
from pliant.graph.lent_numbers import call_on_fakes, mode_of
from pliant.graph.unbacked import CHECKS, call_numbering, numbering
from pliant.torch_adapter import set_grad_enabled

_VIEW_IN_PLACE = {
    name + "_": name
    for name in ("unsqueeze", "squeeze", "t", "transpose", "swapaxes", "swapdims", "as_strided")
}  # fmt: skip


def run_module(
    module: fx.GraphModule,
    inputs: list[Any],
    on_node: Callable[[fx.Node | None], None],
    constant: Callable[[torch.Tensor], Any],
    values: dict[fx.Node, Any] | None = None,
) -> tuple[Any, ...]:
    """The outputs of `module(*inputs)`. `constant` turns a tensor that the module holds into a fake. `values` is given what
    each node gave."""
    _refuse_other_shapes(module.graph)
    values = {} if values is None else values
    given, depth = iter(inputs), 1 + sum(node.target is gradients for node in module.graph.nodes)
    for node in module.graph.nodes:
        on_node(node)
        match node.op:
            case "placeholder":
                values[node] = next(given)
            case "get_attr":
                values[node] = _attribute(module, node.target, constant)
            case "output":
                on_node(None)
                return tuple(fx.map_arg(node.args[0], values.__getitem__))
            case _ if node.target in CHECKS:  # recorded by `on_node`
                values[node] = None
            case _ if node.meta.get("inference") and torch.is_grad_enabled() and node.target is not set_grad_enabled:
                with torch.no_grad():  # which `enable_grad` in a block of inference mode does not change
                    values[node] = _call(module, node, values, inputs, depth)
            case _:
                values[node] = _call(module, node, values, inputs, depth)
    raise AssertionError("a graph without an output node")


def is_noted(values: dict[fx.Node, Any]) -> bool:
    """Whether autograd notes anything of what the nodes gave: of those in blocks of inference mode it does not."""
    made = [values[node] for node in values if node.op != "placeholder" and not node.meta.get("inference")]
    return any(isinstance(one, torch.Tensor) and one.requires_grad for one in tree_leaves(made))


def _refuse_other_shapes(graph: fx.Graph) -> None:
    """Refuse `unsqueeze_` and its kin of an input before anything runs: whoever captured the call has seen the input become
    another, and so it is given here."""
    for node in graph.find_nodes(op="placeholder"):
        same = [node]
        for one in same:  # grows
            for user in one.users:
                if user.op != "call_method" or user.args[0] is not one or not str(user.target).endswith("_"):
                    continue
                if user.target in _VIEW_IN_PLACE:
                    raise UnsupportedMutation(f"`{user.target}` changes the shape of an input", kind="metadata-mutation")
                same.append(user)


def _attribute(module: fx.GraphModule, target: Any, constant: Callable[[torch.Tensor], Any]) -> Any:
    value = operator.attrgetter(target)(module)
    return constant(value) if isinstance(value, torch.Tensor) else value


def _call(module: fx.GraphModule, node: fx.Node, values: dict[fx.Node, Any], inputs: list[Any], depth: int) -> Any:
    """What a node gives; as many derivatives of it, one of another, may be asked for."""
    args: Any = fx.map_arg(node.args, values.__getitem__)
    kwargs = fx.map_arg(node.kwargs, values.__getitem__)
    target: Any = node.target
    if (numbers := numbering(target)) is not None:
        return call_numbering(numbers, mode_of(args, kwargs), args, kwargs)
    if node.op == "call_function":
        return _alone(node, call_on_fakes(target, args, kwargs, depth=depth))
    if node.op == "call_module":
        return module.get_submodule(target)(*args, **kwargs)
    if target == "detach_" and any(args[0] is given for given in inputs):  # an error on views, which fakes are not
        raise UnsupportedMutation("`detach_` of an input", kind="metadata-mutation")
    if target in _VIEW_IN_PLACE:
        return _view_in_place(node, args, kwargs, values, inputs)
    # by the name that tables have it
    return call_on_fakes(getattr(type(args[0]), target), args, kwargs, depth=depth)


def _alone(node: fx.Node, made: Any) -> Any:
    """What a call made, as all that there is of its memory: C++ gives what `torch.zeros` and its kin make as the `detach` of a
    tensor that nobody has."""
    alias = made.node if type(made) is FakeTensor else None
    if type(alias) is Alias and alias.is_detached_of_base() and alias.base.node.meta.get("origin") is node:
        alias.become_base()
    return made


def _view_in_place(
    node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any], values: dict[fx.Node, Any], inputs: list[Any]
) -> Any:
    target = args[0]
    if any(target is given for given in inputs):
        raise UnsupportedMutation(f"`{node.target}` changes the shape of an input", kind="metadata-mutation")
    viewed = getattr(target, _VIEW_IN_PLACE[str(node.target)])(*args[1:], **kwargs)
    if not viewed.is_inference():
        torch.autograd.graph.increment_version([viewed])
    if type(viewed.node) is Alias:
        viewed.node.in_place = True
    for other, value in values.items():
        if value is target:
            values[other] = viewed
    return viewed
