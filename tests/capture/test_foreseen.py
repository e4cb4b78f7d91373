"""Branches on what masks and ids say: the side taken now is in the graph, which checks that it is."""

from __future__ import annotations

import copy

import pytest
import torch

import pliant
from pliant.debug import events

LONG = 1100  # more integers than guards look at


def by_any(mask, x):
    return torch.cat([x, x]).sin() if (mask > 1).any() else x.cos() * 2


def by_item(mask, x):
    count = mask.sum().item()
    if count > 3000:
        return torch.cat([x, x]) + count
    return x - count


def by_float_mask(mask, x):
    kept = torch.where(mask[:, None] > 1, 0.0, -1.0)
    row = kept[:, 0]
    row[mask == 7] = 1.0
    if (row >= 0).flatten().any().item():
        return torch.cat([x, x])
    return x * 3


def each(mask, x):
    for kind in range(3):
        if (mask == kind).any():
            x = torch.cat([x, x[:1] + kind])
    return x


def stores(mask, x):
    y = x.sin()
    if (mask > 1).any():
        y[0] = 5.0
    x.add_(1)
    return y


def by_counts(mask, x):
    """How often each kind is there, counted in place, decides."""
    kinds = mask % 8
    counts = torch.zeros(8, dtype=torch.int64).scatter_add_(0, kinds, torch.ones_like(kinds[:1]).expand_as(kinds))
    if torch.tensor([counts[7:].max(), x.shape[0]]).float().sum() > 6:
        return torch.cat([x, x])
    return x * 3


PROGRAMS = [by_any, by_item, by_float_mask, each, stores, by_counts]


def masks(*values, length=LONG):
    return [torch.full((length,), value) for value in values]


