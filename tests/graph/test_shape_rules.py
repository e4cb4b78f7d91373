"""Fakes agree with eager on size, strides, dtype, device and offset, for every ATen call that torch's samples make."""

from __future__ import annotations

import pytest
import torch

from .opinfo import check_all

PARTS = 3  # so that processes share them


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_samples_of_every_operator(symbolic: bool, part: int) -> None:
    check = check_all(symbolic, (torch.float32, torch.int64), 6, part, PARTS)  # a sweep by hand takes 12
    assert not check.wrong, {name: calls[0] for name, calls in check.wrong.items()}
    assert len(check.right) > 300
