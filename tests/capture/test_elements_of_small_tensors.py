"""Elements of small tensors are numbers where the program decides by them: each row of the table, and chains."""

from __future__ import annotations

import itertools
import random
import sys

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.capture.numbers.element_rules import RULES

# What is done to `t` ([rows, 3], positive) and `k` (0-d, positive): the elements of what it gives decide branches.
PROGRAMS = {
    "view": lambda t, k: t.view(-1),
    "reshape": lambda t, k: t.reshape(3, -1),
    "unsqueeze": lambda t, k: t.unsqueeze(0).squeeze(0),
    "squeeze": lambda t, k: t[:1].squeeze(),
    "select": lambda t, k: t.select(1, 2),
    "permute": lambda t, k: t.permute(1, 0),
    "transpose": lambda t, k: t.transpose(0, 1),
    "t": lambda t, k: t.t(),
    "flatten": lambda t, k: t.flatten(),
    "unflatten": lambda t, k: t[0, :2].unflatten(0, (2, 1)),
    "expand": lambda t, k: k.expand(2),
    "cat": lambda t, k: torch.cat([t, t[:1]]),
    "concat": lambda t, k: torch.concat([t, t]),
    "stack": lambda t, k: torch.stack([t[0], t[-1]]),
    "unbind": lambda t, k: t.unbind(1)[1],
    "split": lambda t, k: t.split([1, 2], 1)[1],
    "chunk": lambda t, k: t.chunk(3, 1)[2],
    "narrow": lambda t, k: t.narrow(1, 1, 2),
    "repeat": lambda t, k: t.repeat(2, 1),
    "tile": lambda t, k: t.tile(2),
    "flip": lambda t, k: t.flip(1),
    "roll": lambda t, k: t.roll(1, 0),
    "movedim": lambda t, k: t.movedim(0, 1),
    "swapaxes": lambda t, k: t.swapaxes(0, 1),
    "broadcast_to": lambda t, k: torch.broadcast_to(k, (2, 2)),
    "clone": lambda t, k: t.clone(),
    "contiguous": lambda t, k: t.contiguous(),
    "detach": lambda t, k: t.detach(),
    "to": lambda t, k: t.to(torch.int32),
    "long": lambda t, k: t.int().long(),
    "int": lambda t, k: t.int(),
    "bool": lambda t, k: (t - 4).bool(),
    "type": lambda t, k: t.type(torch.int16),
    "cpu": lambda t, k: t.cpu(),
    "alias": lambda t, k: torch.ops.aten.alias(t),
    "getitem": lambda t, k: t[:, 0] + t[0, 1:][0],
    "__getitem__": lambda t, k: t[0][t[0] > 3],
    "getattr": lambda t, k: t.T,
    "pad": lambda t, k: F.pad(t, (1, 0), value=7),
    "repeat_interleave": lambda t, k: torch.repeat_interleave(t[:, 1] * t[:, 2], t[:, 0]),
    "full": lambda t, k: torch.full((2,), t.size(0)) + t[0, :2],
    "arange": lambda t, k: torch.arange(k) + t[0, 0],
    "tensor": lambda t, k: torch.tensor([(2, 3), (4, 1)]) + t[0, 0],
    "unique_consecutive": lambda t, k: torch.unique_consecutive(t[0]),
    "ceil": lambda t, k: torch.ceil((t[0, 0] - k) / t[0, 1] + 1).to(torch.int64),
    "floor": lambda t, k: torch.floor(t[0, 0] / k + t[0, 1] / 2).long(),
    "add": lambda t, k: t + k + 1,
    "sub": lambda t, k: t - k,
    "rsub": lambda t, k: torch.rsub(t, 9),
    "__rsub__": lambda t, k: 9 - t,
    "mul": lambda t, k: t * k * 2,
    "neg": lambda t, k: -t,
    "div": lambda t, k: torch.div(t, k, rounding_mode="trunc") + torch.div(t, 2, rounding_mode="floor"),
    "floor_divide": lambda t, k: torch.floor_divide(t, 2),
    "__floordiv__": lambda t, k: (t - 4) // k,
    "remainder": lambda t, k: (t - 5) % 3,
    "maximum": lambda t, k: torch.maximum(t, k),
    "minimum": lambda t, k: torch.minimum(t, k),
    "eq": lambda t, k: torch.eq(t, k),
    "__eq__": lambda t, k: t == k,
    "__and__": lambda t, k: (t > 2) & (t < 5),
    "__or__": lambda t, k: (t > 4) | (t == k),
    "__invert__": lambda t, k: ~(t > 3),
    "logical_and": lambda t, k: torch.logical_and(t, t - 4),
    "logical_or": lambda t, k: torch.logical_or(t - 3, t - 4),
    "logical_not": lambda t, k: torch.logical_not(t - 4),
    "clamp": lambda t, k: t.clamp(min=3, max=4),
    "ne": lambda t, k: t != k,
    "lt": lambda t, k: t < k,
    "le": lambda t, k: t <= k,
    "gt": lambda t, k: t > k,
    "ge": lambda t, k: t >= 3,
    "sum": lambda t, k: t.sum() + t.sum(1) + t.sum([0, 1], keepdim=True) + (t > 3).sum(),
    "prod": lambda t, k: t.prod(-1),
    "max": lambda t, k: t.max(),
    "min": lambda t, k: t.min(),
    "amax": lambda t, k: t.amax(0, keepdim=True),
    "amin": lambda t, k: t.amin((0, 1)),
    "all": lambda t, k: (t > 1).all(),
    "any": lambda t, k: (t > 5).any(1),
    "cumsum": lambda t, k: t.cumsum(0, dtype=torch.int32),
    "as_tensor": lambda t, k: torch.as_tensor([[1], [2]]) + t[0, 0],
    "subtract": lambda t, k: torch.subtract(t, k),
    "multiply": lambda t, k: torch.multiply(t, k),
    "negative": lambda t, k: torch.negative(t),
    "divide": lambda t, k: torch.divide(t, k, rounding_mode="floor"),
    "true_divide": lambda t, k: torch.true_divide(t * 2, 2).long(),
    "greater": lambda t, k: torch.greater(t, k),
    "greater_equal": lambda t, k: torch.greater_equal(t, k),
    "less": lambda t, k: torch.less(t, k),
    "less_equal": lambda t, k: torch.less_equal(t, k),
    "not_equal": lambda t, k: torch.not_equal(t, k),
}  # fmt: skip


