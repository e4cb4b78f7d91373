"""Programs for tests of entries on a GPU: a module that holds them, as programs do.

Each gives a model, the inputs of its calls, and whether it is trained.
"""

import torch
from torch import Tensor, nn


class Network(nn.Module):
    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 32)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(torch.nn.functional.gelu(self.norm(self.first(x))))).softmax(-1)


class Constant(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x * torch.tensor([0.5, -1.0, 2.0, 0.0], device=x.device)) + torch.arange(4, device=x.device)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.first(x)))).mean((2, 3))


def _called(model: nn.Module, *shapes: tuple[int, ...], training: bool = False) -> tuple[nn.Module, list[Tensor], bool]:
    torch.manual_seed(0)
    return model.cuda(), [torch.randn(shape, device="cuda") for shape in shapes], training


class Logits(nn.Sequential):
    """16 MB of results."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1 << 16, bias=False))


PROGRAMS = {
    "inference": lambda: _called(Network(), (8, 64)),
    "large results": lambda: _called(Logits(), (64, 64)),
    "training": lambda: _called(Network(), (8, 64), (8, 64), training=True),
    "autocast": lambda: _called(Network(), (8, 64), (8, 64), training=True),
    "dropout": lambda: _called(Network(0.4), (8, 64), (8, 64), training=True),
    "sizes": lambda: _called(Network(), (8, 64), (9, 64), (31, 64)),
    "lengths": lambda: _called(nn.Softmax(-1), (8, 70), (8, 90), (8, 300), (8, 30_000), (8, 70_000)),
    "constant": lambda: _called(Constant(), (8, 4)),
    "recorded": lambda: _called(Network(), *[(8, 64)] * 5),
    "convolutions": lambda: _called(Images(), (4, 3, 20, 20), (4, 3, 20, 20), training=True),
}
