"""What varies from call to call is no constant of an entry in later processes either: they know what found entries fixed."""

from collections import Counter

import pytest
import torch

import pliant
from pliant import background
from pliant.cache.store import WRITING
from pliant.debug import events


class Holder(torch.nn.Module):
    def __init__(self, held):
        super().__init__()
        self.held = held


class Scaled(Holder):
    def forward(self, x):
        return x * self.held


class Summed(Holder):
    def forward(self, x):
        for item in self.held:
            x = x + item
        return x


def nested(batch):
    return batch["x"].sin() * 2


def looped(items):
    total = 0
    for item in items:
        total = total + item.sin()
    return total


def weighted(x, numbers):
    for number in numbers:
        x = x * number + 1
    return x


# A model or function, and the arguments of its call number n.
PROGRAMS = {
    "sizes of a tensor in a dict": (lambda n: nested, lambda n: ({"x": torch.ones(n, 3)},)),
    "lengths of an argument": (lambda n: looped, lambda n: ([torch.ones(3)] * n,)),
    "lengths of a list of a module's": (lambda n: Summed([torch.ones(3)] * n), lambda n: (torch.ones(3),)),
    "numbers of a module's": (lambda n: Scaled(n), lambda n: (torch.ones(3),)),
    "numbers in a list": (lambda n: weighted, lambda n: (torch.ones(3), [n, 2.0])),
    "numbers in a long list": (lambda n: weighted, lambda n: (torch.ones(3), [n, *[0.5] * 12])),
}


def process(program, calls):
    """So many calls of a program that was loaded anew: how many entries were found of the function of which most were, and how
    many calls were not compiled."""
    pliant.reset()
    make, arguments = PROGRAMS[program]
    run = make(2)
    compiled = pliant.compile(run)
    for n in range(2, 2 + calls):
        if isinstance(run, Holder):
            run.held = make(n).held
        torch.testing.assert_close(compiled(*arguments(n)), run(*arguments(n)))
    background.finish(WRITING)
    found = Counter(e.fields["name"] for e in events.events("entry") if e.fields["what"] == "found")
    return max(found.values(), default=0), pliant.stats()["recompile_limits"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_entries_do_not_gather_with_each_process(program, tmp_path):
    with pliant.config.patch(keep_entries=True, cache_dir=str(tmp_path), recompile_limit=4):
        found = [process(program, calls) for calls in (1, 2, 3, 4, 5, 6)]
    pliant.reset()
    assert max(count for count, _ in found) <= 2
    assert {limits for _, limits in found} == {0}
