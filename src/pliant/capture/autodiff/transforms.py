"""`torch.func` inside a program: the transformed function is traced into a graph, one node applies the transform to it.

In:     calls of what `torch.func.grad`, `vmap`, `jacrev`... returned, made inside or outside; of `vjp` and `jvp`.
Out:    results in eager's structure; a module of `graph.transforms` in the graph.
Holds:  the function has no side effects. Inside it tensors are those of one sample (`vmap`) or of the level that is
        differentiated; what it closes over is constant to the transform. Nothing of torch's transform stack is ever interpreted.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from pliant.capture.autodiff.own_rules import mapped_region
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows, spread
from pliant.capture.recording.regions import (
    Region,
    Replay,
    are_tensors,
    flat,
    grad_kept,
    record_module,
    refilled,
    tensors_of,
    without_effects,
)
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import as_tuple, in_form_of
from pliant.capture.value_kinds import is_list, is_number, is_tuple
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.transforms import Gradient, Jacobian, Mapped, PulledBack, PushedForward, without_samples
from pliant.guards.sources import held
from pliant.records import dataclass
from pliant.torch_adapter import LEGACY_VMAP, TRANSFORMS, DisableTorchFunction, broadcast_to_tree

ROWS = Rows()
handles, SPECIAL_MODULES = ROWS.handles, ROWS.modules

_FOLLOWED = (f"{TRANSFORMS}.functional_call", f"{TRANSFORMS}.utils")  # plain Python


def find(function: types.FunctionType) -> Callable[..., Any] | None:
    """How a function that torch's transforms are made of is called; None for any other function."""
    return None if function.__globals__["__name__"] in _FOLLOWED else _call


def find_legacy(function: types.FunctionType) -> Callable[..., Any] | None:
    """The `vmap` of `torch.autograd.functional`, of an older making."""
    if function.__code__.co_qualname != "_vmap.<locals>.wrapped":
        return None
    more = {"randomness": "error", "chunk_size": None}
    return lambda t, function, args, kwargs: _vmap(t, _options(t, function) | more, args, kwargs)


SPECIAL_MODULES[TRANSFORMS] = find
SPECIAL_MODULES[LEGACY_VMAP] = find_legacy


def _call(t: Tracer, function: types.FunctionType, args: Args, kwargs: Kwargs) -> Any:
    maker, _, rest = function.__code__.co_qualname.partition(".")
    if not rest and (maker in _APPLIED or maker == "hessian"):  # it only closes over what it is given
        return t.native(function, *args, **kwargs)
    apply = _APPLIED.get(maker)
    if apply is None or not rest.startswith("<locals>.wrap"):
        raise GraphBreak("unknown-call", f"torch.func.{maker}")
    return apply(t, _options(t, function), args, kwargs)


def _options(t: Tracer, function: types.FunctionType) -> dict[str, Any]:
    """What the transform was made with."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = {name: cell.cell_contents for name, cell in cells}
    inner = found["func"]
    if t.world.source_of(function) is not None and t.world.source_of(inner) is None:
        t.world.set_origin(inner, held(inner, getattr(inner, "__qualname__", "func")))
    return found


# ---- the traced function
@dataclass(slots=True)
class _Traced:
    """`leaves`: the arguments, flat. `values`: what the graph takes. `outputs` and `auxiliary` are flat tensors."""

    body: fx.GraphModule
    leaves: list[Any]
    values: list[Any]
    outputs: list[Any]
    out_spec: Any
    auxiliary: list[Any]
    aux_spec: Any


def _trace(
    t: Tracer,
    options: dict[str, Any],
    args: Args,
    kwargs: Kwargs,
    inner: Callable[[int, FakeTensor], FakeTensor] | None = None,
    replay: Replay | None = None,
) -> _Traced:
    """The function's graph. `inner(leaf, tensor)`: what stands for a tensor of the arguments inside."""
    leaves, spec = flat(t, (args, kwargs))
    replay = replay or Replay(transform="derivative")
    replay.given = tensors_of(leaves)
    region = Region(t.recorder, differentiated=True, replay=replay)
    with region.active(), without_effects(t, "a transformed function"):
        given = [
            region.fresh(one if inner is None else inner(i, one)) if is_fake(one) else one
            for i, one in enumerate(leaves)
        ]
        count = len(region.lifted)
        inner_args, inner_kwargs = pytree.tree_unflatten(given, spec)
        with grad_kept():
            result = t.call(options["func"], inner_args, inner_kwargs)
        result, auxiliary = _with_auxiliary(result) if options.get("has_aux") else (result, ())
        outputs, out_spec = flat(t, result)
        aux, aux_spec = flat(t, auxiliary)
        if not are_tensors(outputs):
            raise GraphBreak("tensor-error", "a transformed function returned something other than tensors")
        body = region.close([*outputs, *tensors_of(aux)], "Function")
    return _Traced(body, leaves, [*tensors_of(leaves), *region.lifted[count:]], outputs, out_spec, aux, aux_spec)


