"""What is known of elements that nobody has worked out: those of `torch.rand` are at least 0 and below 1, those of an `arange`
lie between its ends, those of `torch.full` are one number.

In:     a tensor of which such a call made the elements, behind calls that only move them.
Out:    a comparison that every draw answers in the same way (`torch.rand([]) < 0.0` of a layer that is never left out); the
        largest and smallest element of a range of any length; whether all or any elements of a filled tensor of any size are
        true. None where that is not so.
Holds:  the draw itself stays in the graph: the generator goes on as in eager. A guard says that a range, or a filled tensor, is
        not empty where that matters. Tensors that were written are unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from typing import Any

import torch
from torch import fx

from pliant.capture.signatures import Args, Kwargs
from pliant.capture.structures import argument, as_tuple
from pliant.capture.value_kinds import concrete, is_fixed_number, plain_class
from pliant.graph.contracts import known_name
from pliant.graph.fake_tensor import is_fake
from pliant.graph.writes import is_written
from pliant.torch_adapter import DisableTorchFunction, below_python_dispatch


def _maker(value: Any, dtypes: Container[torch.dtype], moves: Callable[[fx.Node], bool]) -> fx.Node | None:
    """The call that made the elements of a tensor: behind it they were only moved, within these types."""
    while is_fake(value) and value.dtype_ in dtypes and not is_written(value):
        node = value.node
        if node is None or any(user.target is getattr for user in node.users):  # `x.data` is written unseen
            return None
        if node.op not in ("call_function", "call_method"):
            return None
        if not moves(node):
            return node  # type: ignore[no-any-return]
        value = argument(node.args[0])
    return None


# ---- drawn numbers
_DRAWING = frozenset((torch.rand, torch.rand_like))  # at least 0 and less than 1
_DTYPES = frozenset((torch.float32, torch.float64))  # smaller ones may be rounded up to 1
_MOVED = frozenset("view reshape squeeze unsqueeze flatten __getitem__ getitem select detach clone contiguous".split())
# Whether `x <symbol> number` holds for every x in [0, 1), for none, or None: for some.
_TOLD: dict[str, Callable[[float], bool | None]] = {
    "lt": lambda number: True if number >= 1 else False if number <= 0 else None,
    "le": lambda number: True if number >= 1 else False if number < 0 else None,
    "gt": lambda number: True if number < 0 else False if number >= 1 else None,
    "ge": lambda number: True if number <= 0 else False if number >= 1 else None,
    "eq": lambda number: None if 0 <= number < 1 else False,
    "ne": lambda number: None if 0 <= number < 1 else True,
}


def comparison(name: str, args: Args, kwargs: Kwargs) -> bool | None:
    """What a call of this name gives for every draw, if it gives one thing."""
    told = _TOLD.get(name.strip("_"))
    if told is None or kwargs or len(args) != 2 or not is_fixed_number(args[1]) or not is_drawn(args[0]):
        return None
    with DisableTorchFunction(), below_python_dispatch():
        return told(torch.tensor(args[1], dtype=args[0].dtype_).item())  # as the operator takes it


def is_drawn(value: Any) -> bool:
    """Whether every element is at least 0 and less than 1."""
    made = _maker(value, _DTYPES, lambda node: known_name(node) in _MOVED)
    return made is not None and made.target in _DRAWING


# ---- filled tensors
_FILLING = {"ones": True, "zeros": False, "ones_like": True, "zeros_like": False, "new_ones": True, "new_zeros": False}


def truth_of_elements(name: str, args: Args, kwargs: Kwargs) -> bool | None:
    """What `all` or `any` gives of a filled tensor."""
    if name not in ("all", "any") or len(args) != 1 or kwargs or not is_fake(args[0]):
        return None
    filled = _filled_with(_maker(args[0], {torch.bool}, _keeps_all))
    if filled is None or filled is (name == "all"):
        return filled
    return filled if concrete(math.prod(args[0].size_) > 0) else name == "all"


def _filled_with(made: fx.Node | None) -> bool | None:
    name = "" if made is None else known_name(made)
    if made is None or name != "full":
        return _FILLING.get(name)
    value = made.kwargs.get("fill_value", made.args[-1] if len(made.args) == 2 else None)
    return bool(value) if plain_class(value) is bool or is_fixed_number(value) else None


# ---- ranges
_ENDS = {"max": True, "amax": True, "min": False, "amin": False}
# They keep each element, at least once.
_KEEPING = frozenset(
    """view reshape unsqueeze squeeze flatten expand repeat tile permute transpose t clone contiguous detach to long
    broadcast_to view_as expand_as reshape_as""".split()
)


def end_of_range(node: fx.Node) -> Any:
    """The number that a reduction over all elements gives; None where it is not one of a range."""
    ends = ends_of_range(node)
    if ends is None or not concrete(math.prod(argument(node.args[0]).size_) > 0):
        return None
    return ends[1] - 1 if _ENDS[known_name(node)] else ends[0]


def ends_of_range(node: fx.Node) -> tuple[Any, Any] | None:
    """Where the range starts and ends whose elements a reduction is over."""
    if known_name(node) not in _ENDS or len(node.args) != 1 or node.kwargs:
        return None
    made = _maker(argument(node.args[0]), {torch.int64}, _keeps_all)
    if made is None or known_name(made) != "arange" or not {*made.kwargs} <= {"dtype", "device"}:
        return None
    given = list(map(argument, made.args))
    if not 1 <= len(given) <= 2 or not {int}.issuperset(map(plain_class, given)):
        return None
    return (0, given[0]) if len(given) == 1 else (given[0], given[1])


def _keeps_all(node: fx.Node) -> bool:
    name = known_name(node)
    if name in ("getitem", "__getitem__"):  # a subscript that adds dimensions: `x[None, :]`
        return all(one is None or one is Ellipsis or one == slice(None) for one in as_tuple(node.args[1]))
    return name in _KEEPING
