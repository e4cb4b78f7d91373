"""Convolutions of 1x1 whose images lie channels last are products of matrices, where these are faster."""

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.debug import events
from pliant.targets import registry

HALF = frozenset((torch.bfloat16,))


@pytest.fixture(autouse=True)
def products():
    there = registry.target_of(torch.device("cpu"))
    target = dataclasses.replace(
        there, products_of_1x1=HALF, images_last=HALF, convolution_biases_apart=True, packs_weights=False, depthwise_gradients=False
    )  # fmt: skip
    registry.provide("cpu", lambda _: target)
    pliant.reset()
    yield
    registry.provide("cpu", lambda _: there)
    pliant.reset()


def graphs(model, *images):
    """The text of the graphs of calls that agree with eager in results, gradients and their strides."""
    model = model.bfloat16()
    compiled, exact = pliant.compile(copy.deepcopy(model)), copy.deepcopy(model).double()
    with events.collect("partition") as found:
        for x in images:
            results = []
            for one, dtype in ((model, torch.bfloat16), (compiled, torch.bfloat16), (exact, torch.float64)):
                x = x.detach().to(dtype).requires_grad_()
                y = one(x)
                results.append([y, *torch.autograd.grad(y.square().sum(), (x, *one.parameters()))])
            for eager, mine, right in zip(*results, strict=True):
                assert mine.stride() == eager.stride()
                off, most = ((t.double() - right).norm() / right.norm() for t in (mine, eager))
                assert off <= 2 * most + 1e-3
    assert pliant.stats()["fallbacks"] == 0
    return "\n".join(str(one.fields["text"]) for one in found)


class Block(nn.Module):
    """An inverted residual with what weighs its channels."""

    def __init__(self):
        super().__init__()
        self.wide, self.deep, self.narrow = nn.Conv2d(8, 24, 1), nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.Conv2d(24, 8, 1, bias=False)
        self.down, self.up = nn.Conv2d(24, 6, 1), nn.Conv2d(6, 24, 1)

    def forward(self, x):
        y = F.silu(self.deep(F.silu(self.wide(x))))
        y = y * self.up(F.silu(self.down(y.mean((2, 3), keepdim=True)))).sigmoid()
        return x + self.narrow(y)


def calls(text, name):
    return sum(f"aten.{name}.default(" in line for line in text.splitlines())


LAST = torch.channels_last


@pytest.mark.parametrize("layout, left", [(LAST, 1), (torch.contiguous_format, 3)], ids=["last", "row-major"])
def test_all_convolutions_of_a_block_but_the_deep_one(layout, left):
    """Row-major images of several positions are no matrices; the deep one is no product."""
    torch.manual_seed(0)
    text = graphs(Block(), torch.randn(4, 8, 6, 5).to(memory_format=layout))
    counts = calls(text, "convolution"), calls(text, "convolution_backward"), calls(text, "mm")
    assert counts == (left, left, 3 * (5 - left))


def test_sizes_that_vary():
    torch.manual_seed(0)
    text = graphs(Block(), *(torch.randn(n, 8, 4 + n, 5).to(memory_format=LAST) for n in (2, 3, 5)))
    assert calls(text, "convolution") == calls(text, "convolution_backward") == 2  # at the first size, and at every size


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(8, 8, 1, stride=2), nn.Conv2d(8, 8, 1, padding=1), nn.Conv2d(8, 8, 1, groups=2), nn.Conv2d(8, 8, (1, 3)),
        nn.ConvTranspose2d(8, 8, 1),
    ],
    ids=["stride", "padding", "groups", "wider", "transposed"],
)  # fmt: skip
def test_others_are_the_librarys(layer):
    torch.manual_seed(0)
    text = graphs(nn.Sequential(layer, nn.SiLU()), torch.randn(2, 8, 6, 5).to(memory_format=torch.channels_last))
    assert calls(text, "mm") == 0


def test_other_dtypes_are_the_librarys():
    model, x = nn.Conv2d(8, 8, 1), torch.randn(2, 8, 6, 5).to(memory_format=torch.channels_last)
    with events.collect("partition") as found:
        torch.testing.assert_close(pliant.compile(model)(x), model(x))
    assert calls(str(found[0].fields["text"]), "mm") == 0


def test_in_inference():
    torch.manual_seed(0)
    model, x = Block().bfloat16(), torch.randn(4, 8, 6, 5).bfloat16()
    with torch.no_grad(), events.collect("partition") as found:
        torch.testing.assert_close(pliant.compile(model)(x), model(x), rtol=2e-2, atol=2e-2)
    text = str(found[0].fields["text"])
    assert (calls(text, "convolution"), calls(text, "mm")) == (1, 4)
