"""Native functions that few graphs call are built for those alone; what cannot have one does without."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pliant
from pliant import background
from pliant.debug import events
from pliant.errors import CompileError
from pliant.runtime import auxiliary, packed_weights, random_draws
from pliant.wrappers.shared_text import AUXILIARY, auxiliary_text, runtime_text


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(auxiliary, "build_beside", names.append)
    return names


@pytest.mark.parametrize("name", AUXILIARY)
def test_each_is_a_unit_of_its_own(name: str) -> None:
    assert f"pliant_{name}" in auxiliary_text(name) and f"pliant_{name}" not in runtime_text()
    assert auxiliary.function(name) is auxiliary.function(name) is not None


def test_only_graphs_that_call_one_begin_with_it(begun: list[str]) -> None:
    pliant.compile(lambda x: (x * 2 + 1).relu())(torch.randn(40))
    assert begun == []
    pliant.compile(lambda x: F.dropout(x, 0.5))(torch.randn(40))
    assert {*begun} == {auxiliary.BERNOULLI}


@pytest.fixture
def none(monkeypatch: pytest.MonkeyPatch) -> None:
    """No unit can be built."""

    def refuse(*_: object) -> None:
        raise CompileError("no room", kind="no-space", why="the disk is full", do="none")

    monkeypatch.setattr(auxiliary, "build", refuse)
    caches = (auxiliary._function, auxiliary.fingerprint, random_draws._agrees)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def test_without_it_pytorch_draws(none: None) -> None:
    x = torch.ones(4000)
    torch.manual_seed(4)
    expected = F.dropout(x, 0.4)
    compiled = pliant.compile(lambda x: F.dropout(x, 0.4))
    with events.collect("auxiliary") as told:
        torch.manual_seed(4)
        assert torch.equal(compiled(x), expected)
        background.finish()
        assert not random_draws._agrees()
    assert [event.fields["name"] for event in told] == [auxiliary.BERNOULLI]


def test_without_it_weights_are_not_packed(none: None) -> None:
    weights = packed_weights.PackedWeights(lambda weight, *_: weight.clone())
    weight = torch.randn(8, 8)
    assert [weights.get(weight, 1, (1,)) for _ in range(4)] == [None] * 4
    convolution, image = nn.Conv2d(3, 4, 3).eval(), torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        assert torch.allclose(pliant.compile(convolution)(image), convolution(image), atol=1e-6)
