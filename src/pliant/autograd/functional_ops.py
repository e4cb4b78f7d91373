"""The functional counterpart of each operator that writes its arguments.

In:     a mutable `OpOverload`: `add_`, `mm.out`, `_foreach_mul_`, `_native_batch_norm_legit`.
Out:    `FunctionalCall`: the operator that returns what the mutable one writes, and where its results go.
Holds:  the counterpart takes the same arguments by the same names, less the `out` arguments. For operators of a program's
        library it is one that copies what they write and calls them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from pliant.errors import Unsupported
from pliant.graph.call_plan import CallPlan, plan_of
from pliant.graph.custom_ops import functional_form
from pliant.graph.effects import TORCH
from pliant.records import dataclass

_aten = torch.ops.aten
# Renames that the schema does not show.
_NAMES = {"normal_": "normal_functional", "rrelu_with_noise_": "rrelu_with_noise_functional"}
# They change what memory a tensor has, which a value cannot express.
_REFUSED = frozenset({"set_", "resize_", "resize_as_", "resize_as_sparse_", "_resize_output_", "swap_", "set_data"})


class UnsupportedMutation(Unsupported):
    """A write that has no functional form here."""


def check_unseen(written: fx.Node, origin: fx.Node | None) -> None:
    """Refuse a write that no version shows (through `.data`) of what an activation checkpoint made: the checkpoint makes
    it again in the backward, but autograd's formulas here read what was saved, which is the written value."""
    if "recompute" in written.meta and (origin is None or "recompute" not in origin.meta):
        raise UnsupportedMutation("what a checkpoint made is written through `.data`", kind="checkpoint-written")


@dataclass(frozen=True, slots=True, eq=False)
class FunctionalCall:
    """`func`'s results are first the mutable operator's `fresh` own results, then the new values of `plan.written`."""

    func: Any
    fresh: int
    plan: CallPlan
    keeps_written: bool  # whether the counterpart takes the written arguments too (in-place, not `out=`)
    defaults: tuple[tuple[int, str, Any], ...]  # (position, name, default) of arguments that only `func` may leave out
    counted: bool = True  # whether the written tensors' versions show it
    computes_in_dtype: bool = False  # that of what it writes, where none is given (`cumsum_`): the counterpart chooses its own


_calls: dict[Any, FunctionalCall] = {}


def functional_call(func: Any) -> FunctionalCall:
    """The functional counterpart of a mutable operator, or `UnsupportedMutation`."""
    call = _calls.get(func)
    if call is None:
        call = _calls[func] = _find(func)
    return call


def _find(func: Any) -> FunctionalCall:
    namespace, name = func._schema.name.split("::")
    plan = plan_of(func)
    fresh = sum(owner is None for owner in plan.returned)
    if namespace not in TORCH:  # an operator of a like name may do anything
        return FunctionalCall(functional_form(func), fresh, plan, True, (), not plan.uncounted)
    library = getattr(torch.ops, namespace)
    for candidate in () if name in _REFUSED else _candidates(name):
        packet = getattr(library, candidate, None)
        for overload in _overloads(packet, func._overloadname):
            kept = _takes_same(func, overload, plan)
            if kept is not None and len(overload._schema.returns) == fresh + len(plan.written):
                own_dtype = kept and any(a.name == "dtype" and a.kwarg_only for a in overload._schema.arguments)
                return FunctionalCall(overload, fresh, plan, kept, _lost_defaults(func, overload), computes_in_dtype=own_dtype)
    raise UnsupportedMutation(f"`{func}` writes its arguments and has no functional form", kind="mutable-operator")


def _lost_defaults(func: Any, functional: Any) -> tuple[tuple[int, str, Any], ...]:
    required = {a.name for a in functional._schema.arguments if not a.has_default_value()}
    return tuple(
        (position, a.name, a.default_value)
        for position, a in enumerate(func._schema.arguments)
        if a.name in required and a.has_default_value()
    )


def _candidates(name: str) -> tuple[str, ...]:
    if name in _NAMES:
        return (_NAMES[name],)
    if name.startswith("__i") and name.endswith("__"):
        return ("__" + name[3:],)
    if name.endswith("_") and not name.endswith("__"):
        return (name[:-1], name + "functional")
    return (name, name + "_functional")


def _overloads(packet: Any, preferred: str) -> list[Any]:
    """Functional overloads, the one of the same name first."""
    if packet is None or not hasattr(packet, "overloads"):
        return []
    names = sorted(packet.overloads(), key=lambda n: n != (preferred or "default"))
    found = [getattr(packet, n) for n in names]
    return [o for o in found if not o._schema.is_mutable and all(r.alias_info is None for r in o._schema.returns)]


def _takes_same(func: Any, functional: Any, plan: CallPlan) -> bool | None:
    """True: all arguments alike; False: alike but for the written ones; None: different."""
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments]
    offered = [(a.name, str(a.type)) for a in functional._schema.arguments]
    if _alike(wanted, offered):
        return True
    written = {name for _, name in plan.written}
    return False if _alike([a for a in wanted if a[0] not in written], offered) else None


def _alike(wanted: list[tuple[str, str]], offered: list[tuple[str, str]]) -> bool:
    """Same names and types; running statistics that must be given in one form may be optional in the other."""
    if [name for name, _ in wanted] != [name for name, _ in offered]:
        return False
    return all(a == b or a == f"Optional[{b}]" or b == f"Optional[{a}]" for (_, a), (_, b) in zip(wanted, offered))
