"""Which sizes and numbers become symbols."""

import pytest
import torch

import pliant
from pliant import config
from pliant.debug import events
from pliant.dispatch.dynamic_policy import DynamicPolicy
from pliant.guards.sources import ArgSource, DictAttributeSource, held

X, N = ArgSource(0, "x"), ArgSource(1, "n")


def dims(policy, *sizes):
    return policy.tensor_dims(X, torch.zeros(*sizes))


def test_automatic_learns_what_changes():
    policy = DynamicPolicy()
    assert dims(policy, 4, 5) == ("static", "static")
    assert dims(policy, 4, 5) == ("static", "static")
    assert dims(policy, 4, 6) == ("dynamic", "dynamic")  # the outermost with any other
    assert dims(policy, 4, 5) == ("dynamic", "dynamic")
    assert dims(policy, 1, 5) == ("static", "dynamic")
    policy = DynamicPolicy()
    assert dims(policy, 4, 5) == ("static", "static")
    assert dims(policy, 3, 5) == ("dynamic", "static")


def test_strides_with_a_gap():
    policy = DynamicPolicy()
    first, second = (2, 0), (2, 1)
    assert [policy.stride(X, first, *seen) for seen in ((12, 2), (16, 2), (10, None))] == [
        "dynamic", "multiple", "varies"
    ]  # fmt: skip
    assert [policy.stride(X, second, *seen) for seen in ((64, 2), (64, None))] == ["dynamic", "static"]


def test_ranks_are_apart():
    policy = DynamicPolicy()
    dims(policy, 4, 5)
    assert dims(policy, 4) == ("static",)
    assert dims(policy, 5) == ("dynamic",)


def test_all_and_none():
    assert dims(DynamicPolicy(True), 4, 1, 0) == ("dynamic", "static", "static")
    never = DynamicPolicy(False)
    assert dims(never, 4) == dims(never, 5) == ("static",)
    with config.patch(dynamic="all"):
        assert dims(DynamicPolicy(), 4) == ("dynamic",)


def test_numbers():
    policy = DynamicPolicy()
    assert [policy.scalar(N, v) for v in (3, 3, 4, 3)] == ["static", "static", "dynamic", "dynamic"]
    assert [policy.scalar(N, v) for v in (0.5, 0.5, 1.5)] == ["static", "static", "dynamic"]
    assert DynamicPolicy(True).scalar(N, 7) == "dynamic"
    assert DynamicPolicy(True).scalar(N, 1) == "static"
    assert DynamicPolicy(True).scalar(DictAttributeSource(held(object(), "self"), "heads"), 7) == "static"
    with config.patch(specialize_int=True):
        assert policy.scalar(N, 9) == "static"


def test_named_sources():
    with config.patch(dynamic_sources=("L['x'].size(0)",)):
        assert dims(DynamicPolicy(), 4, 5) == ("dynamic", "static")
    with config.patch(dynamic_sources=("x",)):
        assert dims(DynamicPolicy(), 4, 5) == ("dynamic", "dynamic")


def test_marks_of_torch():
    t = torch.zeros(4, 5)
    t._dynamo_dynamic_indices = {0}
    t._dynamo_static_indices = {1}
    assert DynamicPolicy(True).tensor_dims(X, t) == ("marked", "static")


def test_symbols_pass_breaks():
    policy = DynamicPolicy()
    policy.note_dynamic(X, 2, frozenset({0}))
    assert dims(policy, 4, 5) == ("dynamic", "static")


def test_sizes_with_different_pasts_share_no_symbol():
    """Equal now by chance: a batch of 2 and a cache that has grown from 1 to 2."""
    pliant.reset()
    compiled = pliant.compile(lambda x: x.sin().sum(1))
    for n in range(1, 6):
        compiled(torch.randn(2, n, 8))
    assert pliant.stats()["graphs"] == 2


def test_numbers_of_a_module_are_constants_until_they_change():
    """Under `dynamic=True` too, and wherever the module is met: here as an argument of what goes on after a break."""

    class Head(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = 4

        def forward(self, x):
            y = x * 2
            print(end="")
            return y.view(x.size(0), self.heads, -1).sum(1)

    pliant.reset()
    head = Head()
    compiled = pliant.compile(head, dynamic=True)
    for heads in (4, 4, 8, 2):
        head.heads = heads
        for n in (3, 5):
            x = torch.randn(n, 16)
            torch.testing.assert_close(compiled(x), head(x))
    assert pliant.stats()["graphs"] <= 4


class Remembering(torch.nn.Module):
    """A model that leaves something of each call where it finds that of the last one."""

    last = None

    def __init__(self):
        super().__init__()
        self.rows = 0

    def forward(self, x):
        y = x * self.rows if self.last is not None else x
        self.last, self.rows = x.sum(1, keepdim=True), len(x)
        return y


@pytest.mark.parametrize("first, captures", [(2, 2), (1, 3)])  # a size of one is a constant
def test_what_a_call_leaves_with_symbolic_sizes_is_found_with_them(first, captures):
    model = Remembering()
    function = pliant.compile(model, backend="eager")
    with events.collect("graph") as graphs:
        for batch, before in ((first, 1), (3, first), (4, 3), (6, 4)):
            x = torch.ones(batch, 5)
            assert torch.equal(function(x), x * before) and model.rows == batch
            assert torch.equal(model.last, torch.full((batch, 1), 5.0))
    assert len(graphs) == captures


class Holding(torch.nn.Module):
    """The same in containers."""

    def __init__(self, into):
        super().__init__()
        self.listed, self.paired, self.named, self.into = [torch.zeros(3, 2)], (torch.zeros(3, 2), 0), {0: torch.zeros(3, 2)}, into

    def forward(self, x):
        y = x + 1
        if self.into == "listed":
            before, self.listed[0] = self.listed[0], x
        elif self.into == "paired":
            before, self.paired = self.paired[0], (x, 0)
        else:
            before, self.named[0] = self.named[0], x
        return y, before * 2


@pytest.mark.parametrize("into", ["listed", "paired", "named"])
def test_what_a_call_leaves_in_containers_is_found_with_symbolic_sizes(into):
    model = Holding(into)
    function = pliant.compile(model, backend="eager")
    with events.collect("graph") as graphs:
        before = torch.zeros(3, 2)
        for batch in (3, 4, 5, 7):
            x = torch.randn(batch, 2)
            assert torch.equal(function(x)[1], before * 2)
            before = x
    assert len(graphs) == 2


def test_a_size_that_grows_with_each_call_is_a_symbol_from_the_first():
    """What is left is of another size than what was found: the next call finds that."""
    model = Holding("listed")
    model.forward = lambda x: model.listed.__setitem__(0, torch.cat([model.listed[0], x]))
    function = pliant.compile(model, backend="eager")
    with events.collect("graph") as graphs:
        for length in (4, 5, 6, 7):
            function(torch.ones(1, 2))
            assert model.listed[0].shape == (length, 2)
    assert len(graphs) == 1