def decided(x, values):
    """A result that depends on every number in nested lists."""
    if isinstance(values, list):
        for at, one in enumerate(values):
            x = decided(x + at, one)
        return x
    return x * 2 if values > 4 else x - 1 if values == 3 else x.sin()


def _cases():
    rows = ([[2, 3, 4]], [[1, 2, 2], [2, 4, 3]])
    return [(torch.arange(3.0), torch.tensor(r), torch.tensor(k)) for r, k in zip(rows, (2, 3), strict=True)]


def test_every_row_has_a_program():
    assert PROGRAMS.keys() == RULES.keys()


@pytest.mark.parametrize("name", PROGRAMS)
def test_decisions_by_elements_are_guards(name):
    def program(x, t, k):
        made = PROGRAMS[name](t, k)
        return decided(x, made.tolist()), made

    pliant.reset()
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for case in _cases():
        torch.testing.assert_close(compiled(*case), program(*case))
    assert pliant.stats()["fallbacks"] == 0


def _random_program(seed):
    """Steps that keep a small tensor of integers."""
    pick = random.Random(seed)
    steps = [
        lambda v, k: v + k, lambda v, k: v * 2 - k, lambda v, k: v.flip(0), lambda v, k: v.cumsum(0), lambda v, k: v[1:],
        lambda v, k: F.pad(v, (1, 0)), lambda v, k: torch.cat([v, k[None]]), lambda v, k: v // 2, lambda v, k: v % 5,
        lambda v, k: v[v > 2], lambda v, k: torch.maximum(v, k), lambda v, k: torch.stack([v.sum(), v.amax(), k]),
        lambda v, k: torch.repeat_interleave(v, 2)[:9], lambda v, k: torch.ceil(v / 3 + 1).int(),
    ]  # fmt: skip
    chosen = [pick.choice(steps) for _ in range(pick.randint(1, 5))]

    def program(x, t, k):
        v = t.flatten()
        for step in chosen:
            v = step(v, k) if v.numel() else k[None]
        return decided(x, v.tolist()), v, max(k, t[0, 0])

    return program


@pytest.mark.parametrize("seed", range(4))
def test_random_chains(seed):
    check_random_chain(seed)


def check_random_chain(seed):
    """Further seeds: `python tests/capture/test_elements_of_small_tensors.py FIRST LAST`."""
    pliant.reset()
    program = _random_program(seed)
    compiled = pliant.compile(program, backend="eager")
    for case in _cases():
        torch.testing.assert_close(compiled(*case), program(*case))
    assert pliant.stats()["fallbacks"] == 0


