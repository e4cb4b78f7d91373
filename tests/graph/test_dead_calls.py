"""Calls that nothing reads raise as eager does where their data is wrong, and are dropped where they cannot raise."""

import pytest
import torch
import torch.nn.functional as F

import pliant

CALLS = {
    "index_select": lambda x, i: torch.index_select(x, 0, i),
    "embedding": lambda x, i: F.embedding(i, x),
    "gather": lambda x, i: torch.gather(x, 1, i[None]).sum(),
    "index": lambda x, i: x[i],
    "index_put": lambda x, i: x.index_put((i,), x[:2]),
    "scatter": lambda x, i: x.scatter(1, i[None], 1.0),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:2], i),
    "division": lambda x, i: i // (i - i),
    "svd": lambda x, i: torch.linalg.svd(x * torch.nan),
}


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_error_stays(name, train):
    def f(x, i):
        CALLS[name](x, i)
        return x * 2

    x, i = torch.randn(4, 6, requires_grad=train), torch.tensor([0, 9])
    with pytest.raises(Exception) as wanted:
        f(x, i)
    with pytest.raises(type(wanted.value)) as found:
        pliant.compile(f)(x, i)
    assert str(found.value) == str(wanted.value)


WITHOUT_KERNEL = {
    "topk": lambda x: torch.topk(x * 1j, 1), "topk of flags": lambda x: torch.topk(x > 0, 1), "sort": lambda x: torch.sort(x * 1j),
    "product of flags": lambda x: (x > 0) @ (x > 0), "maximum": lambda x: (x * 1j).amax(), "softmax": lambda x: (x * 1j).softmax(0),
    "sums of integers": lambda x: x.long().logcumsumexp(0), "pooled integers": lambda x: F.adaptive_avg_pool2d(x.long()[None], 2),
    "distances of halves": lambda x: torch.cdist(x.half(), x.half()), "normalized": lambda x: F.layer_norm(x * 1j, (2,)),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_KERNEL)
def test_types_without_a_kernel_are_probed(name):
    def program(x):
        try:
            WITHOUT_KERNEL[name](x)
        except (RuntimeError, NotImplementedError):
            return x + 1
        return x + 2

    assert torch.equal(pliant.compile(program)(torch.ones(2, 2)), program(torch.ones(2, 2)))


def test_classes_are_checked():
    one_hot = pliant.compile(lambda i, n: F.one_hot(i, n), dynamic=True)
    for n in (3, 4, 7):
        i = torch.tensor([[0, 1, n - 1]])
        assert torch.equal(one_hot(i, n), F.one_hot(i, n))
    for i, words in (([3], "smaller than num_classes"), ([-1], "non-negative")):
        with pytest.raises(RuntimeError, match=words):
            one_hot(torch.tensor(i), 3)
    assert one_hot(torch.zeros(0, dtype=torch.int64), 3).shape == (0, 3)


def test_what_cannot_raise_is_dropped():
    def f(x):
        x.exp().cumsum(0)
        x // 3
        return x * 2

    pliant.reset()
    with pliant.debug.events.collect("partition") as found:
        pliant.compile(f)(torch.randn(3))
    assert found and all("exp" not in e.fields["text"] and "div" not in e.fields["text"] for e in found)
