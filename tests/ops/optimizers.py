"""torch.testing's optimizer database: compiled steps beside eager's.

In:     the name of a case, `optimizer/class/number of the options/implementation`.
Out:    a `Verdict`: "wrong" if parameters or state differ after some steps, "error" also for compiling too often.
Holds:  both sides start from equal parameters and get equal gradients; the learning rate changes on the way.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal.common_optimizers import optim_db
from torch.utils._pytree import tree_leaves

import pliant
from ops.gradient_check import Verdict
from pliant.debug import events
from pliant.errors import UserError

STEPS = 6
IMPLEMENTATIONS = {
    "default": {}, "single": {"foreach": False}, "foreach": {"foreach": True}, "capturable": {"capturable": True},
    "fused": {"fused": True},
}  # fmt: skip
SHAPES = [(3, 4), (5,), (2, 3), (3, 4), ()]
MATRICES = [(3, 4), (4, 4)]  # Muon takes no others
COMPILATIONS = 2  # of the first step, which makes the state, and of those after it
TOLERANCE = {"Muon": (2e-2, 2e-3)}  # it computes in bfloat16


def cases() -> list[str]:
    return [
        f"optimizer/{info.optim_cls.__name__}/{number}/{implementation}"
        for info in optim_db
        for number, _ in enumerate(info.optim_inputs_func(device="cpu"))
        for implementation in IMPLEMENTATIONS
        if implementation in ("default", *info.supported_impls, "capturable" * info.has_capturable_arg)
        or implementation == "single"
        and "foreach" in info.supported_impls
    ]


def _parameters(matrices: bool) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    shapes = MATRICES if matrices else SHAPES
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def _make(name: str, number: str, implementation: str) -> torch.optim.Optimizer:
    info = next(one for one in optim_db if one.optim_cls.__name__ == name)
    given = list(info.optim_inputs_func(device="cpu"))[int(number)]
    parameters = _parameters(name == "Muon")
    groups = [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.02}]
    options = {**copy.deepcopy(given.kwargs), **IMPLEMENTATIONS[implementation]}
    return info.optim_cls(groups if len(parameters) > 2 and name != "LBFGS" else parameters, **options)


def _train(optimizer: torch.optim.Optimizer, step: Callable[..., Any], sparse: bool) -> list[Any]:
    """Parameters and state after some steps, the learning rate changed before each from the third on."""
    generator = torch.Generator().manual_seed(2)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number in range(STEPS):
        for parameter in parameters:
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = gradient.to_sparse() if sparse and gradient.dim() else gradient
        if number > 2:
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * 0.9
        step(*_closure(optimizer, parameters))
    if isinstance(optimizer, torch.optim.LBFGS):  # its state holds differences of nearly equal numbers
        return parameters
    return [*parameters, *tree_leaves([optimizer.state[p] for p in parameters])]


def _closure(optimizer: torch.optim.Optimizer, parameters: list[Any]) -> tuple[Any, ...]:
    if not isinstance(optimizer, torch.optim.LBFGS):
        return ()

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum((p**2).sum() for p in parameters)
        loss.backward()
        return loss

    return (closure,)


def run_optimizer(name: str, number: str, implementation: str) -> Verdict:
    pliant.reset()
    sparse = name == "SparseAdam"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eager = _make(name, number, implementation)
            expected = _train(eager, eager.step, sparse)
        except Exception as error:
            return Verdict("skip", f"eager fails: {error}")
        verdict = _compiled(_make(name, number, implementation), expected, sparse, fullgraph=True)
        if verdict.status == "break":
            return _compiled(_make(name, number, implementation), expected, sparse, fullgraph=False)
        return verdict


def _compiled(optimizer: torch.optim.Optimizer, expected: list[Any], sparse: bool, fullgraph: bool) -> Verdict:
    step = pliant.compile(optimizer.step, fullgraph=fullgraph)
    with events.collect("fallback", "capture", "graph_break", "recompile") as seen:
        try:
            found = _train(optimizer, step, sparse)
        except UserError as error:
            return Verdict("break", " ".join(str(error).split())[:300], whole=False)
        except Exception as error:
            return Verdict("error", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    why = _difference(found, expected, *TOLERANCE.get(type(optimizer).__name__, (1e-4, 2e-5)))
    breaks = [str(e.fields.get("why")) for e in seen if e.kind == "graph_break"]
    fallback = next((" ".join(str(e.fields.get("why")).split())[:300] for e in seen if e.kind == "fallback"), "")
    if why:
        return Verdict("wrong", why, not breaks, fallback)
    captures = sum(e.kind == "capture" for e in seen)
    if not breaks and captures > COMPILATIONS:
        reasons = [" ".join(str(e.fields["why"]).split())[:150] for e in seen if e.kind == "recompile"]
        return Verdict("error", f"compiled {captures} times: {reasons}", fallback=fallback)
    return Verdict("pass", breaks[0][:300] if breaks else "", not breaks, fallback)


def _difference(found: list[Any], expected: list[Any], relative: float, absolute: float) -> str:
    if len(found) != len(expected):
        return f"{len(found)} tensors for {len(expected)}"
    try:
        torch.testing.assert_close(found, expected, rtol=relative, atol=absolute)
    except AssertionError as error:
        return " ".join(str(error).split())[:300]
    return ""
