"""Operators that libraries of the GPU compute: one graph, and results that lie as eager's do."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant

pytestmark = pytest.mark.gpu


def _given(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(size, device="cuda", dtype=dtype)


def _square(x):
    return x @ x.mT + 9 * torch.eye(x.shape[-1], device=x.device)


def _recurrent(cell):
    made = cell(8, 16).cuda()
    return lambda x: made(x[:, 0], made(x[:, 1]) if not isinstance(made, nn.LSTMCell) else None)


PROGRAMS = {
    "transforms": (lambda x: (torch.fft.fft(x, dim=0).abs(), torch.fft.rfftn(x), torch.fft.irfft2(torch.fft.rfft2(x)), torch.fft.fftn(x)), [(4, 6, 8), (5, 6, 8)]),
    "spectrograms": (lambda x: torch.stft(x, 64, return_complex=True, window=torch.hann_window(64, device="cuda")).abs(), [(2, 400), (3, 512)]),
    "singular values": (lambda x: (*torch.linalg.svd(x, full_matrices=False), torch.linalg.svdvals(x)), [(2, 5, 3), (4, 5, 3)]),
    "eigenvalues": (lambda x: (torch.linalg.eig(_square(x))[0].abs().sort().values, torch.linalg.eigvalsh(_square(x))), [(4, 4), (5, 5)]),
    "least squares": (lambda x: torch.linalg.lstsq(x, x[..., :2])[0], [(2, 6, 3), (4, 6, 3)]),
    "bags": (lambda x: F.embedding_bag(torch.arange(12, device="cuda") % x.shape[0], x, torch.tensor([0, 3, 9], device="cuda"), mode="sum"), [(20, 8), (30, 8)]),
    "gru cell": (_recurrent(nn.GRUCell) if torch.cuda.is_available() else None, [(3, 2, 8), (5, 2, 8)]),
    "lstm cell": (_recurrent(nn.LSTMCell) if torch.cuda.is_available() else None, [(3, 2, 8), (5, 2, 8)]),
    "grids": (lambda x: F.grid_sample(x, x[:, :2, :3, :2].tanh(), align_corners=True), [(2, 3, 6, 7), (3, 3, 6, 7)]),
    "norms over sizes that vary": (lambda x: F.rms_norm(x, x.shape[-1:]) + F.layer_norm(x, x.shape[-1:]), [(3, 8), (4, 8), (4, 10), (5, 12)]),
    "log sigmoid": (F.logsigmoid, [(4, 5), (6, 5), (7, 9)]),
    "signals": (nn.Conv1d(6, 4, 3).cuda() if torch.cuda.is_available() else None, [(2, 6, 9), (3, 6, 9)]),
    "tensors made on the current GPU": (lambda x: x * torch.tensor([1.0, 2.0], device="cuda") + torch.arange(2, device="cuda"), [(3, 2), (4, 2)]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_and_eagers_results(name, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    function, sizes = PROGRAMS[name]
    pliant.reset()
    torch.manual_seed(0)
    compiled = pliant.compile(function, fullgraph=True)
    for size in sizes:
        x = _given(*size)
        found = []
        for run in (function, compiled):
            leaf = x.clone().requires_grad_()
            results = run(leaf)
            results = results if isinstance(results, tuple) else (results,)
            sum(one.abs().square().sum() for one in results if one.requires_grad).backward()
            found.append(([one.detach() for one in results], leaf.grad))
        torch.testing.assert_close(found[1], found[0], rtol=2e-3, atol=2e-3)
        assert [one.stride() for one in found[1][0]] == [one.stride() for one in found[0][0]]
    assert pliant.stats()["fallbacks"] == 0 and not pliant.stats()["assumption_reasons"]


@pytest.mark.parametrize("cast", [None, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_recurrent_layers_are_one_operator(layer, cast, monkeypatch):
    """In inference at any size; autocast decides in which precision the library computes."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    pliant.reset()
    torch.manual_seed(0)
    made = layer(8, 16, num_layers=2, bidirectional=True, batch_first=True).cuda().eval()
    compiled = pliant.compile(made, fullgraph=True)
    for size in [(3, 5), (4, 7), (6, 2)]:
        x = _given(*size, 8)
        with torch.no_grad(), torch.autocast("cuda", cast or torch.float16, enabled=cast is not None):
            (want, states), (got, found) = made(x), compiled(x)
        flat = lambda s: s if isinstance(s, tuple) else (s,)
        torch.testing.assert_close((got, *flat(found)), (want, *flat(states)), rtol=2e-3, atol=2e-3)
        assert got.stride() == want.stride()
    assert pliant.stats()["fallbacks"] == 0


@pytest.mark.parametrize("cast", [None, torch.bfloat16])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_in_training(layer, cast, monkeypatch):
    """One graph at any length; gradients are the library's own, of what it kept of the forward."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    pliant.reset()
    torch.manual_seed(0)
    made = layer(8, 16, num_layers=2, bidirectional=True, batch_first=True).cuda()
    compiled = pliant.compile(made, fullgraph=True)
    for size in [(3, 5), (3, 5), (4, 7), (6, 2)]:
        x = _given(*size, 8).requires_grad_()

        def gradients(f):
            with torch.autocast("cuda", cast or torch.float16, enabled=cast is not None):
                output, states = f(x)
                loss = output.float().sin().sum() + (states[0] if isinstance(states, tuple) else states).float().sum()
            return torch.autograd.grad(loss, [x, *made.parameters()])

        torch.testing.assert_close(gradients(compiled), gradients(made), rtol=2e-3, atol=2e-3)
    assert pliant.stats()["fallbacks"] == 0 and pliant.stats()["graphs"] <= 2


def test_dropout_of_recurrent_layers_is_the_librarys():
    """It draws from a state of its own: what was dropped shows in the mean over many."""
    pliant.reset()
    torch.manual_seed(0)
    made = nn.GRU(8, 64, num_layers=2, dropout=0.5).cuda()
    compiled = pliant.compile(made, fullgraph=True)
    x = _given(4, 512, 8)
    drawn = []
    for f in (compiled, compiled, made):
        made.zero_grad()
        output, _ = f(x)
        output.square().mean().backward()
        drawn.append((output.detach(), made.weight_hh_l1.grad))
    assert not torch.equal(drawn[0][0], drawn[1][0])
    for one, eager in zip(drawn[0], drawn[2]):
        torch.testing.assert_close(one.norm(), eager.norm(), rtol=0.1, atol=0)
    assert pliant.stats()["fallbacks"] == 0
