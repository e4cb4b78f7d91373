"""What an operator does beyond what its schema says: known here by name, or refused.

In:     an `OpOverload`.
Out:    `refusal`: why no graph may hold it, or ""; `acts`: whether it does more than return its results.
Holds:  a schema is believed where it can say all: values go in, tensors come out, the arguments that are written are
        marked. It cannot say what an object holds, who hears a message, or what number comes out; whoever does such
        things has a row here, or is refused. Operators with a shape rule, or a row in `special_calls.py`, are known.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from pliant.graph import collectives
from pliant.graph.call_plan import element_type, object_type, plan_of

# They return nothing of use: they are there for what they check.
CHECKS = frozenset(
    f"aten::{name}"
    for name in """_assert_async _assert_scalar _functional_assert_async _functional_assert_scalar
    _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size _functional_sym_constrain_range _print
    _linalg_check_errors _validate_compressed_sparse_indices""".split()
)
# The numbers that they return depend on sizes alone.
NUMBERS_OF_SIZES = frozenset(
    f"aten::{name}"
    for name in """_scaled_dot_product_flash_attention _scaled_dot_product_cudnn_attention _cudnn_attention_forward
    _scaled_dot_product_fused_attention_overrideable _efficient_attention_forward""".split()
)
# They write arguments that their schemas do not mark. `native_batch_norm` is made functional by name.
_WRITES_UNSAID = frozenset(f"aten::{name}" for name in ("cudnn_batch_norm", "miopen_batch_norm"))
_QUANTIZES = frozenset(("aten::quantize_per_tensor",))  # what its meta kernel returns is not quantized
# Libraries of PyTorch's whose operators send messages, wait for them, or write memory of other processes and of their own.
FOREIGN_MEMORY = frozenset(
    "c10d _c10d_functional _c10d_functional_autograd c10d_functional symm_mem _dtensor profiler inductor rpc".split()
)
TORCH = frozenset(("aten", "prims"))
OURS = frozenset(("pliant", "pliant_control", "pliant_functional", collectives.NAMESPACE))  # what they do is known
NUMBERS = frozenset(("int", "SymInt", "float", "SymFloat", "bool", "SymBool"))


@functools.cache
def refusal(func: Any) -> str:
    """Why no graph may hold the operator, which no rule knows by name."""
    name, schema = func._schema.name, func._schema
    if func.namespace in OURS or name in CHECKS or collectives.described(func) is not None:
        return ""
    if func.namespace in FOREIGN_MEMORY:
        return f"`{func}` acts on more than its arguments, in ways that its schema does not say"
    if name in _WRITES_UNSAID:
        return f"`{func}` writes arguments that its schema does not mark"
    if name in _QUANTIZES:
        return f"`{func}` returns a quantized tensor"
    if kind := object_type(func):
        return f"`{func}` takes an object (`{kind}`), and nothing says what it does with it"
    if func.namespace not in TORCH:
        return _unfit_result(func)
    if any(element_type(r.type) not in ("Tensor", "NoneType") for r in schema.returns) and name not in NUMBERS_OF_SIZES:
        return f"`{func}` returns what sizes do not tell"
    if not schema.returns and not plan_of(func).written:
        return f"`{func}` returns nothing, and nothing says what it does"
    return ""


def _unfit_result(func: Any) -> str:
    """Numbers become symbols that only running tells; there are none for texts, optional numbers and lists of them."""
    for one in func._schema.returns:
        if element_type(one.type) != "Tensor" and str(one.type) not in NUMBERS:
            return f"`{func}` returns a value of the type `{one.type}`, which only running it tells"
    return ""


@functools.cache
def acts(func: Any) -> bool:
    """Whether a call does more than return its results: it may not be dropped, merged, run again, or change its place."""
    if func.namespace in FOREIGN_MEMORY or func._schema.name in CHECKS or func._schema.is_mutable:
        return True
    if collectives.NAMESPACE in func.name():  # those that are made functional, too
        return True
    return not func._schema.returns or torch.Tag.nondeterministic_seeded in func.tags


def returns_numbers(func: Any) -> bool:
    """Whether numbers, which only running tells, are among what an operator of a program's library returns."""
    return func.namespace not in TORCH | OURS and any(str(one.type) in NUMBERS for one in func._schema.returns)
