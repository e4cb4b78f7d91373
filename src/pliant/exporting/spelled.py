"""`dynamic_shapes` as text.

In:     arguments by the names of parameters, what is said of each tensor.
Out:    Python text, for `exec` or a paste; arguments of which nothing is said are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pliant.exporting.dims import AUTO, STATIC, Size, TensorSizes


def spelled_sizes(arguments: Mapping[str, Any], said: Mapping[int, TensorSizes]) -> str:
    """A dictionary by parameter."""
    texts = {name: _spelled(value, said) for name, value in arguments.items()}
    return "{" + ", ".join(f"{name!r}: {text}" for name, text in texts.items() if text != "None") + "}"


def _spelled(value: Any, said: Mapping[int, TensorSizes]) -> str:
    if isinstance(value, torch.Tensor):
        sizes = {dim: _size(size) for dim, size in enumerate(said[id(value)].sizes) if size is not STATIC}
        return "{" + ", ".join(f"{dim}: {text}" for dim, text in sizes.items()) + "}" if sizes else "None"
    leaves, tree = pytree.tree_flatten(value, is_leaf=lambda one: one is not value)
    if tree.is_leaf():
        return "None"
    texts = [_spelled(leaf, said) for leaf in leaves]
    if all(text == "None" for text in texts):
        return "None"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {text}" for key, text in zip(value, texts)) + "}"
    return "[" + ", ".join(texts) + "]"


def _size(size: Size) -> str:
    return f"pliant.{size!r}" if size is AUTO else size.name if hasattr(size, "name") else str(size)
