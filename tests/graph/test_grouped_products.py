"""Products of groups of rows, columns or parts of the sum: compiled whole, in eager's layout, refused where eager refuses."""

import pytest
import torch

import pliant

ENDS = torch.tensor([4, 4, 12], dtype=torch.int32)
OPERANDS = {
    "rows": lambda: (torch.randn(12, 16), torch.randn(3, 16, 8), ENDS),
    "rows by turned weights": lambda: (torch.randn(12, 16), torch.randn(3, 5, 16).transpose(1, 2), ENDS),
    "columns": lambda: (torch.randn(3, 5, 16), torch.randn(16, 16), torch.tensor([4, 4, 16], dtype=torch.int32)),
    "sums": lambda: (torch.randn(12, 16), torch.randn(16, 8), torch.tensor([3, 9, 16], dtype=torch.int32)),
    "each its own": lambda: (torch.randn(3, 5, 16), torch.randn(3, 16, 8), None),
}


def grouped(a, b, ends):
    return torch._grouped_mm(a, b, offs=ends)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", OPERANDS)
def test_grouped_products(name, dtype):
    a, b, ends = OPERANDS[name]()
    given = a.to(dtype), b.to(dtype), ends
    wanted, found = grouped(*given), pliant.compile(grouped, fullgraph=True)(*given)
    assert torch.equal(found, wanted) and found.stride() == wanted.stride()


def test_rows_that_begin_elsewhere_are_refused():
    a, b = torch.randn(12, 16), torch.randn(3, 16, 5)
    for fn in (grouped, pliant.compile(grouped)):
        with pytest.raises(RuntimeError, match="multiple of 16 bytes"):
            fn(a, b, ENDS)
