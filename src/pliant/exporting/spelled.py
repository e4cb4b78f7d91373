"""`dynamic_shapes` as text.

In:     arguments by the names of parameters, what is said of each tensor.
Out:    Python text, for `exec` or a paste; arguments of which nothing is said are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pliant.exporting.dims import AUTO, STATIC, Size, TensorSizes, children_of


def spelled_sizes(arguments: Mapping[str, Any], said: Mapping[int, TensorSizes]) -> str:
    """A dictionary by parameter."""
    texts = {name: _spelled(value, said) for name, value in arguments.items()}
    return "{" + ", ".join(f"{name!r}: {text}" for name, text in texts.items() if text != "None") + "}"


def _spelled(value: Any, said: Mapping[int, TensorSizes]) -> str:
    if isinstance(value, torch.Tensor):
        sizes = {dim: _size(size) for dim, size in enumerate(said[id(value)].sizes) if size is not STATIC}
        return "{" + ", ".join(f"{dim}: {text}" for dim, text in sizes.items()) + "}" if sizes else "None"
    children = children_of(value)
    if children is None:
        return "None"
    texts = [_spelled(child, said) for child in children.values()]
    if all(text == "None" for text in texts):
        return "None"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {text}" for key, text in zip(value, texts)) + "}"
    if children and all(label.startswith(".") for label in children):
        return "{" + ", ".join(f"{label[1:]!r}: {text}" for label, text in zip(children, texts)) + "}"
    return "[" + ", ".join(texts) + "]"


def _size(size: Size) -> str:
    return f"pliant.{size!r}" if size is AUTO else size.name if hasattr(size, "name") else str(size)
