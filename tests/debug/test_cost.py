"""Costs as expressions: against numbers worked out by hand, and against PyTorch's counter of operations."""

import ast

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import own_process
import pliant
from pliant.errors import ConfigError, GraphBreakError


def test_two_kernels_by_hand():
    """The product is read and written by the library; what follows is one kernel."""
    found = pliant.cost(lambda x, w: torch.relu(x @ w).sum(-1), torch.randn(4, 8), torch.randn(8, 16))
    b, k, n = 100, 32, 64
    assert found.evaluate(x_0=b, x_1=k, w_1=n) == {
        "flops": 2 * b * k * n,
        "read": 4 * (b * k + k * n + b * n),
        "written": 4 * (b * n + b),
        "arguments": 4 * (b * k + k * n),
        "peak": 4 * (b * n + b),
    }
    assert str(found.flops) == "2*w_1*x_0*x_1"
    assert "w_0 == x_1" in found.conditions
    assert found.evaluate()["flops"] == 2 * 4 * 8 * 16


def test_equal_sizes_are_told_apart():
    found = pliant.cost(lambda x: x * 2, torch.randn(8, 8))
    assert str(found.read) == "4*x_0*x_1"


def test_expanded_and_sliced_arguments():
    found = pliant.cost(lambda x, y: x[:, :2] + y, torch.randn(6, 5), torch.randn(6, 1).expand(6, 2))
    assert found.evaluate(x_0=10)["read"] == 4 * (10 * 2 + 10)


def test_training_counts_the_backward():
    linear = torch.nn.Linear(16, 32)
    found = pliant.cost(lambda x: linear(x).relu(), torch.randn(4, 16))
    assert found.evaluate(x_0=10)["flops"] == 2 * (2 * 10 * 16 * 32)  # forward and the weight's gradient
    with torch.no_grad():
        assert pliant.cost(linear, torch.randn(4, 16)).evaluate(input_0=10)["flops"] == 2 * 10 * 16 * 32


MODULES = {
    "transformer": "torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)",
    "convolution": "torch.nn.Conv2d(4, 8, 3, stride=2, padding=1)",
    "transposed": "torch.nn.ConvTranspose2d(4, 8, 3, stride=2)",
}
SIZES = {"transformer": (5, 33, 64), "convolution": (3, 4, 20, 15), "transposed": (3, 4, 20, 15)}
COUNTED = """
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

found = {}
for name, text in MODULES.items():
    for training in (False, True):
        module, x = eval(text), torch.randn(SIZES[name], requires_grad=training)
        with torch.set_grad_enabled(training), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            result = module(x)
            if training:
                result.sum().backward()
        found[f"{name} {training}"] = counter.get_total_flops()
print(found)
"""


@pytest.fixture(scope="module")
def counted():
    """What PyTorch counts, in a process of its own: its counter imports half of PyTorch."""
    program = f"MODULES, SIZES = {MODULES!r}, {SIZES!r}\n{COUNTED}"
    return ast.literal_eval(own_process.ran(program, check=True).stdout)


def size_near(size):
    """Another size for the capture; channels stay."""
    return [size[0] + 1, *size[1:]]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", MODULES)
def test_operations_are_those_that_pytorch_counts(kind, training, counted):
    module, size = eval(MODULES[kind]), SIZES[kind]
    with torch.set_grad_enabled(training), sdpa_kernel(SDPBackend.MATH):
        found = pliant.cost(module, torch.randn(size_near(size), requires_grad=training))
    first = next(iter(found.sizes)).rpartition("_")[0]
    known = {f"{first}_{d}": n for d, n in enumerate(size) if f"{first}_{d}" in found.sizes}
    assert found.evaluate(**known)["flops"] == counted[f"{kind} {training}"]


def test_attention_kernels_count_as_their_products():
    q = torch.randn(2, 4, 10, 8)
    found = pliant.cost(torch.nn.functional.scaled_dot_product_attention, q, q.clone(), q.clone())
    assert found.evaluate()["flops"] == 2 * 2 * (2 * 4 * 10 * 10 * 8)


def test_nothing_runs_and_arguments_need_no_memory():
    big = torch.empty(1 << 20, 1 << 20, device="meta")
    found = pliant.cost(lambda x: (x @ x).relu(), big)
    assert found.evaluate()["flops"] == 2 * (1 << 60)
    assert found.evaluate()["peak"] == 4 * (1 << 40)  # the product's memory is the result's


def test_a_shape_error_names_the_line():
    def program(x, w):
        y = x.relu()
        return y @ w

    with pytest.raises(GraphBreakError, match="cannot be multiplied") as caught:
        pliant.cost(program, torch.empty(4, 7), torch.empty(8, 16))
    assert "return y @ w" in str(caught.value)


def test_unknown_sizes_are_refused():
    with pytest.raises(ConfigError, match="the sizes are x_0, x_1"):
        pliant.cost(lambda x: x * 2, torch.randn(4, 5)).evaluate(batch=3)


def test_numbers_are_sizes_too():
    found = pliant.cost(lambda x, n: x.repeat(n, 1) * 2, torch.randn(4, 5), 3)
    assert found.evaluate(x_0=10, x_1=2, n=7)["written"] == 4 * 7 * 10 * 2


def test_as_text():
    text = str(pliant.cost(lambda x: x.exp(), torch.randn(4, 5)))
    assert "read                    80   4*x_0*x_1" in text
    assert "where x_0 is x.size(0) (here 4)" in text


def test_programs_that_are_compiled_in_segments():
    def program(x, w):
        y = x @ w
        return y, (y @ w).relu()

    x, w = torch.randn(4, 8), torch.randn(8, 8, requires_grad=True)
    assert pliant.cost(program, x, w).evaluate()["flops"] == 2 * 4 * 8 * 8 * 5  # forward 2, backward 3
