"""Modes of the program around a call of compiled code."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import pliant


class Doubles(TorchDispatchMode):
    """Every `relu` gives twice as much."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.ops.aten.relu.default else result


def test_a_dispatch_mode_sees_each_operator():
    compiled = pliant.compile(lambda x: torch.relu(x) + 1)
    x = torch.linspace(-1, 1, 5)
    plain = compiled(x)
    with Doubles():
        doubled = compiled(x)
    torch.testing.assert_close(doubled, torch.relu(x) * 2 + 1)
    torch.testing.assert_close(compiled(x), plain)


def test_buffers_are_made_where_their_inputs_are():
    compiled = pliant.compile(lambda x: torch.sin(x) + x.sum())
    x = torch.linspace(-1, 1, 5)
    with torch.device("meta"):
        result = compiled(x)
    torch.testing.assert_close(result, torch.sin(x) + x.sum())
