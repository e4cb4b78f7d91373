"""Whether containers that a trace read as a whole are as they were is asked for all of them at once."""

import collections

import pytest
import torch
from torch import nn

import pliant
from pliant.capture.outside.whole_containers import Snapshot, Snapshots


class Same:
    """Equal to any other one, and not the same."""

    def __eq__(self, other):
        return True

    __hash__ = None


CHANGES = {
    "append": ([Same()], lambda one: one.append(1)),
    "replace": ([Same()], lambda one: one.__setitem__(0, Same())),
    "swap": ([Same(), Same()], lambda one: one.reverse()),
    "value": ({"a": Same()}, lambda one: one.update(a=Same())),
    "key": ({"a": Same()}, lambda one: one.update(b=one.pop("a"))),
    "order": (collections.OrderedDict(a=1, b=1), lambda one: one.move_to_end("a")),
    "deque": (collections.deque([Same(), Same()]), lambda one: one.rotate()),
}


@pytest.mark.parametrize(("container", "change"), CHANGES.values(), ids=CHANGES)
def test_each_change_is_seen(container, change):
    snapshots = Snapshots()
    snapshots.take([1], is_changed=False)
    taken = snapshots.take(container, is_changed=False)
    assert snapshots.hold() and taken.is_of(container)
    change(container)
    assert not snapshots.hold() and not taken.is_of(container)


def test_what_moves_from_one_to_the_next_is_seen():
    one, other, snapshots = [1], [2], Snapshots()
    for container in (one, other):
        snapshots.take(container, is_changed=False)
    one.append(other.pop())
    assert not snapshots.hold()


@pytest.mark.parametrize(("container", "is_changed"), [({1, 2}, False), ([1], True)])
def test_what_parts_do_not_say_is_looked_at(container, is_changed):
    snapshots = Snapshots()
    taken = snapshots.take(container, is_changed=is_changed)
    assert (taken is None) == is_changed and not snapshots.hold()


class Listing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_repeated_calls_look_at_no_container_by_itself(monkeypatch):
    looked, is_of = [], Snapshot.is_of
    monkeypatch.setattr(Snapshot, "is_of", lambda self, container: looked.append(container) or is_of(self, container))
    model, x = nn.Sequential(*[Listing() for _ in range(8)]), torch.randn(2, 4)
    with torch.no_grad():
        torch.testing.assert_close(pliant.compile(model, backend="eager")(x), model(x))
    assert not looked
