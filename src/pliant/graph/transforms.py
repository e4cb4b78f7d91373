"""`torch.func` transforms as modules of the captured graph: the transformed function is a graph module of flat tensors.

In:     the graph of the function, which of its arguments are differentiated or mapped.
Out:    a module of the same arguments whose call applies torch's own transform to the graph.
Holds:  run on fakes, the transform's operators are recorded below it, as those of any other composition are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from pliant.errors import Unsupported
from pliant.graph.bodies import run_body
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.map_rules.kernels import where_sizes_vary


class Transformed(torch.nn.Module):
    """A function of flat values, `n_outputs` of whose results are transformed; the rest are auxiliary.

    `places`: positions of the arguments that are differentiated.
    """

    def __init__(self, body: fx.GraphModule, places: tuple[int, ...], n_outputs: int, **options: Any) -> None:
        super().__init__()
        self.body = body
        self.places = places
        self.n_outputs = n_outputs
        self.options = options

    def split(self, values: tuple[Any, ...]) -> tuple[Callable[..., Any], list[Any]]:
        """The function of the differentiated arguments alone, and these: (outputs, auxiliary results)."""

        def function(*chosen: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
            given = list(values)
            for place, value in zip(self.places, chosen):
                given[place] = value
            results = run_body(self.body, tuple(given))
            return results[: self.n_outputs], results[self.n_outputs :]

        return function, [values[place] for place in self.places]

    @property
    def all_places(self) -> tuple[int, ...]:
        return tuple(range(len(self.places)))


class Gradient(Transformed):
    """(gradients..., value, auxiliary...)"""

    def forward(self, *values: Any) -> tuple[Any, ...]:
        function, chosen = self.split(values)

        def scalar(*chosen: Any) -> tuple[Any, Any]:
            outputs, auxiliary = function(*chosen)
            return outputs[0], auxiliary

        with where_sizes_vary(values):
            made = torch.func.grad_and_value(scalar, argnums=self.all_places, has_aux=True)(*chosen)
        gradients, (value, auxiliary) = made
        return (*gradients, value, *auxiliary)


class Jacobian(Transformed):
    """(jacobian of each output by each argument..., auxiliary...). `options["by"]`: `jacrev` or `jacfwd`."""

    def forward(self, *values: Any) -> tuple[Any, ...]:
        function, chosen = self.split(values)
        options = dict(self.options)
        transform = getattr(torch.func, options.pop("by"))
        with where_sizes_vary(values):
            found, auxiliary = transform(function, argnums=self.all_places, has_aux=True, **options)(*chosen)
        return (*(one for row in found for one in row), *auxiliary)


class PulledBack(Transformed):
    """The last `n_outputs` arguments are gradients of outputs: those of the differentiated arguments."""

    def forward(self, *arguments: Any) -> tuple[Any, ...]:
        count = len(arguments) - self.n_outputs
        function, chosen = self.split(arguments[:count])
        with where_sizes_vary(arguments):
            results: Any = torch.func.vjp(function, *chosen, has_aux=True)
            pull = results[1]
            return tuple(pull(tuple(arguments[count:])))


class PushedForward(Transformed):
    """The last arguments are tangents of the differentiated ones: (outputs..., tangents of outputs..., auxiliary...)"""

    def forward(self, *arguments: Any) -> tuple[Any, ...]:
        count = len(arguments) - len(self.places)
        function, chosen = self.split(arguments[:count])
        with where_sizes_vary(arguments):
            results: Any = torch.func.jvp(function, tuple(chosen), tuple(arguments[count:]), has_aux=True)
        outputs, tangents, auxiliary = results
        return (*outputs, *tangents, *auxiliary)


class Mapped(torch.nn.Module):
    """`torch.vmap` of a graph. `in_dims`: one for each argument."""

    def __init__(self, body: fx.GraphModule, in_dims: tuple[int | None, ...], out_dims: Any, **options: Any) -> None:
        super().__init__()
        self.body = body
        self.in_dims = in_dims
        self.out_dims = out_dims
        self.options = options

    def forward(self, *values: Any) -> tuple[Any, ...]:
        body = self.body
        mapped = torch.vmap(
            lambda *given: run_body(body, given), in_dims=self.in_dims, out_dims=self.out_dims, **self.options
        )
        with where_sizes_vary(values):
            found = mapped(*values)
        return tuple(tree_leaves(found))


class OwnMapped(torch.nn.Module):
    """A custom function below `vmap`, as its own `vmap` staticmethod computes it on whole batches.

    `rule`: the graph of that staticmethod, of what `forward` takes after the size of the batch. It holds for `in_dims`
    (one for each argument) and gives results whose batches are at `out_dims`. `samples`: while the function around is
    traced for one sample, what the results are.
    """

    samples: tuple[FakeTensor, ...] = ()

    def __init__(self, rule: fx.GraphModule, name: str, in_dims: tuple[int | None, ...], out_dims: Any) -> None:
        super().__init__()
        self.rule, self.name = rule, name
        self.function = rule_function(name, self._mapped, self._of_sample)
        self.in_dims = in_dims
        self.out_dims = out_dims

    def forward(self, *values: Any) -> tuple[Any, ...]:
        return tuple(self.function.apply(*values))  # type: ignore[no-untyped-call]

    def _mapped(self, info: Any, in_dims: Any, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        size, *given = values
        if tuple(in_dims[1:]) != self.in_dims or info.batch_size != size:
            raise UnsupportedRule(f"{self.function.__name__}.vmap was traced for another batch")
        return tuple(self.rule(*given)), self.out_dims

    def _of_sample(self, *values: Any) -> tuple[Any, ...]:
        if not self.samples:
            raise UnsupportedRule(f"{self.function.__name__}: no batch where the traced call had one")
        return tuple([s.fake_mode.new(s.size_, s.stride_, s.dtype_, s.device_) for s in self.samples])


def without_samples(module: torch.nn.Module) -> None:
    """Tracing is over."""
    for one in module.modules():
        if isinstance(one, OwnMapped):
            one.samples = ()


class UnsupportedRule(Unsupported):
    """A custom function's own rule for `vmap` is asked for what it was not traced for."""


def rule_function(
    name: str, rule: Callable[[Any, Any, tuple[Any, ...]], Any], otherwise: Callable[..., Any]
) -> type[torch.autograd.Function]:
    """A function of autograd with a rule for `vmap` (of what torch says, the places of batches, the arguments).

    `otherwise`: what it gives where no argument has a batch.
    """

    def without_context(ctx: Any, *given: Any) -> None:
        pass

    def backward(ctx: Any, *given: Any) -> Any:
        raise UnsupportedRule(f"{name}: derivatives are those of what its rule calls")

    def vmap(info: Any, in_dims: Any, *values: Any) -> Any:
        return rule(info, in_dims, values)

    members = {"forward": otherwise, "setup_context": without_context, "backward": backward, "vmap": vmap}
    return type(name, (torch.autograd.Function,), {key: staticmethod(one) for key, one in members.items()})