def check(compiled, program, mask, x):
    mine, theirs = x.clone(), x.clone()
    torch.testing.assert_close(compiled(mask, mine), program(mask, theirs))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("backend", ["eager", "pliant"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_one_graph_while_the_outcome_stays(program, backend):
    pliant.reset()
    compiled = pliant.compile(program, backend=backend)
    for mask in (*masks(1, 0, 1), *masks(1, length=LONG + 5), *masks(1, length=LONG + 9)):
        if program is each:
            mask[:2] = torch.tensor([0, 1])
        check(compiled, program, mask, torch.rand(3, 4))
    found = pliant.stats()
    assert (found["graphs"], found["graph_breaks"], found["fallbacks"]) == (2, 0, 0)


@pytest.mark.parametrize("backend", ["eager", "pliant"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_an_outcome_that_changes_is_eagers_and_breaks_from_then_on(program, backend):
    pliant.reset()
    compiled = pliant.compile(program, backend=backend)
    for mask in masks(1, 7, 1, 7, 0, 7):
        check(compiled, program, mask, torch.rand(3, 4))
    found = pliant.stats()
    both = program is each  # a turn may go one way and the next the other
    assert found["assumptions"] == 1 + both and found["graph_breaks"] >= 1 and found["graphs"] <= 14


@pytest.mark.parametrize("program", [by_any, by_item, by_float_mask], ids=lambda f: f.__name__)
def test_gradients(program):
    pliant.reset()
    compiled = pliant.compile(program)
    for mask in masks(1, 7, 1, 7):
        x = torch.rand(3, 4, requires_grad=True)
        mine, theirs = (torch.autograd.grad(f(mask, x).sum(), x)[0] for f in (compiled, program))
        torch.testing.assert_close(mine, theirs)


def stored_by_place(mask, row):
    row[mask == 7] = 1


def added(mask, row):
    row += mask > 5


def joined(mask, row):
    row |= mask


def filled(mask, row):
    row.masked_fill_(mask == 7, 2)


@pytest.mark.parametrize("store", [stored_by_place, added, joined, filled], ids=lambda f: f.__name__)
def test_stores_decide(store):
    def program(mask, x):
        row = torch.zeros_like(mask)
        store(mask, row)
        return torch.cat([x, x]) if (row > 0).any() else x * 3

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for mask in masks(7, 7):
        check(compiled, program, mask, torch.rand(3, 4))
    found = pliant.stats()
    assert (found["graphs"], found["graph_breaks"], found["assumptions"]) == (1, 0, 0)


def test_random_state_of_a_call_that_is_done_again():
    def program(mask, x):
        x = torch.nn.functional.dropout(x, 0.5)
        return torch.cat([x, x]) if (mask > 1).any() else torch.nn.functional.dropout(x, 0.5)

    pliant.reset()
    compiled = pliant.compile(program)
    for mask in masks(1, 7, 1):
        results = []
        for function in (compiled, program):
            torch.manual_seed(3)
            results.append((function(mask, torch.ones(50)), torch.rand(2)))
        torch.testing.assert_close(*results)


def not_foreseen_by_floats(mask, x):
    return torch.cat([x, x]) if x.sum() > 0 else x


def not_foreseen_by_chance(mask, x):
    return torch.cat([x, x]) if (torch.rand(3) > 0.5).any() else x


@pytest.mark.parametrize("program", [not_foreseen_by_floats, not_foreseen_by_chance], ids=lambda f: f.__name__)
def test_what_is_no_mask_breaks(program):
    pliant.reset()
    pliant.compile(program, backend="eager")(torch.ones(LONG), torch.ones(3))
    assert pliant.stats()["graph_breaks"] == 1


def test_fullgraph_tells_of_the_branch():
    pliant.reset()
    with pytest.raises(pliant.errors.GraphBreakError):
        pliant.compile(by_any, fullgraph=True)(*masks(1), torch.ones(3))


def test_a_loop_by_data_ends():
    def program(mask, x):
        while (mask > 0).any():
            mask, x = mask - 1, x + 1
        return x

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for mask in masks(30, 2, 5):
        check(compiled, program, mask, torch.rand(3))


def repeated(weight, grid):
    """The derivative of `repeat` asks whether there is one of it."""
    return torch.cat([weight[:count].repeat(times, 1) * 2 for times, count in grid.tolist()])


def test_what_derivatives_ask_of_numbers_in_inputs_is_as_it_is_now():
    pliant.reset()
    compiled, weight = pliant.compile(repeated), torch.rand(8, 4, requires_grad=True)

    def kinds(*rows):
        grid = torch.tensor(rows)
        with events.collect("graph", "graph_break", "fallback", "assumption") as seen:
            result = compiled(weight, grid)
            (gradient,) = torch.autograd.grad(result.sum(), weight)
        wanted = repeated(weight, grid)
        torch.testing.assert_close(result, wanted)
        torch.testing.assert_close(gradient, torch.autograd.grad(wanted.sum(), weight)[0])
        return [event.kind for event in seen]

    assert kinds([1, 3], [1, 2]) == ["graph"]
    assert kinds([1, 3], [1, 4]) == []
    assert kinds([2, 3], [1, 4]) == ["assumption"]
    assert kinds([2, 3], [1, 4]) == ["graph"]
    assert kinds([1, 3], [1, 4]) == ["assumption"]
    assert kinds([1, 3], [1, 4]) == ["graph"]  # from now on it is a guard: an entry for each side
    assert kinds([2, 3], [1, 4]) == ["graph"]
    for times in (1, 2, 3, 1, 2, 5):
        assert kinds([times, 3], [1, 2]) == []


class Annealed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("share", torch.ones(2))

    def forward(self, x):
        return torch.cat([x, x]).sin() if self.share[1] > 0 else x.cos() * 2


class SetUpByTheFirst(torch.nn.Module):
    """The first call sets the module up."""

    def __init__(self, breaks):
        super().__init__()
        self.register_buffer("low", torch.full((4,), -1e-5))
        self.breaks = breaks

    def forward(self, x):
        if self.breaks:
            pliant.graph_break()
        low = x.detach().min(0).values
        if self.low.min() > -1.1e-5:
            self.low = self.low + low
        else:
            self.low = torch.minimum(self.low, low)
        return x.clamp(self.low.min())


@pytest.mark.parametrize("breaks", [False, True])
def test_modules_that_the_first_call_sets_up_are_one_graph_afterwards(breaks):
    """Also where they come behind a break."""
    pliant.reset()
    model = torch.nn.Sequential(SetUpByTheFirst(breaks), torch.nn.Linear(4, 4), SetUpByTheFirst(False))
    eager = copy.deepcopy(model)
    compiled = pliant.compile(model, backend="eager")
    for call in range(5):
        x = torch.randn(6, 4) - 1
        torch.testing.assert_close(compiled(x), eager(x))
        torch.testing.assert_close(dict(model.named_buffers()), dict(eager.named_buffers()))
    found = pliant.stats()
    assert set(found["break_reasons"]) <= {"user-request"} and found["assumptions"] == 1 + breaks
    assert found["graphs"] == 2 * (1 + breaks)


def test_a_few_floats_of_a_module_decide_as_they_do_now():
    pliant.reset()
    module = Annealed()
    compiled = pliant.compile(module)

    def kinds(share):
        module.share.fill_(share)
        x = torch.rand(3, 4)
        with events.collect("graph", "graph_break", "fallback", "assumption") as seen:
            result = compiled(x)
        torch.testing.assert_close(result, module(x))
        return [event.kind for event in seen]

    assert kinds(1.0) == ["graph"]
    assert kinds(0.5) == []
    assert kinds(0.0) == ["assumption"]
    assert kinds(0.0) == ["graph"]
    assert kinds(0.0) == []
    assert kinds(1.0) == ["assumption"]
    assert "graph_break" in kinds(1.0)
    assert kinds(0.0) == ["graph"]
    assert kinds(1.0) == []


class Experts(torch.nn.Module):
    """Rows go to experts that data chooses; one without rows is left out."""

    def __init__(self, of_hit):
        super().__init__()
        self.gate = torch.nn.Linear(8, 6)
        self.up = torch.nn.Parameter(torch.randn(6, 8, 8, generator=torch.Generator().manual_seed(0)))
        self.of_hit = of_hit

    def forward(self, x):
        weight, chosen = torch.topk(self.gate(x).softmax(-1), 2)
        mask = torch.nn.functional.one_hot(chosen, 6).permute(2, 1, 0)
        experts = mask.sum((-1, -2)).gt(0).nonzero() if self.of_hit else torch.arange(6)
        out = torch.zeros_like(x)
        for expert in experts:
            number = int(expert.item())
            if expert == 6:
                continue
            slot, row = torch.where(mask[number])
            if row.numel() == 0:
                continue
            out = out.index_add(0, row, (x[row] @ self.up[number]).relu() * weight[row, slot, None])
        return out


@pytest.mark.parametrize("of_hit", [True, False])
def test_experts_without_rows(of_hit):
    """What is behind the one break is decided by integers that are given there."""
    torch.manual_seed(0)
    model = Experts(of_hit)
    pliant.reset()
    compiled = pliant.compile(model, backend="eager")
    given = [torch.randn(5, 8) for _ in range(12)]
    for x in given[:8]:
        torch.testing.assert_close(compiled(x), model(x))
    before = pliant.stats()
    for x in given[8:]:
        torch.testing.assert_close(compiled(x), model(x))
    after = pliant.stats()
    assert after["fallbacks"] == after["assumptions"] - before["assumptions"] == 0
    assert after["graph_breaks"] == 1 or not of_hit


def test_a_branch_on_a_mask_of_sizes_that_vary_fixes_none():
    """Elements of the mask as numbers would be one graph a size."""

    def put(ids, x):
        out = x * 1
        for kind in range(3):
            mask = ids == kind
            if mask.any():
                out[mask] = x[:1, 0].expand_as(out[mask])
        return out

    compiled = pliant.compile(put, backend="eager")
    pliant.reset()
    for n in (2, 3, 4, 5):
        ids, x = torch.arange(6 * n).view(n, 6) % 3, torch.randn(n, 6, 4)
        assert torch.equal(compiled(ids, x), put(ids, x))
    for ids in (torch.zeros(6, 6, dtype=torch.int64), torch.ones(7, 6, dtype=torch.int64)):  # other sides are taken
        x = torch.randn(*ids.shape, 4)
        assert torch.equal(compiled(ids, x), put(ids, x))
        if ids[0, 0] == 0:
            assert pliant.stats()["graphs"] == 2 and not pliant.stats()["graph_breaks"]


def same_inputs(x, y, scale):
    return torch.cat([x, x]) if torch.equal(x, y) else y.sin()


def scaled_alike(x, y, scale):
    one, other = torch.cat([x / scale.exp(), x]), torch.cat([y / scale.exp(), y])
    return torch.cat([one, one]) if one.equal(other) else (one.sum() + other.sum())


def of_parts(x, y, scale):
    halves = x[: x.shape[0] // 2].tanh(), y[: y.shape[0] // 2].tanh()
    return torch.cat([x, x]) * scale if all(torch.equal(*pair) for pair in (halves, halves)) else y.cos()


COMPARED = [same_inputs, scaled_alike, of_parts]


@pytest.mark.parametrize("backend", ["eager", "pliant"])
@pytest.mark.parametrize("program", COMPARED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("other", [lambda x: x, torch.clone, lambda x: torch.cat([x, x])], ids=["same", "equal", "longer"])
def test_whole_tensors_that_are_equal_or_not(program, other, backend):
    pliant.reset()
    compiled = pliant.compile(program, backend=backend)
    for size in range(4, 8):
        x, scale = torch.randn(size, 2), torch.rand(1)
        torch.testing.assert_close(compiled(x, other(x), scale), program(x, other(x), scale))
    found = pliant.stats()
    assert (found["graphs"], found["graph_breaks"], found["assumptions"], found["fallbacks"]) == (2, 0, 0, 0)


@pytest.mark.parametrize("program", COMPARED, ids=lambda f: f.__name__)
def test_whole_tensors_that_are_equal_at_times(program):
    pliant.reset()
    compiled = pliant.compile(program)
    x, scale = torch.randn(4, 2), torch.rand(1)
    for y in (x, x.clone(), x + 1, x * float("nan"), x, torch.cat([x, x]), x[:2]):
        torch.testing.assert_close(compiled(x, y, scale), program(x, y, scale), equal_nan=True)
    x[0, 0] = float("nan")
    torch.testing.assert_close(compiled(x, x, scale), program(x, x, scale), equal_nan=True)
    assert pliant.stats()["assumptions"] >= 1


def test_what_draws_is_not_taken_for_equal_for_long():
    def program(x):
        return torch.cat([x, x]) if torch.equal(torch.rand(3), torch.rand(3)) else x.sin()

    pliant.reset()
    compiled = pliant.compile(program)
    for size in (2, 2, 2):
        x = torch.rand(size)
        torch.testing.assert_close(compiled(x), program(x))
    assert pliant.stats()["assumptions"] <= 2


def by_cholesky(x):
    factor, info = torch.linalg.cholesky_ex(x)
    if not torch.any(info):
        return torch.cat([factor, factor])
    return x.sin()


def by_inverse(x):
    found = torch.linalg.inv_ex(x)
    return torch.cat([x, x]) if found.info.any() else found.inverse


@pytest.mark.parametrize("program", [by_cholesky, by_inverse], ids=lambda f: f.__name__)
def test_factorizations_succeed_as_a_rule(program):
    pliant.reset()
    compiled = pliant.compile(program)
    for size in range(2, 5):
        x = torch.eye(size) * 2
        torch.testing.assert_close(compiled(x), program(x))
    found = pliant.stats()
    assert (found["graphs"], found["graph_breaks"], found["fallbacks"]) == (2, 0, 0)
    for x in (torch.zeros(3, 3), torch.eye(3), torch.zeros(3, 3)):
        torch.testing.assert_close(compiled(x), program(x))
    assert pliant.stats()["assumptions"] == 1
