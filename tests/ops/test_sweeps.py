"""A bounded part of the sweeps; `python tests/ops/sweep.py op form dtype module optimizer` runs all."""

from __future__ import annotations

import pytest

import short_stack
from ops.databases import cases, run_case

EVERY = {"op": 90, "form": 200, "dtype": 300, "module": 60, "optimizer": 80}


def _some(kind: str, every: int) -> list[str]:
    names = [name for name in cases(kind) if not name.endswith("/dynamic")]
    return names[every // 2 :: every]


@pytest.mark.parametrize("name", [name for kind, every in EVERY.items() for name in _some(kind, every)])
def test_case(name: str) -> None:
    verdict = short_stack.called(run_case, name)
    assert verdict.status in ("pass", "skip"), verdict
