"""What saving a value, or computing it again, costs.

In:     a node of the joint graph.
Out:    bytes moved. Sizes that are symbols count with their hints.
Holds:  costs are finite, non-negative integers, except `FORBIDDEN`.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import torch
from torch import fx

from pliant.autograd.partition.flow import UNLIMITED
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.purity import binds_symbols, draws_numbers, has_effect, is_random, is_view
from pliant.graph.shape_rules.pointwise import is_pointwise
from pliant.targets import cpu
from pliant.targets.registry import has_target, target_of
from pliant.targets.target import Target
from pliant.torch_adapter import OpOverload

_aten = torch.ops.aten
FORBIDDEN = UNLIMITED
UNKNOWN_SIZE = 1024  # elements along a dimension whose size only running the graph tells

_EQUAL = frozenset((_aten.eq.Tensor, _aten.ne.Tensor, _aten.eq.Scalar, _aten.ne.Scalar))
_SIGNS = frozenset((_aten.abs.default, _aten.neg.default, _aten._to_copy.default))
# Views of a part: saving one costs its own size, not its base's.
_PARTS = frozenset({_aten.slice.Tensor, _aten.select.int, _aten.diagonal.default})
# Cheap to run again besides pointwise operators and views.
_CHEAP = frozenset({
    "aten::full", "aten::full_like", "aten::zeros", "aten::zeros_like", "aten::ones", "aten::ones_like",
    "aten::arange", "aten::eye", "aten::scalar_tensor", "aten::empty", "aten::empty_like", "aten::empty_strided",
    "aten::new_zeros", "aten::new_ones", "aten::new_full", "aten::new_empty", "aten::_to_copy", "aten::clone",
    "aten::copy", "aten::expand", "aten::cat", "aten::constant_pad_nd", "aten::slice_scatter",
    "aten::select_scatter", "aten::where", "aten::fill", "aten::zero", "aten::tril", "aten::triu", "aten::flip",
    "aten::repeat", "aten::log_sigmoid_backward",
})  # fmt: skip
# Pointwise, but some 20 instructions an element, and some 60 or a call of a library.
_FUNCTIONS = frozenset({
    "aten::exp", "aten::exp2", "aten::expm1", "aten::log", "aten::log2", "aten::log10", "aten::log1p", "aten::erf",
    "aten::tanh", "aten::sigmoid", "aten::gelu", "aten::silu", "aten::mish", "aten::softplus", "aten::sin",
    "aten::cos", "aten::elu", "aten::log_sigmoid_forward",
})  # fmt: skip
_LIBRARY = frozenset({
    "aten::erfc", "aten::erfinv", "aten::tan", "aten::pow", "aten::lgamma", "aten::digamma", "aten::atan2",
    "aten::sinh", "aten::cosh", "aten::asin", "aten::acos", "aten::atan",
})  # fmt: skip
# Reductions and look-ups that read each element at most once, while it is computed.
_READ_ONCE = frozenset({
    "aten::sum", "aten::mean", "aten::prod", "aten::amax", "aten::amin", "aten::any", "aten::all", "aten::argmax",
    "aten::argmin", "aten::nll_loss_forward", "aten::nll_loss_backward", "aten::nll_loss2d_forward",
    "aten::nll_loss2d_backward", "aten::gather", "aten::_log_softmax_backward_data", "aten::mse_loss",
    "aten::smooth_l1_loss", "aten::huber_loss", "aten::soft_margin_loss", "aten::binary_cross_entropy_with_logits",
    "aten::mse_loss_backward", "aten::smooth_l1_loss_backward", "aten::huber_loss_backward",
    "aten::soft_margin_loss_backward", "aten::binary_cross_entropy_backward",
})  # fmt: skip


@functools.cache
def is_recomputable(target: Any) -> bool:
    """Whether backward may run this operator again."""
    if target is operator.getitem:
        return False  # decided with its producer
    if not isinstance(target, OpOverload) or has_effect(target):
        return False
    return is_view(target) or is_pointwise(target) or target._schema.name in _CHEAP


@functools.cache
def is_fusible(target: Any) -> bool:
    """Whether the operator can read its arguments while they are computed, so that they need no memory."""
    return is_recomputable(target) or (isinstance(target, OpOverload) and target._schema.name in _READ_ONCE)


def can_recompute(node: fx.Node) -> bool:
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        producer: Any = node.args[0]
        return is_view(producer.target)
    return is_recomputable(node.target) and not binds_symbols(node) and not is_compared(node)


def is_compared(node: fx.Node) -> bool:
    """Whether backward asks of the value whether it is equal to another (a maximum's gradient goes to the elements that are the
    maximum): computed again it might differ in its last bit. Of a view that is asked of its base."""
    value = node.meta.get("val")
    if type(value) is not FakeTensor or not value.dtype_.is_floating_point or is_view(node.target):
        return False
    asked = [user for user in _readers(node) if user.meta.get("stage") == "backward"]
    return any(user.target in _EQUAL or (user.target in _SIGNS and is_compared(user)) for user in asked)


def size_in_bytes(value: Any) -> int:
    """Bytes of a tensor's elements."""
    if type(value) is not FakeTensor:
        return 8
    count = 1
    for size in value.size_:
        count *= hinted(size)
    return count * value.dtype_.itemsize


def hinted(size: Any) -> int:
    if type(size) is int:
        return size
    hint = size.node.hint
    return UNKNOWN_SIZE if hint is None else int(hint)


