"""See where capture stops and why, then write the function so that it does not.

python examples/graph_breaks.py
"""

import torch

import pliant


@pliant.compile
def branching(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:  # Python needs the value: a graph break
        return torch.sin(x)
    return torch.cos(x)


@pliant.compile(fullgraph=True)
def selecting(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.sum() > 0, torch.sin(x), torch.cos(x))


def breaks() -> int:
    return int(str(pliant.stats()["graph_breaks"]))


def main() -> tuple[int, int]:
    pliant.reset()
    x = torch.randn(8)
    first = branching(x)
    with_branch = breaks()
    torch.testing.assert_close(selecting(x), first)
    print(f"branch: {with_branch} breaks {pliant.stats()['break_reasons']}; where: {breaks() - with_branch}")
    return with_branch, breaks() - with_branch


if __name__ == "__main__":
    main()
