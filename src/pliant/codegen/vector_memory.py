"""How vectors lie in memory and in registers, by type of element: tables of C text.

In:     nothing; this is data.
Out:    `TYPES`: vectors in registers; `LOADS`, `STORES`: their texts; `SPACED`: lanes that are no neighbours.
Reads on: `vectors.py` and `spaced_vectors.py` have the C functions.
"""

from __future__ import annotations

import torch

TYPES: dict[torch.dtype, str] = {
    torch.float32: "p_vf", torch.bool: "p_vi", torch.int32: "p_vi", torch.int64: "p_vi", torch.int8: "p_vi",
    torch.uint8: "p_vi", torch.bfloat16: "p_vh", torch.float16: "p_vh",
}  # fmt: skip
LOADS: dict[torch.dtype, str] = {
    torch.float32: "p_load{part}({at}{masked})", torch.int32: "(p_vi)p_load{part}((const void*){at}{masked})",
    torch.int64: "p_load64{part}({at}{masked})",
    torch.bool: "p_from8(p_load8{part}((const void*){at}{masked})) != 0",
    torch.uint8: "p_from8(p_load8{part}({at}{masked}))",
    torch.int8: "p_from_signed8(p_load8{part}((const void*){at}{masked}))",
    torch.bfloat16: "p_load16{part}({at}{masked})", torch.float16: "p_load16{part}({at}{masked})",
}  # fmt: skip
STORES: dict[torch.dtype, tuple[str, str]] = {  # the function, what it stores
    torch.float32: ("p_store", "{0}"), torch.int32: ("p_store", "(p_vf)({0})"), torch.bool: ("p_store8", "p_to8({0} & 1)"),
    torch.bfloat16: ("p_store16", "{0}"), torch.float16: ("p_store16", "{0}"), torch.int64: ("p_store64", "{0}"),
    torch.int8: ("p_store8", "p_to8({0})"), torch.uint8: ("p_store8", "p_to8({0})"),
}  # fmt: skip
WHOLE = frozenset((torch.float32, torch.int32))  # of which a vector in memory is as wide as one in a register
_FLOATS = frozenset((torch.float32, torch.bfloat16, torch.float16))
SPACED: dict[str, frozenset[torch.dtype]] = {  # element types that have loads of lanes spaced in this way
    **dict.fromkeys(("_back", "_2", "_evens", "_odds"), _FLOATS), "_pairs": _FLOATS | {torch.int64},
}  # fmt: skip
PAIRED = frozenset(("p_store", "p_store16"))  # stores of which there are some that take two vectors' lanes in turn
