"""Attention that programs write out: which of it becomes one operator, with which result and gradients."""

import math

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events
from pliant.patterns import attention_cost

B, H, L, S, D = 2, 3, 5, 7, 4
LOWEST = torch.finfo(torch.float32).min
Q, K, V = (torch.randn(B, H, n, D) for n in (L, S, S))
TURNED = tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (Q, K, V))
MASK = torch.randn(B, 1, L, S)
HIDDEN = torch.rand(B, 1, L, S) > 0.5
HIDDEN[0, 0, 1] = True  # a row that hides all keys
INFINITE = MASK.masked_fill(HIDDEN, -math.inf)


@pytest.fixture(autouse=True)
def at_any_size(monkeypatch):
    monkeypatch.setattr(attention_cost, "pays", lambda *_: True)
    with pliant.config.patch(rewrite_attention="finite"):
        yield


def compared(function, args, trained=False, **options):
    """What became of attention: "attention", or why it is left. Result, layout and gradients are eager's."""
    pliant.reset()
    args = [x.detach().requires_grad_(trained and x.is_floating_point()) if isinstance(x, torch.Tensor) else x for x in args]
    with events.collect("pattern", "pattern_left") as seen, pliant.config.patch(keep_entries=False):
        result = pliant.compile(function, **options)(*args)
    wanted = function(*args)
    torch.testing.assert_close(result, wanted, equal_nan=True)
    assert result.stride() == wanted.stride()
    if trained:
        leaves, tangent = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad], torch.randn_like(wanted)
        found, own = (torch.autograd.grad(one, leaves, tangent) for one in (result, wanted))
        torch.testing.assert_close(found, own, equal_nan=True)
    return [str(e.fields["why" if e.kind == "pattern_left" else "name"]) for e in seen]


def plain(q, k, v):
    return torch.softmax(q @ k.mT / math.sqrt(D), -1) @ v


