"""Few operators on few elements are called as they are where gradients are recorded."""

import sys
import types

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant import background
from pliant.autograd.node import Compiled
from pliant.debug import events

pytestmark = pytest.mark.small_programs
COMPILED = Compiled._backward_cls
X, W = torch.randn(4, 8), torch.randn(8, 8)


def is_compiled(result):
    return type(result.grad_fn) is COMPILED


def leaves(*tensors):
    return [one.clone().requires_grad_() if one.is_floating_point() else one for one in tensors]


FEW = {
    "softmax": (lambda x: F.softmax(x, -1), X),
    "method": (lambda x: x.cumsum(0), X),
    "linear": (lambda x, w: F.linear(x, w), X, W),
    "two": (lambda x: x.flip(0) * 2, X),
    "one on more elements": (lambda x: F.softmax(x, -1), torch.randn(256, 256)),
    "loss": (lambda x, t: F.cross_entropy(x, t), X, torch.tensor([1, 0, 7, 3])),
    "keyword": (lambda x: x.sum(dim=1, keepdim=True), X),
}


@pytest.mark.parametrize("name", FEW)
def test_few_operators_have_functions_of_autograds_own(name):
    pliant.reset()
    f, *tensors = FEW[name]
    with events.collect("fallback") as fallbacks:
        compiled = pliant.compile(f)
        for _ in range(3):
            given, expected = leaves(*tensors), leaves(*tensors)
            result, wanted = compiled(*given), f(*expected)
            assert not is_compiled(result)
            torch.testing.assert_close(result, wanted, rtol=0, atol=0)
            result.sum().backward()
            wanted.sum().backward()
            for one, other in zip(given, expected):
                torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=0)
    assert not fallbacks


@torch.library.custom_op("small_programs::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


doubled.register_fake(torch.empty_like)
doubled.register_autograd(lambda ctx, grad: grad * 2)

OTHERS = {
    "several": (lambda x, w: (x @ w).tanh() * 2, X, W),
    "one of several": (lambda x: F.normalize(x), X),
    "one that a library begins": (lambda x: F.gelu(x), X),
    "many elements": (lambda x: F.softmax(x, -1), torch.randn(512, 256)),
    "several on more elements": (lambda x: x.flip(0) * 2 + 1, torch.randn(128, 256)),
    "one that is slow": (lambda x: F.elu(x), torch.randn(64, 256)),
    "a write": (lambda x, m: (x * 2, m.add_(1))[0], X, torch.ones(4, dtype=torch.int64)),
    "a view": (lambda x: x.t(), X),
    "an operator of the user's": (lambda x: doubled(x), X),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_compiled(name):
    pliant.reset()
    f, *tensors = OTHERS[name]
    compiled = pliant.compile(f)
    given, expected = leaves(*tensors), leaves(*tensors)
    with events.collect("partition") as found:
        result = compiled(*given)
    assert not any("as it is" in one.fields["text"] for one in found)
    torch.testing.assert_close(result, f(*expected))


def test_sizes_that_vary_are_compiled():
    compiled = pliant.compile(lambda x: F.softmax(x, -1), dynamic=True)
    assert is_compiled(compiled(*leaves(X)))


def test_without_gradients_they_are_compiled():
    compiled = pliant.compile(lambda x: F.softmax(x, -1))
    with events.collect("partition") as found:
        compiled(X)
    assert not any("as it is" in one.fields["text"] for one in found)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_segments_of_few_operators():
    """The weight that is made anew at each call is in the caller's hands, and what is computed from it is cut off."""
    layer, other = (torch.nn.utils.weight_norm(torch.nn.Linear(8, 8)) for _ in range(2))
    other.load_state_dict(layer.state_dict())
    compiled = pliant.compile(layer)
    for _ in range(3):
        result, wanted = compiled(X), other(X)
        layer.weight.retain_grad()
        other.weight.retain_grad()
        assert not is_compiled(result) and not is_compiled(layer.weight)
        result.square().sum().backward()
        wanted.square().sum().backward()
        torch.testing.assert_close(layer.weight.grad, other.weight.grad)
        for one, same in zip(layer.parameters(), other.parameters()):
            torch.testing.assert_close(one.grad, same.grad)


def test_they_are_kept_on_disk(tmp_path, monkeypatch):
    module = types.ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", module)
    captures = []
    with pliant.config.patch(keep_entries=True, cache_dir=str(tmp_path)):
        for cell in ("one", "two"):
            exec(compile("def f(x):\n    return x.softmax(-1)\n", f"<ipython-input-{cell}>", "exec"), vars(module))
            (x,) = leaves(X)
            result = pliant.compile(module.f)(x)
            assert not is_compiled(result)
            result.square().sum().backward()
            (same,) = leaves(X)
            same.softmax(-1).square().sum().backward()
            torch.testing.assert_close(x.grad, same.grad)
            captures.append(pliant.stats()["calls"]["capture"])
            background.finish()
    assert captures[0] == captures[1]
