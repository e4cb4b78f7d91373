"""Write a backend: it gets the captured graph and returns what runs it.

python examples/backend.py
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

import pliant

seen: Counter[str] = Counter()


def counting(module: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Counts the operations of the graph, then runs it as it is."""
    seen.update(str(n.target) for n in module.graph.nodes if n.op in ("call_function", "call_method"))
    return module.forward


@pliant.compile(backend=counting)
def normalize(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean()) / (x.std() + 1e-6)


def main() -> Counter[str]:
    x = torch.randn(100)
    torch.testing.assert_close(normalize(x), (x - x.mean()) / (x.std() + 1e-6))
    print("operations:", dict(seen))
    return seen


if __name__ == "__main__":
    main()
