"""Two small models, exported with batch and length dynamic, run by a process that has neither."""

import pytest
import torch
from tests.exporting import models
from torch import nn

transformers = pytest.importorskip("transformers")
SIZES = ((2, 12), (3, 7), (1, 5), (4, 16), (2, 9))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.out = nn.Conv1d(4, 8, 3, padding=1), nn.BatchNorm1d(8), nn.GRUCell(8, 6)

    def forward(self, x):
        y = self.norm(self.conv(x)).relu()
        return {"rows": self.out(y.mean(-1)), "all": y.transpose(1, 2)}


def bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32,
    )  # fmt: skip
    return transformers.BertForMaskedLM(config).eval()


def test_models_in_a_new_process_are_as_eager(tmp_path):
    made = []
    for name, model, inputs in (
        ("network", Network().eval(), lambda size: ((torch.randn(size[0], 4, size[1]),), {})),
        ("bert", bert(), lambda size: ((), {"input_ids": torch.randint(1, 64, size), "attention_mask": torch.ones(size, dtype=torch.int64)})),
    ):  # fmt: skip
        calls = [inputs(size) for size in SIZES]
        program, _ = models.exported(model, calls, SIZES[0])
        assert program.inputs[-1].target in ("x", "attention_mask")
        made.append((name, program, model, calls))
    found = dict(models.differences(made, tmp_path))
    # The same operators: but where memory begins, which weights of a file do elsewhere, may decide how a library adds.
    assert found.keys() == {"network", "bert"} and max(found.values()) < 1e-6
    assert isinstance(made[1][1](**made[1][3][0][1]), transformers.modeling_outputs.MaskedLMOutput)
