"""Rules for `vmap` give what PyTorch's own give: on tensors with data, one call of each row of the table."""

import pytest
import torch
from tests.capture.vmap_rows import ROWS
from tests.capture.vmap_table import WAYS, _outcome, in_dims_of, inputs
from torch.autograd import forward_ad
from torch.nn import functional

import pliant
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


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_what_kernels_read_as_dense_is_dense(norm):
    """Without `always_asked`: at sizes that vary. Statistics that are alike for all rows of a Jacobian have no memory for each."""

    def program(x, w):
        def normed(w):
            if norm == "layer":
                return functional.layer_norm(x * w, (4,), w[1], w[2])
            return functional.group_norm(x * w, 2, w[1], w[2])

        return torch.func.jacrev(normed)(w).sum((0, 1))

    mapped = torch.func.vmap(program, in_dims=(0, None))
    compiled, w = pliant.compile(mapped, backend="aot_eager", dynamic=True), torch.randn(4, 4)
    for n in (5, 6, 7):
        x = torch.randn(n, 4, 4)
        torch.testing.assert_close(compiled(x, w), mapped(x, w), rtol=1e-4, atol=1e-4)


GIVEN = {
    "embedding_dense_backward": lambda dy: (dy, torch.tensor([0, 1, 2]), 5, -1, False),
    "native_batch_norm_backward": lambda dy: (
        dy, dy.detach() * dy.detach(), None, None, None, torch.zeros(4), torch.ones(4), True, 1e-5, [True, True, True],
    ),
    "glu_backward": lambda dy: (dy, torch.arange(24.0).reshape(3, 8), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", GIVEN)
def test_what_rules_leave_to_pytorch_has_tangents(name):
    """No gradient is recorded here, so none of the rules composes the operator."""
    op = getattr(torch.ops.aten, name)
    torch.manual_seed(0)
    values, tangents = torch.randn(3, 4), torch.randn(3, 4)

    def found():
        with forward_ad.dual_level():
            results = op(*GIVEN[name](forward_ad.make_dual(values, tangents)))
            return [tuple(forward_ad.unpack_dual(one)) for one in (results if isinstance(results, tuple) else (results,))]

    wanted = found()
    assert all(tangent is not None for _, tangent in wanted)
    with python_kernels():
        torch.testing.assert_close(found(), wanted)
