"""Images made larger, and channels laid out as positions, are loops: eager's values, layouts and gradients."""

import re

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events

SHAPES = {
    "nearest": [(2, 3, 7), (2, 3, 8, 5), (1, 2, 3, 4, 5)],
    "nearest-exact": [(2, 3, 8, 5)],
    "linear": [(2, 3, 7)],
    "bilinear": [(2, 3, 8, 5), (1, 2, 1, 1), (2, 3, 20, 40)],
    "trilinear": [(1, 2, 3, 4, 5)],
}
FACTORS = {"nearest": (2, 3), "nearest-exact": (5,), "linear": (2, 4), "bilinear": (2, 8, (1, 4)), "trilinear": (2,)}
LARGER = [
    (mode, shape, k) for mode, shapes in SHAPES.items() for shape in shapes for k in FACTORS[mode]
]  # fmt: skip


def same(f, x: torch.Tensor, dynamic: bool) -> str:
    """Compares values, layouts and gradients, and gives the loop programs."""
    found = []
    with events.collect("loops") as programs:
        for call in (f, pliant.compile(f, dynamic=dynamic)):
            given = x.clone(memory_format=torch.preserve_format).requires_grad_()
            y = call(given)
            y.backward((torch.arange(y.numel()) % 11 - 5.0).reshape(y.shape).to(y.dtype))
            found.append((y, given.grad))
    for ours, eager in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, eager, check_stride=True)
    return "\n".join(e.fields["text"] for e in programs)


@pytest.mark.spread(2, "dynamic", "k")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("mode", "shape", "k"), LARGER, ids=str)
def test_larger_images(mode, shape, k, dynamic):
    torch.manual_seed(0)
    text = same(lambda x: F.interpolate(x, scale_factor=k, mode=mode), torch.randn(shape), dynamic)
    assert "aten." not in text


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_types_and_channels_last(mode, dtype):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6, 20, dtype=dtype)
    for given in (x, x.to(memory_format=torch.channels_last)):
        same(lambda x: F.interpolate(x, scale_factor=2, mode=mode), given, False)


@pytest.mark.parametrize(
    "options",
    [{"size": (11, 9)}, {"scale_factor": 1.5}, {"scale_factor": 2, "align_corners": True}, {"scale_factor": 3}],
    ids=str,
)
def test_other_positions_are_the_library_s(options):
    torch.manual_seed(0)
    assert "upsample_bilinear2d" in same(
        lambda x: F.interpolate(x, mode="bilinear", **options), torch.randn(2, 3, 8, 7), False
    )


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("k", [2, 3])
def test_channels_as_positions(k, dynamic):
    torch.manual_seed(0)
    assert "aten." not in same(lambda x: F.pixel_shuffle(x, k), torch.randn(2, 2 * k * k, 5, 21), dynamic)
    assert "aten." not in same(lambda x: F.pixel_unshuffle(x, k), torch.randn(2, 3, 5 * k, 21 * k), dynamic)


def resized_by_tensors(table, grid):
    """Rows of a table of positions, resized to each image's size, which a tensor of integers tells."""
    image = table[1:].reshape(1, 8, 8, 4).permute(0, 3, 1, 2)
    made = [F.interpolate(image, size=(h, w), mode="bilinear", align_corners=False) for h, w in grid]
    return torch.cat([one.permute(0, 2, 3, 1).reshape(1, -1, 4).squeeze(0) for one in made])


def test_sizes_in_tensors_resize_by_one_operator_that_gets_eagers_layout():
    pliant.reset()
    compiled, table = pliant.compile(resized_by_tensors), torch.rand(65, 4, requires_grad=True)
    texts = []
    for sizes in ([[2, 3], [4, 4]], [[5, 2], [3, 7]]):
        grid = torch.tensor(sizes)
        with events.collect("output_code") as seen:
            result = compiled(table, grid)
            (gradient,) = torch.autograd.grad(result.square().sum(), table)
        wanted = resized_by_tensors(table, grid)
        torch.testing.assert_close(result, wanted)
        torch.testing.assert_close(gradient, torch.autograd.grad(wanted.square().sum(), table)[0])
        texts += [event.fields["text"] for event in seen]
    calls = re.findall(r"upsample_bilinear2d_backward\w*\((.*)\)", "\n".join(texts))
    assert len(calls) == 2 and all(re.search(r"as_strided\(\(1, 4, [su]\d+, [su]\d+,\), \((?!1,)", call) for call in calls), (
        calls
    )
    assert pliant.stats()["graphs"] == 1 and pliant.stats()["fallbacks"] == 0
