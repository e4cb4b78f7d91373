"""Operators that programs register with `torch.library`: what they return, and pure forms of those that write.

In:     an `OpOverload` that is not PyTorch's own.
Out:    fakes of its results by its registered fake implementation; for a mutable operator one that returns new values instead.
Holds:  a fake implementation runs on fakes, sizes symbolic or not; `torch.library.get_ctx().new_dynamic_size()` makes a fresh
        size where the mode allows such sizes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from pliant import torch_adapter
from pliant.errors import DataDependentError
from pliant.graph import collectives
from pliant.graph.call_plan import CallPlan, argument, plan_of, tensors_in
from pliant.graph.effects import OURS, returns_numbers
from pliant.graph.unsupported import UnsupportedOperator

if TYPE_CHECKING:
    from pliant.graph.fake_mode import FakeMode

_LIBRARY = "pliant_functional"
_library: Any = None
_functional: dict[Any, Any] = {}  # mutable operator -> its pure form
_mutable: dict[Any, Any] = {}  # and back


class _Context:
    """What `torch.library.get_ctx()` gives a fake implementation."""

    def __init__(self, mode: FakeMode, func: Any) -> None:
        self.mode, self.func = mode, func

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:
        mode, env = self.mode, self.mode.shape_env
        if not mode.allow_unbacked or env is None:
            raise DataDependentError(f"the size of what `{self.func}` returns depends on values", kind="data-dependent")
        mode.unbacked_made += 1
        size = env.create_unbacked(lo=min, hi=max, origin=str(self.func))
        env.mark_size_like(size)
        return env.wrap(size)

    create_unbacked_symint = new_dynamic_size


def run_fake(mode: FakeMode, plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Fakes of the results, or NotImplemented."""
    if plan.func in _mutable:
        return _run_functional(mode, _mutable[plan.func], args, kwargs)
    kernel = collectives.described(plan.func) or torch_adapter.registered_fake(plan.func)
    if kernel is None:
        return _said_by_schema(plan, args, kwargs)
    context = _Context(mode, plan.func)
    with mode.shape_only(), torch_adapter.fake_context(lambda: context):
        try:
            results = kernel(*args, **kwargs)
        except RuntimeError as error:
            if "no fake impl registered" not in str(error):  # what `custom_op` without a fake implementation raises
                raise
            raise UnsupportedOperator(f"`{plan.func}` has no fake implementation", kind="no-fake") from None
    return results


def _said_by_schema(plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What an operator returns that gives back nothing but arguments, or nothing at all; else NotImplemented."""
    if any(key is None for key in plan.returned):
        return NotImplemented
    own = tuple(argument(key, args, kwargs) for key in plan.returned if key is not None)
    return own if len(own) > 1 else own[0] if own else None


def with_unknown_numbers(mode: FakeMode, func: Any, results: Any) -> Any:
    """The results with a symbol that only running tells in place of each number: a fake implementation cannot know it."""
    if not returns_numbers(func):
        return results
    each = [results] if len(func._schema.returns) == 1 else results
    made = [_unknown(mode, func, one, value) for one, value in zip(func._schema.returns, each)]
    return made[0] if len(made) == 1 else tuple(made)


def _unknown(mode: FakeMode, func: Any, declared: Any, value: Any) -> Any:
    kind = _KINDS.get(str(declared.type))
    env = mode.shape_env
    if kind is None:
        return value
    if not mode.allow_unbacked or env is None:
        raise DataDependentError(f"the number that `{func}` returns depends on values", kind="data-dependent")
    mode.unbacked_made += 1
    return env.wrap(env.create_unbacked(kind, origin=str(func)))


_KINDS: dict[str, type] = {
    "int": int, "SymInt": int, "float": float, "SymFloat": float, "bool": bool, "SymBool": bool,
}  # fmt: skip


def need_derivative(func: Any, given: Any, results: Any) -> None:
    """Break where eager differentiates what the kernel calls, since the kernel is all that is registered."""
    if not torch.is_grad_enabled() or func.namespace in OURS or torch_adapter.has_derivative(func):
        return
    if any(t.requires_grad for t in tensors_in(given)) and _differentiable(results):
        raise UnsupportedOperator(f"`{func}` has no derivative (torch.library.register_autograd)", kind="no-derivative")


def _differentiable(results: Any) -> bool:
    return any(t.is_floating_point() or t.is_complex() for t in tensors_in(results))


# ---- pure forms
def functional_form(func: Any) -> Any:
    """The operator that returns `func`'s own results and then new values of what `func` writes."""
    found = _functional.get(func)
    if found is None:
        found = _functional[func] = _define(func)
        _mutable[found] = func
    return found


def written_by(func: Any) -> Any:
    """The mutable operator of which this is the pure form; None if it is no such form."""
    return _mutable.get(func)


def _define(func: Any) -> Any:
    global _library
    if _library is None:
        _library = torch.library.Library(_LIBRARY, "DEF")  # type: ignore[no-untyped-call]  # lives as long as the process
    plan, schema = plan_of(func), func._schema
    name = re.sub(r"\W", "_", func.name().replace(".", "_overload_"))
    given = re.sub(r"\([a-z]\w*!?(?: -> \*)?\)", "", str(schema).split(" -> ")[0])
    arguments = given[given.index("(") :]
    types = [_type_text(value) for value in schema.returns if value.alias_info is None]
    types += [_type_text(schema.arguments[position]) for position, _ in plan.written]
    _library.define(f"{name}{arguments} -> ({', '.join(types)})")

    def run(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _with_copies(plan, args, kwargs)
        with torch.no_grad():
            outputs = func(*args, **kwargs)
        return _results(plan, outputs, args, kwargs)

    _library.impl(name, run, "CompositeExplicitAutograd")
    return getattr(getattr(torch.ops, _LIBRARY), name).default


def _type_text(value: Any) -> str:
    """The type as schemas write it: `Optional[List[Tensor]]` is `Tensor[]?`."""
    text = str(value.type)
    while (found := re.search(r"(Optional|List)\[([^\[\]]*(?:\[\])?\??)\]", text)) is not None:
        mark = "?" if found[1] == "Optional" else "[]"
        text = text[: found.start()] + found[2] + mark + text[found.end() :]
    return text


def _with_copies(plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with copies of what is written."""
    made, named = list(args), dict(kwargs)
    for position, name in plan.written:
        if position < len(made):
            made[position] = _copy(made[position])
        elif name in named:
            named[name] = _copy(named[name])
    return tuple(made), named


def _copy(value: Any) -> Any:
    return tree_map_only(torch.Tensor, torch.clone, value)


def _results(plan: CallPlan, outputs: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Fresh results and the written arguments."""
    each = (outputs,) if len(plan.returned) == 1 else tuple(outputs or ())
    fresh = [value for key, value in zip(plan.returned, each) if key is None]
    found = [*fresh, *(argument(key, args, kwargs) for key in plan.written)]
    return found[0] if len(found) == 1 else tuple(found)


def _run_functional(mode: FakeMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    plan = plan_of(func)
    with mode.shape_only():
        args, kwargs = _with_copies(plan, args, kwargs)
    return _results(plan, mode.compute(func, args, kwargs), args, kwargs)
