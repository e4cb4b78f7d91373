"""Text of tensors is made once the graph has run; only who asks what it says breaks the graph."""

import re

import numpy as np
import pytest
import torch

import pliant

ADDRESS = re.compile("0x[0-9a-f]+")


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


class Named:
    def __init__(self, of):
        self.of = of

    def __repr__(self):
        return f"Named({self.of!r})"


METHODS = {
    "of a result": lambda x: repr((x + 1).all),
    "of an argument": lambda x: f"{x.sum} %r" % x.add,
    "in a slice": lambda x: str(slice(x + 1)),
    "in a list": lambda x: str([(x + 1).all, (x + 2)]),
    "operator": lambda x: ascii((x + 1).__add__),
    "written in Python": lambda x: repr((x + 1).__len__),
    "of a program's object": lambda x: repr(Named(x + 1).__repr__),
    "of a list": lambda x: repr([x].append) + repr([x].__len__),
    "refused text": lambda x: complaint(lambda: ",".join([x + 1])),
}


def complaint(call):
    try:
        return call()
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("text", METHODS.values(), ids=METHODS)
def test_text_of_methods_names_no_stand_in(text):
    compiled = pliant.compile(lambda x: (text(x), x + 1), backend="eager")
    assert ADDRESS.sub("", compiled(torch.ones(2))[0]) == ADDRESS.sub("", text(torch.ones(2)))


def formatted(x):
    last = x[-1].detach()
    return f"{last} {last!s}", x * 2


@pytest.mark.parametrize("grad", [False, True])
def test_a_number_in_a_tensor_is_formatted_without_its_tensor(grad):
    """Also where numbers that data gives are no numbers of the graph, as after a derivative that needs their values."""
    for given in ({}, {"data_dependent": False}):
        compiled = pliant.compile(formatted, backend="eager", options=given)
        x = torch.arange(3.0).requires_grad_(grad)
        assert compiled(x)[0] == formatted(x)[0]


ARRAYS = {
    "str": lambda x: str(x.numpy()),
    "repr": lambda x: repr(x.numpy()),
    "f-string": lambda x: f"{x.numpy()} and {x.sum().numpy()!r}",
    "percent": lambda x: "%s" % x.numpy(),
    "in a list": lambda x: str([x.numpy()]),
    "method": lambda x: x.numpy().__str__(),
    "row": lambda x: str(x.numpy()[-1:]),
    "made of sizes": lambda x: str(np.arange(x.shape[0])),
}


@pytest.mark.parametrize("text", ARRAYS.values(), ids=ARRAYS)
def test_text_of_an_array_is_numpys(text):
    compiled = pliant.compile(lambda x: (text(x), x + 1), backend="eager")
    for x in (torch.ones(2, 3), torch.ones(4, 3), torch.ones(0, 3)):
        assert compiled(x)[0] == text(x)
