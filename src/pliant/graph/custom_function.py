"""An `autograd.Function` of the program as a module of the captured graph.

In:     its forward and its backward as graph modules, and what it told its context (`FunctionPlan`).
Out:    a module whose call applies them as one function of autograd: on real tensors, and on fakes in the joint stage.
Holds:  the backward reads what it needs among the forward's inputs, outputs and further results, which are constants to
        autograd; a program without gradients keeps nothing. Transforms can take the function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from pliant.errors import Unsupported
from pliant.graph.bodies import run_body
from pliant.records import dataclass
from pliant.torch_adapter import set_grad_enabled

Pattern = tuple[bool, ...]  # which gradients of outputs are missing


@dataclass(frozen=True, slots=True, eq=False)
class Backward:
    """The backward for one pattern of missing gradients.

    `reads`: positions among the kept values, its arguments after the gradients. `gradients`: for each input of the forward the
    position of its gradient in what `module` returns, or None.
    """

    module: fx.GraphModule
    reads: tuple[int, ...]
    gradients: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FunctionPlan:
    """`forward` returns `n_outputs` outputs and then further values that are kept.

    `kept`: what the backward reads, as positions among the inputs followed by the results of the forward. `saved`: which
    of them are under autograd's checks. `histories`: whether further values have one, which the backward differentiates.
    `mapped`: whether `vmap` may take the function apart. `unmapped`: the program's function has a rule of its own, and none
    of the arguments has a batch here: `vmap` is to call it as it is.
    """

    name: str
    forward: fx.GraphModule
    backward: Mapping[Pattern, Backward]
    n_outputs: int
    kept: tuple[int, ...]
    saved: frozenset[int]
    dirty: tuple[int, ...] = ()
    non_differentiable: tuple[int, ...] = ()
    materialize: bool = True
    once: bool = False
    mapped: bool = False
    unmapped: bool = False
    histories: bool = False


class CustomFunction(torch.nn.Module):
    """Calls the function on tensors and numbers; returns the tuple of its tensor outputs."""

    def __init__(self, plan: FunctionPlan) -> None:
        super().__init__()
        self.plan = plan
        self.forward_graph = plan.forward
        for number, variant in enumerate(plan.backward.values()):
            _leave_mode(variant.module)
            self.add_module(f"backward_graph_{number}", variant.module)
        self.function = _make_function(plan)

    def forward(self, *inputs: Any) -> Any:
        results = self.function.apply(*inputs)  # type: ignore[no-untyped-call]
        return tuple(results[: self.plan.n_outputs])


def _leave_mode(backward: torch.nn.Module) -> None:
    """Blocks with gradients on end in the mode that they began in, which is on where the backward has a history. A module that
    was made again of its text has that already."""
    if not isinstance(backward, fx.GraphModule):
        return
    modes = [n for n in backward.graph.nodes if n.target is set_grad_enabled]
    if not modes or [node.args[0] for node in modes] != [True, False] * (len(modes) // 2):
        return
    with backward.graph.inserting_before(modes[0]):
        before = backward.graph.call_function(torch.is_grad_enabled)
    for node in modes[1::2]:
        node.args = (before,)
    backward.recompile()


def _make_function(plan: FunctionPlan) -> type[torch.autograd.Function]:
    def forward(*inputs: Any) -> tuple[Any, ...]:
        return run_body(plan.forward, inputs)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        if plan.dirty:
            ctx.mark_dirty(*[inputs[i] for i in plan.dirty])
        further = [] if plan.histories else [r for r in results[plan.n_outputs :] if isinstance(r, torch.Tensor)]
        ctx.mark_non_differentiable(*[results[i] for i in plan.non_differentiable], *further)
        ctx.set_materialize_grads(plan.materialize)
        kept = [(*inputs, *results)[place] for place in plan.kept]
        ctx.save_for_backward(*[kept[i] for i in sorted(plan.saved)])
        ctx.kept = [None if i in plan.saved else value for i, value in enumerate(kept)]

    def both(ctx: Any, *inputs: Any) -> tuple[Any, ...]:
        results = forward(*inputs)
        setup_context(ctx, inputs, results)
        return results[: plan.n_outputs]

    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        given = gradients[: plan.n_outputs]
        variant = plan.backward[tuple(g is None for g in given)]
        kept = list(ctx.kept)
        for position, tensor in zip(sorted(plan.saved), ctx.saved_tensors):
            kept[position] = tensor
        found = run_body(variant.module, [*(g for g in given if g is not None), *(kept[i] for i in variant.reads)])
        return tuple([None if i is None else found[i] for i in variant.gradients])

    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        raise Unsupported(f"{plan.name}: a batch where the traced call had none")

    last: Any = torch.autograd.function.once_differentiable(backward) if plan.once else backward
    members = {"forward": forward, "setup_context": setup_context, "backward": last}
    if plan.histories:
        members = {"forward": both, "backward": last}
    if plan.unmapped:
        members["vmap"] = vmap
    static: dict[str, Any] = {name: staticmethod(member) for name, member in members.items()}
    return type(plan.name, (torch.autograd.Function,), static | {"generate_vmap_rule": plan.mapped})
