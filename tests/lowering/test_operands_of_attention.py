"""Fused attention of GPUs reads operands that lie as eager's do."""

import pytest
import torch
from torch.nn import functional as F

from lowering.tracing import trace
from pliant.ir.loops import Extern
from pliant.lowering.lower import lower

aten = torch.ops.aten


def class_token(x, w):
    """A query of one row, whose strides nobody but the kernel asks for."""
    return (x[:, 0] @ w).unsqueeze(1).reshape(2, 1, 4, 16).permute(0, 2, 1, 3), x.view(2, 9, 4, 16).transpose(1, 2)


def attention(x, w, mask):
    q, kv = class_token(x, w)
    bias = F.pad(mask * 2, (0, 7))[..., :9].expand(2, 4, 1, 9)  # its rows begin at multiples of 16
    return aten._scaled_dot_product_efficient_attention(q, kv, kv, bias, True)[0]


@pytest.mark.parametrize("reads_mask", [False, True])
def test_strides_are_eagers(reads_mask):
    def f(x, w, mask):
        return attention(x, w, mask), (F.pad(mask * 2, (0, 7))[..., :9] + 1 if reads_mask else x.sum())

    args = torch.randn(2, 9, 64), torch.randn(64, 64), torch.randn(2, 1, 1, 9)
    program = lower(trace(f, args))
    (call,) = [c for c in program.computations if isinstance(c, Extern) and "attention" in str(c.target)]
    query, kv = class_token(*args[:2])
    found = [tuple(s.as_int() for s in v.strides) for v in call.args[:4]]
    assert found == [query.stride(), kv.stride(), kv.stride(), (16, 0, 16, 1)]
