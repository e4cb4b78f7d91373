"""Losses and their gradients are loops, with sizes that vary, and eager's in value."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events

ELEMENTS = {
    "smooth_l1": lambda x, y, w, how: F.smooth_l1_loss(x, y, beta=0.5, reduction=how),
    "smooth_l1 without width": lambda x, y, w, how: F.smooth_l1_loss(x, y, beta=0.0, reduction=how),
    "huber": lambda x, y, w, how: F.huber_loss(x, y, delta=0.5, reduction=how),
    "mse": lambda x, y, w, how: F.mse_loss(x, y, reduction=how),
    "soft_margin": lambda x, y, w, how: F.soft_margin_loss(x, (y - 0.5).sign(), reduction=how),
    "logits": lambda x, y, w, how: F.binary_cross_entropy_with_logits(x, y, reduction=how),
    "logits weighted": lambda x, y, w, how: F.binary_cross_entropy_with_logits(
        x, y, w, pos_weight=w + 1, reduction=how
    ),
}
CLASSES = {
    "plain": lambda x, t, w, how: F.cross_entropy(x, t, reduction=how),
    "weighted": lambda x, t, w, how: F.cross_entropy(x, t, w, reduction=how),
    "another number ignored": lambda x, t, w, how: F.nll_loss(
        x.log_softmax(1), t.clamp(0), w, ignore_index=1, reduction=how
    ),
}


def elements(rows: int, columns: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Differences of 0, of a width and of both signs among them."""
    x, y = torch.randn(rows, columns, dtype=dtype), torch.rand(rows, columns, dtype=dtype)
    x[0, :4] = y[0, :4] + torch.tensor([0, 0.5, -0.5, 90], dtype=dtype)
    return x, y, torch.rand(columns, dtype=dtype)


def classes(points: tuple[int, ...], number: int) -> tuple[torch.Tensor, ...]:
    target = torch.randint(0, number, points)
    target.view(-1)[0] = -100
    return torch.randn(points[0], number, *points[1:]), target, torch.rand(number)


def compare(f, compiled, args: tuple[torch.Tensor, ...]) -> str:
    """The loop programs of a call and its backward, which are eager's in value."""
    found = []
    with events.collect("loops") as programs:
        for one in (f, compiled):
            x = args[0].clone().requires_grad_()
            loss = one(x, *args[1:])
            found.append((loss, *torch.autograd.grad(loss.sum(), x)))
    tolerance = {torch.bfloat16: 2e-2}.get(args[0].dtype, 1e-5)
    torch.testing.assert_close(found[1], found[0], rtol=tolerance, atol=tolerance, equal_nan=True)
    return "\n".join(one.fields["text"] for one in programs)


@pytest.mark.spread(2, "how", "name")
@pytest.mark.parametrize("how", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", ELEMENTS)
def test_losses_of_elements(name, how):
    torch.manual_seed(0)

    def f(x, y, w):
        return ELEMENTS[name](x, y, w, how)

    compiled = pliant.compile(f, fullgraph=True, dynamic=True)
    before = pliant.stats()["graphs"]
    for shape in ((3, 5), (17, 33), (2, 70)):
        assert "aten." not in compare(f, compiled, elements(*shape, torch.float32))
    assert pliant.stats()["graphs"] == before + 1
    for dtype in (torch.float64, torch.bfloat16) if how == "mean" else ():
        assert "aten." not in compare(f, pliant.compile(f), elements(4, 9, dtype))


@pytest.mark.spread(2, "how", "name", "points")
@pytest.mark.parametrize("how", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("points", [(6,), (2, 5, 7)], ids=["rows", "images"])
def test_losses_of_classes(name, points, how):
    torch.manual_seed(0)

    def f(x, t, w):
        return CLASSES[name](x, t, w, how)

    assert "aten." not in compare(f, pliant.compile(f, fullgraph=True), classes(points, 4))


def test_a_weight_that_no_point_asks_for_may_be_infinite():
    def f(x, t, w):
        return F.cross_entropy(x, t, w)

    x, _, w = classes((6,), 4)
    w[0] = float("inf")  # what ignored points read
    compare(f, pliant.compile(f), (x, torch.tensor([-100, 1, 2, 3, 1, -100]), w))


def test_a_class_that_there_is_not():
    def f(x, t, w):
        return F.cross_entropy(x, t, w)

    x, t, w = classes((2, 5, 7), 4)
    with pytest.raises(IndexError, match="Target 4 is out of bounds"):
        pliant.compile(f)(x, torch.full_like(t, 4), w)


def test_a_weight_larger_than_the_loss_is_refused_as_in_eager():
    def f(x, y, w):
        return F.binary_cross_entropy_with_logits(x, y, w, reduction="none")

    x, y, _ = elements(1, 5, torch.float32)
    for one in (f, pliant.compile(f)):
        with pytest.raises(RuntimeError, match="broadcast shape"):
            one(x, y, torch.rand(3, 5))


def test_deterministic_algorithms_leave_images_to_the_library():
    """On GPUs it refuses them."""
    torch.manual_seed(0)

    def f(x, t, w):
        return F.cross_entropy(x, t, w)

    torch.use_deterministic_algorithms(True)
    try:
        assert "aten.nll_loss2d_forward" in compare(f, pliant.compile(f), classes((2, 5, 7), 4))
    finally:
        torch.use_deterministic_algorithms(False)


def test_targets_whose_sizes_are_others_that_a_check_compares():
    def f(x, target):
        return F.cross_entropy(x.flatten(0, 1), target.flatten())

    args = (torch.randn(4, 3, 8), torch.randint(0, 8, (4, 3)))
    auto = pliant.AUTO
    program = pliant.export(f, args, dynamic_shapes=({0: auto, 1: auto}, {0: auto, 1: auto}))
    with events.collect("loops") as programs:
        compiled = program.compile()
    assert "aten.nll" not in "\n".join(one.fields["text"] for one in programs)
    for x, target in (((2, 6, 8), (3, 4)), ((1, 5, 8), (5, 1))):
        given = torch.randn(x), torch.randint(0, 8, target)
        torch.testing.assert_close(compiled(*given), f(*given))
    with pytest.raises(pliant.PliantError):
        compiled(torch.randn(2, 2, 8), torch.randint(0, 8, (5,)).view(5, 1))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16])
def test_classes_of_a_dtype_that_eager_refuses_are_refused(dtype):
    x, target = torch.randn(4, 5, requires_grad=True), torch.tensor([0, 1, 4, 2], dtype=dtype)
    for one in (F.cross_entropy, pliant.compile(lambda x, target: F.cross_entropy(x, target))):
        with pytest.raises(RuntimeError):
            one(x, target)
