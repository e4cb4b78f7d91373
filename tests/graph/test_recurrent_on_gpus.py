"""Which recurrent layers on a GPU are one operator, and in which precision, as a machine without one can tell."""

import pytest
import torch

from pliant.graph import recurrent
from pliant.graph.fake_mode import FakeMode
from pliant.graph.unsupported import UnsupportedOperator
from pliant.symbolic.shape_env import ShapeEnv


def described(*, dropout=0.0):
    """The results of a layer of 5 steps, a batch of 3 and 6 features."""
    mode = FakeMode(ShapeEnv())

    def fake(*size):
        stride = torch.empty(size, device="meta").stride()
        return mode.new(size, stride, torch.float32, torch.device("cuda", 0), False)

    weights = [fake(*p.shape) for p in torch.nn.LSTM(4, 6, 2).parameters()]
    states = fake(2, 3, 6), fake(2, 3, 6)
    return recurrent.call(torch.lstm, (fake(5, 3, 4), states, weights, True, 2, dropout, True, False, False), {})


@pytest.mark.parametrize("cast", [None, torch.float16, torch.bfloat16])
def test_one_operator_in_the_precision_of_autocast(cast, monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: cast is not None)  # PyTorch wants a GPU for it
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: cast)
    with torch.no_grad():
        results = described()
    assert [tuple(one.shape) for one in results] == [(5, 3, 6), (2, 3, 6), (2, 3, 6)]
    assert {one.dtype for one in results} == {cast or torch.float32}


def test_what_the_library_draws_without_gradients_is_refused():
    """Its dropout has a random state of its own, of which PyTorch's generator knows nothing."""
    with torch.no_grad(), pytest.raises(UnsupportedOperator, match="draws by itself"):
        described(dropout=0.5)
