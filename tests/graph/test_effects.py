"""Every operator that PyTorch registers: described by its schema, known by name, or refused."""

import functools

import pytest
import torch
import torch.distributed._functional_collectives
from torch.utils._pytree import tree_leaves

from pliant.autograd.functional_ops import UnsupportedMutation, functional_call
from pliant.graph import collectives, effects
from pliant.graph.call_plan import argument, plan_of
from pliant.graph.concrete_sizes import QUESTIONS
from pliant.graph.fake_mode import FakeMode
from pliant.graph.passes.purity import has_effect
from pliant.graph.shape_rules import find_rule
from pliant.graph.special_calls import SPECIAL
from pliant.graph.unsupported import UnsupportedOperator


@functools.cache
def _operators():
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, rest = name.split("::")
        packet, _, overload = rest.partition(".")
        if namespace not in effects.OURS and not namespace.startswith(("pliant", "static_runtime")):
            found.append(getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default"))
    return found


def _known(func):
    return func in SPECIAL or func in QUESTIONS or find_rule(func) is not None


def _state(func):
    """How the operator may get into a graph."""
    if _known(func):
        return "known"
    if plan_of(func).composite:
        return "composite"
    if effects.refusal(func):
        return "refused"
    if collectives.described(func) is not None:
        return "collective"
    if not plan_of(func).written:
        return "check" if func._schema.name in effects.CHECKS else "by schema"
    try:
        functional_call(func)
    except UnsupportedMutation:
        return "refused"
    return "functional"


def _tensors_only(values):
    return all(str(v.type) in ("Tensor", "List[Tensor]", "Optional[Tensor]", "Tensor?") for v in values)


def test_what_is_taken_at_its_schema_says_all():
    for func in _operators():
        if _state(func) == "by schema":
            numbers = func._schema.name in effects.NUMBERS_OF_SIZES or effects.returns_numbers(func)
            assert _tensors_only(func._schema.returns) or numbers, func
            assert func._schema.returns or func.namespace not in effects.TORCH, func
            assert not func._schema.is_mutable, func
            assert not any("__torch__" in str(a.type) for a in func._schema.arguments), func


def test_what_communicates_is_known_or_refused():
    found = {}
    for func in _operators():
        objects = any("__torch__" in str(v.type) for v in (*func._schema.arguments, *func._schema.returns))
        if func.namespace in effects.FOREIGN_MEMORY or objects:
            found.setdefault(_state(func), set()).add(func._schema.name)
    assert found.pop("collective") == {
        *(f"_c10d_functional::{name}" for name in (*collectives.FUNCTIONAL, "wait_tensor")),
        *(
            f"_c10d_functional_autograd::{name}"
            for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")
        ),
    }
    assert {name for name in found["refused"] if name.startswith("c10d::")} >= {
        f"c10d::{name}" for name in ("allreduce_", "broadcast_", "send", "barrier", "recv_", "_allgather_base_")
    }
    composite = found.pop("composite", set())  # what they are made of is looked at
    assert all(
        name.startswith(("c10d_functional::", "inductor::")) or name.endswith("_cell_params_fp16") for name in composite
    )
    assert set(found) == {"refused"}, {k: v for k, v in found.items() if k != "refused"}


def test_what_returns_nothing_acts():
    for func in _operators():
        if not func._schema.returns or plan_of(func).written or torch.Tag.nondeterministic_seeded in func.tags:
            assert has_effect(func), func
        if not func._schema.returns and not plan_of(func).written:
            allowed = ("refused", "check", "composite", "known") + ("by schema",) * (
                func.namespace not in effects.TORCH
            )
            assert _state(func) in allowed, func


def test_a_refused_operator_is_a_typed_error():
    with FakeMode() as mode:
        x = mode.new((4,), (1,), torch.float32, torch.device("cpu"))
        for func in (torch.ops.c10d.check_for_nan.default, torch.ops.aten.is_set_to.default):
            with pytest.raises(UnsupportedOperator):
                func(*[x for a in func._schema.arguments])


def _filled(kind, mode):
    """An argument of this type in a schema: fakes of a number."""
    if "Tensor" in kind:
        made = mode.new((1,), (1,), torch.int64, torch.device("cpu"))
        return [made] if "List" in kind else made
    number = {"number": 2, "int": 2, "float": 2.0, "bool": True}.get(kind.removeprefix("List[").removesuffix("]"), None)
    return [number] if kind.startswith("List") else number


def test_what_is_written_counts_whoever_counts_it():
    """The capture takes tensors that it made of numbers to be what they were, as long as no write of them was counted."""
    uncounted, missed = 0, set()
    for func in _operators():
        plan = plan_of(func)
        if not plan.written or plan.composite or _state(func) not in ("functional", "known"):
            continue
        with FakeMode() as mode:
            args = [_filled(str(a.type), mode) for a in func._schema.arguments if not a.kwarg_only]
            named = {a.name: _filled(str(a.type), mode) for a in func._schema.arguments if a.kwarg_only and a.is_out}
            try:
                func(*args, **named)
            except Exception:  # takes other arguments than such
                continue
            for key in plan.written:
                if not all(one.writes_ for one in tree_leaves(argument(key, args, named))):
                    missed.add(func)
            uncounted += bool(plan.uncounted)
    assert not missed
    assert uncounted > 10
