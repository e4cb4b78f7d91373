"""Text of tensors is made once the graph has run; only who asks what it says breaks the graph."""

import pytest
import torch

import pliant


def check(condition, message):
    if not condition:
        raise ValueError(message)


def unused(x):
    count = (x > 0).sum()
    check(x.shape[0] > 1, f"{count} of {x}: {x.mean():.3f} {count!s}")
    return x * 2


def returned(x):
    count = (x > 0).sum()
    text = f"{count} of {x}: {x.mean():.3f} {count!s} " + str(x)
    x.add_(1)
    return text, x, str(x), "".join([text, f"{count}"])


def stated(x):
    count = (x > 0).sum()
    message = f"{count} of {x}"
    torch._check_with(ValueError, (count < 4).item(), lambda: message)
    return x + 1


def raised(x):
    check(x.shape[0] < 3, f"{(x > 0).sum()} of {x}")
    return x


def outcome(fn, n):
    try:
        return repr(fn(torch.arange(1.0, n + 1)))
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("fn", (unused, returned, stated, raised), ids=lambda fn: fn.__name__)
def test_text_of_a_tensor_that_only_flows(fn):
    pliant.reset()
    compiled = pliant.compile(fn)
    for n in (3, 3, 4, 6, 2):
        assert outcome(compiled, n) == outcome(fn, n)
    assert pliant.stats()["graph_breaks"] == 0


def test_what_a_text_says_is_asked():
    def fn(x):
        return x + 1 if len(f"{x}") > 20 else x - 1

    pliant.reset()
    compiled = pliant.compile(fn, backend="eager")
    for n in (1, 9, 2):
        assert outcome(compiled, n) == outcome(fn, n)
    assert pliant.stats()["break_reasons"] == {"data-dependent": 2}


def test_text_that_names_an_operator_of_autograd():
    def fn(x):
        return f"{x * 2}", x + 1

    x = torch.ones(2, requires_grad=True)
    assert repr(pliant.compile(fn, backend="eager")(x)) == repr(fn(x))
