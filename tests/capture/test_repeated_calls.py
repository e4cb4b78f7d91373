"""Calls that are made again and again are followed once, and give what following each of them gives."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pliant
from pliant.capture.frame import Frame
from pliant.capture.protocols import repeated_calls


def step(h: Tensor, x: Tensor, w: Tensor, scale: Any = 0.5, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    gate, new = torch.sigmoid(x @ w + h), torch.tanh(x * scale - h)
    h = gate * h + (1 - gate) * new
    if bias is not None:
        h = h + bias
    first, second = h.split(2, dim=-1)
    mean = torch.where(h == 0, torch.ones_like(h), h).pow(2).mean(-1, keepdim=True)
    return h * torch.rsqrt(mean + 1e-5), torch.cat([second, first.relu()], -1)


def run(x: Tensor, w: Tensor, turns: int) -> Tensor:
    h, outs = x[0] * 0, []
    for k in range(turns):
        h, out = step(h, x[k], w)
        outs.append(out)
    return torch.stack(outs)


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


@pytest.fixture
def copied(monkeypatch):
    """How many calls were not followed."""
    count = [0]
    copy = repeated_calls._Call.copied

    def counting(*args: Any) -> Any:
        count[0] += 1
        return copy(*args)

    monkeypatch.setattr(repeated_calls._Call, "copied", counting)
    return count


def graph_of(function: Any, *args: Any) -> tuple[list[str], Any]:
    """The captured graphs with what is known of each node, and the result."""
    texts: list[str] = []

    def keep(module: Any, inputs: Any) -> Any:
        told = [f"{n.name} {n.meta.get('val')} {n.meta.get('origin')}" for n in module.graph.nodes]
        texts.append("\n".join([module.code, *told]))
        return module.forward

    pliant.reset()
    return texts, pliant.compile(function, backend=keep)(*args)


def check(monkeypatch, function: Any, *args: Any) -> None:
    """Copied or followed, the graph is one and the same, and eager's result comes out."""
    cloned = [a.clone() if isinstance(a, Tensor) else a for a in args]
    wanted = function(*args)
    graphs, found = graph_of(function, *cloned)
    with monkeypatch.context() as patch:
        patch.setattr(repeated_calls, "_key_of", lambda *_: None)
        followed, _ = graph_of(function, *cloned)
    assert graphs == followed
    torch.testing.assert_close(found, wanted)


def x_and_w(turns: int = 8) -> tuple[Tensor, Tensor]:
    return torch.randn(turns, 3, 4), torch.randn(4, 4)


def test_the_graph_is_that_of_following_each_call(monkeypatch, copied) -> None:
    check(monkeypatch, run, *x_and_w(), 8)
    assert copied[0] == 6  # one is seen, one is looked at


def test_work_does_not_grow_with_the_turns(monkeypatch) -> None:
    followed: list[int] = []
    go_on = Frame.go_on

    def counting(frame: Frame, *args: Any) -> Any:
        followed[-1] += frame.code is step.__code__
        return go_on(frame, *args)

    monkeypatch.setattr(Frame, "go_on", counting)
    for turns in (8, 40):
        followed.append(0)
        graph_of(run, *x_and_w(turns), turns)
    assert followed[0] == followed[1] <= 3


def test_compiled_it_gives_what_eager_gives() -> None:
    x, w = x_and_w()
    torch.testing.assert_close(pliant.compile(run)(x, w, 8), run(x, w, 8))


def test_sizes_that_vary(monkeypatch, copied) -> None:
    pliant.reset()
    compiled = pliant.compile(run, dynamic=True)
    for rows in (3, 5):
        x, w = torch.randn(8, rows, 4), torch.randn(4, 4)
        torch.testing.assert_close(compiled(x, w, 8), run(x, w, 8))
    assert pliant.stats()["recompiles"] == 0
    assert copied[0] > 0


def test_calls_in_calls_that_are_made_again(monkeypatch, copied) -> None:
    def twice(x: Tensor, w: Tensor) -> Tensor:
        return run(x, w, 8) + run(-x, w, 8)

    check(monkeypatch, twice, *x_and_w())
    assert copied[0] == 6 + 8


def test_calls_in_a_call_that_is_copied(monkeypatch, copied) -> None:
    def nested(x: Tensor, w: Tensor) -> Tensor:
        h = outer(x[0] * 0, x[0], w)
        h = outer(h, x[1], w)
        h = outer(h, x[2], w)
        for k in range(3, 8):
            h = outer(h, x[k], w)
        return h

    check(monkeypatch, nested, *x_and_w())
    assert copied[0] == 3 + 3 + 3 + 3  # the last three are calls of `outer`, the others of `step` in it


def outer(h: Tensor, x: Tensor, w: Tensor) -> Tensor:
    first, _ = step(h, x, w)
    second, _ = step(first, x, w)
    third, _ = step(second, x, w)
    return third + first


