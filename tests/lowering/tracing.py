"""Run a function eagerly and through lowering and the reference interpreter, and compare."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten

from pliant.autograd.functionalize import FunctionalMode, new_input
from pliant.graph.concrete_sizes import call_specialized
from pliant.graph.contracts import AtenGraph
from pliant.ir.interpret import run
from pliant.ir.loops import LoopProgram
from pliant.ir.verify import verify
from pliant.lowering.lower import lower
from pliant.symbolic.shape_env import ShapeEnv

Function = Callable[..., Any]


def trace(f: Function, args: tuple[Any, ...], dynamic: bool = False) -> AtenGraph:
    """The ATen graph of `f` on tensors (and constants); with `dynamic` every size is a symbol."""
    shape_env, graph = ShapeEnv(), fx.Graph()
    mode = FunctionalMode(shape_env, graph)
    fakes = [_fake(mode, k, a, dynamic) if isinstance(a, torch.Tensor) else a for k, a in enumerate(args)]
    with mode, torch.no_grad():
        flat, _ = tree_flatten(call_specialized(f, tuple(fakes), {}))
    graph.output(tuple(mode.lower(o) for o in flat))
    return AtenGraph(graph, shape_env)


def _fake(mode: FunctionalMode, position: int, tensor: torch.Tensor, dynamic: bool) -> torch.Tensor:
    sizes = strides = None
    if dynamic and tensor.is_contiguous():
        env = mode.shape_env
        sizes = [env.wrap(env.create_symbol(n, f"t{position}.{d}")) for d, n in enumerate(tensor.shape)]
        strides, step = [], 1
        for n in reversed(sizes):
            strides.insert(0, step)
            step = step * n
    fake = mode.from_real(tensor.detach(), sizes, strides)
    node = mode.graph.placeholder(f"arg{position}")
    node.meta["val"] = fake
    mode.last_primal = node
    new_input(node, fake, position)
    return fake


def lowered(f: Function, *args: Any, dynamic: bool = False) -> LoopProgram:
    program = lower(trace(f, args, dynamic))
    verify(program)
    return program


def both(f: Function, args: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Eager's results, and what it gives for the same numbers as float64."""
    expected, _ = tree_flatten(f(*copy.deepcopy(args)))
    doubled = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    try:
        exact, _ = tree_flatten(f(*copy.deepcopy(doubled)))
    except RuntimeError:  # there is no such kernel
        exact = expected
    return expected, exact


def accepted(found: Any, eager: Any, exact: Any) -> Any:
    """Eager's result, but for elements that are NaN on one side only and are float64's: whether eager gives NaN there may
    depend on the processor (`gelu` of infinity in a vector register).
    """
    if not isinstance(eager, torch.Tensor) or not eager.is_floating_point() or found.shape != eager.shape:
        return eager
    exact = exact.to(eager.dtype)
    differs = (
        eager.isnan() & (found == exact) if exact.shape == eager.shape else torch.zeros_like(eager, dtype=torch.bool)
    )
    return torch.where(differs, exact, eager) if differs.any() else eager


def check(
    f: Function, *args: Any, dynamic: bool = False, atol: float | None = None, rtol: float | None = None
) -> LoopProgram:
    """`f` lowered and interpreted gives eager's values, dtypes and strides."""
    program = lowered(f, *args, dynamic=dynamic)
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    expected, exact = both(f, args)
    actual = run(program, [t.clone(memory_format=torch.preserve_format) for t in tensors])
    assert len(actual) == len(expected)
    for a, e, x in zip(actual, expected, exact):
        torch.testing.assert_close(a, accepted(a, e, x), atol=atol, rtol=rtol, equal_nan=True)
        if isinstance(e, torch.Tensor) and e.numel() > 0:
            strides = [(x, y) for n, x, y in zip(e.shape, a.stride(), e.stride()) if n != 1]
            assert all(x == y for x, y in strides), (a.stride(), e.stride())
    return program
