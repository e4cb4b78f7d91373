"""Branches on tensors' values whose sides only compute: one graph, and eager's results on either side."""

import contextlib
import sys

import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant.bytecode.cfg import sides
from pliant.bytecode.decode import decode


def clamped(x):
    h = x * 2
    if not torch.isfinite(h).all():
        limit = torch.finfo(h.dtype).max - 1000
        h = torch.clamp(h, min=-limit, max=limit)
    return h + 1


def one_of_two_conditions(x):
    h = x + 1
    if h.dtype == torch.float32 and (torch.isinf(h).any() or torch.isnan(h).any()):
        h = torch.nan_to_num(h, nan=0.5, posinf=3.0, neginf=-3.0)
    return h * h


def returned(x):
    h = x.abs()
    if h.max() > 4:
        return h.clamp(max=4.0)
    return h


def in_an_expression(x):
    h = x * 3
    return F.relu(h if h.sum() > 0 else -h) + h


def on_one_element(x):
    h = x * 2
    if h.sum().view(1, 1) > 0:
        h = -h
    return h + 1


def smaller_of_views(x):
    h = x * 2
    return h + min(h.sum().view(1), h.mean().view(1))


def in_a_loop(x):
    h = x * 1
    for _ in range(3):
        h = h + x
        if torch.isinf(h).any():
            h = h.clamp(-8.0, 8.0)
    return h


def nested(x):
    h = x * 1
    if h.sum() > 0:
        if h.mean() > 4:
            h = h.clamp(max=4)
        else:
            h = F.relu(h)
    else:
        h = -h
    return h


def a_tuple(x):
    h, k = x + 1, x - 1
    pair = (h, k) if h.sum() > 0 else (k, h)
    return pair[0] * 2 + pair[1]


def largest(x):
    h = (x + 1).flatten()
    return x * max(h[0], h[2], h[1]) - max(h)


def smallest_of_sums(x):
    return min(x.sum(), (x + 1).mean(), -x.sum()) - x


def largest_by_key(x):
    rows = [x + 1, -x, x - 1]
    return max(rows, key=lambda row: row.sum()) * 2


def over_a_count(x):
    return x.sum() / max(1, (x > 0).sum()) - x * max((x > 2).sum(), 1)


def count_of_counts(x):
    return (x > 0).sum(0) * max((x > 0).sum(), 2)


# ---- what is not to be selected


def count_alone(x):
    return x * (max((x > 0).sum(), 1) + 1)  # of a tensor, or of a number


def count_beside_a_smaller_integer(x):
    return (x > 0).sum().int() + max((x > 0).sum(), 1)  # int64 beside a tensor, int32 beside a number


def count_or_a_float(x):
    return x * max((x > 0).sum(), 1.5)



def largest_with_a_number(x):
    return x * (max(x.sum(), 1.0) * 2)  # of a tensor, or of a number


def largest_of_the_argument(x):
    return max(x[0, 0], x[1, 0])


def the_next_one(x):
    h, k = x * 2, x.sqrt()
    if h.max() > 4:
        h = k
    return h.sum()


def written(x):
    h = x * 2
    k = h
    if h.max() > 4:
        h = h.clamp(max=4)
    h.add_(1)
    return h + k


def written_through_a_view(x):
    h = x * 2
    k = -h if h.max() > 4 else h
    h.detach()[0] = 7.0
    return k + 1


def both_returned(x):
    h = x * 2
    k = h.clamp(max=4) if h.max() > 4 else h
    return h, k


def the_argument(x):
    return x.clamp(max=4.0) if x.max() > 4 else x


def views_returned(x):
    h = x * 2
    k = h.clamp(max=4) if h.max() > 4 else h
    return h[:1], k[:, :1].t()


def compared(x):
    h = x * 2
    k = h.clamp(max=4) if h.max() > 4 else h
    return h + (1 if k is h else 2)


def with_an_effect(x, seen=None):
    h, seen = x * 2, []
    if h.max() > 4:
        seen.append(1)
    return h + len(seen)


def drawing(x):
    h = x * 2
    if h.max() > 4:
        h = h + torch.rand_like(h)
    return h


def numbers_that_differ(x):
    scale = 2.0 if x.max() > 4 else 3.0
    return x * scale


def gradients_that_are_infinite(x):
    h = x * x
    return h.sqrt() if h.max() > 4 else h


def divided(x):
    total = x.sum()
    return x * (1 / total if total != 0 else total + 1)


def a_ratio(x):
    norm, least = x.norm(), x.min()
    if norm == 0 or least <= 0:
        ratio = 1.0
    else:
        ratio = norm / least
    return (x + norm) * ratio - least  # a shorter end would be a part of either side


def sizes_that_differ(x):
    return x[:2] + 1 if x.max() > 4 else x + 2


SELECTED = [
    clamped, one_of_two_conditions, returned, in_an_expression, in_a_loop, nested, a_tuple, largest,
    smallest_of_sums, largest_by_key, on_one_element, smaller_of_views, over_a_count, count_of_counts,
]  # fmt: skip
BROKEN = [
    written, written_through_a_view, both_returned, views_returned, the_argument, compared, with_an_effect, drawing, numbers_that_differ,
    gradients_that_are_infinite, sizes_that_differ, largest_with_a_number, largest_of_the_argument, count_alone,
    count_beside_a_smaller_integer, count_or_a_float,
]  # fmt: skip
COMPUTED = [divided, a_ratio]  # where no gradients are asked for
DATA = [
    torch.tensor([[0.5, 1.0], [2.0, -1.0], [0.0, 0.25]]),
    torch.tensor([[9.0, -1.0], [float("inf"), -2.0], [0.0, 1.0]]),
    torch.tensor([[-9.0, -1.0], [5.0, float("nan")], [0.0, float("-inf")]]),
]


