"""Weak proxies have the attributes of what they stand for, `__class__` too."""

import weakref

import pytest
import torch

import pliant


class Held:
    value = 3


HELD = Held()
PROXY = weakref.proxy(HELD)


def made_inside(x):
    proxy = weakref.proxy(HELD)
    return x + proxy.value, proxy.__class__, isinstance(proxy, Held), type(proxy)


def from_outside(x):
    return x + PROXY.value, PROXY.__class__, isinstance(PROXY, Held), type(PROXY)


@pytest.mark.parametrize("function", [made_inside, from_outside])
def test_attributes_of_a_proxy(function):
    x = torch.ones(2)
    assert repr(pliant.compile(function, backend="eager")(x)) == repr(function(x))


# What is asked of a proxy whose object is gone.
ASKED = {
    "attribute": lambda proxy: proxy.value,
    "store": lambda proxy: setattr(proxy, "value", 1),
    "text": str,
    "truth": bool,
    "length": len,
    "item": lambda proxy: proxy[0],
    "sum": lambda proxy: proxy + 1,
    "equality": lambda proxy: proxy == 1,
    "identity": lambda proxy: proxy is None,
    "class": lambda proxy: isinstance(proxy, Held),
    "index": lambda proxy: [1][proxy],
    "membership": lambda proxy: 1 in proxy,
    "iteration": list,
}


@pytest.mark.parametrize("name", ASKED)
def test_proxies_of_what_is_gone(name):
    def program(x):
        held = Held()
        proxy = weakref.proxy(held)
        del held
        try:
            return ASKED[name](proxy)
        except Exception as error:
            return type(error).__name__, str(error)

    compiled = pliant.compile(program, backend="eager")
    with pliant.config.patch(strict=True):
        assert compiled(torch.ones(2)) == program(torch.ones(2))
