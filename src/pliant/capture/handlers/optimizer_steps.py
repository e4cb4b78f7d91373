"""Steps of optimizers: the same for each tensor of their lists, and perhaps skipped where data says so.

In:     the functions behind optimizers, which take lists of tensors, all equally long; the methods of `torch.amp.GradScaler` that
        call them where no gradient overflows.
Out:    the function interpreted for the first place of each kind of tensors, its nodes copied for the others; where a step may be
        skipped, the choice between the new value and the old one for each tensor that it writes.
Holds:  the graph is the one that interpreting each place would give, kind by kind; the places share no tensor. Skipped are only
        steps of PyTorch's own optimizers without hooks, whose state is made and whose steps change tensors alone: one that
        is not made has no effect. Others are called where data decides, behind a graph break.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, optim

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows
from pliant.capture.recording.regions import tensors_of
from pliant.capture.recording.torch_calls import call_torch
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import is_several
from pliant.capture.value_kinds import is_symbolic
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.torch_adapter import (
    DisableTorchFunction,
    append_node,
    below_python_dispatch,
    check_and_unscale,
    optimizer_hooks,
    scaler_step,
)

ROWS = Rows()
handles = ROWS.handles

_OURS = (
    optim.Adadelta, optim.Adagrad, optim.Adam, optim.Adamax, optim.AdamW, optim.ASGD, optim.NAdam, optim.RAdam,
    optim.RMSprop, optim.Rprop, optim.SGD,
)  # fmt: skip
_STEP: Any = scaler_step
_GRADIENTS = 1  # their place among the arguments of the functions behind optimizers


def may_skip(t: Tracer, skipped: Any, step: Callable[[], Any]) -> Any:
    """The step, which has no effect where `skipped` (None: never) holds."""
    before, t.skipped = t.skipped, t.skipped if skipped is None else skipped
    try:
        return step()
    finally:
        t.skipped = before


def step_by_rows(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Interpret a function behind an optimizer."""
    if t.skipped is None:
        return inline_by_rows(t, function, args, kwargs)
    given = [
        a for place, a in enumerate((*args, *kwargs.values())) if is_several(a) and place != _GRADIENTS
    ]
    tensors = tensors_of(t.internalize(one) for a in given for one in t.sequence(a))
    if any(None in t.sequence(a) for a in given):
        raise GraphBreak("data-dependent", "a step that makes its optimizer's state may be skipped")
    before = [call_torch(t, Tensor.clone, (one,), {}) for one in tensors]
    inline_by_rows(t, function, args, kwargs)
    for one, old in zip(tensors, before):
        call_torch(t, Tensor.copy_, (one, call_torch(t, torch.where, (t.skipped, old, one), {})), {})
    return None


def unscale(t: Tracer, gradients: Any, scale: Any, skipped: Any) -> None:
    """What fused kernels do with gradients that are scaled."""
    for one in map(t.internalize, t.sequence(gradients)):
        value = call_torch(t, torch.div, (one, scale), {})
        value = value if skipped is None else call_torch(t, torch.where, (skipped, one, value), {})
        call_torch(t, Tensor.copy_, (one, value), {})


