"""`torch.istft` is one graph for all lengths, and an error where windows leave a gap."""

import pytest
import torch

import pliant

WINDOW, SHORT = torch.hann_window(8), torch.hann_window(6)
FORMS = {
    "a window": {"window": WINDOW, "hop_length": 4},
    "a default distance": {"window": WINDOW},
    "a short window": {"win_length": 6, "window": SHORT, "hop_length": 2},
    "normalized": {"window": WINDOW, "normalized": True},
    "not centred": {"window": torch.ones(8), "center": False},
}


def spectra(*size):
    return torch.view_as_complex(torch.randn(*size, 2)).requires_grad_()


@pytest.mark.parametrize("form", FORMS)
def test_one_graph(form):
    for program in (lambda x: torch.istft(x, 8, **FORMS[form]), lambda x: x.istft(8, **FORMS[form])):
        pliant.reset()
        compiled = pliant.compile(program, dynamic=True, fullgraph=True)
        for size in ((3, 5, 7), (2, 5, 9), (4, 5, 6)):
            x = spectra(*size)
            found, expected = compiled(x), program(x)
            torch.testing.assert_close(found, expected)
            (gradient,), (theirs,) = [torch.autograd.grad(y.square().sum(), x) for y in (found, expected)]
            torch.testing.assert_close(gradient, theirs)
        assert pliant.stats()["graphs"] == 1 and not pliant.stats()["fallbacks"]


def test_a_signal_there_and_back():
    def program(x):
        seen = torch.stft(x, 8, 4, window=WINDOW, return_complex=True)
        return torch.istft(seen, 8, 4, window=WINDOW, length=x.shape[-1])

    pliant.reset()
    compiled = pliant.compile(program, dynamic=True, fullgraph=True)
    for n in (48, 63, 96, 101):
        x = torch.randn(2, n)
        torch.testing.assert_close(compiled(x), program(x))
    assert pliant.stats()["graphs"] == 1


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_gap_is_an_error(dynamic):
    pliant.reset()
    for program in (
        lambda x: torch.istft(x, 8, 4, window=WINDOW, center=False),
        lambda x: x.istft(8, 4, window=WINDOW, center=False),
    ):
        compiled = pliant.compile(program, dynamic=dynamic)
        for n in (5, 7, 9):
            with pytest.raises(RuntimeError, match="window overlap add min: 1"):
                compiled(spectra(5, n))


def test_other_forms_break():
    pliant.reset()
    for program, rows in (
        (lambda x: torch.istft(x, 8, window=WINDOW, onesided=False), 8),
        (lambda x: torch.istft(x, 8, window=WINDOW, length=200), 5),
        (lambda x: torch.istft(x, 8), 5),
        (lambda x: torch.istft(x, 8, window=WINDOW, onesided=False, return_complex=True), 8),
    ):
        compiled = pliant.compile(program)
        for n in (5, 7, 9):
            x = spectra(2, rows, n)
            torch.testing.assert_close(compiled(x), program(x))
    assert not pliant.stats()["fallbacks"]
