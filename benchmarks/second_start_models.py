"""The models whose second start is measured, beside those of `benchmarks.models`: functions and small networks of our own, and
of transformers what is small, or as large as it is used.

In:     a name of `NAMES`, or a public model's (`hf/bert`).
Out:    `built`: the model, or function, and the arguments of a call.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks import zoo_models
from benchmarks.models import MODELS, VOCABULARY
from benchmarks.zoo import without_dropout

_TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "use_cache": False,
}  # fmt: skip
_DECODER: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "use_cache": False, "max_position_embeddings": 128,
}  # fmt: skip
# Of transformers: model class, configuration class, its values.
HUGGING_FACE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert-base": ("BertModel", "BertConfig", {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
    "albert": ("AlbertModel", "AlbertConfig", {**_TEXT, "embedding_size": 32}),
    "roberta": ("RobertaModel", "RobertaConfig", _TEXT),
    "electra": ("ElectraModel", "ElectraConfig", {**_TEXT, "embedding_size": 32}),
    "distilbert": (
        "DistilBertModel", "DistilBertConfig",
        {"vocab_size": VOCABULARY, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "dropout": 0.0,
         "attention_dropout": 0.0},
    ),
    "mistral": ("MistralForCausalLM", "MistralConfig", _DECODER),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {k: v for k, v in _DECODER.items() if k != "head_dim"}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", _DECODER),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {k: v for k, v in _DECODER.items() if "key" not in k}),
    "opt": (
        "OPTForCausalLM", "OPTConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "dropout": 0.0, "use_cache": False, "word_embed_proj_dim": 64, "max_position_embeddings": 128},
    ),
}  # fmt: skip


class Residual(nn.Module):
    """A small network of residual blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(8) for _ in range(6)])
        self.convolutions = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in range(6)])
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            x = x + torch.relu(norm(convolution(x)))
        found: torch.Tensor = self.head(x.mean((2, 3)))
        return found


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


def _function(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x * 2) + x.sin().sum(-1, keepdim=True)


def _image() -> dict[str, Any]:
    return {"x": torch.randn(2, 3, 16, 16)}


OWN: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]]]] = {
    "function": (lambda: _function, lambda: {"x": torch.randn(64, 64)}),
    "residual": (Residual, _image),
    "encoder": (_encoder, lambda: {"src": torch.randn(2, 16, 64)}),
    "autoencoder": (
        lambda: nn.Sequential(nn.Linear(64, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 64), nn.Sigmoid()),
        lambda: {"input": torch.randn(8, 64)},
    ),
    "gru": (lambda: _Recurrent(), lambda: {"x": torch.randn(2, 5, 16)}),
}


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(x.shape[0], 16, device=x.device)
        for step in x.unbind(1):
            h = self.cell(step, h)
        return h


NAMES = ["function", "mlp", "autoencoder", "residual", "convnet", "encoder", "gru", "bert", "gpt2", "llama", *HUGGING_FACE]


def built(name: str) -> tuple[Any, dict[str, Any]]:
    """The model, or function, and the arguments of a call."""
    torch.manual_seed(0)
    if name in OWN:
        build, inputs = OWN[name]
        return build(), inputs()
    if "/" in name:
        case = case_of(name)
        made = without_dropout(case.build())
        return made, case.inputs(copy.deepcopy(made).eval(), case.sizes[0])
    if name in MODELS:
        model = MODELS[name]
        return model.build(), model.inputs(*model.sizes[0])
    import transformers

    kind, configuration, values = HUGGING_FACE[name]
    made = getattr(transformers, kind)(getattr(transformers, configuration)(**values))
    return made, {"input_ids": torch.randint(10, VOCABULARY, (2, 16))}


@functools.cache
def case_of(name: str) -> zoo_models.Case:
    """A public model that runs; asked for before processes are forked, it is looked for once. NoCase. On one thread: what
    OpenMP has started does not live on in a fork."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return zoo_models.find_case(name)
    finally:
        torch.set_num_threads(threads)


def without_case(name: str) -> str | None:
    """Why the public model cannot be run; None if it can."""
    try:
        return None if "/" not in name or case_of(name) else ""
    except zoo_models.NoCase as error:
        return f"no case: {error}"[:120]
