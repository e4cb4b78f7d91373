"""Maxima over small windows, and their gradients where windows do not overlap, are loops; they are eager's to the bit."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events

WINDOWS = [(2,), (3, 2, 1), (2, 1), ((2, 3), (3, 1), (1, 0)), (2, 2, 1, 1, True), (3, 2, 0, 1, True), (2, 3)]


def images(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Images in which equal values, infinities and more than one NaN fall into a window."""
    torch.manual_seed(0)
    x = torch.randn(shape)
    x[..., 1, :, :] = x[..., 1, :, :].round()
    x[..., 0, 0, :4] = float("nan")
    x[..., 0, 3, 5:9] = -float("inf")
    x[..., -1, :3, :] = -0.0
    return x.to(dtype)


def same(x: torch.Tensor, window, dynamic: bool = False) -> str:
    """The loop programs of a call whose values, positions, layouts and gradients are eager's."""

    def f(x):
        values, positions = F.max_pool2d(x.relu() - 1, *window, return_indices=True)
        return values, positions

    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    with events.collect("loops") as found:
        got, at = pliant.compile(f, dynamic=dynamic, fullgraph=True)(ours)
        expected, where = f(theirs)
        grad = torch.randn(got.shape).to(x.dtype)
        got.backward(grad)
        expected.backward(grad)
    assert torch.equal(at, where) and at.stride() == where.stride() and got.stride() == expected.stride()
    torch.testing.assert_close(got, expected, atol=0, rtol=0, equal_nan=True)
    torch.testing.assert_close(ours.grad, theirs.grad, equal_nan=True)
    assert ours.grad.stride() == theirs.grad.stride()
    return "\n".join(one.fields["text"] for one in found)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels last"])
def test_values_positions_and_gradients(window, last):
    x = images(2, 3, 16, 45)
    text = same(x.to(memory_format=torch.channels_last) if last else x, window)
    assert "aten.max_pool2d_with_indices.default" not in text
    overlap = "max_pool2d_with_indices_backward" in text
    assert overlap == (window in [(3, 2, 1), (2, 1), ((2, 3), (3, 1), (1, 0)), (3, 2, 0, 1, True)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [7, 32, 51])
def test_dtypes(dtype, width):
    assert "aten." not in same(images(3, 9, width, dtype=dtype), (2,))


def test_number_of_images_may_be_a_symbol():
    def f(x):
        return F.max_pool2d(x, 2) * 2

    compiled = pliant.compile(f, fullgraph=True)
    for n in (2, 3, 5, 0):
        x = images(4, 2, 8, 34)[:n]
        torch.testing.assert_close(compiled(x), f(x), atol=0, rtol=0, equal_nan=True)
    same(images(2, 2, 8, 34), (2,), dynamic=True)


def test_errors_are_eagers():
    compiled = pliant.compile(lambda x: F.max_pool2d(x, 9))
    with pytest.raises(RuntimeError, match="too small"):
        compiled(torch.randn(1, 2, 4, 4))


def test_gradients_go_where_positions_say():
    """Positions are data, as of another image."""
    backward = torch.ops.aten.max_pool2d_with_indices_backward

    def f(grad, x, at):
        return backward(grad, x, [2, 2], [2, 2], [0, 0], [1, 1], False, at)

    x = torch.randn(1, 2, 4, 64)
    _, at = F.max_pool2d(-x, 2, return_indices=True)
    grad = torch.randn(at.shape)
    torch.testing.assert_close(pliant.compile(f)(grad, x, at), f(grad, x, at))


@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels last"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_positions_may_be_outside_their_windows(batch, last):
    backward = torch.ops.aten.max_pool2d_with_indices_backward

    def f(grad, x, at):
        return backward(grad, x, [2, 2], [2, 2], [0, 0], [1, 1], False, at)

    def of_other_windows(grad, x, at):
        _, found = F.max_pool2d(x, 2, 1, return_indices=True)
        return f(grad, x, found[..., ::2, ::2].flip(-1).contiguous())

    x = torch.randn(*batch, 2, 4, 8)
    x = x.to(memory_format=torch.channels_last) if last and batch else x
    grad, at = torch.randn(*batch, 2, 2, 4), torch.randint(0, 32, (*batch, 2, 2, 4))
    for one in (f, of_other_windows):
        found, expected = pliant.compile(one, fullgraph=True)(grad, x, at), one(grad, x, at)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()


@pytest.mark.spread(2, "options", "last", "dynamic")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "options",
    [(2,), (3, 1, 1), (3, 2, 1), (2, 3), ((2, 3), (1, 2), (1, 0)), (3, 2, 1, False, True, 5), (3, 2, 0, True, False, 4)],
    ids=str,
)
@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels last"])
def test_gradients_of_averages(options, last, dynamic):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 13, 20)
    x = x.to(memory_format=torch.channels_last) if last else x
    with events.collect("loops") as programs:
        found = []
        for f in (F.avg_pool2d, pliant.compile(F.avg_pool2d, dynamic=dynamic, fullgraph=True)):
            given = x.clone().requires_grad_()
            y = f(given, *options)
            y.backward((torch.arange(y.numel()) % 7 - 3.0).reshape(y.shape))
            found.append(given.grad)
    torch.testing.assert_close(found[1], found[0], check_stride=True)
    assert "aten." not in "\n".join(e.fields["text"] for e in programs)
