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
