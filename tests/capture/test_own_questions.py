"""What a capture asks for itself is no work of the program: it is answered without what follows the program."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn

import pliant
from pliant.capture.protocols import attributes
from pliant.capture.recording.recorder import Recorder


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4)).eval()


@pytest.mark.parametrize("how", ["compile", "export"])
def test_questions_about_inputs_are_not_recorded(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    asked: Counter[str] = Counter()
    recorded = Recorder.__torch_function__

    def counted(self: Recorder, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        asked[getattr(func, "__name__", "")] += 1
        return recorded(self, func, types, args, kwargs)

    monkeypatch.setattr(Recorder, "__torch_function__", counted)
    with torch.no_grad():
        if how == "export":
            pliant.export(_model(), (torch.ones(2, 4),))
        else:
            pliant.compile(_model())(torch.ones(2, 4))
    assert asked == {"linear": 2, "layer_norm": 1}


def test_members_of_modules_are_found_without_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    lacks = attributes.lacks
    monkeypatch.setattr(attributes, "lacks", lambda obj, name: made.append(name) or lacks(obj, name))
    with torch.no_grad():
        pliant.compile(_model())(torch.ones(2, 4))
    assert made == []
