"""What runs an entry's graph, as the calls that made it.

In:     a callable made by functions that are `@remade`.
Out:    `written(run)`: JSON; `made(json)`: the callable, made by the same functions (rows of `MAKERS`).
Holds:  arguments are constants, tensors, operators, functions that modules hold, rows of `ROWS`, and such callables.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from pliant.autograd import aliases, aliasing, outputs, runtime, training
from pliant.codegen.wrapper import telling_by_lines, without_memory
from pliant.entries import constants
from pliant.entries.constants import Json
from pliant.entries.content import NotKept
from pliant.entries.objects import at_path, path_of
from pliant.graph.remade import call_that_made
from pliant.runtime import compile_program

MAKERS: dict[str, Callable[..., Any]] = {
    maker.__name__: maker
    for maker in (
        compile_program.wrapper_of,
        telling_by_lines,
        runtime.inference,
        runtime.with_constants,
        training.outside_autocast,
        training.uncounted,
    )
}
ROWS: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        aliasing.FromInput, aliasing.FromResult, aliasing.Literal, aliasing.SameAs, aliasing.ViewOf, aliases.ViewStep,
        compile_program.Library, runtime.Ending, outputs.MadeOutputs,
    )
}  # fmt: skip
_LARGEST = 1 << 16  # bytes of a constant tensor


def written(value: Any) -> Json:
    """The value as JSON. NotKept."""
    if constants.is_constant(value):
        return ["c", constants.spelled(value)]
    call = call_that_made(value)
    if call is not None:
        return ["made", call.maker, *map(written, call.args)]
    if type(value).__name__ in ROWS and dataclasses.is_dataclass(value):
        return ["row", type(value).__name__, *(written(getattr(value, f.name)) for f in dataclasses.fields(value))]
    match value:
        case list() | tuple():
            return [type(value).__name__, *map(written, value)]
        case dict():
            return ["dict", *([written(k), written(v)] for k, v in value.items())]
        case torch._ops.OpOverload():
            return ["operator", *_operator(value)]
        case torch.Tensor():
            return _tensor(value)
    if (found := path_of(value)) is not None:
        return ["at", *found]
    raise NotKept("no-form", f"{type(value).__module__}.{type(value).__qualname__} in what runs the graph")


def _operator(value: torch._ops.OpOverload[..., Any]) -> list[str]:
    namespace, name = value._schema.name.split("::")
    if namespace not in ("aten", "prims"):
        raise NotKept("custom-operator", str(value))
    return [namespace, name, value._overloadname]


def _tensor(value: torch.Tensor) -> Json:
    plain = type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu"
    if not plain or value.requires_grad or value.is_quantized or value.is_conj() or value.is_neg():
        raise NotKept("tensor", "a constant tensor of a special kind")
    facts = [constants.spelled(one) for one in (tuple(value.shape), value.stride(), value.dtype, value.device)]
    if value.untyped_storage().nbytes() == 0 and value.numel():
        return ["without memory", *facts]
    if value.nbytes > _LARGEST:
        raise NotKept("tensor", f"a constant tensor of {value.nbytes} bytes")
    if not value.is_contiguous():
        raise NotKept("tensor", "a constant tensor with gaps")
    content = bytes(value.reshape(-1).view(torch.uint8).tolist()) if value.numel() else b""
    return ["tensor", *facts, base64.b64encode(content).decode()]


def made(json: Json) -> Any:
    """The value again. NotFound."""
    word, *rest = json
    return _READ[word](*rest)


def _made(maker: str, *args: Json) -> Any:
    return MAKERS[maker](*map(made, args))


def _found_operator(namespace: str, name: str, overload: str) -> Any:
    return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")


def _read_tensor(size: Json, stride: Json, dtype: Json, device: Json, content: str) -> torch.Tensor:
    flat = torch.tensor(list(base64.b64decode(content)), dtype=torch.uint8).view(constants.read(dtype))
    return flat.as_strided(constants.read(size), constants.read(stride))


_READ: dict[str, Callable[..., Any]] = {
    "c": constants.read,
    "made": _made,
    "row": lambda name, *values: ROWS[name](*map(made, values)),
    "list": lambda *values: list(map(made, values)),
    "tuple": lambda *values: tuple(map(made, values)),
    "dict": lambda *pairs: {made(key): made(value) for key, value in pairs},
    "operator": _found_operator,
    "at": at_path,
    "tensor": _read_tensor,
    "without memory": lambda *facts: without_memory(*map(constants.read, facts)),
}
