"""The call of a program: what its arguments are called, and an example of them.

In:     a `Program`, its `Sizes`.
Out:    names of parameters; arguments of the sizes that the program was exported with, without data.
"""

from __future__ import annotations

import keyword
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pliant.exporting.program import Program
from pliant.exporting.torch_form.sizes import Sizes
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import keys_of


def parameters_of(program: Program) -> list[str]:
    """Names of the call's arguments: the model's, where it has them."""
    args, kwargs = pytree.tree_unflatten([None] * program.form.arguments.num_leaves, program.form.arguments)
    names = list(program.form.names)
    usable = len(names) == len(args) and all(n.isidentifier() and not keyword.iskeyword(n) for n in names)
    if not usable or len({*names, *kwargs}) < len(names) + len(kwargs):
        names = [f"arg{i}" for i in range(len(args))]
    return [*names, *kwargs]


def example_of(program: Program, sizes: Sizes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with the sizes that the program was exported with, and no data."""
    leaves = leaves_of(program)
    for _, one in program.user_inputs():
        assert one.leaf is not None
        leaves[one.leaf] = _filled(sizes.fakes[one.leaf], sizes)
    args, kwargs = pytree.tree_unflatten(leaves, program.form.arguments)
    return args, kwargs


def leaves_of(program: Program) -> list[Any]:
    """Those of a call that are no tensors, in their places."""
    leaves: list[Any] = [None] * program.form.arguments.num_leaves
    for place, value in program.form.constants.items():
        leaves[place] = value
    return leaves


def _filled(fake: FakeTensor, sizes: Sizes) -> torch.Tensor:
    shape, strides = (tuple(map(sizes.example, keys_of(part))) for part in (fake.size_, fake.stride_))
    return torch.empty_strided(shape, strides, dtype=fake.dtype_, device=fake.device_).zero_()
