"""Strides of `empty_like` and `clone`: those of a part of each row depend on no relation of sizes."""

import itertools

import pytest
import torch

import pliant


def windows(x):
    """A part of each row in fours, whose copy is made in forward and in backward."""
    part = x[:, : x.shape[1] // 4 * 4]
    fours = part.view(x.shape[0], part.shape[1] // 4, 4, -1)
    return (fours.softmax(2) * fours).sum(2), torch.empty_like(part)


def test_a_part_of_each_row_is_one_graph_whether_or_not_it_is_all():
    compiled = pliant.compile(windows)
    pliant.reset()
    for rows, length in ((2, 12), (3, 18), (4, 28), (5, 19)):
        ours = torch.randn(rows, length, 3, requires_grad=True)
        theirs = ours.detach().clone().requires_grad_()
        (found, copy), (wanted, other) = compiled(ours), windows(theirs)
        torch.testing.assert_close(found, wanted)
        assert copy.stride() == other.stride()
        found.sin().sum().backward()
        wanted.sin().sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert pliant.stats()["graphs"] == 2


def test_strides_are_eagers():
    def program(x):
        views = [x, x[:, :3], x[:, :, :1], x[:, 1:2], x.transpose(0, 1), x[..., ::2], x[:, :3].transpose(1, 2), x[:1], x[:, None]]
        return [(torch.empty_like(v).stride(), torch.clone(v).stride()) for v in views]

    compiled = pliant.compile(program, backend="eager", dynamic=True, fullgraph=True)
    for sizes in ((2, 3, 4), (5, 3, 2), (4, 7, 6), (3, 4, 1)):
        x = torch.randn(sizes)
        assert compiled(x) == program(x)


def test_what_is_left_of_each_row_is_one_graph_empty_or_not():
    def program(x):
        y = x * 2
        return y[:, : x.shape[1] // 4 * 4], y[:, x.shape[1] // 4 * 4 :]

    compiled = pliant.compile(program)
    pliant.reset()
    for rows, length in ((2, 13), (3, 18), (4, 28), (5, 19), (2, 21), (3, 8)):
        ours = torch.randn(rows, length, 3, requires_grad=True)
        theirs = ours.detach().clone().requires_grad_()
        for x, results in ((ours, compiled(ours)), (theirs, program(theirs))):
            sum((r.sin() * r.transpose(1, 2).cos().transpose(1, 2)).sum() for r in results).backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
        assert ours.grad.stride() == theirs.grad.stride()
    assert pliant.stats()["graphs"] == 2


def test_gradients_of_nothing_repeated_are_one_graph():
    def program(row, x):
        none = row[:, None].expand(x.shape[0], x.shape[1] - x.shape[1], -1)
        return torch.cat([none, x], 1), none

    compiled = pliant.compile(program)
    pliant.reset()
    for rows, length in ((2, 3), (3, 5), (4, 6)):
        ours = [torch.randn(1, 3, requires_grad=True), torch.randn(rows, length, 3, requires_grad=True)]
        theirs = [one.detach().clone().requires_grad_() for one in ours]
        for given, results in ((ours, compiled(*ours)), (theirs, program(*theirs))):
            sum(r.sin().sum() for r in results).backward()
        for one, other in zip(ours, theirs):
            torch.testing.assert_close(one.grad, other.grad)
    assert pliant.stats()["graphs"] == 2


def test_strides_of_empty_tensors_are_eagers():
    from pliant.graph.layouts import preserved_strides
    from pliant.graph.tensor_spec import TensorSpec

    for size in itertools.product((0, 1, 2), repeat=3):
        for stride in itertools.product((0, 1, 2, 5), repeat=3):
            x = torch.empty(100).as_strided(size, stride)
            if not x.numel():
                spec = TensorSpec(size, stride, x.dtype, x.device)
                assert preserved_strides(spec) == torch.empty_like(x).stride() == x.clone().stride()


def test_what_is_written_by_strides_keeps_gaps():
    def program(x):
        value = torch.ones(2)
        bases = [x, x[:, ::2], x.t()[1:], x[:1, :1].expand(4, 3)]
        return [torch.as_strided_scatter(one, value, (2,), (1,), 0).stride() for one in bases]

    x = torch.randn(5, 8)
    assert pliant.compile(program, backend="eager", fullgraph=True)(x) == program(x)


def test_rows_as_long_as_elements_tell_are_written():
    def program(x):
        first, second = x[0][x[0] > 0], x[1][x[1] > 0]
        found = torch.zeros(2, max(first.shape[0], second.shape[0]))
        found[0, : first.shape[0]] = first
        found[1, : second.shape[0]] = second
        return found

    exported = pliant.export(program, (torch.tensor([[1.0, -1.0, 2.0], [3.0, -1.0, -1.0]]),))
    for rows in ([[1.0, 2.0, 3.0], [-1.0, 1.0, -1.0]], [[-1.0, -1.0, 1.0], [1.0, 1.0, 1.0]], [[-1.0] * 3, [-2.0] * 3]):
        assert torch.equal(exported(torch.tensor(rows)), program(torch.tensor(rows)))


def up_to_multiple(x):
    return torch.nn.functional.pad(x.transpose(1, 2), (0, 0, 0, -x.size(1) % 4))


def down_to_multiple(x):
    return torch.nn.functional.pad(x.transpose(1, 2), (0, 0, 0, -(x.size(1) % 4)))


@pytest.mark.parametrize("function", [up_to_multiple, down_to_multiple])
def test_padding_that_only_cuts_lies_as_eagers_at_any_size(function):
    pliant.reset()
    compiled = pliant.compile(function, backend="aot_eager", dynamic=True, fullgraph=True)
    for rows in (5, 7, 8, 12, 13):
        ours, eagers = (torch.ones(3, rows, 2, 6, requires_grad=True) for _ in range(2))
        got, wanted = compiled(ours), function(eagers)
        assert got.stride() == wanted.stride()
        for result in (got, wanted):
            result.backward(torch.ones(3, *result.shape[2:], 2).permute(0, 3, 1, 2))
        assert ours.grad.stride() == eagers.grad.stride()
    assert pliant.stats()["graphs"] <= 2  # with something to add or to cut off, and without
