"""The models that are measured: random weights, no dropout, inputs by size.

In:     a name.
Out:    `Model`: how to build it and its inputs, and the sizes it meets (the first is the standard one).
"""

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

VOCABULARY = 4096
TEXT_SIZES = ((4, 128), (2, 96), (8, 64), (3, 160), (5, 200))
IMAGE_SIZES = ((4, 128), (2, 128), (8, 128), (3, 128), (6, 128))
ROW_SIZES = ((512, 256), (64, 256), (1000, 256), (333, 256), (777, 256))

Inputs = Callable[[int, int], dict[str, Tensor]]


@dataclass(frozen=True)
class Model:
    """One model of the suite."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Inputs
    sizes: tuple[tuple[int, int], ...]


def token_ids(batch: int, length: int) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(10, VOCABULARY, (batch, length))}


def labelled_ids(batch: int, length: int) -> dict[str, Tensor]:
    return {**token_ids(batch, length), "labels": torch.randint(10, VOCABULARY, (batch, length))}


def image(batch: int, side: int) -> dict[str, Tensor]:
    return {"x": torch.randn(batch, 3, side, side)}


def rows(count: int, width: int) -> dict[str, Tensor]:
    return {"x": torch.randn(count, width)}


def hugging_face(model: str, config: str, **sizes: object) -> Callable[[], nn.Module]:
    """A transformers model made when it is asked for."""

    def build() -> nn.Module:
        sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]  # imported where installed, not needed
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(vocab_size=VOCABULARY, **sizes))

    return build


class Mlp(nn.Module):
    """Residual blocks of layer norm, linear, GELU, linear."""

    def __init__(self, width: int = 256, hidden: int = 1024, depth: int = 4) -> None:
        super().__init__()
        parts = (nn.LayerNorm, nn.Linear, nn.GELU, nn.Linear)
        sizes = ((width,), (width, hidden), (), (hidden, width))
        self.blocks = nn.ModuleList(
            nn.Sequential(*(part(*size) for part, size in zip(parts, sizes, strict=True))) for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


class ConvNet(nn.Module):
    """Convolution, batch norm, ReLU, four times; then a mean and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 64, 128, 128)
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Conv2d(before, after, 3, 2, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        self.body, self.head = nn.Sequential(*layers), nn.Linear(widths[-1], 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class Chain(nn.Module):
    """Many small modules: what a call costs beside its kernels."""

    def __init__(self, depth: int = 1) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Scale() for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x) * self.weight


MODELS = {
    model.name: model
    for model in (
        Model("mlp", Mlp, rows, ROW_SIZES),
        Model("convnet", ConvNet, image, IMAGE_SIZES),
        Model(
            "bert",
            hugging_face(
                "BertForMaskedLM", "BertConfig", hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
                intermediate_size=1024, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            ),
            labelled_ids,
            TEXT_SIZES,
        ),
        Model(
            "gpt2",
            hugging_face(
                "GPT2LMHeadModel", "GPT2Config", n_embd=256, n_layer=4, n_head=4, n_positions=512, use_cache=False,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2,
            ),
            labelled_ids,
            TEXT_SIZES,
        ),
        Model(
            "llama",
            hugging_face(
                "LlamaForCausalLM", "LlamaConfig", hidden_size=256, intermediate_size=704, num_hidden_layers=4,
                num_attention_heads=8, num_key_value_heads=2, head_dim=32, max_position_embeddings=512, use_cache=False,
            ),
            token_ids,
            TEXT_SIZES,
        ),
    )
}  # fmt: skip
