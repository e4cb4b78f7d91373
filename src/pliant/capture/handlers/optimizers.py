"""Steps of optimizers: operators on lists of tensors, the optimizers' choice between their own formulas, steps that are skipped.

In:     calls of the `_foreach_` operators, of the functions behind `torch.optim`, which take lists of tensors, all equally long, of what
        makes an optimizer's state, and of the methods of `torch.amp.GradScaler` that make a step where no gradient overflows.
Out:    the same work as operators on single tensors, which later stages fuse as they see fit. A function is interpreted for the
        first place of each kind of tensors, its nodes are copied for the others. Where a step may be skipped, the choice between
        the new value and the old one for each tensor that it writes.
Holds:  the numbers are those of eager's formula up to rounding; nothing is asked of a tensor's value. The graph is the one that
        interpreting each place would give, kind by kind; the places share no tensor. Skipped are only
        steps of PyTorch's own optimizers without hooks, whose state is made and whose steps change tensors alone: one that
        is not made has no effect. Others are called where data decides, behind a graph break.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, fx, optim
from torch.optim import swa_utils
from torch.optim.adadelta import adadelta
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.adamax import adamax
from torch.optim.adamw import adamw
from torch.optim.asgd import asgd
from torch.optim.nadam import nadam
from torch.optim.radam import radam
from torch.optim.rmsprop import rmsprop
from torch.optim.rprop import rprop
from torch.optim.sgd import sgd
from torch.optim.swa_utils import AveragedModel

from pliant import config
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows
from pliant.capture.protocols.repeated_calls import copied
from pliant.capture.recording.nodes import nodes_behind
from pliant.capture.recording.regions import tensors_of
from pliant.capture.recording.stand_ins import versions_of
from pliant.capture.recording.torch_calls import call_torch
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import is_several
from pliant.capture.value_kinds import is_class, is_number, is_symbolic, is_tensor
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.writes import note_writes
from pliant.interruptions import pass_on
from pliant.polyfills import optimizers
from pliant.torch_adapter import (
    VARIABLE_FUNCTIONS,
    DisableTorchFunction,
    below_python_dispatch,
    check_and_unscale,
    foreach_pow,
    optimizer_hooks,
    scaler_step,
    value_of_optimizer,
)

ROWS = Rows()
handles, TABLE = ROWS.handles, ROWS.callables

# ---- lists of tensors
_PREFIX = "_foreach_"


def _norm(x: Tensor, ord: Any = 2, dtype: torch.dtype | None = None) -> Any:
    return torch.linalg.vector_norm(x, ord, dtype=dtype)


def _clamping(clamp: Callable[..., Tensor], choose: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`maximum` and `minimum` of lists take numbers, too."""
    return lambda x, other: choose(x, other) if is_tensor(other) else clamp(x, other)


