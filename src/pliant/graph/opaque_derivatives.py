"""Operators of programs whose derivative, in Python, reads values: the same with a derivative that is one operator.

In:     a call of an operator that `torch.library.register_autograd` gave a derivative.
Out:    the operator to record: itself where fakes can run its derivative; else one of ours that computes the same, whose
        derivative a graph holds as a single operator, which runs the program's functions when the backward runs.
Holds:  the derivative's own effects are the program's promise, as those of every operator it registers: none that its
        results do not show. No gradient for an input that requires one counts as zeros.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pliant import torch_adapter
from pliant.graph.call_plan import tensors_in
from pliant.graph.unsupported import UnsupportedOperator
from pliant.interruptions import pass_on

if TYPE_CHECKING:
    from pliant.graph.fake_mode import FakeMode
    from pliant.symbolic.shape_env import ShapeEnv

_LIBRARY = "pliant_opaque"
_library: Any = None
_forms: dict[tuple[Any, Any, Any], tuple[Any, Any]] = {}  # (operator, its functions) -> our form, its derivative
_origins: dict[Any, tuple[str, Any]] = {}  # our operators -> which of the two it is, the program's operator


class _Context:
    """What a derivative in Python is given, without what autograd does with it."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def _told(self, *_: Any) -> None:
        pass

    mark_non_differentiable = mark_dirty = set_materialize_grads = _told

    def held(self) -> list[Tensor]:
        return tensors_in(vars(self))


def differentiable_form(mode: FakeMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any], results: Any) -> Any:
    """The operator to record; `UnsupportedOperator` where its derivative needs values and cannot be one operator."""
    overload = getattr(func, "default", func)  # of a packet; what `custom_op` makes has no other overload
    found = torch_adapter.python_derivative(overload) if isinstance(overload, torch_adapter.OpOverload) else None
    if found is None or not any(t.requires_grad for t in tensors_in(results)):
        return func
    given = _positional(overload, args, kwargs)
    needs = tuple(isinstance(a, Tensor) and a.requires_grad for a in given)
    context, (setup, backward) = _Context(needs), found
    each = results if isinstance(results, (tuple, list)) else (results,)
    with torch_adapter.DisableTorchFunction(), mode.shape_only(), torch.no_grad(), _nothing_made(mode.shape_env):
        try:
            if setup is not None:
                setup(context, given, results)
            backward(context, *[torch.empty_like(r) if isinstance(r, Tensor) else None for r in each])
        except (AttributeError, TypeError, NameError):
            return func  # of what the context lacks, or the program's own: eager words it
        except Exception as error:
            pass_on(error)
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            known = {id(t) for t in (*given, *each)}
            if not _is_plain(overload) or any(id(t) not in known for t in context.held()):
                what = f"the derivative of `{overload}` needs values: {why}"
                raise UnsupportedOperator(what, kind="no-derivative") from None
            return _opaque_forms(overload, setup, backward)[0]
    return func