def outcome(function, x, grad):
    """Results, which of them share memory with one another or the argument, the argument, its gradient."""
    torch.manual_seed(0)
    x = x.clone().requires_grad_(grad is True)
    with torch.inference_mode() if grad is None else contextlib.nullcontext():
        results = function(x)
    results = results if isinstance(results, tuple) else (results,)
    pointers = [t.data_ptr() for t in (x, *results)]
    if grad:
        torch.autograd.backward([r for r in results if r.requires_grad], [torch.ones_like(r) for r in results])
    return [r.detach() for r in results], [pointers.index(p) for p in pointers], x.detach(), x.grad


@pytest.mark.spread(2, "grad", "function")
@pytest.mark.parametrize("grad", [False, True, None], ids=["plain", "gradients", "inference mode"])
@pytest.mark.parametrize("function", SELECTED + BROKEN + COMPUTED, ids=lambda f: f.__name__)
def test_either_side_is_eagers(function, grad):
    pliant.reset()
    compiled = pliant.compile(function, backend="eager")
    for data in (*DATA, DATA[0]):
        wanted, got = outcome(function, data, grad), outcome(compiled, data, grad)
        torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)
    stats = pliant.stats()
    assert stats["fallbacks"] == 0
    selected = function in SELECTED or function in COMPUTED and not grad
    assert (stats["graph_breaks"] == 0) is selected, stats["break_reasons"]
    assert not selected or stats["graphs"] == 1
    pliant.reset()


def one_of_two(x, a, b):
    return ((-a if x.sum() > 0 else -b) * x).sum()


def filled_from_another(x, a, b):
    h = x * a
    if h.isinf().any():
        h = torch.where(h > 0, b, h)
    return h.sum()


def written_by_another(x, a, b):
    h, k = x * a, x * a
    k.mul_(b)
    return (-h if x.sum() > 0 else -k).sum()


def of_the_same(x, a, b):
    h, k = (x * a * b).chunk(2)
    return (F.relu(h) if x.sum() > 0 else -k).sum()


@pytest.mark.parametrize("data", [torch.ones(4), -torch.ones(4), torch.full((4,), float("inf"))], ids=str)
@pytest.mark.parametrize(
    ("function", "selected"),
    [(one_of_two, False), (filled_from_another, False), (written_by_another, False), (of_the_same, True)],
)
def test_who_gets_no_gradient_gets_no_zeros(function, selected, data):
    pliant.reset()
    found = []
    for f in (function, pliant.compile(function, backend="eager")):
        leaves = [torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)]
        f(data, *leaves).backward()
        found.append([leaf.grad for leaf in leaves])
    assert [g is None for g in found[0]] == [g is None for g in found[1]]
    for wanted, got in zip(*found, strict=True):
        assert wanted is None or torch.allclose(wanted, got, equal_nan=True)
    assert (pliant.stats()["graph_breaks"] == 0) is selected
    pliant.reset()


@pytest.mark.parametrize("data", [torch.tensor([0.0, 1.0]), torch.tensor([0.0, 9.0])], ids=str)
def test_infinite_derivatives_of_what_is_not_taken(data):
    pliant.reset()
    for function in (the_next_one, lambda x: max(x.sum() * 2, x.sqrt().sum())):
        found = []
        for f in (function, pliant.compile(function, backend="eager")):
            leaf = data.clone().requires_grad_()
            f(leaf).backward()
            found.append(leaf.grad)
        torch.testing.assert_close(found[1], found[0], rtol=0, atol=0, equal_nan=True)
    assert pliant.stats()["graph_breaks"] == 2
    pliant.reset()


def test_the_kernels_agree():
    pliant.reset()
    compiled = pliant.compile(in_a_loop)
    for data in DATA:
        wanted, got = outcome(in_a_loop, data, True), outcome(compiled, data, True)
        torch.testing.assert_close(got, wanted, equal_nan=True)
    pliant.reset()


def test_sides_of_branches():
    def f(a, b, c):
        if a:
            b = c
        while b:
            if c:
                b = a
        if c:
            return a
        return b

    program = decode(f.__code__)
    found = {op.line - f.__code__.co_firstlineno: sides(program, op.index) for op in program if "POP_JUMP" in op.name}
    assert found[1] is not None and found[1].meet is not None
    assert found[3] is None  # a loop
    assert found[6] is not None and found[6].meet is None  # at the end
    assert found[6].copies is None


def test_ends_of_functions_that_are_written_twice():
    def f(a, b):
        return b.get(a if a else b) + 1

    def g(a, b):
        if a:
            return b.get(a, 1)
        return b.get(a, True)

    (found,) = (sides(program, op.index) for program in [decode(f.__code__)] for op in program if "POP_JUMP" in op.name)
    if sys.version_info < (3, 12):
        assert found.meet is not None
    else:
        assert found.meet is None
        one, other = (decode(f.__code__).ops[k] for k in found.copies)
        assert one.name == other.name == "CALL" and one.index != other.index
    program = decode(g.__code__)
    (found,) = (sides(program, op.index) for op in program if "POP_JUMP" in op.name)
    assert [program.ops[k].name for k in found.copies or ()] == ["CALL", "CALL"]
