"""Captured graphs of Python functions, made without capture: the function is one node of the torch-level graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from pliant.autograd.runtime import build
from pliant.graph.contracts import CapturedGraph, GraphInput
from pliant.graph.fake_mode import FakeMode
from pliant.graph.interpret import eager
from pliant.symbolic.shape_env import ShapeEnv


def captured(
    function: Callable[..., Any], inputs: list[Any], *, dynamic: bool = False, grad: bool = True
) -> CapturedGraph:
    """The graph of `function(*inputs)`, which returns a tuple. `dynamic`: every size of every non-leaf input is a
    symbol.
    """
    env = ShapeEnv()
    mode = FakeMode(env)
    graph = fx.Graph()
    flat, nodes = [], []
    for position, value in enumerate(inputs):
        name = f"x{position}"
        nodes.append(graph.placeholder(name))
        fake = _fake(mode, env, value, dynamic and not isinstance(value, torch.nn.Parameter), name)
        flat.append(GraphInput(name, "tensor", fake, None, value, isinstance(value, torch.nn.Parameter)))
    whole = graph.call_function(function, tuple(nodes))
    count = len(_run_for_count(function, inputs, grad))
    graph.output(tuple(graph.call_function(_item, (whole, i)) for i in range(count)))
    return CapturedGraph(fx.GraphModule({}, graph), flat, env, "test", grad, {"whole": True})


def _item(values: tuple[Any, ...], index: int) -> Any:
    return values[index]


def _run_for_count(function: Callable[..., Any], inputs: list[Any], grad: bool) -> tuple[Any, ...]:
    state = torch.get_rng_state()
    with torch.set_grad_enabled(grad):
        result = function(*cloned(inputs))
    torch.set_rng_state(state)
    return result


def _fake(mode: FakeMode, env: ShapeEnv, value: torch.Tensor, dynamic: bool, name: str) -> Any:
    if not dynamic:
        return mode.from_real(value)
    sizes = [env.wrap(env.create_symbol(s, f"{name}.{i}")) for i, s in enumerate(value.shape)]
    strides, stride = [], 1
    for size in reversed(sizes):
        strides.insert(0, stride)
        stride = stride * size
    return mode.from_real(value, sizes, strides)


def cloned(inputs: list[Any]) -> list[Any]:
    """Copies with the same layout, `requires_grad` and leaf or not. Shared tensors stay shared."""
    memo: dict[int, Any] = {}
    return [memo.setdefault(id(v), _clone(v)) for v in inputs]


def _clone(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return copy.deepcopy(value)
    with torch.no_grad():
        new = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(value)
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(new, value.requires_grad)
    new.requires_grad_(value.requires_grad)
    if value.is_leaf:
        return new
    derived = new.clone()
    derived.leaf = new
    return derived


def compiled(
    function: Callable[..., Any], inputs: list[Any], backend: Any = eager, **options: Any
) -> Callable[..., Any]:
    """`function` through joint trace, partition and the interpreter."""
    call = build(captured(function, inputs, **options), backend)
    return lambda *args: call(list(args))


def check(
    function: Callable[..., Any], inputs: list[Any], *, on: list[Any] | None = None, grad: bool = True, **options: Any
) -> Any:
    """Compare with eager: values, layouts, autograd flags, aliasing, mutation of inputs, gradients, random state."""
    run = compiled(function, inputs, grad=grad, **options)
    inputs = inputs if on is None else on
    mine, theirs = cloned(inputs), cloned(inputs)
    with torch.set_grad_enabled(grad):
        torch.manual_seed(7)
        expected = function(*theirs)
        state = torch.get_rng_state()
        torch.manual_seed(7)
        found = run(*mine)
    assert torch.equal(state, torch.get_rng_state()), "random state"
    compare_all(found, expected, "output")
    compare_all(mine, theirs, "input")
    compare_aliasing([*found, *mine], [*expected, *theirs])
    compare_gradients(found, mine, expected, theirs)
    return run


def compare_all(found: Any, expected: Any, what: str) -> None:
    assert len(found) == len(expected)
    for position, (mine, theirs) in enumerate(zip(found, expected)):
        where = f"{what} {position}"
        if not isinstance(theirs, torch.Tensor):
            assert mine == theirs and type(mine) is type(theirs), where
            continue
        torch.testing.assert_close(mine, theirs, msg=lambda m, w=where: f"{w}: {m}")
        assert mine.stride() == theirs.stride(), (where, mine.stride(), theirs.stride())
        assert mine.requires_grad == theirs.requires_grad, where
        assert mine.is_leaf == theirs.is_leaf, where
        if what == "input":
            assert (mine._version > 0) == (theirs._version > 0), where


def compare_aliasing(found: list[Any], expected: list[Any]) -> None:
    tensors = [i for i, v in enumerate(expected) if isinstance(v, torch.Tensor) and v.numel()]
    for i in tensors:
        for j in tensors:
            same = expected[i].untyped_storage().data_ptr() == expected[j].untyped_storage().data_ptr()
            mine = found[i].untyped_storage().data_ptr() == found[j].untyped_storage().data_ptr()
            assert mine == same, f"memory of {i} and {j}"
            assert (found[i] is found[j]) == (expected[i] is expected[j]), f"identity of {i} and {j}"


def compare_gradients(found: Any, mine: list[Any], expected: Any, theirs: list[Any]) -> None:
    roots = [
        i for i, v in enumerate(expected) if isinstance(v, torch.Tensor) and v.requires_grad and v.grad_fn is not None
    ]
    mine, theirs = _leaves(mine), _leaves(theirs)
    wanted = range(len(theirs))
    if not roots or not wanted:
        return
    torch.manual_seed(11)
    tangents = [torch.randn_like(expected[i]) for i in roots]
    grads = [
        torch.autograd.grad([outs[i] for i in roots], [ins[i] for i in wanted], tangents, allow_unused=True)
        for outs, ins in ((found, mine), (expected, theirs))
    ]
    for position, (a, b) in enumerate(zip(*grads)):
        assert (a is None) == (b is None), f"gradient {position}"
        if b is not None:
            torch.testing.assert_close(a, b, msg=lambda m, p=position: f"gradient {p}: {m}")


def _leaves(inputs: list[Any]) -> list[torch.Tensor]:
    tensors = [getattr(v, "leaf", v) for v in inputs if isinstance(v, torch.Tensor) and v.requires_grad]
    return [v for v in tensors if v.is_leaf]


def of_module(module: torch.nn.Module) -> tuple[Callable[..., Any], list[Any]]:
    """(function of parameters, buffers and inputs, the list of parameters and buffers)."""
    named = [*module.named_parameters(), *module.named_buffers()]
    names = [name for name, _ in named]

    def function(*values: Any) -> tuple[Any, ...]:
        state = dict(zip(names, values))
        result = torch.func.functional_call(module, state, tuple(values[len(names) :]))
        return result if isinstance(result, tuple) else (result,)

    return function, [value for _, value in named]
