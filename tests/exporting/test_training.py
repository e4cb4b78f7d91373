"""Programs that return a loss and gradients: as eager's backward, by operators, compiled and from a file."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pliant
from exporting.test_models import bert
from pliant.errors import ExportError

BATCH = pliant.Dim("batch", min=2)


class Model(nn.Module):
    """Returns its loss in one of several ways."""

    def __init__(self, form="loss"):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 4))
        self.unused, self.frozen = nn.Linear(2, 2), nn.Parameter(torch.ones(4), requires_grad=False)
        self.form = form

    def forward(self, x, y):
        rows = self.body(x) * self.frozen
        loss = F.cross_entropy(rows, y)
        return {"loss": loss, "first": (loss, rows, x), "named": {"rows": rows, "loss": loss}, "rows": rows}[self.form]


def arguments(size):
    return torch.randn(size, 8), torch.arange(size) % 4


def exported(form):
    return pliant.export(Model(form), arguments(5), dynamic_shapes=({0: BATCH}, {0: BATCH}), training=True)


def backward(model, *args, **kwargs):
    """Eager's result, and gradients by parameter."""
    result = model(*args, **kwargs)
    loss = result if isinstance(result, torch.Tensor) else result["loss"] if isinstance(result, dict) else result[0]
    loss.backward()
    return result, {name: one.grad for name, one in model.named_parameters() if one.requires_grad}


@pytest.mark.parametrize("form", ["loss", "first", "named"])
@pytest.mark.parametrize("how", ["operators", "compiled", "loaded"])
def test_a_call_gives_the_result_and_gradients(form, how, tmp_path):
    program = exported(form)
    if how == "loaded":
        program.save(tmp_path / "file")
        program = pliant.load(tmp_path / "file")
    call = program.compile() if how == "compiled" else program
    eager = Model(form)
    for size in (3, 5):
        args = arguments(size)
        eager.zero_grad()
        wanted, gradients = backward(eager, *args)
        found, made = call(*args)
        torch.testing.assert_close(found, torch.utils._pytree.tree_map(torch.detach, wanted))
        assert made.keys() == gradients.keys() and made["unused.weight"] is None
        torch.testing.assert_close([one for one in made.values() if one is not None], [one for one in gradients.values() if one is not None])
    assert program.state["body.1.num_batches_tracked"] == 2
    torch.testing.assert_close(program.state["body.1.running_var"], eager.body[1].running_var)


def test_the_graph_is_functional_and_the_model_stays():
    model = Model()
    before = copy.deepcopy(model.state_dict())
    program = pliant.export(model, arguments(5), training=True)
    operators = [node.target for node in program.graph.nodes if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)]
    assert not any(one._schema.is_mutable for one in operators)
    assert [one.name for one in program.inputs if one.mutated] == [
        "b_body_1_num_batches_tracked", "b_body_1_running_mean", "b_body_1_running_var",
    ]  # fmt: skip
    torch.testing.assert_close(model.state_dict(), before)
    assert all(one.grad is None for one in model.parameters())


def test_bert():
    model = bert()
    at = lambda *size: {"input_ids": torch.randint(1, 64, size), "labels": torch.randint(1, 64, size)}  # noqa: E731
    sizes = {0: pliant.Dim("rows"), 1: pliant.Dim("length")}
    program = pliant.export(model, (), at(2, 12), dynamic_shapes=dict.fromkeys(("input_ids", "labels"), sizes), training=True)
    given = at(3, 7)
    found, made = program(**given)
    _, wanted = backward(model, **given)
    assert type(found).__name__ == "MaskedLMOutput"
    torch.testing.assert_close(found.loss, model(**given).loss.detach())
    torch.testing.assert_close(made, wanted)


def test_what_cannot_be_trained_is_told():
    with pytest.raises(ExportError, match="no parameter to compute a gradient of"):
        pliant.export(torch.relu, (torch.ones(3),), training=True)
    with pytest.raises(ExportError, match="no parameter to compute a gradient of"):
        pliant.export(nn.Linear(3, 3).requires_grad_(False), (torch.ones(3),), training=True)
    with pytest.raises(ExportError, match="returns no loss, a tensor of one number"):
        exported("rows")
