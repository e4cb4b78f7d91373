"""Rules for `vmap` give what PyTorch's own give: on tensors with data, one call of each row of the table."""

import pytest
import torch
from tests.capture.vmap_rows import ROWS
from tests.capture.vmap_table import WAYS, _outcome, in_dims_of, inputs

from pliant.graph.map_rules import kernels
from pliant.torch_adapter import python_kernels

KINDS = ("rest", "train", "grad", "jvp")


@pytest.fixture(autouse=True)
def always_asked(monkeypatch):
    monkeypatch.setattr(kernels, "_any_varies", lambda args, kwargs: True)
    kernels._installed()


def _differs(name, way):
    function, make = ROWS[name]
    how, which = WAYS[way]
    train = way.startswith("train")
    torch.manual_seed(0)
    dims = in_dims_of(make(), which)

    def program(*given):
        return how(function, given, dims)

    if all(dim is None for dim in dims):
        return ""
    try:
        wanted = _outcome(program, inputs(make, dims, 5, train), train)
    except Exception:  # eager refuses it
        return ""
    try:
        with python_kernels():
            found = _outcome(program, inputs(make, dims, 5, train), train)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3, equal_nan=True)
    except Exception as error:
        return f"{name}: {error}"
    return ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", KINDS)
def test_rules_are_pytorchs(way):
    assert [found for name in ROWS if (found := _differs(name, way))] == []