def _with_value(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`addcdiv` and the like take their factor by name only."""
    return lambda x, a, b, value=1: function(x, a, b, value=value)


# Those that are not called as the operator on single tensors is.
_SINGLE: dict[str, Callable[..., Any]] = {
    **{n: _with_value(getattr(Tensor, n)) for n in ("addcdiv", "addcdiv_", "addcmul", "addcmul_")},
    "norm": _norm,
    "maximum": _clamping(torch.clamp_min, torch.maximum),
    "minimum": _clamping(torch.clamp_max, torch.minimum),
    "maximum_": _clamping(Tensor.clamp_min_, lambda x, other: x.copy_(torch.maximum(x, other))),
    "minimum_": _clamping(Tensor.clamp_max_, lambda x, other: x.copy_(torch.minimum(x, other))),
}


def _each(function: Any, name: str, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    base = name.removeprefix(_PREFIX)
    single = _SINGLE.get(base) or getattr(Tensor, base)
    given = [_listed(t, value) for value in (*args, *kwargs.values())]
    lengths = {count for _, count in given} - {None}
    if len(lengths) != 1 or 0 in lengths:
        return call_torch(t, function, args, kwargs)
    names = ["value" if name == "scalars" else name for name in kwargs]
    results = [
        call_torch(t, single, row[: len(args)], dict(zip(names, row[len(args) :])))
        for row in zip(*[values for values, _ in given])
    ]
    return None if base.endswith("_") else tuple(results)


def _listed(t: Tracer, value: Any) -> tuple[Iterable[Any], int | None]:
    """The tensors or numbers, and how many they are; one tensor of several numbers is these, any other value is for all."""
    if is_several(value):
        values = [*map(t.internalize, t.sequence(value))]
        return values, len(values)
    value = t.internalize(value)
    if is_fake(value) and value.dim() == 1:
        values = list(value.unbind(0))
        return values, len(values)
    return itertools.repeat(value), None


def _pow_of_number(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`_foreach_pow(2.0, exponents)` has its list second."""
    if args and is_number(args[0]):
        return tuple(call_torch(t, torch.pow, (args[0], one), {}) for one in _listed(t, args[1])[0])
    return _each(foreach_pow, foreach_pow.__name__, t, args, kwargs)


for _name in dir(VARIABLE_FUNCTIONS):
    if _name.startswith(_PREFIX) and _name != foreach_pow.__name__ and (hasattr(Tensor, _name[9:]) or _name[9:] in _SINGLE):
        ROWS.each((getattr(torch, _name),), _each, _name)
TABLE[foreach_pow] = _pow_of_number


# ---- the functions behind optimizers
def _unfused(function: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """The hand-written kernel of a whole step is for programs that are not compiled."""
    if not kwargs.get("fused"):
        return _step_by_rows(t, function, args, kwargs)
    found, scale = (t.internalize(kwargs.get(name)) for name in ("found_inf", "grad_scale"))
    kwargs = {**kwargs, "fused": False, "foreach": False, "grad_scale": None, "found_inf": None}
    skipped = None if found is None else call_torch(t, torch.ne, (found, 0), {})
    if scale is not None:
        t.call(optimizers.unscale, (args[1], scale, skipped), {})
    return _may_skip(t, skipped, lambda: _step_by_rows(t, function, args, kwargs))


def _without_branches(function: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """With `capturable` these select between values where they would branch on the number of the step."""
    on_cpu = all(t.internalize(p).device.type == "cpu" for p in t.sequence(args[0]))
    return _step_by_rows(t, function, args, {**kwargs, "capturable": True} if on_cpu else kwargs)


def _number_of(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """A count of steps, or what is computed from it, as a number in eager: it stays on the device, as precise as that. With
    eager's bits it is the number, on which Python computes: as a tensor its powers and quotients would be others."""
    (value,) = (t.internalize(one) for one in (*args, *kwargs.values()))
    if config.get().bitwise and is_tensor(value):
        return call_torch(t, Tensor.item, (value,), {})
    return (
        call_torch(t, Tensor.double, (value,), {}) if is_tensor(value) and value.is_floating_point() else value
    )


TABLE[value_of_optimizer] = _number_of
ROWS.each((adam, adamw, sgd, adagrad), _unfused)
ROWS.each(
    (adadelta, adamax, nadam, rmsprop), lambda function, t, args, kwargs: _step_by_rows(t, function, args, kwargs)
)
ROWS.each((radam, asgd, rprop), _without_branches)


_FUSED = [name for name in dir(VARIABLE_FUNCTIONS) if name.startswith(("_fused_ada", "_fused_sgd")) and name.endswith("_")]
ROWS.refuses(
    (getattr(torch, name) for name in _FUSED),
    "unsupported-operator",
    "a hand-written kernel for lists of tensors, called by the program",
)


# ---- what an optimizer keeps
def _with_state(function: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """The state is made before it is read, as the step would make it, so that the first step is like every other."""
    optimizer = args[0]
    if t.world.is_foreign(optimizer) and _is_untouched(t, optimizer):
        with DisableTorchFunction(), below_python_dispatch(), torch.no_grad():
            for group in optimizer.param_groups:
                if any(p.grad is not None and not optimizer.state.get(p) for p in group["params"]):
                    _make_state(function, optimizer, group)
    return t.inline(function, args, kwargs)


def _is_untouched(t: Tracer, optimizer: torch.optim.Optimizer) -> bool:
    """Whether the trace has stored nothing that its state is made from."""
    containers = (optimizer.state, *optimizer.param_groups)
    return not t.world.has_stored("grad") and not any(map(t.world.has_changes, containers))


def _make_state(function: Any, optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
    count = len(inspect.signature(function).parameters) - 2  # lists to fill, besides `self` and the group
    try:
        function(optimizer, group, *[[] for _ in range(count)])
    except Exception as error:  # the step itself raises it, at its place
        pass_on(error)


_INIT_GROUPS = (vars(cls).get("_init_group") for cls in vars(torch.optim).values() if is_class(cls))
ROWS.each(filter(None, _INIT_GROUPS), _with_state)


# ---- averages of models: whether anything was averaged before, which only data answers, is chosen by an operator
_UPDATE: Any = AveragedModel.update_parameters


@handles(_UPDATE)
def _update_parameters(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    averages = [t.get_attr(args[0], name) for name in ("avg_fn", "multi_avg_fn")]
    ours = all(one is None or _is_ours(one) for one in averages)
    function: Any = optimizers.updated if ours else _UPDATE
    return t.inline(function, args, kwargs)


def _is_ours(function: Any) -> bool:
    return getattr(inspect.unwrap(function), "__module__", None) == swa_utils.__name__


# ---- steps that may be skipped
_OURS = (
    optim.Adadelta, optim.Adagrad, optim.Adam, optim.Adamax, optim.AdamW, optim.ASGD, optim.NAdam, optim.RAdam,
    optim.RMSprop, optim.Rprop, optim.SGD,
)  # fmt: skip
_STEP: Any = scaler_step
_GRADIENTS = 1  # their place among the arguments of the functions behind optimizers


def _may_skip(t: Tracer, skipped: Any, step: Callable[[], Any]) -> Any:
    """The step, which has no effect where `skipped` (None: never) holds."""
    before, t.skipped = t.skipped, t.skipped if skipped is None else skipped
    try:
        return step()
    finally:
        t.skipped = before


def _step_by_rows(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Interpret a function behind an optimizer."""
    if t.skipped is None:
        return _inline_by_rows(t, function, args, kwargs)
    given = [a for place, a in enumerate((*args, *kwargs.values())) if is_several(a) and place != _GRADIENTS]
    tensors = tensors_of(t.internalize(one) for a in given for one in t.sequence(a))
    if any(None in t.sequence(a) for a in given):
        raise GraphBreak("data-dependent", "a step that makes its optimizer's state may be skipped")
    before = [call_torch(t, Tensor.clone, (one,), {}) for one in tensors]
    _inline_by_rows(t, function, args, kwargs)
    for one, old in zip(tensors, before):
        call_torch(t, Tensor.copy_, (one, call_torch(t, torch.where, (t.skipped, old, one), {})), {})
    return None


TABLE[check_and_unscale] = lambda t, args, kwargs: t.call(optimizers.check_and_unscaled, args, kwargs)


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
    return _may_skip(t, skipped, lambda: t.call(t.get_attr(optimizer, "step"), (), {}))


def _is_skippable(optimizer: optim.Optimizer) -> bool:
    """Whether its steps change tensors alone: that its state is there is guarded where the step reads it."""
    hooks = (*optimizer_hooks(), optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
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


# ---- steps of equal places
Row = tuple[FakeTensor, ...]


def _inline_by_rows(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Interpret a function that returns nothing, once for each kind of rows where that can be told, else as it is."""
    lists = {k: [*map(t.internalize, t.sequence(a))] for k, a in (*enumerate(args), *kwargs.items()) if is_several(a)}
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
        last, before = next(iter(reversed(t.graph.nodes))), versions_of(first)
        interpret(first)
        nodes = _computed(t, first, last)
        written = [k for k, (now, was) in enumerate(zip(versions_of(first), before)) if now != was]
        for row in others:
            if nodes is None:
                interpret(row)
            else:
                _copy(t, nodes, first, row, written)
    return None


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


def _computed(t: Tracer, row: Row, last: fx.Node) -> list[fx.Node] | None:
    """The nodes behind the last one before; None if one of them does more than compute from the row, or write it."""
    nodes, own = [], set(map(t.recorder.node_of, row))
    for node in nodes_behind(last):
        if node.op in ("call_function", "call_method") and not own.isdisjoint(node.all_input_nodes):
            if not is_fake(node.meta.get("val")) or "made" in node.meta:
                return None
            nodes.append(node)
            own.add(node)
        elif is_fake(node.meta.get("val")) and node.op != "placeholder":
            return None
    return nodes


def _copy(t: Tracer, nodes: list[fx.Node], first: Row, row: Row, written: list[int]) -> None:
    """The same for another row."""
    pairs = list(zip(first, row))
    stands = {t.recorder.node_of(one): t.recorder.node_of(other) for one, other in pairs}
    copied(t, nodes, stands, {id(one): other for one, other in pairs}, None)
    with DisableTorchFunction(), below_python_dispatch():
        note_writes([row[k] for k in written])
