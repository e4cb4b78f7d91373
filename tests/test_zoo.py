"""The benchmark over other libraries' models: configurations made small, rows, and the summary of rows."""

import time

import pytest
import torch
from benchmarks import zoo, zoo_models
from benchmarks.zoo_shrink import ladder
from torch import nn

import pliant

CONFIG = {
    "model_type": "text",
    "hidden_size": 4096,
    "num_hidden_layers": 6,
    "layer_types": ["linear", "linear", "full", "linear", "linear", "full"],
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "attention_dropout": 0.1,
    "vocab_size": 50000,
    "eos_token_id": 49999,
    "pad_token_id": 0,
    "depths": [2, 2, 6, 2],
    "vision": {"patch_size": 16, "image_token_id": 40000, "eos_token_id": 49999, "hidden_size": 1024},
}


def test_the_smallest_configuration_keeps_kinds_of_layers_and_tells_tokens_apart():
    small = next(ladder(CONFIG))
    assert small["layer_types"] == ["linear", "full"] and small["num_hidden_layers"] == 2
    assert small["hidden_size"] == small["vision"]["hidden_size"] == 64
    assert (small["num_attention_heads"], small["num_key_value_heads"]) == (4, 2)
    assert small["attention_dropout"] == 0.0 and small["depths"] == [1, 1, 1, 1]
    assert [type(next(ladder({"attn_pdrop": value}))["attn_pdrop"]) for value in (1, 0.1)] == [int, float]
    tokens = [small["eos_token_id"], small["pad_token_id"], small["vision"]["image_token_id"]]
    assert len(set(tokens)) == 3 and max(tokens) < small["vocab_size"] == 160
    assert small["vision"]["eos_token_id"] == small["eos_token_id"]
    assert small["vision"]["patch_size"] == 16 and CONFIG["hidden_size"] == 4096


def test_what_belongs_together_stays_together():
    """Lists by stage and by output, widths that are repeated, counts of what keeps its widths."""
    backbone = {"depths": [2, 2, 6], "out_features": ["stage1", "stage3"], "out_indices": [1, 3], "hidden_sizes": [64, 128, 256]}
    speech = {"num_feat_extract_layers": 3, "conv_dim": [512, 512, 256], "conv_stride": [5, 2, 2], "conv_kernel": [9, 3, 3]}
    vision = {"num_hidden_layers": 12, "out_indices": [3, 6, 9, 12], "hidden_size": 384, "ratios": list(range(12))}
    staged = {"num_heads": [8, 16], "embed_dim": [256, 512], "image_token_id": None, "decoder_in_channels": [256, 256]}
    small = next(ladder({"backbone": backbone, "speech": speech, "vision": vision, "staged": staged}))
    assert small["backbone"] == {**backbone, "depths": [1, 1, 1]}
    assert small["speech"]["num_feat_extract_layers"] == 3
    assert small["vision"] == {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4], "hidden_size": 64, "ratios": [0, 1, 2, 3]}
    assert small["staged"]["num_heads"] == [1, 2] and small["staged"]["embed_dim"] == [32, 64]
    assert small["staged"]["image_token_id"] >= 100


