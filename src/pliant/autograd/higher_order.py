"""Gradients that can be differentiated again: the gradient of a compiled program, as a program of its own.

In:     a captured program, which of its results have tangents, and at each call its inputs and the tangents.
Out:    gradients that carry an autograd history to the inputs and to the tangents.
Holds:  the gradient program runs the captured one on the same inputs and random numbers and asks the engine for
        gradients with a history, so `detach`, `no_grad` and custom functions mean in it what they mean in eager. It is
        compiled by the way every program is: its own gradient is differentiable too, to any order. Symbolic sizes are
        given as numbers, each set of sizes compiled apart; after `_VARIANTS` of them it runs operator by operator.
Reads on: `training.py`, who calls it.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from pliant import background, torch_adapter
from pliant.autograd.casts import Casts, among, casts_now
from pliant.autograd.history import Root
from pliant.debug import events
from pliant.gc_pause import GcPause
from pliant.graph.contracts import CapturedGraph, GraphInput
from pliant.graph.late_module import LateModule
from pliant.interruptions import pass_on
from pliant.saved_hooks import changing_hook

Program = Callable[[list[Any]], tuple[Any, ...]]
Build = Callable[[CapturedGraph], Program]
Hooks = dict[int, Callable[[Any], Any]]
_VARIANTS = 8


class GradientProgram:
    """`program(inputs, tangents, needed)`: a gradient for each of `needed` (positions of inputs).

    `written`: the inputs that the program writes; behind the inputs come those of them (`late`) whose present values are
    what gradients read, since autograd does not know of the writes.
    Variants are kept by everything that the trace depends on: sizes, and what of the tangents has a history.
    """

    def __init__(
        self,
        name: str,
        module: Any,
        count: int,
        roots: list[Root],
        written: list[int],
        late: list[int],
        records: bool,
        casts: Casts,
        build: Callable[[Callable[..., Any], list[Any], int], Program] | None,
    ) -> None:
        """`module.forward` is the program, of `count` inputs, which starts among these casts; `records`: where gradients are
        recorded. `build`: compiles the gradient, where its graph is known."""
        self.name, self.module, self.count = name, module, count
        self.roots, self.written, self.late, self.build = roots, written, late, build
        self.records, self.casts = records, casts
        self.variants: dict[Any, Program] = {}
        self.lock = background.lock()

    @classmethod
    def of(
        cls, captured: CapturedGraph, roots: list[Root], written: list[int], late: list[int], build: Build
    ) -> GradientProgram:
        inputs = [dataclasses.replace(one, example=None) for one in captured.inputs]  # free the first call's tensors
        captured = dataclasses.replace(captured, inputs=inputs)

        def compiled(program: Callable[..., Any], values: list[Any], needed: int) -> Program:
            return build(_as_captured(program, captured, values, needed))

        name, module, records = captured.name, captured.module, captured.grad_enabled
        return cls(name, module, len(inputs), roots, written, late, records, casts_now(), compiled)

    def __call__(self, inputs: list[Any], tangents: list[Any], needed: tuple[int, ...]) -> tuple[Any, ...]:
        values = self._values(inputs, tangents)
        if changing_hook() or any(map(torch_adapter.is_transformed, tangents)):
            return self._program(needed, tangents)(*values)
        key = (needed, casts_now(), *[_described(v) for v in values])
        program = self.variants.get(key)
        if program is None:
            with self.lock:
                program = self.variants.get(key)
                if program is None:
                    program = self.variants[key] = self._variant(values, needed)
        return program(values)

    def detached(self, inputs: list[Any], tangents: list[Any], needed: tuple[int, ...]) -> tuple[Any, ...]:
        """Gradients without a history, by what gives them one."""
        with torch.enable_grad():
            found = self(inputs, tangents, needed)
        return tuple([one if one is None else one.detach() for one in found])

    def without_history(self, inputs: list[Any], tangents: list[Any], needed: tuple[int, ...]) -> tuple[Any, ...]:
        """Gradients by the program as it is, operator by operator."""
        with torch.enable_grad():
            return self._program(needed, tangents, create_graph=False)(*self._values(inputs, tangents))

    def hooked(
        self, hooks: Hooks, inputs: list[Any], tangents: list[Any], needed: tuple[int, ...]
    ) -> tuple[Any, ...]:
        """Gradients by the program as it is, whose results have these hooks: what further gradients read of a result, they
        get to by way of its hooks."""
        events.record("fallback", name=f"{self.name}_gradient", why="a result has hooks", reason="hooked-result")
        return self._program(needed, tangents, hooks=hooks)(*self._values(inputs, tangents))

    def _values(self, inputs: list[Any], tangents: list[Any]) -> list[Any]:
        return [*inputs[: self.count], *tangents, *inputs[self.count :]]

    def _variant(self, values: list[Any], needed: tuple[int, ...]) -> Program:
        program = self._program(needed, values[self.count : len(values) - len(self.late)])
        if self.build is None:
            why = "the graph of the program is not kept on disk"
            events.record("fallback", name=f"{self.name}_gradient", why=why, reason="kept-entry")
        if len(self.variants) >= _VARIANTS or self.build is None:
            return lambda values: program(*values)
        before = torch_adapter.Beginning()
        try:
            with GcPause(), torch.enable_grad():
                compiled = self.build(program, values, len(needed))
        except Exception as error:  # the fallback border, as for the first gradient
            pass_on(error)
            why = f"{type(error).__name__}: {error}"
            events.record("fallback", name=f"{self.name}_gradient", why=why)
            return lambda values: program(*values)
        finally:
            before.restore()
        return lambda values: compiled([v for v in values if isinstance(v, torch.Tensor)])

    def _program(
        self, needed: tuple[int, ...], tangents: list[Any], create_graph: bool = True, hooks: Hooks | None = None
    ) -> Callable[..., tuple[Any, ...]]:
        """The gradients of `needed`, of the results whose tangents are not None. `hooks`: by the tangents' numbers."""
        asked = [number for number, tangent in enumerate(tangents) if tangent is not None]
        module, count = self.module, self.count
        ends, written, late = self.roots, self.written, self.late  # not `self`, which keeps the compiled program
        records, casts = self.records, self.casts

        def gradients(*values: Any) -> tuple[Any, ...]:
            values = tuple(map(_apart, values))
            given = [v.clone() if i in written else v for i, v in enumerate(values[:count])]
            # Saved tensors' hooks around the backward see what it saves alone.
            with torch_adapter.without_saved_tensor_hooks(), torch.set_grad_enabled(records):
                outputs = among(casts, _run, module, given)
            for position, value in zip(late, values[count + len(tangents) :]):
                given[position].data.copy_(value)  # which autograd does not know of
            roots = [ends[number].find(outputs, given) for number in asked]
            wanted = [values[i] for i in needed]
            given_to_roots = [values[count + number] for number in asked]
            options = {"retain_graph": create_graph, "create_graph": create_graph}
            found = torch_adapter.gradients(roots, wanted, given_to_roots, **options)
            for number, hook in (hooks or {}).items():  # not before: the tangents have come by way of them
                result: Any = ends[number].find(outputs, given)
                result.register_hook(hook)
            return found

        return gradients


