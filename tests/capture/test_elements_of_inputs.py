"""`item()` of 0-d inputs is a number as if the caller had passed it; `mark_unbacked` makes a size one of data."""

from __future__ import annotations

import operator

import pytest
import torch

import pliant
from pliant.errors import GraphBreakError


def _graphs_for(program, *argument_lists):
    pliant.reset()
    compiled = pliant.compile(program)
    for args in argument_lists:
        torch.testing.assert_close(compiled(*map(_copy, args)), program(*map(_copy, args)), equal_nan=True)
    seen = pliant.stats()
    assert seen["fallbacks"] == 0
    return seen["graphs"], sum(seen["break_reasons"].values())


def _copy(x):
    return x.clone() if isinstance(x, torch.Tensor) else x


def _numbers(*values):
    return [(torch.arange(6.0), torch.tensor(value)) for value in values]


def test_an_element_is_a_number():
    assert _graphs_for(lambda x, t: x * t.item(), *_numbers(0.5, -1.0, float("inf"))) == (1, 0)
    assert _graphs_for(lambda x, t: (x[: int(t)], x.new_zeros(int(t))), *_numbers(1, 2, 0, 5)) == (1, 0)


def _segments(x, ends):
    made = x.new_empty(x.shape)
    for start, end in zip(ends[:-1], ends[1:], strict=True):
        made[start:end] = x[start:end] * 2
    return made


@pytest.mark.parametrize("ends", [((0, 1, 2, 6), (0, 3, 5, 6), (0, 6, 6, 6)), ((0, 4, 5, 6), (0, 1, 2, 6))])
def test_segments_are_written_whatever_their_lengths(ends):
    assert _graphs_for(_segments, *_numbers(*ends)) == (1, 0)


def test_a_part_of_one_row_is_repeated():
    def program(x, ends):
        made = x.clone()
        made[ends[0] : ends[1]] = x[2 : ends[2]]
        return made

    assert _graphs_for(program, *_numbers((0, 5, 3), (1, 3, 3), (0, 6, 3))) == (1, 0)


def test_a_branch_on_an_element_is_a_guard():
    def program(x, t):
        return x + 1 if t.item() > 3 else x - 1

    assert _graphs_for(program, *_numbers(1, 2, 5, 6, 0)) == (2, 0)


def test_a_step_counter():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("step", torch.tensor(0))

        def forward(self, x):
            k = self.step.item()
            self.step += 1
            return x * 2 if k % 3 == 0 else x + k

    pliant.reset()
    compiled, x = pliant.compile(Counting()), torch.ones(2)
    for k in range(9):
        assert torch.equal(compiled(x), x * 2 if k % 3 == 0 else x + k)
    assert pliant.stats()["graphs"] == 2


