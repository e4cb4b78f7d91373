"""Programs on a device that no code is generated for: the captured graph runs operator by operator, as eager would."""

import pytest
import torch
from torch import nn

import pliant
from pliant.errors import FallbackWarning
from pliant.targets import registry

DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")])]


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    """No code is generated for it meanwhile."""
    pliant.reset()
    monkeypatch.setattr(registry, "_PROVIDERS", {})
    monkeypatch.setattr(registry, "_found", {})
    yield request.param
    pliant.reset()


def model(device):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(8, 16), layer, nn.LayerNorm(16), nn.Linear(16, 4)).to(device)


@pytest.mark.filterwarnings("ignore:.*graphs run operator by operator")
def test_training_and_sizes(device):
    eager, compiled = model(device), pliant.compile(model(device))
    for batch in (2, 3, 5):
        x = torch.randn(batch, 6, 8, device=device)
        losses = [m(x).square().mean() for m in (eager, compiled)]
        torch.testing.assert_close(*losses)
        for loss in losses:
            loss.backward()
    for mine, theirs in zip(compiled.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    stats = pliant.stats()
    assert stats["graphs"] >= 1 and stats["graph_breaks"] == 0
    assert all("no kernels for device" in why for why in stats["fallback_reasons"]) and stats["fallbacks"] >= 1


def test_it_is_said_once(device):
    @pliant.compile
    def f(x):
        x.add_(1)
        return x.sin(), x.to("cpu")

    with pytest.warns(FallbackWarning, match="no kernels for device"):
        found = f(torch.zeros(3, device=device))
    assert found[0].device.type == device and found[1].device.type == "cpu"
    torch.testing.assert_close(found[0].cpu(), torch.ones(3).sin())
