"""Images whose edges are continued, rows that are turned or repeated: loops whose results are eager's, and lie as eager's."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from lowering.tracing import lowered
from pliant.debug import events
from pliant.ir.loops import Pointwise
from pliant.ir.scalar import Apply, walk


def same(function, x: torch.Tensor, dynamic: bool, calls: bool = False) -> None:
    """Values and strides are eager's, errors of gradients at most twice eager's; `calls`: images are padded by the library."""
    torch.manual_seed(0)
    with events.collect("extern") as called:
        ours, theirs, exact = (x.detach().clone().to(t).requires_grad_() for t in (x.dtype, x.dtype, torch.float64))
        found, expected = pliant.compile(function, dynamic=dynamic)(ours), function(theirs)
        assert torch.equal(found, expected) and found.stride() == expected.stride()
        grad = torch.randn(found.shape).to(x.dtype)
        found.backward(grad)
    assert bool(called) is calls and not any("backward" in one.fields["name"] for one in called)
    expected.backward(grad)
    function(exact).backward(grad.double())
    error, allowed = ((g.double() - exact.grad).abs().max() for g in (ours.grad, theirs.grad))
    assert error <= 2 * allowed + 1e-7 and ours.grad.stride() == theirs.grad.stride()


@pytest.mark.spread(2, "mode", "dtype", "last", "dynamic")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels last"])
def test_images(mode, dtype, last, dynamic):
    for width in (21, 37):  # short rows, and those that are copied
        x, calls = torch.randn(2, 3, 9, width).to(dtype), width > 32 or dynamic
        x = x.to(memory_format=torch.channels_last) if last else x
        same(lambda a: F.pad(a, (2, 3, 1, 0), mode=mode), x, dynamic, calls)
        same(lambda a: F.pad(a * 2, (0, 3, 4, 8), mode=mode), x, dynamic, calls)
        same(lambda a: F.pad(a, (8, 0, 0, 1), mode=mode).relu(), x, dynamic, calls)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize(("shape", "padding"), [((2, 3, 300), (3, 4)), ((3, 20), (4, 0)), ((2, 3, 4, 5, 20), (1, 2, 1, 1, 2, 0))])
def test_signals_and_volumes(mode, shape, padding):
    for dtype in (torch.float32, torch.float16):
        same(lambda a: F.pad(a, padding, mode=mode), torch.randn(shape).to(dtype), False)


def test_an_edge_as_wide_as_the_image_is_refused_as_by_eager():
    function = pliant.compile(lambda a: F.pad(a, (5, 0), mode="reflect"))
    with pytest.raises(RuntimeError, match="Padding size should be less"):
        function(torch.randn(2, 3, 5))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.int8])
def test_rows_turned_and_repeated(dtype, dynamic):
    x = (torch.randn(6, 300) * 10).to(dtype)
    functions = [lambda a, s=s: a.roll(s, 1) for s in (0, 1, -1, 299, 300, 301, -305, 33)]
    functions += [lambda a: a.roll((2, -5), (0, 1)), lambda a: a.t().roll((2, -5), (0, 1)), lambda a: a.repeat(2, 3)]
    functions += [lambda a: a.repeat(2, 2, 1), lambda a: a.t().repeat(2, 3), lambda a: (a + a).repeat(3, 1, 2)]
    functions += [lambda a: a[:, :1].repeat(2, 3), lambda a: (a + a)[:1].repeat(2, 3)]
    for function in functions:
        found, expected = pliant.compile(function, dynamic=dynamic)(x), function(x)
        assert torch.equal(found, expected) and found.stride() == expected.stride()


def test_nothing_is_divided_to_find_an_element():
    x = torch.randn(8, 300)
    for function in (lambda a: a.repeat(2, 3), lambda a: a.roll(7, 1)):
        loops = [c for c in lowered(function, x).computations if isinstance(c, Pointwise)]
        assert not any("%" in str(one) for c in loops for one in (c.index, *walk(c.value)))


def test_halves_that_are_moved_are_not_converted():
    x, y = torch.randn(4, 40).bfloat16(), torch.randn(4, 40).bfloat16()
    (loop,) = lowered(lambda a, b: torch.cat([a, b], 1), x, y).computations
    assert not any(isinstance(one, Apply) and one.op == "cast" for one in walk(loop.value))
    special = torch.tensor([0x7FC1, 0x7F81, -0x7F, 1, -32768], dtype=torch.int16).view(torch.bfloat16).repeat(8)
    for function in (lambda a: F.pad(a, (3, 5)), lambda a: torch.cat([a, a.flip(0)]), lambda a: a.roll(3, 0)):
        found, expected = pliant.compile(function)(special), function(special)
        assert torch.equal(found.view(torch.int16), expected.view(torch.int16))
