"""Run a function eagerly and through lowering and the reference interpreter, and compare."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten

from pliant.autograd.functionalize import FunctionalMode, new_input
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
        flat, _ = tree_flatten(f(*fakes))
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


def check(
    f: Function, *args: Any, dynamic: bool = False, atol: float | None = None, rtol: float | None = None
) -> LoopProgram:
    """`f` lowered and interpreted gives eager's values, dtypes and strides."""
    program = lowered(f, *args, dynamic=dynamic)
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    expected, _ = tree_flatten(f(*copy.deepcopy(args)))
    actual = run(program, [t.clone(memory_format=torch.preserve_format) for t in tensors])
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected):
        torch.testing.assert_close(a, e, atol=atol, rtol=rtol, equal_nan=True)
        if isinstance(e, torch.Tensor) and e.numel() > 0:
            strides = [(x, y) for n, x, y in zip(e.shape, a.stride(), e.stride()) if n != 1]
            assert all(x == y for x, y in strides), (a.stride(), e.stride())
    return program
