"""Programs made of `torch.func` transforms, derivatives of autograd and linear functions: a table for `test_transform_programs`.

A program takes `x` of size (n, 4) and `w` of size (4, 4), both with gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import functional
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)


def _network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()


NETWORK = _network(0)
ENSEMBLE = [_network(seed) for seed in range(3)]
PARAMETERS = {name: p.detach() for name, p in NETWORK.named_parameters()}
STACKED = {name: p.detach() for name, p in stack_module_state(ENSEMBLE)[0].items()}


def loss(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).tanh().pow(2).sum()


def rows(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin().sum(-1) * x[..., 0]


def net(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    result: Tensor = functional_call(NETWORK, parameters, (x,))
    return result


def scaled(w: Tensor) -> dict[str, Tensor]:
    return {name: p * w.sum() for name, p in PARAMETERS.items()}


def kernel(x: Tensor, w: Tensor) -> Tensor:
    """The neural tangent kernel by Jacobians."""
    jacobians = vmap(jacrev(lambda p, a: net(p, a[None])[0]), (None, 0))(scaled(w), x)
    return sum(torch.einsum("naf,mbf->nmab", j.flatten(2), j.flatten(2)) for j in jacobians.values())  # type: ignore[return-value]


def laplacian(x: Tensor, w: Tensor) -> Tensor:
    def one(a: Tensor) -> Any:
        slope = grad(lambda z: net(scaled(w), z[None]).sum())
        return sum(jvp(slope, (a,), (unit,))[1] @ unit for unit in torch.eye(4, dtype=a.dtype))

    return vmap(one)(x)


def adapted(x: Tensor, w: Tensor) -> Tensor:
    """Two steps of an inner loop."""
    parameters = scaled(w)
    for _ in range(2):
        slopes = grad(lambda p: net(p, x).pow(2).mean())(parameters)
        parameters = {name: p - 0.1 * slopes[name] for name, p in parameters.items()}
    return net(parameters, x).pow(2).mean()


def along(x: Tensor, w: Tensor) -> Any:
    value, derivative = linearize(lambda a: a.sin() * a, x)
    return value, derivative(x.cos()), derivative(x)


def pulled(x: Tensor, w: Tensor) -> Any:
    value, pull, extra = vjp(lambda a, b: (rows(a, b), {"norm": a.norm()}), x, w, has_aux=True)
    return value, pull(torch.ones_like(value)), extra


def ensemble(x: Tensor, w: Tensor) -> Any:
    stacked = {name: p * w.sum() for name, p in STACKED.items()}
    return vmap(lambda p, a: functional_call(ENSEMBLE[0], p, (a,)), (0, None))(stacked, x)


def closed_over(x: Tensor, w: Tensor) -> Tensor:
    return grad(lambda a: (a * grad(lambda b: (a * b).pow(3).sum())(x)).sum())(x)


def products(x: Tensor, w: Tensor) -> Any:
    return torch.autograd.grad(loss(x, w), (x, w), create_graph=True)


def batched(x: Tensor, w: Tensor) -> Any:
    value = x.sin() * x
    given = torch.stack([value.detach(), torch.ones_like(value)])
    return torch.autograd.grad(value, x, given, is_grads_batched=True, create_graph=True)


Program = Callable[[Tensor, Tensor], Any]
PROGRAMS: dict[str, Program] = {
    "grad": grad(loss),
    "grad of both": lambda x, w: grad(loss, (0, 1))(x, w),
    "value and grad": grad_and_value(lambda x, w: loss(x, w)),
    "jacrev": lambda x, w: jacrev(rows)(x, w),
    "jacfwd": lambda x, w: jacfwd(rows, 1)(x, w),
    "jacrev in chunks": lambda x, w: jacrev(rows, chunk_size=2)(x, w),
    "hessian": lambda x, w: hessian(loss)(x, w),
    "jacfwd twice": lambda x, w: jacfwd(jacfwd(loss))(x, w),
    "grad of grad": lambda x, w: grad(lambda a: grad(loss)(a, w).pow(2).sum())(x),
    "hessian times vector, forward over reverse": lambda x, w: jvp(grad(loss), (x, w), (x.cos(), w.sin())),
    "hessian times vector, reverse over reverse": lambda x, w: vjp(grad(loss), x, w)[1](x.cos()),
    "hessian times vector, reverse over forward": lambda x, w: grad(lambda a: jvp(loss, (a, w), (x.cos(), w))[1])(x),
    "per-sample gradients": lambda x, w: vmap(grad(loss), (0, None))(x, w),
    "per-sample jacobians": lambda x, w: vmap(jacfwd(rows), (0, None))(x, w),
    "per-sample hessians": lambda x, w: vmap(hessian(loss), (0, None))(x, w),
    "per-sample parameters": lambda x, w: vmap(grad(lambda p, a: net(p, a[None]).sum()), (None, 0))(scaled(w), x),
    "vmap of vmap": lambda x, w: vmap(lambda a: vmap(lambda b: a.dot(b))(w))(x),
    "mapped last dimensions": lambda x, w: vmap(torch.dot, in_dims=(-1, -1))(x @ w, x),
    "outputs of other dimensions": lambda x, w: vmap(lambda a: (a * 2, a.outer(a)), out_dims=(1, 2))(x),
    "dictionaries": lambda x, w: vmap(lambda d: d["a"] @ d["w"], in_dims=({"a": 0, "w": None},))({"a": x, "w": w}),
    "writes inside": lambda x, w: vmap(lambda a: a.clone().mul_(2).add_(1))(x @ w),
    "tangent kernel": kernel,
    "laplacian": laplacian,
    "inner loop": adapted,
    "linearize": along,
    "vjp with auxiliary": pulled,
    "ensemble": ensemble,
    "a transform closes over another's argument": closed_over,
    "functionalize": lambda x, w: functionalize(lambda a: a.clone().add_(1).view(-1))(x @ w),
    "gradients that are sums of products": products,
    "batched gradients": batched,
    "jacobian": lambda x, w: functional.jacobian(lambda a: rows(a, w), x, create_graph=True),
    "jacobian, vectorized": lambda x, w: functional.jacobian(
        lambda a: rows(a, w), x, create_graph=True, vectorize=True
    ),
    "hessian times vector of autograd": lambda x, w: functional.hvp(
        lambda a: loss(a, w), x, x.cos(), create_graph=True
    ),
    "vector times jacobian of autograd": lambda x, w: functional.vjp(rows, (x, w), x[:, 0].cos(), create_graph=True),
    "jacobian times vector of autograd": lambda x, w: functional.jvp(
        rows, (x, w), (x.cos(), w.sin()), create_graph=True
    ),
}
