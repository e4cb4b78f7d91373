"""Programs with data-dependent numbers and sizes: as eager, with gradients, on changing data, in whole graphs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves, tree_map_only

import pliant
from end_to_end.data_dependent_programs import PROGRAMS, Case
from pliant.errors import GraphBreakError


def _given(case: Case, seed: int) -> tuple[Any, ...]:
    inputs = case.inputs(torch.Generator().manual_seed(seed))
    if not case.gradients:
        return inputs
    return tree_map_only(torch.Tensor, lambda t: t.requires_grad_() if t.is_floating_point() else t, inputs)


def _gradients(outputs: Any, inputs: tuple[Any, ...]) -> list[Any]:
    roots = [t for t in tree_leaves(outputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    leaves = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    return list(torch.autograd.grad([t.sum() for t in roots], leaves, allow_unused=True))


@pytest.mark.spread(2, "dynamic", "name")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, dynamic):
    pliant.reset()
    case = PROGRAMS[name]
    compiled = pliant.compile(case.program, dynamic=dynamic)
    for seed in (0, 1, 2):
        expected_in, found_in = _given(case, seed), _given(case, seed)
        expected, found = case.program(*expected_in), compiled(*found_in)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        if case.gradients:
            torch.testing.assert_close(_gradients(found, found_in), _gradients(expected, expected_in))
    seen = pliant.stats()
    assert seen["fallbacks"] == 0
    assert sum(seen["break_reasons"].values()) <= case.breaks


def _outcome(program, *args):
    try:
        return program(*args)
    except Exception as error:
        return type(error), str(error)


def _largest_kept(x):
    kept = x[x > 0]
    return kept.max(), kept.softmax(0), kept[0]


def _two_masks(x):
    return x[x > 0] + x[x < 0]


def _checked(x):
    n = x.sum().int().item()
    torch._check_value(n <= 4, lambda: f"{n} is more than 4 of {x.size(0)}")
    torch._check(n >= 0)
    return torch.ones(n)


def _refuses(x):
    noise = torch.rand(2)
    if (x < 0).all():
        raise KeyError("all negative")
    if x.sum() == 7:
        raise AssertionError("sum")
    return x[:2] + noise


@pytest.mark.parametrize("program", [_largest_kept, _two_masks, _checked, _refuses])
def test_data_that_the_code_was_not_compiled_for(program):
    """Sizes of 0, sizes that differ, failed checks: values, errors and random numbers are eager's."""
    rows = [
        [1, 2, -3, -4],
        [-1, -2, -3, -4],
        [1, 2, 3, 1],
        [0, 0, 0, 0],
        [1, -2, -3, -4],
        [5, 2, 1, -1],
        [1, 1, -1, -1],
    ]
    pliant.reset()
    compiled = pliant.compile(program, fullgraph=True)
    torch.manual_seed(0)
    expected = [_outcome(program, torch.tensor(row).float()) for row in rows]
    torch.manual_seed(0)
    found = [_outcome(compiled, torch.tensor(row).float()) for row in rows]
    for one, other in zip(found, expected, strict=True):
        is_error = isinstance(other, tuple) and isinstance(other[0], type)
        assert one == other if is_error else torch.testing.assert_close(one, other) is None
    assert pliant.stats()["graphs"] == 1


def test_inputs_are_written_once_where_the_call_runs_eagerly():
    def program(x, y):
        x.add_(1)
        return y[y > 0].max() + x.sum()

    compiled = pliant.compile(program)
    x = torch.zeros(3)
    compiled(x, torch.ones(3))
    with pytest.raises(RuntimeError, match="numel"):
        compiled(x, -torch.ones(3))
    assert x.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("backend", ["pliant", "eager"])
def test_inputs_are_written_once_where_a_later_operator_fails(backend):
    def reads_what_it_wrote(x, y):
        x.add_(1)
        return y[y > 0].max() + torch.mm(x[None], x[:, None]).sum()

    def indexes_what_it_wrote(x, y):
        x.add_(1)
        return x[y.long() * 10].sum()

    for program in (reads_what_it_wrote, indexes_what_it_wrote):
        compiled = pliant.compile(program, backend=backend)
        x = torch.zeros(3)
        compiled(x, torch.full((3,), 0.05))
        with pytest.raises((RuntimeError, IndexError)):
            compiled(x, -torch.ones(3))
        assert x.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("backend", ["pliant", "eager"])