class _Padded(torch.nn.Module):
    """Pads to whole windows, whose size and stride are buffers that it reads in several ways."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kernel", torch.tensor(4))
        self.register_buffer("stride", torch.tensor(2))

    def forward(self, x):
        frames = -(-(x.shape[-1] - self.kernel.item()) // self.stride.item()) + 1
        missing = (frames - 1) * self.stride + self.kernel - x.shape[-1]
        return torch.nn.functional.pad(x, (0, int(missing))) * int(self.kernel)


def test_elements_of_buffers_are_constants_until_they_change():
    module = _Padded()
    guards = set(map(str, pliant.explain(module)(torch.randn(2, 12)).guards))
    assert {"`_Padded.kernel.item()` is 4", "`_Padded.stride.item()` is 2"} <= guards
    pliant.reset()
    compiled = pliant.compile(module, fullgraph=True)

    def graphs():
        for length in (12, 19, 24, 31):
            x = torch.randn(2, length)
            torch.testing.assert_close(compiled(x), module(x))
        return pliant.stats()["graphs"]

    assert graphs() == 2
    for number, many in ((3, 3), (4, 3), (5, 3)):
        module.stride.fill_(number)
        assert graphs() == many


def test_buffers_that_the_program_writes_are_no_constants():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("step", torch.tensor([0, 1]))

        def forward(self, x):
            k = self.step[0].item()
            self.step += 1
            return x + k

    pliant.reset()
    compiled, x = pliant.compile(Counting()), torch.ones(2)
    for k in range(5):
        assert torch.equal(compiled(x), x + k)
    assert pliant.stats()["graphs"] == 1


def test_an_element_after_a_write_is_data():
    def program(x, t):
        t.add_(1)
        return x * t.item()

    assert _graphs_for(program, *_numbers(1, 2, 3, 4)) == (1, 0)


def test_elements_that_guards_fix_again_and_again_become_data():
    def program(x, t):
        return x * [1, 2, 4, 8, 16, 32, 64, 128, 256, 512][t.item()]

    pliant.reset()
    compiled = pliant.compile(program)
    for x, t in _numbers(*range(9)):
        assert torch.equal(compiled(x, t), program(x, t))
    assert pliant.stats()["break_reasons"] == {"data-dependent": 1}


def _normalized(x):
    return torch.nn.functional.layer_norm(x.relu(), (3,)).softmax(-1), x.sum(0) * x.size(0)


def test_unbacked_sizes_are_not_specialized():
    pliant.reset()
    compiled = pliant.compile(_normalized, fullgraph=True)
    for n in (4, 1, 7, 0, 2):
        x = torch.randn(n, 3, requires_grad=True)
        pliant.mark_unbacked(x, 0)
        expected, found = _normalized(x), compiled(x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found[0].sum(), x), torch.autograd.grad(expected[0].sum(), x))
    assert pliant.stats()["graphs"] == 1


def test_a_branch_on_an_unbacked_size():
    x = torch.ones(4, 3)
    pliant.mark_unbacked(x, 0)
    compiled = pliant.compile(lambda x: x + 1 if x.size(0) > 3 else x - 1, fullgraph=True)
    with pytest.raises(GraphBreakError, match=r"torch\._check\(x\.size\(0\) >= 4\)"):
        compiled(x)


def _on(switch, x):
    return x.exp() @ x if switch[0] == 1 else x


def _above(switch, x):
    return x + 1 if switch[0] > 262 else x - 1  # 262 is 6 in eight bits


def _beside_a_tensor(switch, x):
    return x + 1 if (switch > torch.tensor(262)).any() else x - 1


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64])
@pytest.mark.parametrize("program", [_on, _above, _beside_a_tensor])
def test_switches_of_few_bits(program, dtype):
    switches = [(torch.tensor([on], dtype=dtype), torch.rand(2, 2)) for on in (1, 1, 0, 100, 1)]
    graphs, breaks = _graphs_for(program, *switches)
    assert program is not _on or (graphs <= 3 and not breaks)


def slices_in_time(x, grid):
    """As a video's frames are put together in pairs."""
    sizes, parts, start = grid[:, 1:].prod(-1), [], 0
    for frames, size in zip(grid[:, 0], sizes):
        for even, odd in zip(range(0, frames, 2), range(1 if frames > 1 else 0, frames, 2)):
            parts.append(torch.cat([torch.arange(start + k * size, start + (k + 1) * size) for k in (even, odd)]))
        start = start + frames * size
    return x[torch.cat(parts)]


def test_ends_of_ranges_are_elements():
    pliant.reset()
    compiled = pliant.compile(slices_in_time, backend="eager", fullgraph=True)
    for grid in ([[1, 2, 3], [2, 4, 2]], [[1, 2, 5], [2, 3, 3]], [[1, 7, 2], [2, 2, 2]]):
        grid = torch.tensor(grid)
        x = torch.randn(int(grid.prod(-1).sum()), 2)
        torch.testing.assert_close(compiled(x, grid), slices_in_time(x, grid))
    assert pliant.stats()["recompiles"] == 1


class Second:
    def __index__(self):
        return 1


TAKEN_AS_NUMBERS = {
    "operator.index": lambda x, n: x * operator.index(n[0]),
    "of one element": lambda x, n: x * operator.index(n[:1]),
    "of data": lambda x, n: x * operator.index(x.argmax()),
    "length of a range": lambda x, n: x * len(range(n[0], 9)),
    "item of a tuple": lambda x, n: x * (1, 2, 3, 4, 5)[n[0]],
    "slice of a text": lambda x, n: x * len("abcdefgh"[: n[0]]),
    "a flag": lambda x, n: x * (3, 5)[n[0] > 3],
    "an object": lambda x, n: x * operator.index(Second()),
}


