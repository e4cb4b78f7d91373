"""Every way that tensors of a program share memory or are written, against eager.

A case is (inputs, action, mode). The inputs say what `x` and `y` are and how they relate; the action is the program; the
mode is grad, no_grad or inference. After each call one of the aftermaths follows: what the caller does with the result.
What is compared: values, strides, dtypes, `requires_grad`, `is_leaf`, which tensors share memory, are one object or are
each other's `_base`, what was written, gradients and which of them are None, the types of errors.

    python -m tests.autograd.alias_matrix [--backend pliant] [--only TEXT] [--part 0/4]     every case
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import pliant
from pliant.debug import events

Tensors = dict[str, Any]

# ---------------------------------------------------------------------------------------------------- inputs


def _leaf(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.rand(*size, dtype=dtype) + 0.5).requires_grad_()


def _inference_tensor() -> torch.Tensor:
    with torch.inference_mode():
        return torch.rand(4, 4) + 0.5


def _of(base: torch.Tensor, view: Callable[[torch.Tensor], torch.Tensor], **more: Any) -> Tensors:
    return {"base": base, "x": view(base), **more}


def _derived(view: Callable[[torch.Tensor], torch.Tensor], *size: int) -> Callable[[], Tensors]:
    def make() -> Tensors:
        leaf = _leaf(*size)
        return _of(leaf * 1, view, leaf=leaf)

    return make


XS: dict[str, Callable[[], Tensors]] = {
    "leaf": lambda: {"x": _leaf(4, 4)},
    "plain": lambda: {"x": torch.rand(4, 4) + 0.5},
    "derived": _derived(lambda t: t, 4, 4),
    "transposed": _derived(lambda t: t.t(), 4, 4),
    "slice": _derived(lambda t: t[1:5], 6, 4),
    "plain_slice": lambda: _of(torch.rand(6, 4) + 0.5, lambda t: t[1:5]),
    "columns": _derived(lambda t: t[:, ::2], 4, 8),
    "expanded": _derived(lambda t: t.expand(4, 4), 4, 1),
    "overlapping": _derived(lambda t: t.as_strided((4, 4), (2, 1)), 16),
    "piece": _derived(lambda t: t.chunk(2)[1], 8, 4),
    "channels_last": _derived(lambda t: t.to(memory_format=torch.channels_last), 2, 3, 4, 4),
    "empty": _derived(lambda t: t, 0, 4),
    "complex": lambda: {"x": _leaf(4, 4, dtype=torch.complex64)},
    "double": _derived(lambda t: t, 4, 4),
    "inference": lambda: {"x": _inference_tensor()},
    "detached": lambda: (lambda leaf: {"leaf": leaf, "x": leaf.detach()})(_leaf(4, 4)),
    "leaf_view": lambda: (lambda leaf: {"leaf": leaf, "x": leaf[0:4]})(_leaf(4, 4)),
}

YS: dict[str, Callable[[Tensors], Any]] = {
    "apart": lambda w: torch.rand(4, 4) + 0.5,
    "same": lambda w: w["x"],
    "view": lambda w: w["x"].view_as(w["x"]),
    "transpose": lambda w: w["x"].transpose(0, 1),
    "rows": lambda w: w["x"][1:],
    "detached": lambda w: w["x"].detach(),
    "base": lambda w: w.get("base", w["x"]),
    "neighbour": lambda w: w["base"][0:4] if "base" in w else w["x"][0:3],
}


def make_world(x: str, y: str) -> Tensors:
    torch.manual_seed(5)
    world = XS[x]()
    world["y"] = YS[y](world)
    world["p"] = torch.nn.Parameter(torch.rand(4) + 0.5)
    world["b"] = torch.rand(4) + 0.5
    return world


# ---------------------------------------------------------------------------------------------------- actions


def _enabled(x: Any, y: Any, p: Any, b: Any) -> Any:
    with torch.enable_grad():
        part = x[0] * p + y.sum()
    return part, part * 2, x[0]


def _no_grad(write: Callable[..., Any]) -> Callable[..., Any]:
    def action(x: Any, y: Any, p: Any, b: Any) -> Any:
        with torch.no_grad():
            write(x, y, p, b)
        return x * p + y.sum()

    return action


def _then(*steps: Callable[..., Any], result: Callable[..., Any]) -> Callable[..., Any]:
    def action(x: Any, y: Any, p: Any, b: Any) -> Any:
        for step in steps:
            step(x, y, p, b)
        return result(x, y, p, b)

    return action


def _on(first: Callable[..., Any], *writes: Callable[..., Any], result: Callable[..., Any]) -> Callable[..., Any]:
    """An action that makes an intermediate `t`, writes it, and returns what `result(t, x, p)` says."""

    def action(x: Any, y: Any, p: Any, b: Any) -> Any:
        t = first(x, y, p, b)
        for write in writes:
            write(t)
        return result(t, x, p)

    return action


def _inference_inside(x: Any, y: Any, p: Any, b: Any) -> Any:
    with torch.inference_mode():
        t = x * 2
    return t, x * p


def _interleaved(x: Any, y: Any, p: Any, b: Any) -> Any:
    x.mul_(2)
    u = x * p
    x.add_(1)
    return u, x * 3


def _view_then_write(x: Any, y: Any, p: Any, b: Any) -> Any:
    v = x.view_as(x)[0]
    x.mul_(2)
    w = v * p
    v.add_(1)
    return w, v


def _metadata(name: str, *args: Any, of_input: bool = False) -> Callable[..., Any]:
    def action(x: Any, y: Any, p: Any, b: Any) -> Any:
        t = x if of_input else x * 2
        getattr(t, name)(*args)
        t2 = t * 3
        return t2, t

    return action


def _set_data(x: Any, y: Any, p: Any, b: Any) -> Any:
    t = x * 2
    t.data = torch.ones_like(t)
    return t * p


def _set_data_of_input(x: Any, y: Any, p: Any, b: Any) -> Any:
    b.data = b.data * 2
    return x * b * p


def _write_data(x: Any, y: Any, p: Any, b: Any) -> Any:
    p.data.mul_(2)
    return x * p


def _swap(x: Any, y: Any, p: Any, b: Any) -> Any:
    a, c = x.clone(), y.clone()
    x.copy_(c)
    y.copy_(a)
    return x * p


def _requires_grad_inside(x: Any, y: Any, p: Any, b: Any) -> Any:
    t = (b * 2).requires_grad_()
    return t * x, t


def _requires_grad_of_input(x: Any, y: Any, p: Any, b: Any) -> Any:
    b.requires_grad_()
    return b * x


def _dependent(x: Any, y: Any, p: Any, b: Any) -> Any:
    h = x * p
    g = h.sin()
    return h, g, (h * g).sum()


ACTIONS: dict[str, Callable[..., Any]] = {
    # outputs
    "pure": lambda x, y, p, b: (x * p).sin(),
    "input": lambda x, y, p, b: (x, x * p),
    "inputs": lambda x, y, p, b: (x, y, p, b, x + 1),
    "view": lambda x, y, p, b: x.transpose(0, 1),
    "view_of_view": lambda x, y, p, b: (x.transpose(0, 1)[1:], x * p),
    "views": lambda x, y, p, b: (x[1:], x.transpose(0, 1), y[0], x * p),
    "pieces": lambda x, y, p, b: x.chunk(2),
    "pieces_of_result": lambda x, y, p, b: (x * p).chunk(2),
    "piece_of_result": lambda x, y, p, b: (x * p).unbind(0)[:1],
    "detach": lambda x, y, p, b: (x.detach(), x * p),
    "detach_result": _on(lambda x, y, p, b: x * p, result=lambda t, x, p: (t, t.detach())),
    "result_and_view": _on(lambda x, y, p, b: x * p, result=lambda t, x, p: (t, t.transpose(0, 1), t[0])),
    "views_of_result": _on(lambda x, y, p, b: x * p, result=lambda t, x, p: (t.transpose(0, 1), t[0])),
    "view_of_result": _on(lambda x, y, p, b: x * p, result=lambda t, x, p: t.transpose(0, 1)),
    "twice": _on(lambda x, y, p, b: x * p, result=lambda t, x, p: (t, t)),
    "clones": lambda x, y, p, b: (x.clone(), x.contiguous(), x.to(x.dtype), x.reshape(-1)),
    "dependent": _dependent,
    "chain": _on(lambda x, y, p, b: x * p, result=lambda t, x, p: (t, t[0], t[0].exp(), t.exp().sum())),
    "view_used": _on(lambda x, y, p, b: x.transpose(0, 1), result=lambda t, x, p: (t, t.sin(), x.cos())),
    "no_grad_part": _no_grad(lambda x, y, p, b: None),
    "enabled_part": _enabled,
    "no_grad_output": lambda x, y, p, b: (x.detach().sin(), x * p, (x > 1), x.argmax()),
    "integers": lambda x, y, p, b: (x.long() if not x.is_complex() else x.real.long(), x * p),
    "none": lambda x, y, p, b: (None, x * p, 3),
    "separate": lambda x, y, p, b: (x.sin(), p.cos()),
    "expand": lambda x, y, p, b: (p.expand(3, 4), x * p),
    "inference_inside": _inference_inside,
    "scalar": lambda x, y, p, b: (x.sum(), x.sum() * p.sum()),
    # writes to intermediates
    "relu_": _on(lambda x, y, p, b: x * p, lambda t: t.abs_(), result=lambda t, x, p: t + x),
    "write_slice": _on(lambda x, y, p, b: x * p, lambda t: t[0].mul_(3), result=lambda t, x, p: (t, t.sin())),
    "write_item": _on(lambda x, y, p, b: x * p, lambda t: t.__setitem__(0, 1.0), result=lambda t, x, p: (t, x * 2)),
    "write_view_of_view": _on(
        lambda x, y, p, b: x * p, lambda t: t.transpose(0, 1)[1:].mul_(2), result=lambda t, x, p: (t[0], t)
    ),
    "write_detached": _on(lambda x, y, p, b: x * p, lambda t: t.detach().zero_(), result=lambda t, x, p: t + x),
    "detach_": _on(lambda x, y, p, b: x * p, lambda t: t.detach_(), result=lambda t, x, p: (t, t * p)),
    "out": lambda x, y, p, b: torch.mul(x.detach(), 2, out=torch.empty_like(x.detach())),
    "zeros_then_write": _on(
        lambda x, y, p, b: torch.zeros_like(x), lambda t: t.add_(1), result=lambda t, x, p: (t.mul_(p), t)
    ),
    # writes to inputs
    "write_input": _then(lambda x, y, p, b: x.mul_(2), result=lambda x, y, p, b: x * p + y.sum()),
    "write_input_by_p": _then(lambda x, y, p, b: x.mul_(p), result=lambda x, y, p, b: (x.sin(), y.sum())),
    "write_and_return": _then(lambda x, y, p, b: x.mul_(p), result=lambda x, y, p, b: (x, x[0], x.sin())),
    "write_view_of_input": _then(lambda x, y, p, b: x[0].mul_(p), result=lambda x, y, p, b: x.sin() * y.sum()),
    "write_deep_view": _then(lambda x, y, p, b: x.transpose(0, 1)[1:].add_(1), result=lambda x, y, p, b: x * p),
    "write_item_of_input": _then(lambda x, y, p, b: x.__setitem__(0, 1.0), result=lambda x, y, p, b: x * p),
    "write_detached_input": _then(lambda x, y, p, b: x.detach().mul_(2), result=lambda x, y, p, b: x * p),
    "write_both": _then(
        lambda x, y, p, b: x.mul_(2), lambda x, y, p, b: y.add_(1), result=lambda x, y, p, b: x.sum() * p + y.sum()
    ),
    "write_y": _then(lambda x, y, p, b: y.add_(1), result=lambda x, y, p, b: (x * p, x.sum())),
    "write_buffer": _then(lambda x, y, p, b: b.mul_(0.5), result=lambda x, y, p, b: x * p * b),
    "write_buffer_with_grad": _then(lambda x, y, p, b: b.mul_(p), result=lambda x, y, p, b: x * b),
    "write_no_grad": _no_grad(lambda x, y, p, b: x.mul_(2)),
    "write_view_no_grad": _no_grad(lambda x, y, p, b: x[0].mul_(2)),
    "write_parameter_no_grad": _no_grad(lambda x, y, p, b: p.mul_(2)),
    "write_parameter": _then(lambda x, y, p, b: p.mul_(2), result=lambda x, y, p, b: x * p),
    "write_parameter_data": _write_data,
    "interleaved": _interleaved,
    "view_then_write": _view_then_write,
    "swap": _swap,
    "copy": _then(lambda x, y, p, b: b.copy_(p), result=lambda x, y, p, b: (b, x * b)),
    "copy_detached": _then(lambda x, y, p, b: b.copy_(p.detach()), result=lambda x, y, p, b: (b * 2, x * p)),
    "zero_": _then(lambda x, y, p, b: x.zero_(), result=lambda x, y, p, b: x + p),
    "fill_diagonal": _then(lambda x, y, p, b: x.diagonal().fill_(2.0), result=lambda x, y, p, b: x * p),
    "write_saved": lambda x, y, p, b: (lambda t: (x.mul_(2), t)[1])((x * p).sin()),
    # changes of metadata
    "t_": _metadata("t_"),
    "transpose_": _metadata("transpose_", 0, 1),
    "unsqueeze_": _metadata("unsqueeze_", 0),
    "squeeze_": _metadata("squeeze_"),
    "resize_": _metadata("resize_", 2, 2),
    "as_strided_": _metadata("as_strided_", (2, 2), (2, 1)),
    "t_of_input": _metadata("t_", of_input=True),
    "unsqueeze_of_input": _metadata("unsqueeze_", 0, of_input=True),
    "resize_of_input": _metadata("resize_", 2, 2, of_input=True),
    "detach_of_input": _metadata("detach_", of_input=True),
    "set_": _then(lambda x, y, p, b: b.set_(p.detach()), result=lambda x, y, p, b: (x * b, b)),
    "set_data": _set_data,
    "set_data_of_input": _set_data_of_input,
    "requires_grad_": _requires_grad_inside,
    "requires_grad_of_input": _requires_grad_of_input,
    "stop_requiring_grad": _on(lambda x, y, p, b: b * 2, lambda t: t.requires_grad_(False), result=lambda t, x, p: t),
    "retain_grad": _on(lambda x, y, p, b: x * p, lambda t: t.retain_grad(), result=lambda t, x, p: (t, t.sin())),
}

MODES: dict[str, Callable[[], Any]] = {
    "grad": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}

# ---------------------------------------------------------------------------------------------------- aftermaths


def _outputs(result: Any) -> list[torch.Tensor]:
    values = result if isinstance(result, (tuple, list)) else [result]
    return [v for v in values if isinstance(v, torch.Tensor)]


def _differentiable(result: Any) -> list[torch.Tensor]:
    return [v for v in _outputs(result) if v.requires_grad]


def _tangents(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    torch.manual_seed(9)
    return [torch.rand(o.shape, dtype=o.dtype) for o in outputs]


def _leaves(world: Tensors) -> list[torch.Tensor]:
    found = {id(t): t for t in world.values() if t.requires_grad and t.is_leaf}
    return list(found.values())


def _backward(world: Tensors, outputs: list[torch.Tensor], **options: Any) -> Any:
    if outputs:
        torch.autograd.backward(outputs, _tangents(outputs), **options)
    return [t.grad for t in _leaves(world)]


def _twice(world: Tensors, result: Any) -> Any:
    first = [g if g is None else g.clone() for g in _backward(world, _differentiable(result), retain_graph=True)]
    return [*first, *_backward(world, _differentiable(result))]


def _write_output(index: int) -> Callable[[Tensors, Any], Any]:
    def aftermath(world: Tensors, result: Any) -> Any:
        outputs = _outputs(result)
        if index < len(outputs) and outputs[index].is_floating_point():
            outputs[index].mul_(2)
        return _backward(world, _differentiable(result))

    return aftermath


def _write_input(name: str) -> Callable[[Tensors, Any], Any]:
    def aftermath(world: Tensors, result: Any) -> Any:
        with torch.no_grad():
            world[name].mul_(2)
        return _backward(world, _differentiable(result))

    return aftermath


def _retain(world: Tensors, result: Any) -> Any:
    outputs = _differentiable(result)
    for output in outputs:
        output.retain_grad()
    return [*_backward(world, outputs[-1:]), *[o.grad for o in outputs]]


def _grad_of_outputs(world: Tensors, result: Any) -> Any:
    outputs = _differentiable(result)
    wanted = [*outputs, *[t for t in world.values() if t.requires_grad]]
    if not outputs:
        return []
    last = outputs[-1]
    return torch.autograd.grad(last, wanted, _tangents([last]), allow_unused=True)


def _grad_again(world: Tensors, result: Any) -> Any:
    outputs, leaves = _differentiable(result), _leaves(world)
    if not outputs or not leaves:
        return []
    grads = torch.autograd.grad(outputs, leaves, _tangents(outputs), create_graph=True, allow_unused=True)
    live = [g for g in grads if g is not None and g.requires_grad]
    second = torch.autograd.grad(live, leaves, _tangents(live), allow_unused=True) if live else []
    return [*grads, *second]


AFTERMATHS: dict[str, Callable[[Tensors, Any], Any]] = {
    "nothing": lambda world, result: None,
    "backward": lambda world, result: _backward(world, _differentiable(result)),
    "twice": _twice,
    "first": lambda world, result: _backward(world, _differentiable(result)[:1]),
    "last": lambda world, result: _backward(world, _differentiable(result)[-1:]),
    "write_first": _write_output(0),
    "write_second": _write_output(1),
    "write_x": _write_input("x"),
    "write_y": _write_input("y"),
    "write_p": _write_input("p"),
    "retain": _retain,
    "grad_of_outputs": _grad_of_outputs,
    "create_graph": _grad_again,
}

# ---------------------------------------------------------------------------------------------------- what is seen


def _facts(t: Any, inputs: bool) -> Any:
    if not isinstance(t, torch.Tensor):
        return t
    versions = bool(t._version) if inputs and not t.is_inference() else None
    has_history = t.grad_fn is not None
    return (
        tuple(t.shape), t.stride(), t.storage_offset() if inputs else 0, t.dtype, t.requires_grad, t.is_leaf,
        has_history, t.is_inference(), versions,
    )  # fmt: skip


def _relations(tensors: list[Any]) -> Any:
    found = []
    for (i, a), (j, b) in itertools.permutations(enumerate(tensors), 2):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            shared = bool(a.numel()) and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
            found.append((i, j, a is b, shared, a._base is b))
    return found


def observe(call: Callable[..., Any], x: str, y: str, mode: str, aftermath: str) -> list[tuple[str, Any]]:
    """What a caller can see of one call and what follows, step by step."""
    world = make_world(x, y)
    seen: list[tuple[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with MODES[mode]():
                result = call(world["x"], world["y"], world["p"], world["b"])
            values = list(result) if isinstance(result, (tuple, list)) else [result]
            seen.append(("outputs", [_facts(v, False) for v in values]))
            seen.append(("inputs", [_facts(v, True) for v in world.values()]))
            seen.append(("relations", _relations([*values, *world.values()])))
            seen.append(("values", [_copy(v) for v in (*values, *world.values())]))
            after = AFTERMATHS[aftermath](world, result)
            seen.append(("after", None if after is None else [_copy(v) for v in after]))
            seen.append(("values after", [_copy(v) for v in (*values, *world.values())]))
        except Exception as error:
            seen.append(("error", type(error).__name__))
            seen.append(("message", str(error)))
    return seen


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def difference(found: list[tuple[str, Any]], expected: list[tuple[str, Any]]) -> str | None:
    """What differs first, in words; None if nothing does."""
    for (what, mine), (step, theirs) in zip(found, expected):
        if what != step:
            return f"{what} {_short(mine, found)} instead of {step} {_short(theirs, expected)}"
        if what == "message":
            continue
        if not _alike(mine, theirs):
            return f"{what}: {_differing(mine, theirs)}"
    return None


def _short(value: Any, seen: list[tuple[str, Any]]) -> str:
    return f"{value}: {dict(seen).get('message', '')[:160]}" if isinstance(value, str) else ""


def _differing(mine: Any, theirs: Any) -> str:
    if isinstance(theirs, list) and isinstance(mine, list) and len(mine) == len(theirs):
        for n, (a, b) in enumerate(zip(mine, theirs)):
            if not _alike(a, b):
                return f"[{n}] {a} instead of {b}"
    return f"{mine} instead of {theirs}"


def _alike(mine: Any, theirs: Any) -> bool:
    if isinstance(theirs, torch.Tensor):
        return isinstance(mine, torch.Tensor) and (
            mine.shape == theirs.shape and torch.allclose(mine, theirs, 1e-4, 1e-5, equal_nan=True)
        )
    if isinstance(theirs, list):
        return isinstance(mine, list) and len(mine) == len(theirs) and all(map(_alike, mine, theirs))
    return bool(mine == theirs)


# ---------------------------------------------------------------------------------------------------- running


def cases() -> list[tuple[str, str, str, str]]:
    """(x, y, action, mode) of the whole matrix, but for results that eager makes and then refuses to show, and for
    memory as it was found.
    """
    every = itertools.product(XS, YS, ACTIONS, MODES)
    return [case for case in every if case[2:] != ("view_then_write", "inference") and not _undefined(*case[::2])]


def _undefined(x: str, action: str) -> bool:
    return x == "empty" and action in ("resize_", "resize_of_input")


def sample(count: int, seed: int = 0) -> list[tuple[str, str, str, str]]:
    """A part of the matrix in which every action meets every mode, and every x and y occur often."""
    pick = random.Random(seed)
    pairs = sorted({case[2:] for case in cases()})
    every = [(pick.choice(list(XS)), pick.choice(list(YS)), a, m) for a, m in pairs]
    return [*every, *pick.sample(cases(), max(0, count - len(every)))][:count]


def run_case(x: str, y: str, action: str, mode: str, backend: str = "aot_eager") -> tuple[list[str], bool]:
    """Differences by aftermath, and whether everything was one graph."""
    torch.manual_seed(0)
    call = pliant.compile(ACTIONS[action], backend=backend)
    wrong = []
    with events.collect("fallback", "graph_break", "skip") as fell:
        for aftermath in AFTERMATHS if mode == "grad" else ("nothing", "write_first"):
            expected = observe(ACTIONS[action], x, y, mode, aftermath)
            found = observe(call, x, y, mode, aftermath)
            text = difference(found, expected)
            if text is not None:
                wrong.append(f"{x}/{y}/{action}/{mode}/{aftermath}: {text}")
    return wrong, not fell


def _chosen(only: str, part: str) -> Iterator[tuple[str, str, str, str]]:
    number, of = map(int, part.split("/"))
    wanted = [c for c in cases() if only in "/".join(c)]
    yield from wanted[number::of]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="0/1")
    options = parser.parse_args()
    total = whole = failures = 0
    for case in _chosen(options.only, options.part):
        wrong, one_graph = run_case(*case, backend=options.backend)
        total, whole, failures = total + 1, whole + one_graph, failures + bool(wrong)
        for line in wrong:
            print(line, flush=True)
        if total % 100 == 0:
            pliant.reset()
    print(f"{total} cases, {whole} captured whole, {failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
