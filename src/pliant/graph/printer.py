"""A graph as text, a line a node: name, kind of value, operator, arguments.

In:     an `fx.Graph`, at torch or ATen level.
Out:    text such as `mul: f32[s0, 8] = aten.mul.Tensor(x, w)`; for people and for expect tests.
Holds:  every node is printed, in order; a node without a recorded value prints without its kind.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from pliant.torch_adapter import OpOverload

_SHORT = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.bool: "bool",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8",
}  # fmt: skip


def graph_text(graph: fx.Graph) -> str:
    """The whole graph."""
    return "\n".join(line_of(node) for node in graph.nodes)


def line_of(node: fx.Node) -> str:
    """One node."""
    if node.op == "output":
        return f"return {_argument(node.args[0])}"
    kind = _kind(node.meta.get("val"))
    left = node.name + (f": {kind}" if kind else "")
    if node.op == "placeholder":
        return left
    return f"{left} = {_call(node)}"


def _call(node: fx.Node) -> str:
    arguments = [_argument(a) for a in node.args] + [f"{k}={_argument(v)}" for k, v in node.kwargs.items()]
    match node.op:
        case "get_attr":
            return f"self.{node.target}"
        case "call_method":
            return f"{arguments[0]}.{node.target}({', '.join(arguments[1:])})"
        case _:
            return f"{_target(node.target)}({', '.join(arguments)})"


def _target(target: Any) -> str:
    if isinstance(target, str):
        return f"self.{target}"
    if isinstance(target, OpOverload):
        return str(target)
    return str(getattr(target, "__qualname__", target))


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        dtype = _SHORT.get(value.dtype, str(value.dtype).removeprefix("torch."))
        return f"{dtype}[{', '.join(str(n) for n in value.shape)}]"
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(_kind(v) or "None" for v in value) + ")"
    return "" if value is None else type(value).__name__.removeprefix("Sym").lower()


def _argument(value: Any) -> str:
    match value:
        case fx.Node():
            return value.name
        case list():
            return "[" + ", ".join(_argument(v) for v in value) + "]"
        case tuple():
            return "(" + ", ".join(_argument(v) for v in value) + ("," if len(value) == 1 else "") + ")"
        case dict():
            return "{" + ", ".join(f"{k}: {_argument(v)}" for k, v in value.items()) + "}"
        case torch.SymInt() | torch.SymFloat() | torch.SymBool() | torch.dtype() | torch.device():
            return str(value).removeprefix("torch.")
        case _:
            return repr(value)
