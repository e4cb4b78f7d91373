"""Calls past the recompile limit: eager behind the guards, counted, explained once; what entries serve they still serve."""

import pytest
import torch
from torch import nn

import pliant
from pliant.dispatch.compiled_function import dispatcher_of
from pliant.guards import explain
from pliant.guards.steps import MISS

pytestmark = pytest.mark.filterwarnings("ignore:.*has been compiled 2 times")


@pytest.fixture(autouse=True)
def few_compilations():
    pliant.reset()
    with pliant.config.patch(recompile_limit=2):
        yield


class Named(nn.Module):
    """Two layers, and a text read behind them."""

    def __init__(self):
        super().__init__()
        self.layers, self.name = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "a"

    def forward(self, x):
        return self.layers(x) + len(self.name)


def used_up(module):
    """Compiled for the names "a" and "bb"; others run eagerly."""
    compiled, x = pliant.compile(module, backend="eager"), torch.ones(2, 4)
    for name in ("a", "bb", "ccc"):
        module.name = name
        compiled(x)
    return compiled, x


def test_each_call_is_a_fallback_that_is_counted():
    module = Named()
    compiled, x = used_up(module)
    for _ in range(5):
        assert torch.equal(compiled(x), module(x))
    stats = pliant.stats()
    assert (stats["recompiles"], stats["recompile_limits"], stats["fallbacks"]) == (1, 6, 6)
    assert "`Named.name` was 'a', is 'ccc'" in next(iter(stats["fallback_reasons"])).replace("self", "Named")


@pytest.mark.fallbacks_expected  # the limit is reached
def test_the_miss_is_explained_once(monkeypatch):
    module = Named()
    compiled, x = used_up(module)
    monkeypatch.setattr(explain, "explain_miss", lambda *_: pytest.fail("it is explained again"))
    for name in ("ccc", "dddd", "eeeee"):
        module.name = name
        assert torch.equal(compiled(x), module(x))


def test_what_a_stance_says_holds_past_the_limit():
    compiled, x = used_up(Named())
    with pliant.set_stance("fail_on_recompile"), pytest.raises(pliant.errors.RecompileError):
        compiled(x)
    with pliant.set_stance("eager_on_recompile"):
        compiled(x)  # as it was asked for: no fallback
    assert pliant.stats()["fallbacks"] == 1


@pytest.mark.fallbacks_expected  # the limit is reached
def test_more_room_is_used():
    module = Named()
    compiled, x = used_up(module)
    with pliant.config.patch(recompile_limit=3):
        assert torch.equal(compiled(x), module(x))
    assert pliant.stats()["recompiles"] == 2


def test_entries_serve_the_calls_they_are_for():
    module = Named()
    compiled, x = used_up(module)
    for _ in range(10):
        compiled(x)
    before = pliant.stats()["fallbacks"]
    for name in ("a", "bb", "a"):
        module.name = name
        assert torch.equal(compiled(x), module(x))
    assert pliant.stats()["fallbacks"] == before


@pytest.mark.fallbacks_expected  # the limit is reached
def test_what_failed_before_is_asked_first():
    module = Named()
    compiled, x = used_up(module)
    for _ in range(5):
        compiled(x)
    for entry in dispatcher_of(compiled).entries:
        runs = []
        entry.run = lambda args, kwargs, runs=runs: runs.append(args) or MISS
        entry.attempt((x,), {})
        assert entry.probes and not runs


@pytest.mark.fallbacks_expected  # the limit is reached
def test_a_probe_reads_no_further_than_the_check():
    """Behind the type that fails first, an object of another class is not asked for its length."""
    asked = []

    class Rude(list):
        def __len__(self):
            asked.append(self)
            return 0

    def total(x, items):
        return x + sum(items)

    compiled, x = pliant.compile(total, backend="eager", dynamic=False), torch.ones(2)
    for items in ([1], [1, 2, 3], ["a"], [1, 2, 3, 4], [1, 2, 3, 4]):
        if type(items[0]) is int:
            compiled(x, items)
    entries = dispatcher_of(compiled).entries
    assert entries[0].probes
    for entry in entries:
        assert entry.attempt((x, Rude()), {}) is MISS
    assert not asked


@pytest.mark.fallbacks_expected  # the limit is reached
def test_another_order_is_tried_too():
    """What fails may be another fact from call to call."""
    module = Named()
    compiled, x = used_up(module)
    for step in range(12):
        module.name = "ccc" if step % 3 else "a"
        other = torch.ones(3, 4) if step % 2 else x
        assert torch.equal(compiled(other), module(other))