def of_library(q, k, v):
    weights = F.softmax(torch.matmul(q, k.transpose(2, 3)) * 0.5, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(F.dropout(weights, 0.1, False), v).transpose(1, 2).contiguous()


def by_einsum(q, k, v):
    return torch.einsum("bhij,bhjd->bhid", (torch.einsum("bhid,bhjd->bhij", q, k) * 0.4).softmax(-1), v)


def by_einsum_turned(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return torch.einsum("bhij,bjhd->bihd", (torch.einsum("bihd,bjhd->bhij", q, k) * 0.4).softmax(-1), v)


def with_heads_expanded(q, k, v):
    return torch.softmax(q @ k[:, :1].repeat_interleave(H, 1).mT, -1) @ v[:, :1].expand(B, H, S, D)


def over_one_batch(q, k, v):
    q, k, v = (x.reshape(B * H, -1, D) for x in (q, k, v))
    return torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v)


def causal(q, k, v):
    return torch.softmax(q @ k.mT * 0.3 + torch.full((L, S), -math.inf).triu(1), -1) @ v


def causal_by_zeros(q, k, v):
    return torch.softmax((q @ k.mT * 0.3).masked_fill(torch.ones(L, S).tril() == 0, -math.inf), -1) @ v


WITHOUT_MASKS = [
    plain, of_library, by_einsum, by_einsum_turned, with_heads_expanded, over_one_batch, causal, causal_by_zeros,
    lambda q, k, v: torch.softmax((q * 0.3) @ k.mT, -1) @ v,
    lambda q, k, v: torch.softmax(0.3 * (q @ k.mT) / torch.full([], 2.0), -1) @ v,
    lambda q, k, v: plain(q[:1], k[:1], v[:1]),
    lambda q, k, v: plain(q[:, :1], k[:, :1], v[:, :1]),
    lambda q, k, v: plain(q[:, :, :1], k, v),
    lambda q, k, v: plain(q[:1, :1], k[:1, :1], v[:1, :1]),
    lambda q, k, v: plain(q, k[:, :, :1], v[:, :, :1]),
]  # fmt: skip


@pytest.mark.spread(2, "function", "args")
@pytest.mark.parametrize("function", WITHOUT_MASKS)
@pytest.mark.parametrize("args", [(Q, K, V), TURNED], ids=["rows", "turned"])
def test_is_one_operator(function, args):
    for trained in (False, True):
        assert compared(function, args, trained) == ["attention"]


@pytest.mark.parametrize("function", [plain, of_library, by_einsum, over_one_batch])
def test_at_sizes_that_vary(function):
    assert compared(function, (Q, K, V), dynamic=True) == ["attention"]


def added(q, k, v, mask):
    return torch.softmax(q @ k.mT * 0.3 + mask, -1) @ v


def filled(value):
    return lambda q, k, v, mask: torch.softmax((q @ k.mT * 0.3).masked_fill(mask, value), -1) @ v


def filled_in_place(q, k, v, mask):
    scores = q @ k.mT
    scores *= 0.3
    scores.masked_fill_(mask, -math.inf)
    return torch.softmax(scores, -1) @ v


def chosen(q, k, v, mask):
    return torch.softmax(torch.where(mask, LOWEST, q @ k.mT), -1) @ v


def over_heads_apart(q, k, v, mask):
    q, k, v = (x.reshape(B * H, -1, D) for x in (q, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)).view(B, H, L, S) + mask
    return torch.bmm(scores.view(B * H, L, S).softmax(-1), v).view(B, H, L, D).transpose(1, 2).reshape(B, L, H * D)


def summed_with_product(q, k, v, mask):
    q, k, v = (x.reshape(B * H, -1, D) for x in (q, k, v))
    return torch.bmm(torch.baddbmm(mask, q, k.transpose(1, 2), alpha=0.3).softmax(-1), v)


def hidden_twice(q, k, v, mask):
    return torch.softmax((q @ k.mT + LOWEST).masked_fill(mask, LOWEST), -1) @ v


@pytest.mark.parametrize(
    "function, mask",
    [
        (added, MASK), (added, MASK[0, 0]), (added, INFINITE), (added, torch.randn(H, 1, S)), (filled(-math.inf), HIDDEN),
        (lambda q, k, v, mask: torch.softmax(mask + q @ k.mT, -1) @ v, MASK), (filled(LOWEST), HIDDEN), (filled_in_place, HIDDEN),
        (chosen, HIDDEN), (over_heads_apart, MASK), (summed_with_product, torch.randn(B * H, 1, S)), (added, MASK.masked_fill(HIDDEN, LOWEST)),
    ],
)  # fmt: skip
def test_masks(function, mask):
    assert compared(function, (Q, K, V, mask)) == ["attention"]
    if mask.dtype is torch.bool:  # in rows that hide all keys, scores that are filled have no gradients
        assert compared(function, (Q, K, V, mask), trained=True) == ["attention"]


def with_weights(q, k, v):
    weights = torch.softmax(q @ k.mT, -1)
    return weights @ v + weights.sum()


def with_writing(q, k, v):
    q = q * 1
    scores = q @ k.mT
    q.add_(1)
    return torch.softmax(scores, -1) @ v + q


def with_dropout(q, k, v):
    return F.dropout(torch.softmax(q @ k.mT, -1), 0.5) @ v * 0


@pytest.mark.parametrize(
    "function, why",
    [
        (with_weights, "used elsewhere"),
        (with_writing, "written later"),
        (with_dropout, "dropout"),
        (lambda q, k, v: torch.softmax(torch.tanh(q @ k.mT) * 30, -1) @ v, "tanh"),
        (lambda q, k, v: plain(q, k, v[..., :3]), "not as wide"),
        (lambda q, k, v: plain(q, k, v).add_(1), "no tensor of the program's own"),
        (lambda q, k, v: torch.softmax(q @ k.mT * q.sum(), -1) @ v, "scaled by a tensor"),
        (lambda q, k, v: torch.softmax((q @ k.mT + k.sum()) * 0.5, -1) @ v, "after they are masked"),
        (lambda q, k, v: filled(-1e9)(q, k, v, HIDDEN), "does not hide them for certain"),
        (lambda q, k, v: added(q.half(), k.half(), v.half(), MASK.half()) * 0, "float16"),
    ],
)
def test_near_misses_say_why(function, why):
    (left,) = compared(function, (Q, K, V))
    assert why in left


@pytest.mark.parametrize("function", [lambda q, k, v: torch.softmax(q @ k.mT, -2) @ v, lambda q, k, v: torch.softmax(q, -1)])
def test_what_is_no_attention(function):
    assert compared(function, (Q, K, V)) == []


def test_masks_that_learn_are_left():
    (left,) = compared(added, (Q, K, V, MASK), trained=True)
    assert "gradient of its mask" in left


def test_in_lower_precision_the_error_is_not_above_eagers():
    args = [x.bfloat16() for x in TURNED]
    exact = of_library(*[x.double() for x in args])
    pliant.reset()
    with events.collect("pattern") as seen:
        result = pliant.compile(of_library)(*args)
    errors = [(one.double() - exact).abs().max() for one in (result, of_library(*args))]
    assert len(seen) == 1 and errors[0] <= 2 * errors[1]


def test_in_blocks_of_autocast():
    def model(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return plain(q, k, v)

    pliant.reset()
    with events.collect("pattern") as seen:
        result = pliant.compile(model)(Q, K, V)
    assert len(seen) == 1 and result.dtype is torch.bfloat16
    torch.testing.assert_close(result.float(), plain(Q, K, V), atol=0.03, rtol=0.03)


def test_the_option_switches_it_off():
    assert compared(plain, (Q, K, V), options={"rewrite_attention": "off"}) == []


def test_small_attention_is_not_looked_for(monkeypatch):
    monkeypatch.undo()
    with events.collect("stage") as stages:
        assert compared(plain, (Q, K, V)) == []
    assert not any("patterns" in e.fields["path"] for e in stages)


def test_large_attention_is_replaced(monkeypatch):
    monkeypatch.undo()
    q, k, v = torch.randn(3, 12, 200, 16, generator=torch.Generator().manual_seed(0))
    assert compared(plain, (q, k, v)) == ["attention"]


def test_no_copies_are_left_around_it():
    def model(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return of_library(q, k, v).flatten(2)

    pliant.reset()
    with events.collect("partition") as seen, pliant.config.patch(keep_entries=False):
        pliant.compile(model)(*[x.transpose(1, 2).contiguous() for x in (Q, K, V)])
    assert "clone" not in str(seen[0].fields["text"])


@pytest.mark.parametrize("hidden", [math.inf, math.nan])
def test_scores_that_a_mask_fills_in_may_be_anything(hidden):
    def attend(q, k, v):
        return torch.softmax((q @ k.mT).masked_fill(torch.arange(S) > 3, -math.inf), -1) @ v

    k = K.clone()
    k[:, :, 5] = hidden
    with pliant.config.patch(rewrite_attention="same"):
        (left,) = compared(attend, (Q, k, V))
    assert "finite" in left
