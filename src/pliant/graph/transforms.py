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
            results = tuple(self.body(*given))
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

        made = torch.func.grad_and_value(scalar, argnums=self.all_places, has_aux=True)(*chosen)
        gradients, (value, auxiliary) = made
        return (*gradients, value, *auxiliary)


class Jacobian(Transformed):
    """(jacobian of each output by each argument..., auxiliary...). `options["by"]`: `jacrev` or `jacfwd`."""

    def forward(self, *values: Any) -> tuple[Any, ...]:
        function, chosen = self.split(values)
        options = dict(self.options)
        transform = getattr(torch.func, options.pop("by"))
        found, auxiliary = transform(function, argnums=self.all_places, has_aux=True, **options)(*chosen)
        return (*(one for row in found for one in row), *auxiliary)


class PulledBack(Transformed):
    """The last `n_outputs` arguments are gradients of outputs: those of the differentiated arguments."""

    def forward(self, *arguments: Any) -> tuple[Any, ...]:
        count = len(arguments) - self.n_outputs
        function, chosen = self.split(arguments[:count])
        results: Any = torch.func.vjp(function, *chosen, has_aux=True)
        pull = results[1]
        return tuple(pull(tuple(arguments[count:])))


class PushedForward(Transformed):
    """The last arguments are tangents of the differentiated ones: (outputs..., tangents of outputs..., auxiliary...)"""

    def forward(self, *arguments: Any) -> tuple[Any, ...]:
        count = len(arguments) - len(self.places)
        function, chosen = self.split(arguments[:count])
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
        found = torch.vmap(
            lambda *mapped: tuple(body(*mapped)), in_dims=self.in_dims, out_dims=self.out_dims, **self.options
        )(*values)
        return tuple(tree_leaves(found))