def _with_auxiliary(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise GraphBreak("tensor-error", "a transformed function with has_aux must return (output, auxiliary)")
    return result


def _chosen(t: Tracer, argnums: Any, args: tuple[Any, ...], traced: _Traced) -> tuple[tuple[int, ...], list[Any]]:
    """Where the tensors of the differentiated arguments stand among all, and the structure of each such argument."""
    places: list[int] = []
    specs = []
    parts = [flat(t, one) for one in args]
    for number in as_tuple(argnums):
        number = range(len(args))[number]
        leaves, spec = parts[number]
        if not are_tensors(leaves):
            raise GraphBreak("tensor-error", "an argument that is differentiated holds something other than tensors")
        start = len(tensors_of(traced.leaves[: sum(len(one) for one, _ in parts[:number])]))
        places += range(start, start + len(leaves))
        specs.append(spec)
    return tuple(places), specs


def _by_argument(argnums: Any, flat: Sequence[Any], specs: list[Any]) -> Any:
    """One structure for each argument that is differentiated."""
    given = iter(flat)
    return in_form_of(argnums, [pytree.tree_unflatten(list(islice(given, spec.num_leaves)), spec) for spec in specs])


def _applied(t: Tracer, traced: _Traced, module: torch.nn.Module, name: str, *more: Any) -> tuple[list[Any], Any]:
    """What the module of a transform gives, flat, and the auxiliary results that it has behind that."""
    made = list(record_module(t, module, [*traced.values, *more], name))
    count = len(made) - len(tensors_of(traced.auxiliary))
    return made[:count], refilled(traced.auxiliary, made[count:], traced.aux_spec)


# ---- derivatives
def _gradient(t: Tracer, options: dict[str, Any], args: Args, kwargs: Kwargs) -> tuple[Any, Any]:
    """What `grad_and_value` returns."""
    traced = _trace(t, options, args, kwargs)
    if len(traced.outputs) != 1 or traced.outputs[0].dim() != 0:
        raise GraphBreak("tensor-error", "torch.func.grad of a function whose result is not one number")
    places, specs = _chosen(t, options["argnums"], args, traced)
    (*gradients, value), aux = _applied(t, traced, Gradient(traced.body, places, 1), "grad")
    return _by_argument(options["argnums"], gradients, specs), (value, aux) if options["has_aux"] else value


def _grad(t: Tracer, options: dict[str, Any], args: Args, kwargs: Kwargs) -> Any:
    gradients, value = _gradient(t, options, args, kwargs)
    return (gradients, value[1]) if options["has_aux"] else gradients


def _jacobian(by: str, given: tuple[str, ...]) -> Callable[..., Any]:
    def apply(t: Tracer, options: dict[str, Any], args: Args, kwargs: Kwargs) -> Any:
        traced = _trace(t, options, args, kwargs)
        places, specs = _chosen(t, options["argnums"], args, traced)
        more = {name: options[name] for name in given if name in options}
        made, aux = _applied(t, traced, Jacobian(traced.body, places, len(traced.outputs), by=by, **more), by)
        rows = [made[i : i + len(places)] for i in range(0, len(made), len(places))]
        found = pytree.tree_unflatten([_by_argument(options["argnums"], row, specs) for row in rows], traced.out_spec)
        return (found, aux) if options["has_aux"] else found

    return apply


def _pushed(t: Tracer, traced: _Traced, values: list[Any], tangents: list[Any]) -> tuple[Any, Any, Any]:
    """What the function gives, how that moves with its arguments, and auxiliary results."""
    module = PushedForward(traced.body, tuple(range(len(tangents))), len(traced.outputs))
    made, aux = _applied(t, replace(traced, values=values), module, "jvp", *tangents)
    halves = made[: len(traced.outputs)], made[len(traced.outputs) :]
    outputs, moved = (pytree.tree_unflatten(half, traced.out_spec) for half in halves)
    return outputs, moved, aux


@ROWS.takes(torch.func.jvp)
def _push(t: Tracer, func: Any, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    if not (is_tuple(primals) and is_tuple(tangents)):
        raise GraphBreak("tensor-error", "jvp: primals and tangents are tuples")
    traced = _trace(t, {"func": func, "has_aux": has_aux}, tuple(t.sequence(primals)), {})
    found = _pushed(t, traced, traced.values, flat(t, tuple(t.sequence(tangents)))[0])
    return found if has_aux else found[:2]


@dataclass(eq=False)
class _Linear:
    """The function that `vjp` or `linearize` returns, while it is traced."""

    apply: Callable[..., Any]
    traced: _Traced
    specs: list[Any]

    def __call__(self, *given: Any) -> Any:
        raise AssertionError("called through the table of handlers")


def _at(t: Tracer, apply: Callable[..., Any], func: Any, primals: Sequence[Any], has_aux: bool = False) -> Any:
    """What the function gives, and its derivative there as a linear function.

    That function runs the graph again, so it must not draw other random numbers there.
    """
    drew, t.mode.draws = t.mode.draws, False
    try:
        traced = _trace(t, {"func": func, "has_aux": has_aux}, tuple(primals), {})
        if t.mode.draws:
            raise GraphBreak("random-state", "the derivative of a function that draws random numbers is applied later")
    finally:
        t.mode.draws |= drew
    made, aux = _applied(t, traced, traced.body, "function")
    linear = _Linear(apply, traced, [flat(t, one)[1] for one in primals])
    outputs = pytree.tree_unflatten(made, traced.out_spec)
    return (outputs, linear, aux) if has_aux else (outputs, linear)


ROWS.callables |= {
    torch.func.vjp: spread(lambda t, func, *primals, has_aux=False: _at(t, _pull, func, primals, bool(has_aux))),
    torch.func.linearize: spread(lambda t, func, *primals: _at(t, _push_along, func, primals)),
}


@handles(_Linear.__call__)
def _apply_linear(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    linear, *given = args
    expected = linear.specs if linear.apply is _push_along else [linear.traced.out_spec]
    if [flat(t, one)[1] for one in given] != expected:
        raise GraphBreak("tensor-error", "a derivative is applied to another structure than it was taken for")
    return linear.apply(t, linear, flat(t, tuple(given))[0])


def _pull(t: Tracer, linear: _Linear, given: list[Any]) -> Any:
    traced = linear.traced
    module = PulledBack(traced.body, tuple(range(len(tensors_of(traced.leaves)))), len(traced.outputs))
    return _by_argument((), record_module(t, module, [*traced.values, *given], "vjp"), linear.specs)


def _push_along(t: Tracer, linear: _Linear, given: list[Any]) -> Any:
    # As in eager, where the linear function is a graph of its own, its coefficients are constants.
    values = [t.call(torch.Tensor.detach, (v,), {}) if is_fake(v) else v for v in linear.traced.values]
    return _pushed(t, linear.traced, values, given)[1]


# ---- vmap
def _vmap(t: Tracer, options: dict[str, Any], args: Args, kwargs: Kwargs) -> Any:
    dims = _in_dims(t, options["in_dims"], args, kwargs)

    def sample(leaf: int, tensor: FakeTensor) -> FakeTensor:
        if dims[leaf] is None:
            return tensor
        with DisableTorchFunction(), torch.no_grad():
            return t.native(torch.select, tensor, dims[leaf], 0)  # type: ignore[no-any-return]

    mapped = [dim for dim, one in zip(dims, flat(t, (args, kwargs))[0], strict=True) if is_fake(one)]
    more = {"randomness": options["randomness"], "chunk_size": options["chunk_size"]}

    def enter(values: list[Any], run: Callable[[list[Any]], Any]) -> Any:
        in_dims = (*mapped, *[None] * (len(values) - len(mapped)))
        return torch.vmap(lambda *given: run(list(given)), in_dims=in_dims, **more)(*values)

    traced = _trace(t, options, args, kwargs, sample, Replay(transform="vmap", enter=enter))
    mapped += [None] * (len(traced.values) - len(mapped))
    out_dims = broadcast_to_tree(_tupled(options["out_dims"]), traced.out_spec)
    if out_dims is None:
        raise GraphBreak("tensor-error", "vmap: out_dims do not fit the result")
    module = Mapped(traced.body, tuple(mapped), tuple(out_dims), **more)
    made, _ = _applied(t, traced, module, "vmap")
    if mapped_region(t.recorder.region) is None:
        without_samples(module)
    return pytree.tree_unflatten(made, traced.out_spec)


def _tupled(value: Any) -> Any:
    return tuple(value) if is_list(value) else value


def _in_dims(t: Tracer, in_dims: Any, args: Args, kwargs: Kwargs) -> list[int | None]:
    """The mapped dimension of each leaf of (args, kwargs): keyword arguments are not mapped."""
    leaves, spec = flat(t, args)
    dims = broadcast_to_tree(_tupled(in_dims), spec)
    mapped = [] if dims is None else [(dim, one) for dim, one in zip(dims, leaves) if dim is not None]
    fits = dims is not None and are_tensors(one for _, one in mapped)
    if dims is None or not fits or not all(is_number(dim) and -one.dim() <= dim < one.dim() for dim, one in mapped):
        raise GraphBreak("tensor-error", "vmap: in_dims do not fit the arguments")
    return [*dims, *[None] * len(flat(t, kwargs)[0])]


_APPLIED: dict[str, Callable[..., Any]] = {
    "grad": _grad,
    "grad_and_value": _gradient,
    "jacrev": _jacobian("jacrev", ("chunk_size",)),
    "jacfwd": _jacobian("jacfwd", ("randomness",)),
    "vmap": _vmap,
    # Removing mutations is what the compiler does anyway.
    "functionalize": lambda t, options, args, kwargs: t.call(options["func"], args, kwargs),
}
