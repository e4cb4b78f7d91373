"""Programs with graph breaks, for tests of entries on disk."""

import contextlib
import pathlib
import weakref

import torch
from torch import nn

import pliant

SAID = []


def say(text):
    SAID.append(text)
    pliant.graph_break()


def files():
    return list(pathlib.Path(pliant.config.get().cache.cache_dir).glob("v1/entries/??/*/data.json"))


def once(x):
    y = x * 2
    n = y.shape[0]
    pliant.graph_break()
    return (y + n).sin()


def inner(x):
    y = x + 1
    pliant.graph_break()
    return y * 2


def other_inner(x):
    y = x + 1
    pliant.graph_break()
    return y * 3


def outer(x):
    y = inner(x.cos())
    return y.tanh() + inner(y)


class Base(nn.Module):
    def scaled(self, x):
        pliant.graph_break()
        return self.linear(x) * self.scale


class Model(Base):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)
        self.scale = 1.5

    def forward(self, x):
        return self.scaled(x).relu() + self.scaled(x + 1)


class Derived(Model):
    def scaled(self, x):
        pliant.graph_break()
        return super().scaled(x) * 2


def make(amount):
    def closure(x):
        y = x * amount
        pliant.graph_break()
        return y + amount

    return closure


def looping(x, numbers):
    for number in numbers:
        x = x * number
        pliant.graph_break()
        x = x + 1
    return x


@contextlib.contextmanager
def block():
    say("in")
    try:
        yield 3
    finally:
        say("out")


def in_a_block(x):
    with block() as n:
        x = x + n
    return x * 2


def in_except(x):
    try:
        raise KeyError("k")
    except KeyError as error:
        x = x + 1
        pliant.graph_break()
        x = x * len(error.args)
    return x.sin()


def rows(x):
    for row in x:
        pliant.graph_break()
        yield row * 2


def through_a_generator(x):
    return torch.stack([row + 1 for row in rows(x)])


def nested(x):
    def part(y):
        pliant.graph_break()
        return y.sin()

    return part(x) + (lambda y: y * 2)(x)


def raising(x):
    y = x + 1
    pliant.graph_break()
    if y.shape[0] == 3:
        raise ValueError(y.shape)
    return y


def writing(x):
    x.mul_(2)
    pliant.graph_break()
    x.add_(1)
    return x.view(-1)


def telling(x):
    text = f"{x.shape[0]} rows"
    x = x * 2
    pliant.graph_break()
    return x + 1, text


def meets(x, barrier):
    y = x + 1
    pliant.graph_break()
    barrier.wait()
    return y * 2


def again(x, count):
    y = x + 1
    pliant.graph_break()
    return again(y, count - 1) if count else y * 2


class Thing:
    pass


def lets_go(x):
    thing = Thing()
    known = weakref.ref(thing)
    y = x + 1
    pliant.graph_break()
    del thing
    pliant.graph_break()
    assert known() is None
    return y * 2
