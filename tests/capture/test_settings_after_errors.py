"""Where an operator of a graph fails within a block, the block's settings end with the call, and eager runs without them."""

import pytest
import torch

import pliant

BLOCKS = {
    "no grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


def settings():
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")


def as_it_is(module, inputs):
    return module.forward


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "pliant", as_it_is], ids=["eager", "aot_eager", "pliant", "own"])
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_settings_are_as_before(block, backend):
    def raising(x, index):
        with block():
            y = x[index] * 2
        return y + x.sum()

    def handling(x, index):
        try:
            with block():
                y = x[index] @ x
        except IndexError:
            y = x @ x
        return y * 2

    pliant.reset()
    x, far = torch.randn(3, 3, requires_grad=True), torch.tensor([7])
    before = settings()
    for function in raising, handling:
        compiled = pliant.compile(function, backend=backend)
        compiled(x, torch.tensor([0]))
        if function is raising:
            with pytest.raises(IndexError):
                compiled(x, far)
        else:
            found, expected = compiled(x, far), handling(x, far)
            assert found.dtype == expected.dtype and found.requires_grad
            torch.testing.assert_close(found, expected)
        assert settings() == before
