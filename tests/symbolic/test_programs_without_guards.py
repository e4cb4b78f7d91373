"""Ordinary programs on sizes s0 and s1: every shape question is decided for all sizes, so nothing is guarded."""

import pytest
import torch

from pliant.graph.fake_mode import FakeMode
from pliant.symbolic.shape_env import ShapeEnv

SHAPES = {
    "layout": (lambda x, b, t: x.transpose(0, 1).contiguous(), "s1 s0 64"),
    "cat": (lambda x, b, t: torch.cat([x, torch.empty(b, t + 3, 64)], 1), "s0 2*s1+3 64"),
    "conv": (
        lambda x, b, t: torch.conv2d(torch.empty(b, 3, t, t), torch.empty(16, 3, 3, 3), None, 2, 1),
        "s0 16 (s1+1)//2 (s1+1)//2",
    ),
    "pool": (lambda x, b, t: torch.max_pool2d(torch.empty(b, 3, t, t), 3, 2, 1), "s0 3 (s1+1)//2 (s1+1)//2"),
    "repeat": (lambda x, b, t: x.repeat(1, 2, 1), "s0 2*s1 64"),
    "sum": (lambda x, b, t: x.sum((0, 1)), "64"),
    "arange": (lambda x, b, t: torch.arange(t), "s1"),
    "flatten": (lambda x, b, t: x.view(b * t, 64), "s0*s1 64"),
    "heads": (lambda x, b, t: x.view(b, t, 4, 64 // 4).transpose(1, 2), "s0 4 s1 16"),
    "inferred": (lambda x, b, t: x.view(b, -1), "s0 64*s1"),
    "regrouped": (lambda x, b, t: x.flatten(0, 1).reshape(b, t, 64), "s0 s1 64"),
    "merged heads": (lambda x, b, t: x.view(b, t, 4, 16).transpose(1, 2).transpose(1, 2).reshape(b, t, -1), "s0 s1 64"),
    "expand": (lambda x, b, t: x[:, None].expand(b, 3, t, 64), "s0 3 s1 64"),
    "broadcast": (lambda x, b, t: x + torch.empty(t, 64), "s0 s1 64"),
    "mask": (lambda x, b, t: torch.empty(b, 1, 1, t) + torch.empty(b, 4, t, t), "s0 4 s1 s1"),
    "attention": (lambda x, b, t: torch.softmax(x @ x.transpose(1, 2), -1) @ x, "s0 s1 64"),
    "gelu": (lambda x, b, t: torch.nn.functional.gelu(x), "s0 s1 64"),
    "layer norm": (lambda x, b, t: torch.nn.functional.layer_norm(x, [64]), "s0 s1 64"),
    "half": (lambda x, b, t: x[:, : t // 2], "s0 s1//2 64"),
    "halves": (lambda x, b, t: torch.cat([x[:, : t // 2], x[:, t // 2 :]], 1), "s0 s1 64"),
    "last": (lambda x, b, t: x[:, -1], "s0 64"),
    "shifted": (lambda x, b, t: x[:, 1:] - x[:, :-1], "s0 s1-1 64"),
    "padded": (lambda x, b, t: torch.nn.functional.pad(x, (0, 0, 0, (-t) % 16)), "s0 s1+-s1%16 64"),
    "windows": (lambda x, b, t: torch.empty(b, t * 16, 64).view(b, t, 16, 64).transpose(1, 2), "s0 16 s1 64"),
    "triangle": (lambda x, b, t: torch.ones(t, t).tril(), "s1 s1"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shape_without_guards(name):
    env = ShapeEnv()
    b, t = [env.wrap(env.create_symbol(hint, "x")) for hint in (8, 128)]
    function, expected = SHAPES[name]
    with FakeMode(env):
        result = function(torch.empty(b, t, 64), b, t)
    assert " ".join(str(d).replace(" ", "") for d in result.shape) == expected
    assert not env.guards


def test_sizes_of_1_are_not_guarded_where_python_broadcasts_for_programs_of_all_sizes():
    """PyTorch's code in Python: of `torch.broadcast_shapes`, and of what calls it."""
    env = ShapeEnv(specialize_zero_one=False)
    env.takes_fallbacks = True
    b, t = [env.wrap(env.create_symbol(hint, "x", lo=1)) for hint in (8, 128)]
    assert str(torch.broadcast_shapes((b, t), (t,), (b, t))) == "torch.Size([s0, s1])"
    assert not env.guards