@pytest.mark.parametrize("name", TAKEN_AS_NUMBERS)
def test_tensors_taken_as_numbers_by_c_code(name):
    pliant.reset()
    program = TAKEN_AS_NUMBERS[name]
    compiled = pliant.compile(program, backend="eager")
    for k in (2, 3, 4):
        x, n = torch.arange(4.0), torch.tensor([k, 2])
        torch.testing.assert_close(compiled(x, n), program(x, n))
    assert not pliant.stats()["graph_breaks"]


@pytest.mark.parametrize("value", [torch.tensor(2.0), torch.tensor([1, 2]), torch.tensor([], dtype=torch.int64), "2"])
def test_what_is_no_index_is_refused_as_in_eager(value):
    pliant.reset()
    compiled = pliant.compile(lambda x, n: x * operator.index(n + n), backend="eager")
    with pytest.raises(TypeError) as told:
        operator.index(value)
    with pytest.raises(TypeError) as ours:
        compiled(torch.ones(2), value)
    assert str(ours.value) == str(told.value)


def powers(x, n):
    for i in range(n[0]):
        x = x * 1.5 + i
    return x


def test_a_loop_up_to_an_element_that_had_many_values():
    """Where it is data from then on, the code behind the break has the tensor, and would break there again and again."""
    pliant.reset()
    compiled = pliant.compile(powers, backend="eager")
    for k in range(2, 14):
        x, n = torch.ones(2), torch.tensor([k, 2])
        torch.testing.assert_close(compiled(x, n), powers(x, n))


class Observes(torch.nn.Module):
    """As layers that learn how to quantize do: flags that are read between writes of other buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("observes", torch.tensor([1]))
        self.register_buffer("enabled", torch.tensor([1], dtype=torch.uint8))
        self.register_buffer("least", torch.tensor([0, 7]))

    def forward(self, x):
        if self.observes[0] == 1:
            self.least.add_(1)
        if self.enabled[0] == 1:
            x = x @ x
        return x + self.least[0]


def test_elements_are_read_behind_writes_of_other_memory():
    def results(model, call):
        found = [call(torch.ones(2, 2)) for _ in range(2)]
        model.enabled[0] = 0
        found.append(call(torch.ones(2, 2)))
        model.observes, model.least = model.least[:1], model.least * 0 + 1
        found += [call(torch.ones(2, 2)) for _ in range(2)]
        return found

    pliant.reset()
    ours, theirs = Observes(), Observes()
    compiled = pliant.compile(ours)
    torch.testing.assert_close(results(ours, compiled), results(theirs, theirs))
    assert not pliant.stats()["graph_breaks"]


@pytest.mark.fallbacks_expected
def test_elements_that_a_write_changes_are_not_read_before_it():
    def results(model, call):
        found = [call(torch.ones(2, 2))]
        model.enabled = model.least[:1]  # written before it is read
        for start in (1, 0, 5):
            model.least.fill_(start)
            found.append(call(torch.ones(2, 2)))
        return found

    ours, theirs = Observes(), Observes()
    torch.testing.assert_close(results(ours, pliant.compile(ours)), results(theirs, theirs))


def _stored_where(x, y):
    made, valid = torch.ones_like(x), (x != 0) & (y > 0)
    made[valid] = 1 - x[valid] / y[valid]
    made[~valid] = 0.5
    return made


def _rows_where(x, y):
    return x[y > 0], x.clone()[x.sum() > 0].shape


@pytest.mark.parametrize("program", [_stored_where, _rows_where])
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_a_mask_without_dimensions_selects_all_or_nothing(program, shape):
    each = [(torch.full(shape, x), torch.tensor(y)) for x, y in ((1.0, 2.0), (0.0, 1.0), (3.0, -1.0), (-2.0, 4.0))]
    if program is _stored_where:
        each = [(x.sum(), y) for x, y in each]
    assert _graphs_for(program, *each) == (1, 0)
