"""Values that are themselves wherever they are: exact, as JSON.

In:     a constant of a program or of generated code.
Out:    `spelled(value)`: JSON, or None if it is no constant; `read(json)`: the value.
Holds:  `read(spelled(v))` has the same type all the way down and the same bits (NaN, -0.0); nothing of the program runs.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from typing import Any

import torch

Json = Any  # None, bool, int, str, or a list that begins with a word

ITSELF = frozenset((type(None), bool, int, str))
_SINGLETONS: dict[str, Any] = {"...": ..., "NotImplemented": NotImplemented}
_OF_TORCH = (torch.dtype, torch.layout, torch.memory_format)


def _items(word: str) -> Callable[[Any], Json]:
    def spell(value: Any) -> Json:
        found = [spelled(item) for item in value]
        return None if any(_failed(item, one) for item, one in zip(value, found)) else [word, *found]

    return spell


def _failed(value: Any, json: Json) -> bool:
    return json is None and value is not None


def _pairs(value: dict[Any, Any]) -> Json:
    found = [[spelled(key), spelled(item)] for key, item in value.items()]
    pairs = zip(value.items(), found)
    return None if any(_failed(k, a) or _failed(v, b) for (k, v), (a, b) in pairs) else ["dict", *found]


_SPELL: dict[type, Callable[[Any], Json]] = {
    float: lambda v: ["float", v.hex()] if v == v else ["nan", *_bits(v)],
    complex: lambda v: ["complex", spelled(v.real), spelled(v.imag)],
    bytes: lambda v: ["bytes", base64.b64encode(v).decode()],
    type(...): lambda v: ["one", "..."],
    type(NotImplemented): lambda v: ["one", "NotImplemented"],
    range: lambda v: ["range", v.start, v.stop, v.step],
    slice: lambda v: _items("slice")((v.start, v.stop, v.step)),
    tuple: _items("tuple"),
    list: _items("list"),
    frozenset: _items("frozenset"),
    set: _items("set"),
    dict: _pairs,
    torch.Size: _items("size"),
    torch.device: lambda v: ["device", str(v)],
    torch.dtype: lambda v: ["torch", str(v).removeprefix("torch.")],
    torch.layout: lambda v: ["torch", str(v).removeprefix("torch.")],
    torch.memory_format: lambda v: ["torch", str(v).removeprefix("torch.")],
}


def _bits(value: float) -> list[Json]:
    import struct

    return [struct.pack("<d", value).hex()]


def _from_bits(text: str) -> float:
    import struct

    found: float = struct.unpack("<d", bytes.fromhex(text))[0]
    return found


def spelled(value: Any) -> Json:
    """The value as JSON; None if it is no constant (or None)."""
    cls = type(value)
    if cls in ITSELF:
        return value
    spell = _SPELL.get(cls)
    if spell is None:
        return _scalar_of_numpy(value) if _is_numpy_scalar(cls) else None
    return spell(value)


def _is_numpy_scalar(cls: type) -> bool:
    """Whether it is a class of NumPy's own for single numbers."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and numpy.generic in cls.__mro__ and vars(numpy).get(cls.__name__) is cls


def _scalar_of_numpy(value: Any) -> Json:
    kind = value.dtype
    return ["numpy", kind.str, base64.b64encode(value.tobytes()).decode()] if kind.kind in "biufc" else None


def _to_numpy(kind: str, text: str) -> Any:
    import numpy

    return numpy.frombuffer(base64.b64decode(text), kind)[0]


def is_constant(value: Any) -> bool:
    return value is None or spelled(value) is not None


_READ: dict[str, Callable[..., Any]] = {
    "float": float.fromhex,
    "nan": _from_bits,
    "complex": lambda a, b: complex(read(a), read(b)),
    "bytes": base64.b64decode,
    "one": _SINGLETONS.__getitem__,
    "range": range,
    "slice": lambda *items: slice(*map(read, items)),
    "tuple": lambda *items: tuple(map(read, items)),
    "list": lambda *items: list(map(read, items)),
    "frozenset": lambda *items: frozenset(map(read, items)),
    "set": lambda *items: set(map(read, items)),
    "dict": lambda *pairs: {read(key): read(value) for key, value in pairs},
    "size": lambda *items: torch.Size(map(read, items)),
    "device": torch.device,
    "numpy": lambda kind, text: _to_numpy(kind, text),
    "torch": lambda name: _of_torch(name),
}


def _of_torch(name: str) -> Any:
    found = getattr(torch, name)
    if not isinstance(found, _OF_TORCH):
        raise ValueError(f"torch.{name} is no constant")
    return found


def read(json: Json) -> Any:
    """The value."""
    return json if type(json) is not list else _READ[json[0]](*json[1:])
