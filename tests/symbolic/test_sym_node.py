"""PyTorch's symbolic numbers over our nodes: operators, torch functions, shapes of tensors without data."""

import math

import pytest
import torch
import torch._prims_common as utils
import torch._refs
from torch._decomp import decomposition_table

from pliant.errors import DataDependentError
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


def test_sizes_decide_layouts_without_guards(env, b, t):
    assert utils.make_contiguous_strides_for((b, 4, t)) == (4 * t, t, 1)
    assert utils.is_contiguous(torch.empty(b, t, 4, device="meta"))
    assert not torch.empty_strided((b, t, 64), (64, 64 * b, 1), device="meta").is_contiguous()
    channels_last = torch.empty_strided((b, 3, t, t), (3 * t * t, 1, 3 * t, 3), device="meta")
    assert channels_last.is_contiguous(memory_format=torch.channels_last)
    assert not channels_last.is_contiguous()
    assert torch.ops.aten.is_non_overlapping_and_dense.default(channels_last)
    assert env.guards == []


def test_reference_helpers_without_guards(env, b, t):
    assert [str(d) for d in torch._refs._broadcast_shapes((b, 1, t), (4, t), (1,))] == ["s0", "4", "s1"]
    assert [str(d) for d in utils.infer_size((b, -1, 16), b * t * 64)] == ["s0", "4*s1", "16"]
    assert [str(d) for d in utils.infer_size((-1, 64), b * t * 64)] == ["s0*s1", "64"]
    x, y = torch.empty(b, t, device="meta"), torch.empty(b, t, device="meta")
    utils.check_same_shape(x, y, allow_cpu_scalar_tensors=False)
    assert env.guards == []


def test_a_wrong_view_is_refused(env, b, t):
    with pytest.raises(RuntimeError):
        torch._refs._broadcast_shapes((b, 3), (t, 5))


def test_decompositions_without_guards(env, b, t):
    x = torch.empty(b, t, 64, device="meta")
    assert [str(d) for d in torch._refs.nn.functional.gelu(x).shape] == ["s0", "s1", "64"]
    assert [str(d) for d in decomposition_table[torch.ops.aten.silu.default](x).shape] == ["s0", "s1", "64"]
    assert [str(d) for d in torch._refs.sum(x, (1,)).shape] == ["s0", "64"]
    assert env.guards == []
