"""PyTorch's own Python functions under the mode that records."""

import pytest
import torch

import pliant


def test_the_recording_mode_is_no_override_for_what_is_captured():
    def program(x):
        torch._assert(x.ndim == 2, f"no matrix but {x.ndim}")
        return x * 2

    compiled = pliant.compile(program, fullgraph=True)
    assert compiled(torch.ones(3, 3)).sum() == 18
    with pytest.raises(AssertionError, match="no matrix but 1"):
        compiled(torch.ones(3))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.tensor([0, 2], dtype=int) + x.sum(),
        lambda x: torch.zeros(3, dtype=float) + x.double(),
        lambda x: x.to(bool),
        lambda x: torch.full((2,), 1, dtype=complex) * x.sum(),
        lambda x: x.to(torch.int8).to(dtype=int),
    ],
)
def test_classes_of_numbers_as_dtypes(function):
    pliant.reset()
    x = torch.tensor([1.0, 0.0, 2.0])
    compiled = pliant.compile(function, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)
    assert pliant.stats()["fallbacks"] == 0