def _run(module: Any, given: list[Any]) -> tuple[Any, ...]:
    from pliant.autograd.run_module import run_module
    from pliant.graph.fake_tensor import FakeTensor

    mode: Any = next((v.fake_mode for v in given if type(v) is FakeTensor), None)
    if mode is None:
        return tuple(module.forward(*given))
    return run_module(module, given, lambda node: None, mode.constant)


def _apart(value: Any) -> Any:
    """A real tensor whose history begins with itself: one input may have been computed from another."""
    from pliant.graph.fake_tensor import FakeTensor

    real = isinstance(value, torch.Tensor) and type(value) is not FakeTensor
    return value.view_as(value) if real and value.requires_grad else value


def _described(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.shape, value.stride(), value.dtype, value.device, value.requires_grad, value.is_leaf


def _as_captured(
    program: Callable[..., tuple[Any, ...]], first: CapturedGraph, values: list[Any], count: int
) -> CapturedGraph:
    """The gradient program as a captured one: a single call. Numbers are part of it, tensors have fixed sizes."""
    from pliant.graph.fake_mode import FakeMode
    from pliant.symbolic.shape_env import ShapeEnv

    graph, env, inputs = fx.Graph(), ShapeEnv(), list[GraphInput]()
    mode = FakeMode(env)
    arguments = []
    for position, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            arguments.append(value)
            continue
        known = first.inputs[position] if position < len(first.inputs) else None
        name = known.name if known is not None else f"tangent_{position}_of_{len(first.inputs)}"
        node = graph.placeholder(name)
        node.target = name = node.name  # another one in a gradient of a gradient
        arguments.append(node)
        static = known is not None and known.static
        inputs.append(GraphInput(name, "tensor", mode.from_real(value), None, None, static))
    whole = graph.call_function(program, tuple(arguments))
    graph.output(tuple(graph.call_function(operator.getitem, (whole, i)) for i in range(count)))
    name, whole_only = f"{first.name}_gradient", {"whole": True}
    return CapturedGraph(LateModule({}, graph), inputs, env, name, grad_enabled=True, attributes=whole_only)