def test_integers_that_only_the_graph_tells(monkeypatch, copied) -> None:
    def decoded(x: Tensor, w: Tensor) -> Tensor:
        tokens = x.argmax(-1)
        found = []
        for _ in range(6):
            tokens, scores = next_tokens(tokens, w)
            found.append(scores)
        return torch.stack(found)

    check(monkeypatch, decoded, *x_and_w())
    assert copied[0] == 4


def next_tokens(tokens: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    scores = (w[tokens] @ w).softmax(-1)
    return scores.argmax(-1), scores


# ---- calls that are nearly equal
def other_constants(x: Tensor, w: Tensor) -> Tensor:
    h, outs = x[0] * 0, []
    for k, scale in enumerate((0.5, 0.5, 0.5, 0.25, 1, 1.0, True, 0.5)):
        h, out = step(h, x[k], w, scale)
        outs.append(out)
    return torch.stack(outs)


def zeros_of_both_signs(x: Tensor, w: Tensor) -> Tensor:
    return torch.stack([divided(x[k], zero) for k, zero in enumerate((0.0, 0.0, 0.0, -0.0, -0.0, 0.0))])


def divided(x: Tensor, zero: float) -> Tensor:
    return 1 / (x.abs() * zero)


def other_strides(x: Tensor, w: Tensor) -> Tensor:
    square = x[:, :, :3]
    return torch.stack([laid_out(square[k] if k % 3 else square[k].t()) for k in range(8)])


def laid_out(x: Tensor) -> Tensor:
    return x + 1 if x.is_contiguous() or x.stride(0) > x.stride(1) else x * 2


def other_places_in_memory(x: Tensor, w: Tensor) -> Tensor:
    return torch.stack([by_place(x[k]) for k in range(6)])


def by_place(x: Tensor) -> Tensor:
    return x + x.storage_offset()


def views_at_other_places(x: Tensor, w: Tensor) -> Tensor:
    whole = x * 1
    return torch.stack([of_a_view(one) for one in (*whole[:4], whole[1], whole[1])])


def of_a_view(x: Tensor) -> Tensor:
    return x[..., 1:3] * 2


def the_same_twice(x: Tensor, w: Tensor) -> Tensor:
    return torch.stack([is_one(a, b) for a, b in [(x[k] + 1, x[k] * 2) for k in range(3)] + [(c, c) for c in x * 3]])


def is_one(a: Tensor, b: Tensor) -> Tensor:
    return a * 10 if a is b else a - b


def the_same_memory(x: Tensor, w: Tensor) -> Tensor:
    outs = []
    for k in range(6):
        found = maybe_itself(x[k] + 1)
        found.add_(1)
        outs.append(found * x[k])
    return torch.stack(outs)


def maybe_itself(x: Tensor) -> Tensor:
    return x.to(torch.float32)


def a_view_of_an_argument(x: Tensor, w: Tensor) -> Tensor:
    base = x * 1
    for k in range(6):
        half(base[k]).mul_(k)
    return base


def half(x: Tensor) -> Tensor:
    return x[:, :2]


def a_result_that_is_written(x: Tensor, w: Tensor) -> Tensor:
    outs = []
    for k in range(6):
        a, b = twice(x[k])
        a.mul_(b)
        outs += [a, b]
    return torch.stack(outs)


def twice(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.exp()
    return y, y.relu()


def an_argument_that_is_written(x: Tensor, w: Tensor) -> Tensor:
    total = x[0] * 0
    for k in range(6):
        added(total, x[k])
    return total


def added(total: Tensor, x: Tensor) -> Tensor:
    return total.add_(x)


def a_list_that_grows(x: Tensor, w: Tensor) -> Tensor:
    SEEN.clear()
    outs = []
    for k in range(6):
        outs.append(by_length(x[k]))
        SEEN.append(k)
    return torch.stack(outs)


SEEN: list[int] = []


def by_length(x: Tensor) -> Tensor:
    return x + len(SEEN)


def a_global_that_changes(x: Tensor, w: Tensor) -> Tensor:
    global level
    outs = []
    for k in range(6):
        outs.append(by_level(x[k]))
        if k == 3:
            level = 5
    level = 0
    return torch.stack(outs)


level = 0


def by_level(x: Tensor) -> Tensor:
    return x + level


def another_mode(x: Tensor, w: Tensor) -> Tensor:
    outs = []
    for k in range(6):
        with torch.inference_mode(k > 3):
            outs.append(by_mode(x[k]))
    return torch.stack(outs)


def by_mode(x: Tensor) -> Tensor:
    return x + 1 if torch.is_inference_mode_enabled() else x - 1


def elements_that_are_known(x: Tensor, w: Tensor) -> Tensor:
    return torch.cat([as_many(torch.tensor(k), x[k]) for k in (1, 1, 1, 2, 2, 3)])


def as_many(count: Tensor, x: Tensor) -> Tensor:
    return x.repeat(int(count), 1)


def integers_that_are_known(x: Tensor, w: Tensor) -> Tensor:
    return torch.cat([up_to(lengths, x[k]) for k, lengths in enumerate(torch.arange(6).reshape(3, 2).repeat(2, 1))])


def up_to(lengths: Tensor, x: Tensor) -> Tensor:
    return x[:, : int(lengths.max())].sum(1, keepdim=True)


def integers_that_are_made(x: Tensor, w: Tensor) -> Tensor:
    return torch.cat([x[k].repeat(int(counted(x[k])[k % 2]), 1) for k in range(6)])


def counted(x: Tensor) -> Tensor:
    return torch.tensor([x.size(0), x.size(1)])


def one_of_two_attributes(x: Tensor, w: Tensor) -> Tensor:
    outs = []
    for k in range(6):
        one = x[k] + 1
        if k > 3:
            one.factor = 3
        outs.append(by_attribute(one))
    return torch.stack(outs)


def by_attribute(x: Tensor) -> Tensor:
    return x * getattr(x, "factor", 1)


def a_parameter_of_other_data(x: Tensor, w: Tensor) -> Tensor:
    outs = []
    for k in range(8):
        if k % 4 == 0:
            LEVELS.data = x[k] * 2
        outs.append(by_levels(x[k]))
        if k == 5:
            LEVELS.add_(1)
    return torch.stack(outs)


LEVELS = torch.zeros(3, 4)


def by_levels(x: Tensor) -> Tensor:
    return (x + LEVELS).relu()


NEARLY_EQUAL = (
    other_constants, zeros_of_both_signs, other_strides, other_places_in_memory, views_at_other_places, the_same_twice, the_same_memory,
    a_view_of_an_argument,
    a_result_that_is_written, an_argument_that_is_written, a_list_that_grows, a_global_that_changes,
    a_parameter_of_other_data, another_mode, elements_that_are_known, integers_that_are_known, integers_that_are_made, one_of_two_attributes,
)  # fmt: skip


@pytest.mark.parametrize("function", NEARLY_EQUAL, ids=lambda f: f.__name__)
def test_calls_that_are_nearly_equal_are_not_mistaken(monkeypatch, function) -> None:
    x, w = x_and_w(8)
    check(monkeypatch, function, x, w)


def test_random_numbers_are_drawn_at_each_call(copied) -> None:
    def noisy(x: Tensor) -> Tensor:
        for _ in range(6):
            x = dropped(x)
        return x

    x = torch.ones(4, 64)
    torch.manual_seed(0)
    wanted = noisy(x)
    torch.manual_seed(0)
    torch.testing.assert_close(pliant.compile(noisy)(x), wanted)
    assert copied[0] == 3


def dropped(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x + 1, 0.5)


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.bias = nn.Parameter(torch.randn(4))
        self.depth = 0

    def turn(self, h: Tensor) -> Tensor:
        return torch.nn.functional.gelu(self.inner(h)) + self.bias * self.depth

    def forward(self, h: Tensor, grows: bool = False) -> Tensor:
        for _ in range(6):
            h = self.turn(h)
            if grows:
                self.depth += 1
        return h


@pytest.mark.parametrize("grows", [False, True])
def test_methods_of_a_module(copied, grows: bool) -> None:
    ours, eager = Cell(), Cell()
    eager.load_state_dict(ours.state_dict())
    h = torch.randn(3, 4)
    compiled = pliant.compile(ours)
    for _ in range(2):
        torch.testing.assert_close(compiled(h, grows), eager(h, grows))
    assert ours.depth == eager.depth
    assert copied[0] == (0 if grows else copied[0])


def test_calls_that_are_recorded_for_autograd(monkeypatch, copied) -> None:
    x, w = x_and_w()
    w.requires_grad_()
    with torch.enable_grad():
        found = torch.autograd.grad(pliant.compile(run)(x, w, 8).sum(), w)
        torch.testing.assert_close(found, torch.autograd.grad(run(x, w, 8).sum(), w))
        assert copied[0] == 5  # the first turn's state has no history
        check(monkeypatch, run, x, w.detach(), 8)


def test_a_break_inside_is_met_at_each_call(monkeypatch) -> None:
    def broken(x: Tensor) -> Tensor:
        for _ in range(4):
            x = by_value(x)
        return x

    x = torch.randn(3, 4)
    torch.testing.assert_close(pliant.compile(broken)(x), broken(x))


def by_value(x: Tensor) -> Tensor:
    return x + 1 if x.sum() > 2 else x - 1


def test_a_break_behind_copied_calls(copied) -> None:
    def broken(x: Tensor, w: Tensor) -> Tensor:
        found = run(x, w, 8)
        pliant.graph_break()
        return run(x, w + 1, 8) * found

    x, w = x_and_w()
    torch.testing.assert_close(pliant.compile(broken)(x, w), broken(x, w))
    assert copied[0] >= 10