def test_the_program_catches_what_fails_behind_a_write(backend):
    def program(x, y):
        x.add_(1)
        try:
            found = y[y > 0].max()
        except RuntimeError:
            found = x.sum()
        return found

    compiled = pliant.compile(program, backend=backend)
    x = torch.zeros(3)
    for y, want in ((torch.ones(3), 1.0), (-torch.ones(3), 6.0)):
        assert compiled(x, y).item() == want
    assert x.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "operation",
    [
        lambda n: 7 / n,
        lambda n: 7 // n,
        lambda n: 7 % n,
        lambda n: n**-1,
        lambda n: 7 << (n - 1),
        lambda n: math.sqrt(n - 1),
        lambda n: math.log(n),
        lambda n: n / (n - n),
    ],
)
def test_arithmetic_on_data_fails_though_nobody_reads_its_result(operation):
    def program(x):
        try:
            operation(int(x.sum().item()))
        except (ZeroDivisionError, ValueError) as error:
            return x + 2, str(error)
        return x + 1, None

    compiled = pliant.compile(program)
    for first in (1.0, 0.0, 2.0, 0.0):
        x = torch.tensor([first, 0.0])
        (got, text), (want, wanted) = compiled(x), program(x)
        assert got.equal(want) and text == wanted


def test_a_branch_on_data_says_what_to_write():
    def program(x, lengths):
        longest = lengths.max().item()
        if longest > 4:
            return x + 1
        return x - 1

    with pytest.raises(GraphBreakError) as caught:
        pliant.compile(program, fullgraph=True)(torch.ones(3), torch.arange(2000))
    text = str(caught.value)
    assert "the value of `u0 >= 5` is needed" in text and "longest = lengths.max().item()" in text
    assert "if longest > 4:" in text and "torch._check(longest >= 5)" in text


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", ["pack_ragged", "split_by_lengths", "unique_counts", "crop", "raises_on_bad_data"])
def test_other_backends(name, backend):
    pliant.reset()
    case = PROGRAMS[name]
    compiled = pliant.compile(case.program, backend=backend, fullgraph=True)
    for seed in (0, 1):
        torch.testing.assert_close(compiled(*_given(case, seed)), case.program(*_given(case, seed)))


def test_numbers_can_be_left_to_breaks():
    pliant.reset()
    with pliant.config.patch(data_dependent=False):
        compiled = pliant.compile(lambda x: x * x.sum().item())
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
    assert pliant.stats()["break_reasons"] == {"data-dependent": 1}


def test_a_number_beside_known_sizes_is_taken_for_a_small_one():
    """Products of distances choose another way from 25 rows on: with padding that only running tells there are fewer."""

    def program(x, rows):
        return torch.cdist(F.pad(x, (0, 0, 0, rows.item())), x)

    pliant.reset()
    compiled = pliant.compile(program, dynamic=True)
    for count in (3, 4):
        x, rows = torch.randn(10, 4), torch.tensor(count)
        torch.testing.assert_close(compiled(x, rows), program(x, rows))
    seen = pliant.stats()
    assert seen["fallbacks"] == 0 and not seen["assumption_reasons"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)])
@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
def test_elements_that_a_mask_selects_lie_as_eagers(order, backend):
    def program(x):
        keeps = x.sum((1, 2)) > 0
        return x[keeps], x[:, keeps[: x.size(1)]], x[x[:, :, 0] > 0], x[keeps].relu()

    pliant.reset()
    torch.manual_seed(0)  # some of each are selected
    x = torch.randn(6, 6, 6).permute(order)[:, :5].requires_grad_()
    expected, found = program(x), pliant.compile(program, backend=backend, fullgraph=True)(x)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other) and one.stride() == other.stride()
    gradients = [torch.autograd.grad(sum(one.square().sum() for one in outs), x)[0] for outs in (found, expected)]
    torch.testing.assert_close(*gradients)