def is_materialized(node: fx.Node, kept: frozenset[fx.Node]) -> bool:
    """Whether the forward writes the value to memory anyway."""
    if node.op == "placeholder" or node in kept or not can_recompute(node):
        return True
    return any(reader.meta.get("stage") == "forward" and not is_fusible(reader.target) for reader in _readers(node))


def _readers(node: fx.Node) -> list[fx.Node]:
    """The calls that read the value, be it through views."""
    found: list[fx.Node] = []
    queue = [*node.users]
    for user in queue:
        if user.op != "call_function":
            continue
        if is_view(user.target):
            queue.extend(user.users)
        else:
            found.append(user)
    return found


def save_cost(node: fx.Node, kept: frozenset[fx.Node]) -> int:
    """Bytes written (unless written anyway) and read when the value is kept for backward, and what the memory is worth."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return FORBIDDEN
    if is_view(node.target) and node.target not in _PARTS:
        return FORBIDDEN  # its base is the same memory
    bytes_moved = max(size_in_bytes(value), 1)
    if node in kept or node.op == "placeholder":
        return bytes_moved
    held = math.ceil(bytes_moved * _target(node).held_share)
    return held + (bytes_moved if is_materialized(node, kept) else 2 * bytes_moved)


def recompute_cost(node: fx.Node, in_backward: frozenset[fx.Node]) -> int:
    """Work, in bytes that could be moved meanwhile, to have the value again in backward."""
    if is_view(node.target):
        return 0
    bytes_made = size_in_bytes(node.meta.get("val"))
    cost = math.ceil(bytes_made * _share(node))
    read_by_extern = any(user in in_backward and not is_fusible(user.target) for user in _readers(node))
    return cost + (bytes_made if read_by_extern else 0)


_SIMPLE = 1 / 16  # of an addition or the like, as `Target.function_share`


def _share(node: fx.Node) -> float:
    """Time of a pointwise operator in times in which memory moves its result."""
    name = node.target._schema.name if isinstance(node.target, OpOverload) else ""
    if name == "aten::pow" and _is_product(node):
        return 2 * _SIMPLE
    if name not in _FUNCTIONS and name not in _LIBRARY:
        return _SIMPLE
    target = _target(node)
    return target.function_share if name in _FUNCTIONS else target.library_share


def _target(node: fx.Node) -> Target:
    """The target that computes a tensor; the CPU's where there is none."""
    value = node.meta["val"]
    known = type(value) is FakeTensor and has_target(value.device_)
    return target_of(value.device_) if known else cpu.target()


def _is_product(node: fx.Node) -> bool:
    """Whether a power is a few multiplications, or a root."""
    exponent = node.args[1]
    return isinstance(exponent, (int, float)) and abs(exponent) in (0.5, 1, 2, 3)


# ---- what the policy asks
class Prices:
    """Costs of saving and of running again.

    weight: None, the usual choice: work that is not cheap is done again in activation checkpoints only, where results
    that only the checkpoint itself reads are not saved. A number: all that draws no random numbers may run again, and
    its work counts with this weight.
    """

    def __init__(self, in_backward: frozenset[fx.Node], kept: frozenset[fx.Node], weight: float | None) -> None:
        self.in_backward, self.kept, self.weight = in_backward, kept, weight

    def may_run_again(self, node: fx.Node) -> bool:
        if node.op != "call_function":
            return False
        if self.weight is None and "recompute" not in node.meta:
            return can_recompute(node)
        producer: Any = node.args[0] if node.target is operator.getitem else node
        if is_compared(node):
            return False
        harmless = not has_effect(producer.target) or (is_random(producer.target) and not draws_numbers(producer))
        return harmless and not binds_symbols(producer)

    def save(self, node: fx.Node) -> int:
        if self.weight is None:
            inside = "recompute" in node.meta and self.may_run_again(node) and self._is_inner(node)
            return FORBIDDEN if inside else save_cost(node, self.kept)
        if node in self.kept:
            return 1
        return save_cost(node, frozenset([node]))

    def again(self, node: fx.Node) -> int:
        if self.weight is None and "recompute" not in node.meta:
            return recompute_cost(node, self.in_backward)
        if is_view(node.target) or node.target is operator.getitem:
            return 0
        return math.ceil(_work(node) * (1.0 if self.weight is None else self.weight))

    def _is_inner(self, node: fx.Node) -> bool:
        """Whether nothing of the forward outside its checkpoint reads the value."""
        region = node.meta["recompute"]
        readers = [user for user in _readers(node) if user.meta.get("stage") == "forward"]
        return node not in self.kept and all(user.meta.get("recompute") == region for user in readers)


def _work(node: fx.Node) -> int:
    """Work in bytes that could be moved meanwhile: what is read and made, and the arithmetic of products."""
    made = node.meta.get("val")
    moved = sum(size_in_bytes(one) for one in (made if isinstance(made, (list, tuple)) else [made]))
    moved += sum(size_in_bytes(a.meta.get("val")) for a in node.all_input_nodes if a.target is not operator.getitem)
    target: Any = node.target
    factors = _PRODUCTS.get(target)
    if factors is not None:
        inner: Any = node.args[factors]
        moved += size_in_bytes(made) * hinted(inner.meta["val"].size_[-1]) // FLOPS_PER_BYTE
    return moved


FLOPS_PER_BYTE = 8
# Products and where their first factor is found.
_PRODUCTS = {_aten.mm.default: 0, _aten.bmm.default: 0, _aten.addmm.default: 1, _aten.baddbmm.default: 1}
