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


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: torch.nn.functional.l1_loss(x, 2 * x, weight=w),
        lambda x, w: torch.nn.functional.l1_loss(x, 2 * x, reduction="sum", weight=w.abs()),
        lambda x, w: torch.chain_matmul(x, w.t(), out=torch.empty(3, 3)),
        lambda x, w: [x.dim_order(), w.unsqueeze(0).dim_order(ambiguity_check=[torch.contiguous_format]), x + w],
    ],
)
def test_arguments_that_functions_do_not_tell_modes(function, dynamic):
    """PyTorch's functions that ask function modes hand their arguments on, these not all."""
    pliant.reset()
    torch.manual_seed(0)  # weights may add up to next to nothing
    x, w = torch.randn(3, 4), torch.randn(3, 4)
    torch.testing.assert_close(pliant.compile(function, dynamic=dynamic)(x, w), function(x, w))
    assert pliant.stats()["fallbacks"] == 0


def test_an_error_of_an_argument_that_modes_are_not_told():
    @pliant.compile
    def program(x):
        try:
            return x.dim_order(ambiguity_check=True), x + 1
        except RuntimeError as error:
            return str(error), x - 1

    text, result = program(torch.ones(1, 2, 3))
    assert "unique dim order" in text and result.sum() == 0
