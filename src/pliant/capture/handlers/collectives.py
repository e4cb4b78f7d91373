"""Calls of `torch.distributed`: messages between processes are operators of the graph, in their order.

In:     calls of its functions by the program.
Out:    recorded operators of `graph/collectives.py`; questions about groups are answered, and guarded.
Holds:  a call whose end is waited for later, one that sends objects, and whatever has no row here is a graph break at the
        call itself, so that PyTorch's function runs as it is.
"""

from __future__ import annotations

import types
from typing import Any

import torch
import torch.distributed as dist

from pliant import torch_adapter
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows, refusal
from pliant.capture.recording.regions import tensors_in
from pliant.capture.recording.torch_calls import call_torch
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import as_tuple
from pliant.capture.value_kinds import is_function, is_list, is_str
from pliant.graph import collectives
from pliant.graph.fake_tensor import FakeTensor
from pliant.guards.kinds import Kind
from pliant.guards.sources import question
from pliant.torch_adapter import COLLECTIVES

ROWS = Rows()
SPECIAL_MODULES = ROWS.modules


def _collective(function: Any, name: str, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    given = collectives.parameters_of(function, args, kwargs)
    _check(name, given)
    group = _group_name(t, name, given["group"])
    operator = collectives.operator_of(name)
    written = {a.name for a in operator._schema.arguments if a.alias_info is not None and a.alias_info.is_write}
    _check_tensors(name, tensors_in(list(given.values())), tensors_in([given[w] for w in written]))
    call_torch(t, operator, collectives.arguments_of(name, given, group), {})
    return given["src"] if name == "recv" else None


def _check_tensors(name: str, given: list[FakeTensor], written: list[FakeTensor]) -> None:
    """Break for tensors of which eager makes an error, or a history that is not the operator's."""
    if not all(one.is_contiguous() for one in written):
        raise GraphBreak("side-effect-call", f"torch.distributed.{name} into a tensor that is not contiguous")
    if torch.is_grad_enabled() and any(one.requires_grad for one in given):
        raise GraphBreak("side-effect-call", f"torch.distributed.{name} of a tensor that requires gradients")


def _check(name: str, given: dict[str, Any]) -> None:
    """Break for what the operators do not take."""
    if given.get("async_op"):
        raise GraphBreak("side-effect-call", f"torch.distributed.{name}(async_op=True), which goes on meanwhile")
    if given.get("timeout") is not None:
        raise GraphBreak("side-effect-call", f"torch.distributed.{name} with a time limit")
    if name == "recv" and given["src"] is None:
        raise GraphBreak("side-effect-call", "torch.distributed.recv from whoever sends")
    if "op" in given and not torch_adapter.reduction_name(given["op"]):
        raise GraphBreak("side-effect-call", f"torch.distributed.{name} with a reduction that has a factor")
    if torch_adapter.coalesces():
        raise GraphBreak("side-effect-call", f"torch.distributed.{name} in a block that puts calls together")


def _group_name(t: Tracer, name: str, group: Any) -> str:
    """The name of the group that is meant, guarded."""
    if group is None:
        facts = torch_adapter.default_group_facts()
        t.world.guard(question(torch_adapter.default_group_facts), Kind.EQUALS, facts)
        if not facts:
            raise GraphBreak("side-effect-call", f"torch.distributed.{name} before there is a process group")
        return facts[0]
    found = torch_adapter.group_name(group)
    if found is None:
        raise GraphBreak("side-effect-call", f"torch.distributed.{name} in a group that this process is not in")
    if (source := t.world.source_of(group)) is not None:
        t.world.guard(source, Kind.IDENTITY, group)
    return found


def _answered(function: Any, name: str, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """A question about a group."""
    given = collectives.parameters_of(function, args, kwargs)
    if "group" in given and torch_adapter.default_group_facts():
        _group_name(t, name, given["group"])
    else:
        t.world.guard(question(torch_adapter.default_group_facts), Kind.EQUALS, torch_adapter.default_group_facts())
    return function(*args, **kwargs)


def _fill() -> None:
    """One row for each public function: known, a question, or refused."""
    namespace = vars(dist.distributed_c10d)
    for name in dist.distributed_c10d.__all__:
        function = namespace.get(name)
        if not is_function(function):
            continue
        if name in collectives.FUNCTIONS:
            ROWS.each((function,), _collective, name)
        elif name in ("get_rank", "get_world_size", "is_initialized"):
            ROWS.each((function,), _answered, name)
        elif not name.startswith(("is_", "get_")):
            ROWS.refuses((function,), "side-effect-call", f"torch.distributed.{name}")


# ---- functional collectives: interpreted, but for these functions
def _group_of_mesh(group: Any) -> Any:
    mesh, dim = (*as_tuple(group), 0)[:2]
    return mesh._dim_group_names[dim]


def _resolved(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """The name of the group that is meant."""
    group = collectives.parameters_of(function, args, kwargs)["group"]
    if is_str(group):
        return group
    if torch_adapter.group_name(group) is not None:
        return _group_name(t, function.__name__, group)
    if is_list(group):
        raise GraphBreak("side-effect-call", "a functional collective among ranks that make no process group")
    return t.call(_group_of_mesh, (group,), {})


def _size_of_group(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    size = function(*args, **kwargs)
    t.world.guard(question(function, *args), Kind.EQUALS, size)
    return size


_SPECIAL = {
    "_resolve_group": _resolved,
    "_resolve_group_name": _resolved,
    # What a functional collective returns has arrived already, and is a plain tensor.
    "_maybe_wrap_tensor": lambda t, _, args, kwargs: call_torch(t, COLLECTIVES.wait_tensor.default, args, kwargs),
    "_get_group_size_by_name": _size_of_group,
}


# Parts of PyTorch that shard parameters and send messages as they see fit: what they do to a program is their own.
_RUN_AS_THEY_ARE = tuple(
    f"torch.distributed.{name}" for name in ("fsdp", "tensor", "_composable", "pipelining", "rpc", "checkpoint")
)


def _find(function: types.FunctionType) -> Any:
    if str(function.__globals__.get("__name__")).startswith(_RUN_AS_THEY_ARE):
        return refusal("side-effect-call", f"{function.__module__}.{function.__qualname__}")
    return _SPECIAL.get(function.__name__)


def _forward_of_data_parallel(function: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if t.world.is_foreign(args[0]):
        t.gradient_bytes = torch_adapter.gradient_bytes_at_a_time(args[0])
    return t.inline(function, args, kwargs)


if dist.is_available():
    _fill()
    ROWS.each([torch_adapter.FORWARD_OF_DATA_PARALLEL], _forward_of_data_parallel)
    ROWS.refuses(torch_adapter.AROUND_DATA_PARALLEL, "side-effect-call", "{}")
    SPECIAL_MODULES["torch.distributed"] = _find