def attention_by_image(x, grid):
    """As vision encoders do: each image's patches attend to themselves."""
    lengths = torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0])
    bounds = F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0), value=0)
    parts = []
    for part in torch.split(x, (bounds[1:] - bounds[:-1]).tolist()):
        causal = part.shape[0] > 1
        q = part[None, None]
        parts.append(F.scaled_dot_product_attention(q, q, q, is_causal=causal)[0, 0])
    places = [torch.arange(h * w).view(h // 2, 2, w // 2, 2).transpose(1, 2).flatten().repeat(t) for t, h, w in grid.tolist()]
    return torch.cat(parts), torch.cat(places)


@pytest.mark.parametrize("training", [False, True])
def test_images_of_several_sizes(training):
    pliant.reset()
    compiled = pliant.compile(attention_by_image, fullgraph=True)
    for grid in ([[1, 4, 6]], [[1, 4, 8]], [[1, 6, 8]], [[1, 2, 12]]):
        sizes = torch.tensor(grid)
        x = torch.randn(int(sizes.prod(1).sum()), 8, requires_grad=training)
        wanted, found = attention_by_image(x, sizes), compiled(x, sizes)
        torch.testing.assert_close(found, wanted)
        if training:
            got, want = (torch.autograd.grad(y[0].square().sum(), x) for y in (found, wanted))
            torch.testing.assert_close(got, want)
    assert pliant.stats()["graphs"] == 2  # one for any height and width


def test_elements_that_were_written_are_data():
    def program(x, t):
        t[0, 0] += 1
        return x + 1 if t.sum() > 9 else x - 1

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for row in ([[2, 3, 4]], [[2, 3, 5]], [[1, 1, 1]]):
        ours, eagers = torch.tensor(row), torch.tensor(row)
        x = torch.ones(2)
        assert torch.equal(compiled(x, ours), program(x, eagers)) and torch.equal(ours, eagers)
    assert pliant.stats()["break_reasons"] == {"data-dependent": 1}


def test_elements_that_wrap_are_data():
    def program(x, t):
        return x + 1 if t.to(torch.int8)[0] > 0 else x - 1

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for value in (5, 200, -3, 300):
        t, x = torch.tensor([value]), torch.ones(2)
        assert torch.equal(compiled(x, t), program(x, t))


def test_elements_that_are_always_new_become_data():
    def program(x, t):
        return x * [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0][int(t.sum())]

    pliant.reset()
    compiled, x = pliant.compile(program, backend="eager"), torch.ones(2)
    for k in range(8):
        assert torch.equal(compiled(x, torch.tensor([k])), program(x, torch.tensor([k])))
    assert pliant.stats()["break_reasons"] == {"data-dependent": 1}


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_a_tensor_made_of_numbers_in_tensors():
    def program(x, n):
        a, b = x.sum(), n.max()
        mixed = torch.tensor([[b, a], [1, 2]], dtype=torch.float64)
        return torch.tensor([a, 2.0, 1]), torch.tensor([b, x.size(0)]), mixed, torch.tensor([a.double(), b])

    pliant.reset()
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for many in (3, 4, 5):
        x, n = torch.randn(many, requires_grad=True), torch.arange(70)
        for found, wanted in zip(compiled(x, n), program(x, n), strict=True):
            assert found.dtype == wanted.dtype and torch.equal(found, wanted) and not found.requires_grad




def test_kinds_of_tokens_of_a_batch_are_groups():
    """A model that takes text and images in one sequence works out positions group by group."""

    def positions(kinds, mask, x):
        made = []
        for row, kept in zip(kinds, mask, strict=True):
            groups = [(key, len(list(group))) for key, group in itertools.groupby(row[kept.bool()].tolist())]
            made.append(torch.cat([torch.arange(length) + key for key, length in groups]).sum())
        return x * torch.stack(made)[:, None]

    pliant.reset()
    compiled = pliant.compile(positions, backend="eager", fullgraph=True)
    for rows, length in ((2, 12), (3, 40), (4, 50), (2, 12)):
        kinds, mask = torch.zeros(2, rows, length, dtype=torch.int64)
        kinds[:, 3:6], mask[:, 1:] = 1, 1
        x = torch.rand(rows, length)
        torch.testing.assert_close(compiled(kinds, mask, x), positions(kinds, mask, x))
    assert pliant.stats()["graphs"] == 3


def attention_to_places(query, levels):
    """Sizes of images go through a tensor, as detectors keep them, and come back as numbers."""
    sizes = torch.tensor([tuple(one.shape[-2:]) for one in levels], dtype=torch.long, device=query.device)
    rows, columns = sizes[0, 0], sizes[0, 1]
    down = torch.arange(0, rows, dtype=query.dtype) / rows
    across = torch.arange(0, columns, dtype=query.dtype) / columns
    mask = (down.view(1, -1, 1) + across.view(1, 1, -1)).flatten(1)
    keys = levels[0].flatten(2).transpose(1, 2)[:, None]
    return F.scaled_dot_product_attention(query[:, None], keys, keys, attn_mask=mask.expand(query.shape[0], 1, 5, -1))


def test_numbers_that_operators_read_out_of_tensors_are_known_as_items_are():
    pliant.reset()
    compiled = pliant.compile(attention_to_places)
    for batch, side in ((2, 4), (3, 5), (4, 6), (2, 7)):
        query, levels = torch.rand(batch, 5, 8), [torch.rand(batch, 8, side, side)]
        torch.testing.assert_close(compiled(query, levels), attention_to_places(query, levels))
    found = pliant.stats()
    assert (found["graphs"], found["graph_breaks"], found["fallbacks"]) == (2, 0, 0)


def positions(x):
    return torch.arange(0, x.shape[0]).to(torch.float32)


def numbers_of_floats(x):
    at = positions(x)
    n = at[-1].item()
    return n, f"{n}", type(n) is float, n / 2, n > 3, int(n), float(at[2]), at.max().item(), at.sum().item()


def comparisons_of_floats(x):
    at = positions(x)
    found = []
    for a, b in ((0, 0), (1, 2), (2, 1)):
        found += [bool(at[a] > at[b]), bool(at[a] == at[b]), bool(at[a] != at[b]), bool(at[a]), bool(at[a] == b)]
        found += [bool(at[a] / 3 == at[b] / 3), bool(at[a] * 0.5 >= 1), at[a].item() == b]
    return found, torch.maximum(at[1], at[2]).item(), (at[1] - at[2]).abs().item(), (at[2] % 2).item(), (at[2] ** 2).item()


def steps_between_floats(x):
    at = positions(x)
    return torch.arange(at[0] + len(at), at[0] - at[-1] - 1, -2, dtype=torch.long).tolist()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [numbers_of_floats, comparisons_of_floats, steps_between_floats])
def test_elements_of_floats_are_floats(function, dynamic):
    compiled = pliant.compile(lambda x: (function(x), x + 1)[0], dynamic=dynamic, fullgraph=True)
    for length in (6, 9, 10):
        assert compiled(torch.ones(length)) == function(torch.ones(length))


def outcome_by_rule(name, divisor):
    """Elements of what a row's program gives for floats, and what they are in decisions."""

    def program(x):
        t = torch.arange(1, x.shape[0] * 3 + 1).to(torch.float32).view(-1, 3) / divisor
        made = PROGRAMS[name](t, torch.tensor(3).to(torch.float32) / divisor)
        parts = [one.flatten()[:3] for one in (made if isinstance(made, (tuple, list)) else (made,))]
        return [[(part[i].item(), bool(part[i] > 2), bool(part[i])) for i in range(part.shape[0])] for part in parts]

    return program


@pytest.mark.parametrize("name", PROGRAMS)
def test_elements_of_floats_by_rule(name):
    program = outcome_by_rule(name, 2)  # halves, and whole numbers among them
    try:
        expected = [program(torch.ones(n)) for n in (2, 4)]
    except (RuntimeError, TypeError) as refused:
        pytest.skip(f"not of floats: {str(refused)[:60]}")
    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    assert repr([compiled(torch.ones(n)) for n in (2, 4)]) == repr(expected)
    assert pliant.stats()["fallbacks"] == 0


def random_floats(seed):
    """A chain of rows of the table, with casts between integers and floats."""
    pick = random.Random(seed)
    casts = [
        lambda t: t, lambda t: t.to(torch.float32), lambda t: t.to(torch.float32) / pick_divisor,
        lambda t: t.to(torch.int64), lambda t: 1 - t,
    ]  # fmt: skip
    pick_divisor = pick.choice([1, 2, 3])
    steps = [(PROGRAMS[pick.choice(list(PROGRAMS))], pick.choice(casts)) for _ in range(pick.randint(2, 4))]

    def program(x):
        t, k = torch.arange(1, x.shape[0] * 3 + 1).view(-1, 3), torch.tensor(3)
        for step, cast in steps:
            flat = t.flatten()
            t = flat[:3].view(1, 3).expand(2, 3) if flat.shape[0] >= 3 else torch.stack([flat[0]] * 6).view(2, 3)
            made = step(cast(t), k)
            t = made[0] if isinstance(made, (tuple, list)) else made
            t = t.long() if t.dtype is torch.bool else t
        part = t.flatten()[:4]
        return [(part[i].item(), bool(part[i] > 2), bool(part[i])) for i in range(part.shape[0])]

    return program


@pytest.mark.parametrize("seed", range(12))
def test_random_chains_of_floats(seed):
    check_random_floats(seed)


def check_random_floats(seed):
    program, sizes = random_floats(seed), [torch.ones(n) for n in (2, 4, 3)]
    try:
        expected = [program(x) for x in sizes]
    except (RuntimeError, TypeError, IndexError):  # steps that do not fit each other
        return
    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    assert repr([compiled(x) for x in sizes]) == repr(expected), seed
    assert pliant.stats()["fallbacks"] == 0


if __name__ == "__main__":
    for seed in range(*map(int, sys.argv[1:])):
        check_random_chain(seed)
        check_random_floats(seed)


ENDS = {
    "max": lambda x: torch.arange(x.shape[0]).max().item(),
    "of positions": lambda x: int(torch.max(torch.arange(x.shape[0])[None].expand(2, -1)) + 1),
    "min": lambda x: torch.arange(3, x.shape[0] + 3).view(1, -1).min().item(),
    "amax": lambda x: torch.arange(x.shape[0] - 2, dtype=torch.long).unsqueeze(0).amax().item(),
}


@pytest.mark.parametrize("name", ENDS)
def test_ends_of_ranges_are_told_by_their_length(name):
    """However long the range is: positions of a model whose tables grow with them."""

    def program(x):
        end = ENDS[name](x)
        return x * 2 if end < 5000 else x, x.new_zeros(end + 1)

    pliant.reset()
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for size in (5, 6, 7, 800, 900):
        x = torch.ones(size)
        torch.testing.assert_close(compiled(x), program(x))
    assert pliant.stats()["graphs"] == 2


def test_ends_of_what_was_a_range_or_is_empty():
    def written(x):
        positions = torch.arange(x.shape[0])
        positions[1] = 100
        return x + positions.max().item()

    compiled = pliant.compile(written, backend="eager")
    for size in (5, 6, 70):
        torch.testing.assert_close(compiled(torch.ones(size)), written(torch.ones(size)))
    empty = pliant.compile(lambda x: torch.arange(x.shape[0] - 3).max().item(), backend="eager", dynamic=True)
    assert empty(torch.ones(6)) == 2
    with pytest.raises(RuntimeError):
        empty(torch.ones(3))


def integrated(y):
    """Steps between places that only constants tell, in float32."""
    places = torch.linspace(0, 1, 5)
    at, step, turns = places[0], places[1] - places[0], 0
    for place in places[1:]:
        while at < place:
            y, at, turns = y + step * y, at + step, turns + 1
    return y, turns


def counted(y):
    places = torch.arange(6, dtype=torch.float64).div(4).sqrt()
    n = int(torch.ceil(places[-1] - places[0]).item())
    return y * n if bool((places > 0.4).any()) else y - n


@pytest.mark.parametrize("function", [integrated, counted])
def test_floats_that_constants_tell_decide(function):
    pliant.reset()
    compiled = pliant.compile(function, fullgraph=True)
    for rows in (2, 3, 5):
        y = torch.randn(rows)
        torch.testing.assert_close(compiled(y), function(y))
    assert (pliant.stats()["graphs"], pliant.stats()["fallbacks"]) == (2, 0)


def test_floats_that_are_written_are_data():
    def program(y):
        places = torch.linspace(0, 1, 5)
        places[2] = y.sum()
        return y + 1 if places[2] > 0.6 else y - 1

    compiled = pliant.compile(program)
    for total in (0.0, 1.0, 0.0):
        y = torch.full((2,), total / 2)
        torch.testing.assert_close(compiled(y), program(y))


def test_a_size_that_elements_tell_decides_after_it_was_used():
    def program(x, at):
        row, column = torch.where(at == 1)
        counted = torch.zeros(row.numel())
        return x.sum() if row.numel() == 0 else x[row, column] + counted

    compiled = pliant.compile(program)
    for at in ([[0, 1], [1, 1]], [[1, 0], [0, 0]], [[0, 0], [0, 0]]):
        x = torch.randn(2, 2)
        torch.testing.assert_close(compiled(x, torch.tensor(at)), program(x, torch.tensor(at)))
