"""Fakes agree with eager on size, strides, dtype, device and offset, for every ATen call that torch's samples make."""

from __future__ import annotations

import pytest
import torch

from .opinfo import check_all


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_samples_of_every_operator(symbolic: bool) -> None:
    check = check_all(symbolic, (torch.float32, torch.int64), samples=2)
    assert not check.wrong, dict(check.wrong)
    assert len(check.right) > 450


@pytest.mark.slow
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_more_samples_of_every_operator(symbolic: bool) -> None:
    check = check_all(symbolic, (torch.float32, torch.int64), samples=6)  # a sweep by hand takes 12
    assert not check.wrong, {name: calls[0] for name, calls in check.wrong.items()}
