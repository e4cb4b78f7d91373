"""What C calls PyTorch's types, and how it writes their constants, operators and casts.

In:     dtypes, numbers, and the printed arguments of an operator.
Out:    text of C; `NoCForm` where there is none.
Holds:  bool is `_Bool` in registers, bf16 and f16 keep their 16 bits in `uint16_t`, all others are as in memory.
"""

from __future__ import annotations

import math

import torch

from pliant.codegen import prelude
from pliant.ir.ops import OPS
from pliant.regular import pattern

MEMORY_TYPES: dict[torch.dtype, str] = {
    torch.float32: "float", torch.float64: "double", torch.bfloat16: "uint16_t", torch.float16: "uint16_t",
    torch.int8: "int8_t", torch.int16: "int16_t", torch.int32: "int32_t", torch.int64: "int64_t",
    torch.uint8: "uint8_t", torch.uint16: "uint16_t", torch.uint32: "uint32_t", torch.uint64: "uint64_t",
    torch.bool: "uint8_t",
}  # fmt: skip
REGISTER_TYPES = MEMORY_TYPES | {torch.bool: "_Bool"}
_HALF = {torch.bfloat16: "bf16", torch.float16: "f16"}
NARROW = frozenset((torch.int8, torch.int16, torch.uint8, torch.uint16))
_OWN_NAME = pattern(r"\bp_(\w+)\(")


class NoCForm(NotImplementedError):
    """A dtype or operator that C kernels do not have."""


def register_type(dtype: torch.dtype) -> str:
    try:
        return REGISTER_TYPES[dtype]
    except KeyError:
        raise NoCForm(f"{dtype} has no C type here") from None


def literal(value: int | float | bool, dtype: torch.dtype) -> str:
    """A constant of this dtype."""
    if dtype in _HALF:
        bits = torch.tensor(value, dtype=torch.float64).to(dtype).view(torch.int16).item()
        return f"(uint16_t){int(bits) & 0xFFFF}"
    if dtype.is_floating_point:
        return _float_literal(float(value), "f" if dtype is torch.float32 else "")
    if dtype is torch.bool:
        return "1" if value else "0"
    number = int(value)
    if number == -(2**63):
        return "(-INT64_C(9223372036854775807) - 1)"
    if dtype is torch.uint64:
        return f"{number}ull"
    text = f"INT64_C({number})" if dtype is torch.int64 and abs(number) >= 2**31 else str(number)
    return f"({text})" if number < 0 else text


def _float_literal(value: float, suffix: str) -> str:
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = repr(value) + suffix
    return f"({text})" if math.copysign(1, value) < 0 else text


def operator_text(op: str, dtype: torch.dtype, result: torch.dtype, args: list[str]) -> str:
    """C text of an operator on printed arguments; `dtype` is that of the arguments."""
    template = OPS[op].c_template(dtype)
    if template is None:
        raise NoCForm(f"`{op}` on {dtype} has no C form")
    if "p_" in template:  # the operator's own helper; those in its arguments have their names already
        suffix = "_d" if dtype is torch.float64 else ""
        template = _OWN_NAME.sub(lambda m: _function(f"p_{m[1]}{suffix}") + "(", template)
    return template.format(*args, t=register_type(result))


def _function(name: str) -> str:
    return prelude.RENAMED.get(name, name)


def cast_text(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """Conversion of a printed value; bf16 and f16 go through float, floats to narrow integers through int32."""
    if source is target:
        return text
    if source in _HALF:
        return cast_text(f"p_from_{_HALF[source]}({text})", torch.float32, target)
    if target in _HALF:
        return f"p_to_{_HALF[target]}({cast_text(text, source, torch.float32)})"
    if source.is_floating_point and target in NARROW:
        return f"({register_type(target)})(int32_t){text}"
    return f"({register_type(target)}){text}"
