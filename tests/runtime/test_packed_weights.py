"""Copies of weights are used only while the weight holds what they were made from."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn

import pliant
from pliant.debug import events
from pliant.runtime import packed_weights
from pliant.runtime.auxiliary import fingerprint
from pliant.runtime.packed_weights import BUDGET
from pliant.torch_adapter import reorder_convolution_weight

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="without oneDNN nothing is packed")


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 5, 1), nn.Conv2d(5, 4, 3)).eval()


def same(compiled: Callable[..., torch.Tensor], model: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4, equal_nan=True)


def through_numpy(weight: torch.Tensor) -> None:
    weight.detach().numpy()[...] *= 3


def other_memory(weight: torch.Tensor) -> None:
    weight.data = weight.detach() * 2


def one_element(weight: torch.Tensor) -> None:
    weight.data.view(-1)[-1] += 1


WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "in place": lambda w: w.mul_(2),
    "through data": lambda w: w.data.mul_(2),
    "signs through data": lambda w: w.data.neg_(),
    "through detach": lambda w: w.detach().add_(1),
    "through numpy": through_numpy,
    "other memory": other_memory,
    "one element": one_element,
    "not a number": lambda w: w.data.fill_(float("nan")),
    "order of channels": lambda w: w.data.copy_(w.data.flip(0)),
}


def test_writes_are_seen_at_the_next_call() -> None:
    model, x = network(), torch.randn(2, 3, 16, 16)
    compiled, kept = pliant.compile(model), copy.deepcopy(model.state_dict())
    for write in WRITES.values():
        for layer in (0, 2):
            for _ in range(2):
                same(compiled, model, x)
            with torch.no_grad():
                write(model[layer].weight)
                same(compiled, model, x)
                model.load_state_dict(kept)
    same(compiled, model, x)


def test_load_state_dict_and_other_modules() -> None:
    model, other, x = network(), network(), torch.randn(2, 3, 16, 16)
    compiled, kept = pliant.compile(lambda m, x: m(x)), copy.deepcopy(model.state_dict())
    with torch.no_grad():
        for step in range(6):
            for m in (model, other):
                torch.testing.assert_close(compiled(m, x), m(x), rtol=1e-4, atol=1e-4)
            if step == 3:
                model.load_state_dict(other.state_dict())
        model.load_state_dict(kept)
        torch.testing.assert_close(compiled(model, x), model(x), rtol=1e-4, atol=1e-4)


def test_copies_are_freed_with_the_weight() -> None:
    gc.collect()
    before = BUDGET.used
    model, x = network(), torch.randn(2, 3, 16, 16)
    compiled = pliant.compile(lambda m, x: m(x))
    with torch.no_grad():
        compiled(model, x)
        assert BUDGET.used == before  # packed at the second call
        compiled(model, x)
        assert BUDGET.used > before
        compiled(network(), x)
    del model
    gc.collect()
    assert BUDGET.used == before


def test_weights_that_change_all_the_time_are_not_packed() -> None:
    model, x = network(), torch.randn(2, 3, 16, 16)
    compiled, before = pliant.compile(model), BUDGET.used
    for _ in range(4):
        same(compiled, model, x)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.data.mul_(1.5)
    assert BUDGET.used == before


def test_a_budget_that_is_used_up() -> None:
    model, x = network(), torch.randn(2, 3, 16, 16)
    gc.collect()
    with pliant.config.patch(packed_bytes=BUDGET.used + 300), events.collect("packed_weights") as found:
        compiled = pliant.compile(model)
        for _ in range(4):
            same(compiled, model, x)
    assert len(found) == 2  # the matrix of 120 bytes has room


def sizes_packed(monkeypatch: pytest.MonkeyPatch, alike: bool) -> tuple[list[int], list[bool]]:
    """Sizes, and for which calls there was a copy: three times those sizes in turn."""
    made: list[int] = []
    copies: list[bool] = []

    def reorder(weight: torch.Tensor, *facts: object) -> torch.Tensor:
        if weight.shape[1] == 3:
            made.append(facts[-1][-1])  # type: ignore[index]
        return reorder_convolution_weight(weight, *facts)

    def without_copy(x: torch.Tensor, weight: torch.Tensor, *facts: object) -> torch.Tensor:
        if weight.shape[1] == 3:
            copies[-1] = False
        return _without_copy(x, weight, *facts)

    _without_copy = packed_weights._without_copy
    monkeypatch.setattr(packed_weights, "reorder_convolution_weight", reorder)
    monkeypatch.setattr(packed_weights, "_without_copy", without_copy)
    monkeypatch.setattr(packed_weights, "are_laid_out_alike", lambda one, other: alike)
    model, sizes = network(), [16, 24, 20, 28, 32, 36]
    compiled = pliant.compile(model, dynamic=True)
    copies.append(True)
    same(compiled, model, torch.randn(2, 3, 12, 12))  # a size that is met once has none
    del copies[0]
    for _ in range(3):
        for size in sizes:
            copies.append(True)
            same(compiled, model, torch.randn(2, 3, size, size))
    assert made == sizes
    return sizes, copies


def test_images_of_all_sizes_share_a_copy_that_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    before = BUDGET.used
    sizes, copies = sizes_packed(monkeypatch, alike=True)
    first, further = copies[: len(sizes)], copies[len(sizes) :]
    assert not any(first) and all(further)
    assert BUDGET.used - before < 4000  # of one copy of each weight


def test_a_weight_has_only_so_many_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, copies = sizes_packed(monkeypatch, alike=False)
    assert copies[-len(sizes) :] == [True] * packed_weights.MOST_LAYOUTS + [False] * 2


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("side", [1, 3, 40])
def test_convolutions_without_a_copy(groups: int, side: int) -> None:
    x = torch.randn(3, 8, side, side).contiguous(memory_format=torch.channels_last)
    weight, bias = torch.randn(16, 8 // groups, 3, 3), torch.randn(16)
    found = packed_weights._without_copy(x, weight, bias, [2, 1], [1, 1], [1, 1], groups)
    wanted = torch.convolution(x.contiguous(), weight, bias, [2, 1], [1, 1], [1, 1], False, [0, 0], groups)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_a_budget_of_zero() -> None:
    model, x = network(), torch.randn(2, 3, 16, 16)
    with pliant.config.patch(packed_bytes=0), torch.no_grad(), events.collect("partition") as found:
        pliant.compile(model)(x)
    assert "packed" not in found[0].fields["text"]


def test_one_weight_for_several_numbers_of_groups() -> None:
    weight = nn.Parameter(torch.randn(8, 2, 3, 3))

    def program(x: torch.Tensor) -> torch.Tensor:
        y = torch.conv2d(x, weight, groups=2) + torch.conv2d(x.repeat(1, 2, 1, 1), weight, groups=4)
        return y.mean((2, 3))

    x = torch.randn(2, 4, 16, 16)
    compiled = pliant.compile(program)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), program(x), rtol=1e-4, atol=1e-4)


def test_threads() -> None:
    model, x = network(), torch.randn(2, 3, 16, 16)
    compiled, wrong = pliant.compile(model), []

    def work() -> None:
        with torch.no_grad():
            for _ in range(20):
                if not torch.allclose(compiled(x), expected, rtol=1e-4, atol=1e-4):
                    wrong.append(1)

    with torch.no_grad():
        expected = model(x)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_not_a_number_is_kept() -> None:
    model, x = network(), torch.randn(2, 3, 16, 16)
    x[0, 0, 0, 0] = float("nan")
    compiled = pliant.compile(model)
    for _ in range(3):
        same(compiled, model, x)


@pytest.mark.parametrize("size", [1, 2, 3, 63, 64, 65, 700, 16384, 16385, 100_000])
def test_every_word_counts(size: int) -> None:
    read, values = fingerprint(), torch.randn(size)
    marks = {read(values, values.nbytes)}
    for place in {0, size // 2, size - 1}:
        values[place] = -values[place]
        marks.add(read(values, values.nbytes))
    assert len(marks) == 1 + len({0, size // 2, size - 1})
    values.mul_(-2)
    assert read(values, values.nbytes) not in marks
    assert read(values, values.nbytes) == read(values.clone(), values.nbytes)