class Broken(nn.Module):
    """A model whose graph breaks once."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        y = self.linear(x)
        pliant.graph_break()
        return {"y": y.relu()}


def normed():
    """Its weight is computed before each call, which PyTorch cannot copy."""
    return nn.utils.weight_norm(nn.Linear(3, 2))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("model, states", [(lambda: nn.Linear(3, 2), []), (Broken, ["broken"]), (normed, [])])
def test_a_row(model, states):
    case = zoo_models.Case(model, lambda m, size: {"input" if states == [] else "x": torch.ones(size[0], 3)}, zoo.zoo_models.SIZES, "m")
    row = zoo.measure(case, "training", "eager") | {"name": "hf/m", "mode": "training"}
    assert [state for state, holds in zoo.STATES.items() if holds(row)] == states
    assert [len(size["recompiles"]) for size in row["sizes"]][0] == 0 and len(row["sizes"]) == 3
    table = "\n".join(zoo.summary([row]))
    assert ("100.0%" in table) == (not states) and ("user-request" in table) == bool(states)
    pliant.reset()


def test_what_eager_refuses_is_no_case():
    class WantsLabels(nn.Linear):
        def forward(self, input):
            if self.training:
                raise ValueError("labels are missing")
            return super().forward(input)

    case = zoo_models.Case(lambda: WantsLabels(3, 2), lambda m, size: {"input": torch.ones(size[0], 3)}, zoo_models.SIZES, "m")
    with pytest.raises(zoo_models.NoCase, match="eager: ValueError: labels are missing"):
        zoo.measure(case, "training", "eager")


def test_a_wrong_result_is_wrong():
    class Wrong(nn.Linear):
        def forward(self, x):
            return super().forward(x) * (1.0 if not torch.compiler.is_compiling() else 1.5)

    case = zoo_models.Case(lambda: Wrong(3, 2), lambda m, size: {"x": torch.ones(size[0], 3)}, zoo_models.SIZES, "m")
    row = zoo.measure(case, "inference", "eager")
    assert all(size["right"] and size["asks_is_compiling"] for size in row["sizes"])  # it asked for it
    base = Wrong(3, 2)
    inputs = [case.inputs(base, size) for size in case.sizes]
    wanted = zoo.step(base, base, inputs[0], False)
    got = {part: [t + 1 for t in tensors] for part, tensors in wanted.items()}
    judged = zoo.judged(base, inputs, 0, False, (got, ""), (wanted, ""))
    assert not judged["right"] and judged["error64"] > 0.1 > judged["eager64"]
    pliant.reset()


def test_a_library_that_fails_leaves_no_case(monkeypatch):
    def case(which):
        raise ImportError(f"{which} needs another library")

    monkeypatch.setitem(zoo_models.LIBRARIES, "other", (lambda: ["model"], case))
    with pytest.raises(zoo_models.NoCase, match="model needs"):
        zoo_models.find_case("other/model")


def test_a_limit_is_of_the_processor_alone():
    """A busy machine, which makes everything late, ends no search and no row."""
    zoo_models.limit(0.02, lambda: zoo_models.NoCase("late"))
    time.sleep(0.05)  # waiting costs nothing
    with pytest.raises(zoo_models.NoCase, match="late"):
        while True:
            pass
    zoo_models.limit(0, lambda: zoo_models.NoCase("never"))


def test_a_slow_model_is_no_slow_first_call():
    row = {"sizes": [{"seconds": 30.0, "cpu": 16.0, "eager": 15.0}, {"seconds": 12.0, "cpu": 20.0, "eager": 1.0}]}
    assert zoo.first_call(row) == 11.0


def test_training_has_no_case_where_inference_has_none():
    row = {"name": "hf/m", "backend": "pliant", "device": "cpu"}
    done = {zoo.key(row | {"mode": "inference"}): {"none": "too large", "mode": "inference"}}
    assert zoo.no_case(row | {"mode": "training"}, done) == {"none": "too large"}
    assert zoo.no_case(row | {"mode": "inference"}, done) == {} == zoo.no_case(row | {"mode": "training", "device": "cuda"}, done)


class InFloat32(nn.Module):
    """Computes in float32, whatever its weights are."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x.float())


def test_a_model_without_float64_is_measured_by_eager():
    inputs = {"x": torch.ones(2, 3)}
    eager, same, other = InFloat32(), InFloat32(), InFloat32()
    same.load_state_dict(eager.state_dict())
    other.load_state_dict(eager.state_dict())
    first = zoo.step(eager, eager, inputs, training=True)
    assert zoo.nudged((eager, eager), (same, same), inputs, (first, first))["right"]
    doubled = lambda x: 2 * other(x) - other(x).detach()  # noqa: E731
    assert not zoo.nudged((eager, eager), (other, doubled), inputs, (first, first))["right"]
