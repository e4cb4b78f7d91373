"""`min(tensor, 2.0)` and branches that give a tensor or a number: one graph where nobody can tell them apart, else as eager."""

import pytest
import torch

import pliant
from pliant.debug import events


def shifted(x):
    x = x * 1
    x -= min(2.0, x.sum())
    return x


# In one graph: what is taken meets a larger tensor of its type.
WHOLE = {
    "min": lambda x: x * min(x.sum(), 2.0),
    "max": lambda x: x / max(x.abs().mean(), 1),
    "one element": lambda x: max(2, x.sum().reshape(1)) + x,
    "of three": lambda x: x * max(x[0, 0], x[1, 1], 0.5),
    "in place": shifted,
    "branch": lambda x: (x * (x.sum() if x.sum() > 0 else 1.5)).relu(),
    "double": lambda x: x.double() - min(x.double().sum(), 0.1),
    "asked whether there is one": lambda x: [x * one if one is not None else x for one in (min(x.sum(), 2.0),)][0],
    "in a tuple": lambda x: next(iter([x * y for y in (min(x.sum(), 2.0),)])),
}


def written_later(x):
    total = x.sum()
    taken = max(total, 0.5)
    before = x * taken
    total.add_(1)
    return before, x * taken


def over_a_break(x):
    taken = min(x.sum(), 2.0)
    pliant.graph_break()
    return x * taken


def in_place_of_what_is_taken(x):
    taken = min(x.sum(), 2.0)
    taken *= 3
    return x * taken


# It is told which of them it is: the graph breaks there.
TOLD = {
    **{one.__name__: one for one in (written_later, over_a_break, in_place_of_what_is_taken)},
    "returned": lambda x: min(x.sum(), 2.0),
    "returned in a list": lambda x: [x, max(x.sum(), 0)],
    "class": lambda x: (x * min(x.sum(), 2.0), isinstance(min(x.sum(), 2.0), float), type(max(x.sum(), 2))),
    "attribute": lambda x: x * len(min(x.sum(), 2.0).__class__.__name__),
    "text": lambda x: f"{min(x.sum(), 2.0):.3f}",
    "computed with": lambda x: x * (min(x.sum(), 2.0) * 3),
    "negated": lambda x: -min(x.sum(), 2.0) + x,
    "truth": lambda x: x if max(x.sum(), 0.0) else x * 2,
    "other type": lambda x: x.double() * min(x.sum(), 0.1),
    "half": lambda x: x.bfloat16() * min(x.sum().bfloat16(), 0.1),
    "divided": lambda x: max(x.sum(), 1.0) / x,
    "power": lambda x: x.abs() ** max(x.sum(), 1.0),
    "as an index": lambda x: x[int(max(x.sum(), 0.0)) * 0],
    "given to PyTorch": lambda x: torch.clamp(x, max=min(x.sum(), 2.0)),
    "stored": lambda x: torch.cat([x, x]).index_fill_(0, torch.tensor([0]), min(x.sum(), 2.0)),
    "key": lambda x: (x, {2.0: 1}.get(min(x.sum(), 2.0))),
    "compared": lambda x: x > max(x.sum(), 0.5),
    "identity": lambda x: [x * (min(total, 2.0) is total) for total in (x.sum(),)][0],
    "history": lambda x: x * min(x.detach().requires_grad_().sum(), 2.0),
}


def run(program, backend="eager"):
    pliant.reset()
    compiled = pliant.compile(program, backend=backend)
    captures = []
    for place, (rows, columns) in enumerate(((4, 3), (6, 5), (5, 4), (7, 3), (3, 8), (4, 9))):
        x, before = torch.rand(rows, columns) * (-1) ** place, pliant.stats()["graphs"]
        with events.collect("fallback", "skip") as failures:
            found = compiled(x.clone())
        expected = program(x.clone())
        assert not failures
        same(found, expected)
        captures.append(pliant.stats()["graphs"] - before)
    return captures


def same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    elif isinstance(expected, (list, tuple)):
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    else:
        assert found == expected


@pytest.mark.spread(2, "backend", "name")
@pytest.mark.parametrize("backend", ["eager", "pliant"])
@pytest.mark.parametrize("name", WHOLE)
def test_one_graph_for_both(name, backend):
    assert run(WHOLE[name], backend) == [1, 1, 0, 0, 0, 0]
    assert pliant.stats()["graph_breaks"] == 0


@pytest.mark.parametrize("name", TOLD)
def test_what_tells_them_apart_breaks(name):
    run(TOLD[name])
    assert pliant.stats()["graph_breaks"]


def test_gradients():
    program = lambda x: x * min(x.sum(), 2.0)  # noqa: E731
    compiled = pliant.compile(program, backend="eager")
    for sign in (1, -1, 1):
        mine, theirs = (torch.full((3, 4), 0.5 * sign).requires_grad_() for _ in "ab")
        compiled(mine).sum().backward(), program(theirs).sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)
    assert pliant.stats()["fallbacks"] == 0
