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
