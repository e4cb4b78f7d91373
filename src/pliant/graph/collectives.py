"""Messages between processes as operators whose schemas say what they write.

In:     the functions of `torch.distributed` that write their arguments, and the functional collectives of PyTorch.
Out:    operators `pliant_collectives::*`: `operator_of(name)` for a function, `blocking(func)` for an operator.
Holds:  a call has ended when the operator returns: no other call needs to wait, and no memory is read meanwhile. Groups
        and reductions are named by text, so that a graph holds no object of the process. They keep their order.
        Sizes are the fakes': no message is sent while a graph is made.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

from pliant import torch_adapter
from pliant.torch_adapter import COLLECTIVES

NAMESPACE = "pliant_collectives"
# Functions of `torch.distributed` by name: the parameters that matter, of which `op` and `group` are given as text.
FUNCTIONS: dict[str, str] = {
    "all_reduce": "Tensor(a!) tensor, str op, str group",
    "broadcast": "Tensor(a!) tensor, int? src, str group, int? group_src",
    "reduce": "Tensor(a!) tensor, int? dst, str op, str group, int? group_dst",
    "all_gather": "Tensor(a!)[] tensor_list, Tensor tensor, str group",
    "all_gather_into_tensor": "Tensor(a!) output_tensor, Tensor input_tensor, str group",
    "all_gather_single": "Tensor(a!) output_tensor, Tensor input_tensor, str group",
    "gather": "Tensor tensor, Tensor(a!)[]? gather_list, int? dst, str group, int? group_dst",
    "scatter": "Tensor(a!) tensor, Tensor[]? scatter_list, int? src, str group, int? group_src",
    "reduce_scatter": "Tensor(a!) output, Tensor[] input_list, str op, str group",
    "reduce_scatter_tensor": "Tensor(a!) output, Tensor input, str op, str group",
    "reduce_scatter_single": "Tensor(a!) output, Tensor input, str op, str group",
    "all_to_all": "Tensor(a!)[] output_tensor_list, Tensor[] input_tensor_list, str group",
    "all_to_all_single": (
        "Tensor(a!) output, Tensor input, SymInt[]? output_split_sizes, SymInt[]? input_split_sizes, str group"
    ),
    "send": "Tensor tensor, int? dst, str group, int tag, int? group_dst",
    "recv": "Tensor(a!) tensor, int? src, str group, int tag, int? group_src",
    "barrier": "str group, int[]? device_ids",
}

_library: Any = None


def _register(name: str, schema: str, kernel: Callable[..., Any], fake: Callable[..., Any] | None = None) -> Any:
    global _library
    if _library is None:
        _library = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]  # lives as long as the process
    _library.define(name + schema)
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    if fake is not None:
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


@functools.cache
def operator_of(name: str) -> Any:
    """The operator that calls the function of `torch.distributed` and waits for it."""
    function, schema = getattr(dist, name), FUNCTIONS[name]
    parameters = [part.split()[-1] for part in schema.split(", ")]

    def run(*values: Any) -> None:
        given = dict(zip(parameters, values))
        given["group"] = torch_adapter.process_group(given["group"])
        if "op" in given:
            given["op"] = getattr(dist.ReduceOp, given["op"])
        function(**given)

    return _register(name, f"({schema}) -> ()", run)


def arguments_of(name: str, given: dict[str, Any], group: str) -> tuple[Any, ...]:
    """What the operator is given for the function's arguments by name."""
    named = {**given, "group": group}
    if "op" in named:
        named["op"] = torch_adapter.reduction_name(named["op"])
    parameters = [part.split()[-1] for part in FUNCTIONS[name].split(", ")]
    return tuple(named[parameter] for parameter in parameters)


def parameters_of(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The function's arguments by name, defaults among them."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


# ---- functional collectives


def _gathered(x: Any, group_size: int, group: str) -> Any:
    return x.new_empty([x.shape[0] * group_size, *x.shape[1:]])


def _scattered(x: Any, op: str, group_size: int, group: str) -> Any:
    return x.new_empty([x.shape[0] // group_size, *x.shape[1:]])


def _exchanged(x: Any, output_sizes: list[Any], input_sizes: list[Any], group: str) -> Any:
    return x.new_empty([sum(output_sizes) if output_sizes else x.shape[0], *x.shape[1:]])


def _alike(x: Any, *_: Any) -> Any:
    return x.new_empty(x.shape)


def _each(fake: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tensors, *rest: [fake(one, *rest) for one in tensors]


# Operators of `_c10d_functional`: what their results look like.
FUNCTIONAL: dict[str, Callable[..., Any]] = {
    "all_reduce": _alike,
    "broadcast": _alike,
    "all_gather_into_tensor": _gathered,
    "reduce_scatter_tensor": _scattered,
    "all_to_all_single": _exchanged,
    "all_reduce_coalesced": _each(_alike),
    "all_gather_into_tensor_coalesced": _each(_gathered),
    "reduce_scatter_tensor_coalesced": _each(_scattered),
}
FUNCTIONAL_NAMESPACES = ("_c10d_functional", "_c10d_functional_autograd")


def functional_name(func: Any) -> str:
    """The row of an operator in `FUNCTIONAL`, or ""."""
    name: str = func._schema.name.split("::")[1]
    return name if func.namespace in FUNCTIONAL_NAMESPACES and name in FUNCTIONAL else ""


WAIT = "_c10d_functional::wait_tensor"


def described(func: Any) -> Callable[..., Any] | None:
    """What tells the results of a functional collective, if it is one."""
    if func._schema.name == WAIT:
        return lambda tensor: tensor
    return FUNCTIONAL.get(functional_name(func))


@functools.cache
def blocking(func: Any) -> Any:
    """The functional collective whose results have arrived when it returns."""
    name = functional_name(func)
    collective = getattr(COLLECTIVES, name)
    wait = COLLECTIVES.wait_tensor
    schema = str(collective.default._schema).replace("Any group_name", "str group_name")

    def run(*args: Any) -> Any:
        return tree_map_only(torch.Tensor, wait, collective(*args))

    return _register(f"functional_{name}", schema[schema.index("(") :], run, FUNCTIONAL[name])


@functools.cache
def waited() -> Any:
    """The operator that returns what is in a tensor once the call that fills it has ended."""
    wait = COLLECTIVES.wait_tensor
    return _register("waited", "(Tensor x) -> Tensor", lambda x: wait(x).clone(), torch.empty_like)
