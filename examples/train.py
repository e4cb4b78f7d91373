"""Train a small classifier with a compiled model; batches differ in size.

python examples/train.py
"""

import torch
from torch import nn

import pliant


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Points on a plane and whether they lie inside a ring."""
    made = []
    for i in range(count):
        points = torch.randn(64 + 8 * (i % 5), 2)
        made.append((points, points.norm(dim=1).gt(1.0).long()))
    return made


def main() -> float:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 2))
    compiled = pliant.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for points, labels in batches(60):
        loss = nn.functional.cross_entropy(compiled(points), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.detach():.3f} after 60 steps; {pliant.stats()['graphs']} graphs compiled")
    return float(loss.detach())


if __name__ == "__main__":
    main()