@handles(check_and_unscale)
def _check_and_unscale(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """Operators on single gradients, which fuse with what follows."""
    gradients, found, inverse = args
    for one in map(t.internalize, t.sequence(gradients)):
        finite = call_torch(t, torch.all, (call_torch(t, torch.isfinite, (one,), {}),), {})
        call_torch(t, Tensor.copy_, (found, call_torch(t, torch.where, (finite, found, 1.0), {})), {})
        call_torch(t, Tensor.mul_, (one, inverse), {})


@handles(_STEP)
def _maybe_step(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    optimizer = args[1]
    kept = t.world.is_foreign(optimizer) and not t.world.has_changes(optimizer.state)
    if len(args) > 3 or kwargs or not kept or not _is_skippable(optimizer):
        return t.inline(_STEP, args, kwargs)
    per_device = t.subscript(args[2], "found_inf_per_device")
    found = t.sequence(t.call(t.get_attr(per_device, "values"), (), {}))
    total = functools.reduce(lambda a, b: t.call(operator.add, (a, b), {}), found)
    skipped = call_torch(t, torch.ne, (total, 0), {})
    return may_skip(t, skipped, lambda: t.call(t.get_attr(optimizer, "step"), (), {}))


def _is_skippable(optimizer: optim.Optimizer) -> bool:
    """Whether its steps change tensors alone: that its state is there is guarded where the step reads it."""
    hooks = (
        *optimizer_hooks(),
        optimizer._optimizer_step_pre_hooks,
        optimizer._optimizer_step_post_hooks,
    )
    if type(optimizer) not in _OURS or any(hooks) or "step" in vars(optimizer) and not _is_tracked(optimizer):
        return False
    return all(not group["differentiable"] and _has_state(optimizer, group) for group in optimizer.param_groups)


def _is_tracked(optimizer: optim.Optimizer) -> bool:
    """Whether it is a scheduler that notes that a step was made, as it has been noted before."""
    return hasattr(optimizer.step, "_wrapped_by_lr_sched") and getattr(optimizer, "_opt_called", False)


def _has_state(optimizer: optim.Optimizer, group: dict[str, Any]) -> bool:
    stepped = [p for p in group["params"] if p.requires_grad]
    if type(optimizer) is optim.SGD:
        made = [optimizer.state.get(p, {}).get("momentum_buffer") is not None for p in stepped]
        return not group["momentum"] or all(made)
    return all(optimizer.state.get(p) for p in stepped)


# ---- lists of tensors
Row = tuple[FakeTensor, ...]


def inline_by_rows(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Interpret a function that returns nothing, once for each kind of rows where that can be told, else as it is."""
    lists = {k: _listed(t, a) for k, a in (*enumerate(args), *kwargs.items()) if is_several(a)}
    columns = {k: column for k, column in lists.items() if column}
    rows = list(zip(*columns.values()))
    if len({len(column) for column in columns.values()}) != 1 or len(rows) < 2 or not _independent(t, rows):
        return t.inline(function, args, kwargs)
    kinds: dict[Any, list[Row]] = {}
    for row in rows:
        kinds.setdefault(tuple(map(_kind, row)), []).append(row)

    def interpret(row: Row) -> None:
        single = {k: [tensor] for k, tensor in zip(columns, row)}
        given = tuple([single.get(k, a) for k, a in enumerate(args)])
        t.inline(function, given, {k: single.get(k, v) for k, v in kwargs.items()})

    for first, *others in kinds.values():
        template = _Template(t, first)
        interpret(first)
        if not template.finish():
            for row in others:
                interpret(row)
        else:
            template.copy(others)
    return None


def _listed(t: Tracer, value: Any) -> list[Any]:
    return [t.internalize(one) for one in t.sequence(value)]


def _independent(t: Tracer, rows: list[tuple[Any, ...]]) -> bool:
    """Whether no row reads what another writes, and none is known by its value."""
    tensors = [one for row in rows for one in row]
    if torch.is_grad_enabled() or t.recorder.overrides.has_subclasses or t.recorder.region is not None:
        return False
    if len(set(map(id, tensors))) < len(tensors):
        return False
    constants = t.recorder.elements.constants
    return all(is_fake(one) and constants.of(one) is None and not one._is_view() for one in tensors)


def _kind(fake: FakeTensor) -> Any:
    """Equal for tensors on which the function does the same."""
    sizes = [size.node.expr if is_symbolic(size) else size for size in (*fake.size_, *fake.stride_, fake.offset_)]
    flags = fake.is_parameter_, fake.requires_grad, fake.is_leaf, fake.is_inference()
    return (*sizes, len(fake.size_), fake.dtype_, fake.device_, fake.layout, *flags)


class _Template:
    """The nodes that the first row of a kind recorded."""

    def __init__(self, t: Tracer, row: Row) -> None:
        self.recorder, self.row = t.recorder, row
        self.graph: fx.Graph = t.recorder.graph
        self.given = [t.recorder.node_of(one) for one in row]
        self.last = next(iter(reversed(self.graph.nodes)))
        self.versions = self._versions()
        self.nodes: list[fx.Node] = []

    def _versions(self) -> list[int]:
        return [-1 if one.is_inference() else one.writes_ for one in self.row]

    def finish(self) -> bool:
        """Collect the nodes; False if one of them does more than compute from the row, or write it."""
        node = self.last.next
        own = set(self.given)
        while node.op != "root":
            if node.op in ("call_function", "call_method") and not own.isdisjoint(node.all_input_nodes):
                if not is_fake(node.meta.get("val")) or "made" in node.meta:
                    return False
                self.nodes.append(node)
                own.add(node)
            elif is_fake(node.meta.get("val")) and node.op != "placeholder":
                return False
            node = node.next
        return True

    def copy(self, rows: list[Row]) -> None:
        written = [k for k, (now, before) in enumerate(zip(self._versions(), self.versions)) if now != before]
        for row in rows:
            copies = dict(zip(self.given, map(self.recorder.node_of, row)))

            def copied(node: fx.Node, copies: dict[fx.Node, fx.Node] = copies) -> fx.Node:
                return copies.get(node, node)

            for node in self.nodes:
                args, kwargs = fx.map_arg(node.args, copied), fx.map_arg(node.kwargs, copied)
                made = append_node(self.graph, node.op, node.target, args, kwargs, node.name)
                made.meta = dict(node.meta)
                copies[node] = made
        self.recorder.count += len(rows) * len(self.nodes)
        with DisableTorchFunction(), below_python_dispatch():
            torch.autograd.graph.increment_version([row[k] for row in rows for k in written])