def _positional(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments as a derivative's functions get them: by position, defaults filled in."""
    rest = func._schema.arguments[len(args) :]
    return (*args, *(kwargs.get(a.name, a.default_value) for a in rest))


def _is_plain(func: Any) -> bool:
    """Whether tensors come and go one by one, none of them by name alone."""
    arguments, returns = func._schema.arguments, func._schema.returns
    kinds = [str(one.type) for one in (*arguments, *returns)]
    return not any("List[" in k and "Tensor" in k for k in kinds) and not any(a.kwarg_only for a in arguments)


@contextmanager
def _nothing_made(env: ShapeEnv | None) -> Iterator[None]:
    """A block whose symbols are nobody's, as are asserts about them; what it assumes of others is to be checked."""
    fresh = [] if env is None else list(env.fresh)
    try:
        yield
    finally:
        if env is not None:
            made = set(env.fresh).difference(fresh)
            env.fresh = fresh
            env.runtime_asserts = [one for one in env.runtime_asserts if made.isdisjoint(one.expr.free)]


FORM, DERIVATIVE = _WHICH = ("opaque form", "opaque derivative")


def _opaque_forms(func: Any, setup: Callable[..., Any] | None, backward: Callable[..., Any]) -> tuple[Any, Any]:
    found = _forms.get((func, setup, backward))
    if found is None:
        found = _forms[func, setup, backward] = _define(func, setup, backward)
        _origins.update({one: (which, func) for which, one in zip(_WHICH, found)})
    return found


def origin_of(func: Any) -> tuple[str, Any] | None:
    """Of an operator that was made here: `FORM` or `DERIVATIVE`, and the program's operator. None of any other."""
    return _origins.get(func)


def made_again(which: str, func: Any) -> Any:
    """The operator of which `origin_of` says this, by the derivative that `func` has now. LookupError if it has none."""
    found = torch_adapter.python_derivative(func)
    if found is None:
        raise LookupError(f"`{func}` has no derivative in Python")
    return _opaque_forms(func, *found)[_WHICH.index(which)]


def _define(func: Any, setup: Callable[..., Any] | None, backward: Callable[..., Any]) -> tuple[Any, Any]:
    """The form, and its derivative."""
    global _library
    if _library is None:
        _library = torch.library.Library(_LIBRARY, "DEF")  # type: ignore[no-untyped-call]  # lives as long as the process
    same = sum(known is func for known, *_ in _forms)
    name = re.sub(r"\W", "_", func.name()) + (f"_{same}" if same else "")
    schema = str(func._schema)
    arguments, returns = schema[schema.index("(") :].rsplit(" -> ", 1)
    _library.define(f"{name}{arguments} -> {returns}")
    _library.define(f"{name}_derivative({_with_more(arguments)}) -> Tensor[]")
    derivative = getattr(getattr(torch.ops, _LIBRARY), f"{name}_derivative").default

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return func(*args, **kwargs)

    def run_derivative(*args: Any) -> list[Tensor]:
        *given, needs, outputs, gradients = args
        context = _Context(tuple(needs))
        with torch.no_grad():
            if setup is not None:
                setup(context, tuple(given), outputs[0] if len(outputs) == 1 else tuple(outputs))
            found = backward(context, *gradients)
            each = found if isinstance(found, (tuple, list)) else (found,)
            return [_laid_out(g, like) for g, like, need in zip(each, given, needs) if need]

    def described(*args: Any) -> list[Tensor]:
        *given, needs, _, _ = args
        return [torch.empty_like(like) for like, need in zip(given, needs) if need]

    for made, kernel in ((name, run), (f"{name}_derivative", run_derivative)):
        _library.impl(made, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{_LIBRARY}::{name}", torch_adapter.registered_fake(func), lib=_library)
    torch.library.register_fake(f"{_LIBRARY}::{name}_derivative", described, lib=_library)
    save, differentiate = _autograd(setup, derivative)
    torch.library.register_autograd(f"{_LIBRARY}::{name}", differentiate, setup_context=save, lib=_library)
    return getattr(getattr(torch.ops, _LIBRARY), name).default, derivative


def _with_more(arguments: str) -> str:
    """The arguments without defaults, then which inputs need gradients, the results, and their gradients."""
    given = re.sub(r"=[^,)]*(?:\[[^\]]*\])?", "", arguments[1:-1])
    return ", ".join(filter(None, (given, "bool[] pliant_needs", "Tensor[] pliant_results", "Tensor[] pliant_gradients")))


def _laid_out(gradient: Tensor | None, like: Tensor) -> Tensor:
    """As the description says: a gradient of the input's size, dtype and strides, on memory of its own."""
    wanted = torch.empty_like(like)
    if gradient is None:
        return wanted.zero_()
    return wanted.copy_(gradient.sum_to_size(like.shape))


def _autograd(setup: Callable[..., Any] | None, derivative: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What keeps the values that the derivative needs, and what calls it. Only those that the program's own function
    saves may not be written before the backward."""

    def save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = list(output) if isinstance(output, (tuple, list)) else [output]
        own = _Context(ctx.needs_input_grad)
        if setup is not None:
            setup(own, inputs, output)
        ctx.save_for_backward(*own.saved_tensors)
        places = {id(t): place for place, t in enumerate(own.saved_tensors) if isinstance(t, Tensor)}
        ctx.places = [places.get(id(value)) for value in (*inputs, *results)]
        kept = [*inputs, *(r.detach() for r in results)]
        ctx.kept = [value if place is None else None for value, place in zip(kept, ctx.places)]
        ctx.results = len(results)

    def differentiate(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        saved, kept = ctx.saved_tensors, zip(ctx.kept, ctx.places)
        values = [value if place is None else saved[place] for value, place in kept]
        inputs, results = values[: -ctx.results], values[-ctx.results :]
        needs = [isinstance(v, Tensor) and bool(n) for v, n in zip(inputs, ctx.needs_input_grad)]
        made = iter(derivative(*inputs, needs, results, list(gradients)))
        return tuple(next(made) if need else None for need in needs)

    return save, differentiate
