"""Arguments that eager's operators refuse are refused by compiled programs, which run no kernel on them."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events

ROWS = torch.tensor([0, 1])


def x(*size):
    return torch.arange(float(torch.Size(size).numel())).reshape(size)


def of(operator, *args):
    """A call of an operator of ATen by its name."""
    return lambda given: getattr(torch.ops.aten, operator)(given, *args)


REFUSED = {
    "roll: other number of shifts": (lambda x: torch.roll(x, (1, 2), (0,)), x(3, 2)),
    "roll: no such dimension": (lambda x: torch.roll(x, 1, 2), x(3, 2)),
    "roll: no dimensions": (lambda x: torch.roll(x, 1, 0), torch.tensor(1.0)),
    "flip: a dimension twice": (lambda x: torch.flip(x, (0, -2)), x(3, 2)),
    "index_add: rows of another size": (lambda x: torch.index_add(x, 0, ROWS, torch.ones(2, 3)), x(3, 2)),
    "index_add: rows of fewer dimensions": (lambda x: torch.index_add(x, 0, ROWS[:1], torch.tensor(1.0)), x(3, 2)),
    "index_add: another dtype": (lambda x: torch.index_add(x, 0, ROWS, torch.ones(2, 2).double()), x(3, 2)),
    "index_add_: rows of another size": (lambda x: (x + 1).index_add_(0, ROWS, torch.ones(2, 3)), x(3, 2)),
    "index_reduce: rows of another size": (
        lambda x: torch.index_reduce(x, 0, ROWS, torch.ones(2, 3), "amax"),
        x(3, 2),
    ),
    "index_copy: rows of another size": (lambda x: torch.index_copy(x, 0, ROWS, torch.ones(2, 3)), x(3, 2)),
    "index_copy: short indices": (lambda x: torch.index_copy(x, 0, ROWS.int(), torch.ones(2, 2)), x(3, 2)),
    "scatter_add: a larger index": (
        lambda x: x.scatter_add(0, torch.zeros(2, 5, dtype=torch.long), torch.ones(2, 5)),
        x(3, 2),
    ),
    "scatter_add_: a larger index": (
        lambda x: (x + 1).scatter_add_(1, torch.zeros(4, 1, dtype=torch.long), torch.ones(4, 1)),
        x(3, 2),
    ),
    "scatter_add: a small source": (
        lambda x: x.scatter_add(0, torch.zeros(2, 2, dtype=torch.long), torch.ones(2, 1)),
        x(3, 2),
    ),
    "scatter_add: another dtype": (
        lambda x: x.scatter_add(0, torch.zeros(2, 2, dtype=torch.long), torch.ones(2, 2).double()),
        x(3, 2),
    ),
    "scatter_add: no such dimension": (
        lambda x: x.scatter_add(7, torch.zeros(2, 2, dtype=torch.long), torch.ones(2, 2)),
        x(3, 2),
    ),
    "scatter_reduce: a larger index": (
        lambda x: x.scatter_reduce(0, torch.zeros(2, 5, dtype=torch.long), torch.ones(2, 5), "amax"),
        x(3, 2),
    ),
    "scatter: a larger index": (lambda x: x.scatter(0, torch.zeros(2, 5, dtype=torch.long), 1.0), x(3, 2)),
    "smooth_l1_loss: a negative beta": (lambda x: F.smooth_l1_loss(x, x * 2, beta=-1.0), x(3, 2)),
    "huber_loss: no delta": (lambda x: F.huber_loss(x, x * 2, delta=0.0), x(3, 2)),
    "nll_loss: weights of another dtype": (
        lambda x: F.nll_loss(x, torch.zeros(3, dtype=torch.long), torch.ones(2).double()),
        x(3, 2),
    ),
    "nll_loss: integers": (lambda x: F.nll_loss(x, torch.zeros(3, dtype=torch.long)), torch.ones(3, 2, dtype=torch.long)),
    "one_hot: no classes": (lambda x: F.one_hot(x, 0), torch.arange(3)),
    "masked_fill: several values": (lambda x: x.masked_fill(x > 1, torch.ones(1)), x(3, 2)),
    "masked_fill_: several values": (lambda x: (x + 1).masked_fill_(x > 1, torch.ones(1)), x(3, 2)),
    "slice_scatter: another size": (lambda x: torch.slice_scatter(x, torch.ones(1, 2), 0, 0, 2), x(3, 2)),
    "select_scatter: another size": (lambda x: torch.select_scatter(x, torch.ones(3), 0, 0), x(3, 2)),
    "diagonal_scatter: another size": (lambda x: torch.diagonal_scatter(x, torch.ones(3)), x(3, 2)),
    "interpolate: nothing": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), x(1, 1, 0, 4)),
    "interpolate: to nothing": (lambda x: F.interpolate(x, scale_factor=0.1, mode="bicubic"), x(1, 1, 4, 4)),
    "interpolate: one dimension to nothing": (lambda x: F.interpolate(x, scale_factor=0.1), x(1, 1, 4)),
    "interpolate: no channels": (lambda x: F.interpolate(x, scale_factor=2.0), x(1, 0, 4)),
    "layer_norm: of no dimensions": (of("native_layer_norm", [], None, None, 1e-5), x(3, 2)),
    "group_norm: other sizes": (of("native_group_norm", None, None, 2, 2, 3, 1, 1e-5), x(3, 2)),
    "softmax: integers": (lambda x: x.softmax(0), torch.arange(3)),
    "log_softmax: truth values": (lambda x: x.log_softmax(0), torch.ones(3, dtype=torch.bool)),
    "layer_norm: integers": (lambda x: F.layer_norm(x, (3,)), torch.arange(3)),
    "group_norm: integers": (lambda x: F.group_norm(x, 1), torch.arange(12).view(2, 2, 3)),
    "batch_norm: integers": (lambda x: F.batch_norm(x, None, None, training=True), torch.arange(6).view(3, 2)),
    "logsigmoid: integers": (lambda x: F.logsigmoid(x), torch.arange(4)),
    "tril_: one dimension": (lambda x: x.tril_(), x(3)),
    "triu_: no dimension": (lambda x: x.triu_(1), torch.tensor(1)),
    "masked_scatter_: a larger mask": (lambda x: x.masked_scatter_(torch.ones(2, dtype=torch.bool), x), torch.tensor(1.0)),
    "index: of nothing": (lambda x: x[..., ROWS], x(0, 0)),
    "index: of nothing, several": (lambda x: x[:, ROWS, ROWS], x(0, 3, 0)),
    "index_select: of nothing": (lambda x: x.index_select(1, ROWS), x(0, 0)),
    "index_select: behind the end of nothing": (lambda x: x.index_select(1, ROWS), x(0, 1)),
    "pad: nothing is cut off": (lambda x: F.pad(x, (-1, 1)), x(3, 0)),
    "pad: nothing is cut off, of an unknown size": (lambda x: F.pad(x[x > 9], (1, -1)), x(3)),
    "glu: no such dimension": (lambda x: F.glu(x, 7), x(4)),
    "glu: integers": (lambda x: F.glu(x), torch.arange(4)),
}


@pytest.mark.parametrize("dynamic", (False, True))
@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name, dynamic):
    program, given = REFUSED[name]
    with pytest.raises(Exception) as expected:
        program(given.clone())
    with events.collect("fallback") as failures, pytest.raises(type(expected.value)):
        pliant.compile(program, dynamic=dynamic)(given.clone())
    assert not failures


NORMALIZED = {
    "layer_norm": lambda x, w, b: F.layer_norm(x, (4,), w, b),
    "group_norm": lambda x, w, b: F.group_norm(x, 2, w, b),
    "batch_norm": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    "batch_norm of statistics": lambda x, w, b: F.batch_norm(x, w, b),
}
MIXED = (
    (torch.float64, torch.float32, torch.float32),
    (torch.float32, torch.float32, torch.float64),
    (torch.float32, torch.bfloat16, torch.bfloat16),
    (torch.bfloat16, torch.bfloat16, torch.float32),
    (torch.float16, torch.bfloat16, torch.bfloat16),
    (torch.bfloat16, torch.float32, torch.float32),
    (torch.float16, torch.float16, torch.float16),
)


@pytest.mark.parametrize("name", NORMALIZED)
def test_normalizations_take_the_dtypes_that_eagers_take(name):
    program = NORMALIZED[name]
    for dtypes in MIXED:
        given = [torch.rand(3, 4).to(dtypes[0]), *(torch.rand(4).to(dtype) for dtype in dtypes[1:])]
        try:
            wanted = program(*given).dtype
        except RuntimeError:
            wanted = None
        try:
            found = pliant.compile(program)(*given).dtype
        except RuntimeError:
            found = None
        assert found is wanted, dtypes


@pytest.mark.parametrize("rows", (torch.ones(2, 2), torch.ones(2, 3)[:, :2]))
def test_rows_are_added_in_eagers_layout(rows):
    def program(x):
        return torch.index_add(x, 0, ROWS, rows), torch.index_reduce(x, 0, ROWS, rows, "amax")

    for given in (x(3, 2), x(2, 3).t()):
        for found, wanted in zip(pliant.compile(program)(given), program(given), strict=True):
            assert found.stride() == wanted.stride()
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("reduction", ("none", "mean", "sum"))
def test_distances_have_eagers_sizes_and_strides(reduction):
    def program(x, y):
        return F.smooth_l1_loss(x, y, reduction=reduction), F.huber_loss(x, y, reduction=reduction)

    for one, other in ((x(3, 2), x(3, 2)), (x(2, 3).t(), x(3, 2)), (x(3, 2), x(2, 3).t().double())):
        for found, wanted in zip(pliant.compile(program)(one, other), program(one, other), strict=True):
            assert (found.stride(), found.dtype) == (wanted.stride(), wanted.dtype)
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("given", (torch.tensor(1.0), torch.ones(3), x(3, 2)))
def test_one_row_may_have_no_dimension_where_it_is_copied(given):
    def program(x):
        return torch.index_copy(x, 0, torch.tensor(0), torch.full(x.shape[1:], 5.0) if x.dim() < 2 else x[:1] * 5)

    torch.testing.assert_close(pliant.compile(program)(given), program(given))


def test_images_are_resized_for_every_size():
    program = pliant.compile(lambda x: F.interpolate(x, scale_factor=0.5), dynamic=True)
    for size in (4, 6, 2):
        torch.testing.assert_close(program(x(1, 2, size, 4)), F.interpolate(x(1, 2, size, 4), scale_factor=0.5))
    with pytest.raises(RuntimeError, match="greater than 0"):
        program(x(1, 2, 1, 4))


def test_parts_of_a_negative_size_are_an_error():
    """Also where the graph would need no call of the operator."""
    compiled = pliant.compile(lambda i: torch.ones(8).split(int(i[-1])), dynamic=True)
    for size in (2, 3, -3, -1, 4):
        if size > 0:
            assert [len(part) for part in compiled(torch.tensor([0, size]))] == [len(p) for p in torch.ones(8).split(size)]
        else:
            with pytest.raises(RuntimeError, match="non-negative"):
                compiled(torch.tensor([0, size]))


OF_NOTHING = {
    "amax": lambda x: x.amax(0),
    "amax of all": lambda x: x.amax(),
    "amin of two": lambda x: x.amin((0, 1)),
    "max": lambda x: x.max(0),
    "min of all": lambda x: x.min(),
    "median": lambda x: x.median(0),
    "mode": lambda x: x.mode(0),
    "argmax": lambda x: x.argmax(0),
    "argmin of all": lambda x: x.argmin(),
    "aminmax": lambda x: x.aminmax(dim=0),
    "aminmax of all": lambda x: x.aminmax(),
    "largest norm": lambda x: x.norm(float("inf")),
    "smallest norm": lambda x: torch.linalg.vector_norm(x, float("-inf"), 0),
    "amax along another": lambda x: x.amax(1),
}


@pytest.mark.parametrize("read", (True, False))
@pytest.mark.parametrize("name", OF_NOTHING)
def test_nothing_to_choose_from_is_an_error_behind_what_came_before(name, read):
    """Also of a result that nothing reads, and of a part that is empty for some sizes."""
    log = []

    def program(x, n):
        x.add_(1)
        log.append(n)
        try:
            found = OF_NOTHING[name](x[2:])
        except (RuntimeError, IndexError) as error:
            return type(error).__name__
        return found if read else x * 2

    compiled = pliant.compile(program, backend="eager")
    for rows in (5, 6, 2, 0):
        wanted, found = ((run(given := x(rows, 3), rows), given, [*log], log.clear()) for run in (program, compiled))
        assert repr(found) == repr(wanted)
