"""Loops over the rows of a mask that have anything set: whole where rows without do nothing, else a break."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pliant
from pliant import config
from pliant.debug import events

EXPERTS = 4


def mask_of(chosen):
    return F.one_hot(chosen, num_classes=EXPERTS).permute(2, 1, 0)


def hits_of(mask):
    return torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()


def by_tensor(x, chosen, weights, table):
    final = torch.zeros_like(x)
    with torch.no_grad():
        mask = mask_of(chosen)
        hits = hits_of(mask)
    for expert in hits:
        expert = expert[0]
        if expert == EXPERTS:
            continue
        place, token = torch.where(mask[expert])
        found = F.silu(x[token] @ table[expert]) * weights[token, place, None]
        final.index_add_(0, token, found.to(x.dtype))
    return final


def by_number(x, chosen, weights, table):
    final = torch.zeros_like(x)
    mask = mask_of(chosen)
    for row in (mask.sum((1, 2)) > 0).nonzero(as_tuple=False):
        expert = int(row.item())
        place, token = torch.where(mask[expert].squeeze(0))
        if token.numel() == 0:
            continue
        gate, up = F.linear(x[token], torch.cat([table[expert], table[expert]])).chunk(2, dim=-1)
        final.index_add_(0, token, gate.sigmoid() * up * weights[token, place, None])
    return final


def of_truths(x, chosen, weights, table):
    """The mask is one of truths, of which a row may have nothing at all."""
    final = x.new_zeros(x.shape)
    mask = (chosen[None] == torch.arange(EXPERTS)[:, None, None]) & (chosen[None] > 0)
    for row in mask.any(dim=(1, 2)).nonzero():
        token, place = torch.where(mask[row].squeeze(0))
        final.index_add_(0, token, scaled(x[token], table[row[0]]) * weights[token, place, None])
    return final


def with_idle_experts(x, chosen, weights, table):
    """The last two give what they take, and no gradient to the table."""
    final = torch.zeros_like(x)
    mask = mask_of(chosen)
    for row in hits_of(mask):
        expert = int(row.item())
        place, token = torch.where(mask[expert])
        found = x[token] if expert >= EXPERTS - 2 else F.linear(x[token], table[expert])
        final.index_add_(0, token, found * weights[token, place, None])
    return final


def scaled(rows, matrix):
    return torch.relu(rows @ matrix) if matrix.dim() == 2 else rows


def given(tokens, highest=EXPERTS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x, weights = torch.randn(tokens, 8, generator=generator), torch.rand(tokens, 2, generator=generator)
    table = torch.randn(EXPERTS, 8, 8, generator=generator)
    return x, torch.randint(0, highest, (tokens, 2), generator=generator), weights, table


def outcome(function, args, grad):
    x, chosen, weights, table = args
    leaves = [t.clone().requires_grad_(grad) for t in (x, weights, table)]
    y = function(leaves[0], chosen, leaves[1], leaves[2])
    if y.requires_grad:
        y.cos().sum().backward()
    return [y.requires_grad, y.detach(), *(leaf.grad for leaf in leaves)]


def assert_as_eager(function, compiled, args, grad):
    for ours, eagers in zip(outcome(compiled, args, grad), outcome(function, args, grad), strict=True):
        if isinstance(eagers, torch.Tensor):
            torch.testing.assert_close(ours, eagers)
        else:
            assert ours is eagers


CALLS = [given(5), given(6, 2, 1), given(7, 1, 2), given(9, EXPERTS, 3)]


@pytest.mark.spread(2, "backend", "grad", "function")
@pytest.mark.parametrize("backend", ["eager", "pliant"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("function", [by_tensor, by_number, of_truths, with_idle_experts])
def test_one_graph_serves_all_hits(function, grad, backend):
    compiled = pliant.compile(function, backend=backend, fullgraph=True, dynamic=True)
    served = [given(9, EXPERTS, 3), *CALLS] if grad else CALLS
    with events.collect("graph", "recompile") as seen:
        for args in served if function is not of_truths else [c for c in served if c[1].any()]:
            assert_as_eager(function, compiled, args, grad)
    assert len(seen) == 1


@pytest.mark.parametrize("function", [by_tensor, by_number, of_truths, with_idle_experts])
def test_one_graph_serves_all_hits_in_inference_mode(function):
    compiled = pliant.compile(function, backend="eager", fullgraph=True, dynamic=True)
    with torch.inference_mode(), events.collect("graph", "recompile") as seen:
        for x, chosen, weights, table in CALLS[:2]:
            args = x.clone(), chosen.clone(), weights.clone(), table.clone()
            torch.testing.assert_close(compiled(*args), function(*args))
    assert len(seen) == 1


def test_where_no_place_is_hit_nothing_has_a_gradient():
    compiled = pliant.compile(of_truths, backend="eager", dynamic=True)
    with events.collect("assumption") as seen:
        for args in (CALLS[0], CALLS[2], CALLS[0], CALLS[2]):  # in the third nothing is above zero
            assert_as_eager(of_truths, compiled, args, grad=True)
    assert len(seen) == 1  # code that is made later does not assume it


def test_where_only_idle_experts_are_hit_the_table_has_no_gradient():
    compiled = pliant.compile(with_idle_experts, backend="eager", dynamic=True)
    idle = [(x, chosen.clamp(min=EXPERTS - 2), weights, table) for x, chosen, weights, table in CALLS]
    with events.collect("assumption") as seen:
        for args in (CALLS[0], idle[0], idle[1], CALLS[3]):
            assert_as_eager(with_idle_experts, compiled, args, grad=True)
    assert len(seen) == 1


# ---- turns that may do something where the row has nothing
class Each(nn.ModuleDict):
    """An expert is a module of its own, whose parameters have no gradient unless it is hit."""

    def __init__(self):
        super().__init__({f"expert_{k}": nn.Linear(8, 8) for k in range(EXPERTS)})

    def forward(self, x, chosen, weights, table):
        final = torch.zeros_like(x)
        mask = F.one_hot(chosen, num_classes=EXPERTS)
        mask = (mask * (torch.cumsum(mask, dim=0) <= 4)).permute(2, 1, 0)  # an expert takes so many tokens
        for row in hits_of(mask):
            place, token = torch.where(mask[row].squeeze(0))
            found = self[f"expert_{row[0]}"](x[None, token].reshape(-1, x.shape[-1]))
            found = F.dropout(found, 0.5, self.training)
            final.index_add_(0, token, found * weights[token, place, None])
        return final


def gradients(module, compiled, args):
    module.zero_grad(set_to_none=True)
    compiled(*args).sum().backward()
    return [p.grad for p in module.parameters()]


def test_modules_that_are_not_hit_get_no_gradient():
    module = Each().eval()
    compiled = pliant.compile(module, backend="eager", dynamic=True)
    for args in CALLS:
        ours, eagers = gradients(module, compiled, args), gradients(module, module, args)
        assert [g is None for g in ours] == [g is None for g in eagers]
        torch.testing.assert_close([g for g in ours if g is not None], [g for g in eagers if g is not None])
    with torch.no_grad():
        whole = pliant.compile(module, backend="eager", dynamic=True, fullgraph=True)
        for args in CALLS:
            torch.testing.assert_close(whole(*args), module(*args))


def appends(x, mask, seen):
    for row in hits_of(mask):
        seen.append(row)
    return x + len(seen)


def appends_inside(x, mask, seen):
    found = []
    for row in hits_of(mask):
        noted(found, row)
    return x + len(found)


def noted(found, row):
    found.append(row)


def counts(x, mask, seen):
    count = 0
    for _ in hits_of(mask):
        count = count + 1
    return x + count


def carries(x, mask, seen):
    for row in hits_of(mask):
        x = x + row
    return x


def keeps_the_last(x, mask, seen):
    row = None
    for row in hits_of(mask):
        pass
    return x + row


def writes_an_input(x, mask, seen):
    for row in hits_of(mask):
        token = torch.where(mask[row[0]])[1]
        x.index_add_(0, token, torch.ones(token.shape[0], 8))
    return x


def writes_all_rows(x, mask, seen):
    final = torch.zeros_like(x)
    everywhere = torch.arange(x.shape[0])
    for row in hits_of(mask):
        final.index_add_(0, everywhere, x * row)
    return final


def writes_where_another_row_says(x, mask, seen):
    final = torch.zeros_like(x)
    for row in hits_of(mask):
        token = torch.where(mask[(row[0] + 1) % EXPERTS])[1]
        final.index_add_(0, token, x[token])
    return final


def reads_a_new_dimension(x, mask, seen):
    """`mask[True]` is all of the mask, not its row 1."""
    final = torch.zeros_like(x)
    for row in hits_of(mask):
        token = torch.where(mask[True][0, 0])[1] if row[0] == 1 else torch.where(mask[row[0]])[1]
        final.index_add_(0, token, x[token])
    return final


def adds_in_place(x, mask, seen):
    final = torch.zeros_like(x)
    for row in hits_of(mask):
        final += row
    return final


def stops(x, mask, seen):
    final = torch.zeros_like(x)
    for row in hits_of(mask):
        token = torch.where(mask[row[0]])[1]
        final.index_add_(0, token, x[token])
        if token.shape[0] > 3:
            break
    return final


def fails_without_rows(x, mask, seen):
    final = torch.zeros_like(x)
    for row in hits_of(mask):
        token = torch.where(mask[row[0]])[1]
        final.index_add_(0, token, x[token] - x[token].amax(0))
    return final


def counted_by_view(x, mask, seen):
    final = torch.zeros_like(x)
    for row in hits_of(mask):
        token = torch.where(mask[row[0]])[1]
        final.index_add_(0, token, x[token].reshape(token.shape[0], -1))
    return final


def draws(x, mask, seen):
    final = torch.zeros_like(x)
    for row in hits_of(mask):
        token = torch.where(mask[row[0]])[1]
        final.index_add_(0, token, F.dropout(x[token]))
    return final


def takes_items(x, mask, seen):
    numbers = iter(range(10))
    for _ in hits_of(mask):
        len(str(next(numbers)))
    return x + next(numbers)


def changes_the_mask(x, mask, seen):
    final, mask = torch.zeros_like(x), mask.clone()
    for row in hits_of(mask):
        token = torch.where(mask[row[0]])[1]
        final.index_add_(0, token, x[token])
        mask[-1] = 1
    return final


def shifts_the_places(x, mask, seen):
    final, hits = torch.zeros_like(x), hits_of(mask)
    hits.sub_(1).clamp_(min=0)
    for row in hits:
        token = torch.where(mask[row[0]])[1]
        final.index_add_(0, token, x[token])
    return final


def hooks(x, mask, seen):
    final, x = torch.zeros_like(x), x.clone().requires_grad_()
    for row in hits_of(mask):
        token = torch.where(mask[row[0]])[1]
        rows = x[token]
        rows.register_hook(lambda g, row=row: seen.append(row))
        final.index_add_(0, token, rows)
    final.sum().backward()
    return final.detach()


def cancels(x, mask, seen):
    """A row may have ones and minus ones, which add up to nothing."""
    final, mask = torch.zeros_like(x), mask - mask.flip(0)
    for row in (mask.sum((1, 2)) != 0).nonzero():
        token = torch.where(mask[row[0]])[1]
        final.index_add_(0, token, x[token])
    return final


PROGRAMS = [
    appends, appends_inside, counts, carries, keeps_the_last, writes_an_input, writes_all_rows, adds_in_place, stops,
    writes_where_another_row_says, fails_without_rows, counted_by_view, draws, takes_items, changes_the_mask, cancels,
    reads_a_new_dimension, shifts_the_places, hooks,
]  # fmt: skip


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_turns_that_do_more_break_the_graph(function):
    compiled = pliant.compile(function, backend="eager", dynamic=True)
    for x, chosen, *_ in CALLS:
        results = []
        for called in (function, compiled):
            seen = []
            torch.manual_seed(0)
            with config.patch(recompile_limit=100):
                results.append((called(x.clone(), mask_of(chosen), seen), seen))
        torch.testing.assert_close(results[1][0], results[0][0])
        assert sorted(map(int, results[1][1])) == sorted(map(int, results[0][1]))


def divides_weights(x, chosen, weights, table):
    final = torch.zeros_like(x)
    mask = mask_of(chosen)
    for row in hits_of(mask):
        place, token = torch.where(mask[row[0]])
        scale = table[row[0], 0, 0]  # zero for an expert that is not hit
        final.index_add_(0, token, x[token] @ (table[row[0]] / scale))
    return final


def test_weights_that_are_not_hit_have_no_gradient_of_zero_times_infinity():
    compiled = [pliant.compile(divides_weights, backend="eager", dynamic=True, fullgraph=whole) for whole in (True, False)]
    x, chosen, weights, table = given(6, 2, 1)
    table[2:, 0, 0] = 0
    assert_as_eager(divides_weights, compiled[0], (x, chosen, weights, table), grad=False)
    assert_as_eager(divides_weights, compiled[1], (x, chosen, weights, table), grad=True)
    with pytest.raises(pliant.errors.GraphBreakError, match="may be no zero"):
        outcome(compiled[0], (x, chosen, weights, table), grad=True)
