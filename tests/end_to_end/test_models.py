"""Models of the ecosystem with random weights: one graph, right values and gradients, sizes that change."""

import pytest
import torch

import pliant

transformers = pytest.importorskip("transformers")


def tokens(batch, length, seed=0):
    return torch.randint(10, 128, (batch, length), generator=torch.Generator().manual_seed(seed))


def language_model(name, **config):
    made = getattr(transformers, f"{name}Config")(vocab_size=128, **config)
    kinds = {
        "Bert": "BertForMaskedLM",
        "GPT2": "GPT2LMHeadModel",
        "Llama": "LlamaForCausalLM",
        "DistilBert": "DistilBertForMaskedLM",
    }
    return getattr(transformers, kinds[name])(made)


MODELS = {
    "bert": lambda: language_model(
        "Bert", hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    ),
    "gpt2": lambda: language_model(
        "GPT2", n_embd=32, n_layer=2, n_head=2, n_positions=64, use_cache=False, bos_token_id=1, eos_token_id=2
    ),
    "llama": lambda: language_model(
        "Llama",
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
    ),
    "distilbert": lambda: language_model("DistilBert", dim=32, hidden_dim=64, n_layers=2, n_heads=2),
}


def build(name):
    torch.manual_seed(0)
    model = MODELS[name]()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_inference_with_changing_sizes(name):
    pliant.reset()
    model = build(name).eval()
    compiled = pliant.compile(model)
    with torch.no_grad():
        for batch, length in ((2, 16), (2, 16), (3, 12), (4, 20), (5, 9)):
            ids = tokens(batch, length)
            torch.testing.assert_close(
                compiled(input_ids=ids).logits, model(input_ids=ids).logits, rtol=1e-4, atol=1e-5
            )
    stats = pliant.stats()
    assert stats["graph_breaks"] == 0, stats["break_reasons"]
    assert stats["fallbacks"] == 0, stats["fallback_reasons"]
    assert stats["recompiles"] <= 1, stats["recompile_reasons"]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_training_step(name):
    pliant.reset()
    eager, model = build(name).train(), build(name).train()
    compiled = pliant.compile(model)
    for seed, size in enumerate(((2, 16), (3, 12))):
        ids = tokens(*size, seed)
        losses = [m(input_ids=ids, labels=ids).loss for m in (eager, compiled)]
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
        for loss in losses:
            loss.backward()
    for (key, want), got in zip(eager.named_parameters(), model.parameters()):
        torch.testing.assert_close(
            got.grad, want.grad, rtol=1e-3, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}"
        )
    assert pliant.stats()["fallbacks"] == 0


class ConvNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.BatchNorm2d(8)
        self.conv2, self.bn2 = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False), torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.nn.functional.max_pool2d(torch.relu(self.bn2(self.conv2(x)) + x), 2)
        return self.head(x.mean((2, 3)))


def test_batch_norm_statistics_are_written_back():
    pliant.reset()
    torch.manual_seed(0)
    eager = ConvNet().train()
    model = ConvNet().train()
    model.load_state_dict(eager.state_dict())
    compiled = pliant.compile(model)
    for batch in (2, 4, 3):
        x = torch.randn(batch, 3, 8, 8)
        a, b = eager(x), compiled(x)
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)
        a.square().sum().backward()
        b.square().sum().backward()
    for (key, want), got in zip(eager.state_dict().items(), model.state_dict().values()):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}")
    for want, got in zip(eager.parameters(), model.parameters()):
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-3, atol=1e-4)
