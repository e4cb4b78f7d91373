"""What is the same at all positions is not read without a look at the position."""

import pytest
import torch
import torch.nn.functional as F

import pliant

ROW = torch.tensor([[1.5, -2.0]])
TABLES = {
    "embedding of ones": lambda i: F.embedding(i, torch.ones(4, 2)),
    "ones": lambda i: torch.ones(4)[i],
    "two positions": lambda i: (torch.zeros(4, 4) + ROW[0, 0])[i, i],
    "gather": lambda i: torch.gather(torch.zeros(4), 0, i),
    "rows": lambda i: torch.full((4, 3), 2.0).index_select(0, i),
    "classes": lambda i: F.cross_entropy(torch.zeros(3, 4), i),
    "an expanded row": lambda i: ROW.expand(4, 2)[i],
    "an expanded table": lambda i: F.embedding(i, ROW.expand(4, 2)),
    "half": lambda i: torch.full((4,), 0.1, dtype=torch.bfloat16)[i] * 3,
    "positions": lambda i: torch.arange(4)[i],
}


@pytest.mark.parametrize("name", TABLES)
def test_positions_outside_are_errors(name):
    function = TABLES[name]
    compiled = pliant.compile(function, fullgraph=True)
    for inside in ([0, 1, 2], [3, 3, 0]):
        torch.testing.assert_close(compiled(torch.tensor(inside)), function(torch.tensor(inside)), rtol=0, atol=0)
    for outside in ([0, 1, 4], [9, 0, 0]):
        with pytest.raises((IndexError, RuntimeError)) as expected:
            function(torch.tensor(outside))
        with pytest.raises(expected.type):
            compiled(torch.tensor(outside))
