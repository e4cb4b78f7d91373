"""PyTorch's symbolic numbers over our nodes: operators, torch functions, shapes of tensors without data."""

import math

import pytest
import torch

from pliant.errors import DataDependentError
from pliant.graph.fake_tensor import FakeMode
from pliant.symbolic.shape_env import ShapeEnv


@pytest.fixture
def env():
    return ShapeEnv()


@pytest.fixture
def b(env):
    return env.wrap(env.create_symbol(8, "x.size(0)"))


@pytest.fixture
def t(env):
    return env.wrap(env.create_symbol(128, "x.size(1)"))


def text(value):
    return str(value.node.expr)


OPERATORS = {
    "b + 1": "s0 + 1",
    "1 + b": "s0 + 1",
    "5 - t": "5 - s1",
    "b * t": "s0*s1",
    "t // 2": "s1 // 2",
    "1000 // t": "1000 // s1",
    "t % 5": "s1 % 5",
    "-b": "-s0",
    "abs(b)": "s0",
    "b ** 2": "s0*s0",
    "2 ** b": "2**s0",
    "b / t": "s0 / s1",
    "b * 0.5 + 1": "float(s0) * 0.5 + 1.0",
    "b // 0.5": "float(math.floor(float(s0) / 0.5))",
    "b ** 0.5": "float(s0)**0.5",
    "b & 3": "3 & s0",
    "b | 4": "s0 | 4",
    "b > 9": "s0 >= 10",
    "b != 7": "s0 != 7",
    "(b > 9) & (t > 3)": "s0 >= 10 and s1 >= 4",
    "(b > 9) | (t < 3)": "s0 >= 10 or s1 <= 2",
    "torch.sym_not(b > 9)": "s0 <= 9",
    "torch.sym_max(b, 1)": "s0",
    "torch.sym_min(b, t)": "min(s0, s1)",
    "torch.sym_max(b, 1.5)": "max(float(s0), 1.5)",
    "torch.sym_float(b)": "float(s0)",
    "torch.sym_sum([b, t, 1])": "s0 + s1 + 1",
    "torch.sym_sqrt(b)": "math.sqrt(float(s0))",
    "torch._sym_log2(b)": "math.log2(float(s0))",
    "math.floor(t / 2)": "s1 // 2",
    "math.ceil(t / 3)": "(s1 + 2) // 3",
    "math.trunc(b * 0.5)": "math.trunc(float(s0) * 0.5)",
    "torch.sym_int(t / 3)": "s1 // 3",
    "round(b * 0.5)": "round(float(s0) * 0.5)",
    "max(b, 1)": "s0",
    "(b / 2).is_integer()": "(s0 / 2).is_integer()",
    "abs(b * -0.5)": "abs(float(s0) * -0.5)",
}


@pytest.mark.parametrize("source", OPERATORS)
def test_operator(env, b, t, source):
    value = eval(source, {"b": b, "t": t, "torch": torch, "math": math})
    assert text(value) == OPERATORS[source]
    expected = eval(source, {"b": 8, "t": 128, "torch": torch, "math": math})
    assert value.node.hint == expected
    assert type(value.node.hint) is type(expected)


@pytest.mark.parametrize("source", [s for s in OPERATORS if "/" not in s and "**" not in s])
def test_operators_do_not_guard(env, b, t, source):
    eval(source, {"b": b, "t": t, "torch": torch, "math": math})
    assert env.guards == []


def test_an_exact_quotient_costs_one_guard(env, t):
    math.floor(t / 2)
    math.ceil(t / 3)
    assert [str(g) for g in env.guards] == [f"s1 <= {2**53}"] or [str(g) for g in env.guards] == [f"s0 <= {2**53}"]


def test_conversion_specializes(env, b):
    assert int(b) == 8
    assert [str(g) for g in env.guards] == ["s0 == 8"]
    assert b + 1 == 9


def test_range_needs_the_value(env, b):
    assert list(range(b)) == list(range(8))
    assert [str(g) for g in env.guards] == ["s0 == 8"]


def test_select(env, b, t):
    assert str(env.expr_of(env.select(b > t, b, t))) == "(s0 if s1 < s0 else s1)"
    assert env.select(b > 1, b, t) is b or text(env.select(b > 1, b, t)) == "s0"


def test_check(env):
    u = env.wrap(env.create_unbacked(origin="item"))
    torch._check(u > 3)
    torch._check(u <= 10)
    assert env.bounds(u.node.expr).lo == 4
    assert [str(g) for g in env.runtime_asserts] == ["u0 >= 4", "u0 <= 10"]
    assert not bool(u == 0)
    with pytest.raises(DataDependentError):
        bool(u == 5)


# -- meta and fake tensors --------------------------------------------------------------------------------------------


def test_meta_tensor(env, b, t):
    x = torch.empty(b, t, 64, device="meta")
    assert text(x.size(1)) == "s1"
    assert text(x.stride(0)) == "64*s1"
    assert text(x.numel()) == "64*s0*s1"
    assert text(torch.cat([x, torch.empty(b, t + 3, 64, device="meta")], 1).size(1)) == "2*s1 + 3"
    assert x.is_contiguous()
    assert env.guards == []


SHAPES = {
    "layout": (lambda x, b, t: x.transpose(0, 1).contiguous(), "s1 s0 64"),
    "cat": (lambda x, b, t: torch.cat([x, torch.empty(b, t + 3, 64)], 1), "s0 2*s1+3 64"),
    "conv": (lambda x, b, t: torch.conv2d(torch.empty(b, 3, t, t), torch.empty(16, 3, 3, 3), None, 2, 1),
             "s0 16 (s1+1)//2 (s1+1)//2"),
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
    "padded": (lambda x, b, t: torch.nn.functional.pad(x, (0, 0, 0, (-t) % 16)), "s0 s1+(-s1)%16 64"),
    "windows": (lambda x, b, t: torch.empty(b, t * 16, 64).view(b, t, 16, 64).transpose(1, 2), "s0 16 s1 64"),
    "triangle": (lambda x, b, t: torch.ones(t, t).tril(), "s1 s1"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shape_without_guards(env, b, t, name):
    function, expected = SHAPES[name]
    with FakeMode(env):
        result = function(torch.empty(b, t, 64), b, t)
    assert " ".join(str(d).replace(" ", "") for d in result.shape) == expected
    assert env.guards == []


def test_contiguity_without_guards(env, b, t):
    with FakeMode(env):
        x = torch.empty(b, t, 64)
        assert x.is_contiguous()
        assert not x.transpose(0, 1).is_contiguous()
    assert env.guards == []


def test_unbacked_sizes(env):
    u = env.wrap(env.create_unbacked())
    torch._check(u >= 2)
    with FakeMode(env):
        y = torch.empty(u, 4)
        assert [str(d) for d in y.view(u * 4).shape] == ["4*u0"]
        assert [str(d) for d in (y + 1).shape] == ["u0", "4"]
