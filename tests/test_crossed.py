"""Which combinations of parameters are tried."""

import itertools

import pytest

from crossed import sample, spread

FIRST, SECOND, THIRD = ("a", "b", "c"), (None, True), (1.5, 2.5)


class _Mark:
    args = 2, "first", "second", "third"


class _Item:
    path, originalname = "file", "test"

    def __init__(self, *values):
        self.callspec = self
        self.params = dict(zip(("first", "second", "third"), values))

    def get_closest_marker(self, name):
        return _Mark


@pytest.mark.parametrize("everything", [False, True])
def test_any_two_values_meet(monkeypatch, everything):
    monkeypatch.setenv("PLIANT_TEST_ALL", str(int(everything)))
    tried, left_out = spread([_Item(*values) for values in itertools.product(FIRST, SECOND, THIRD)])
    assert len(tried) == (12 if everything else 6) and len(tried) + len(left_out) == 12
    for pair in (FIRST, SECOND), (FIRST, THIRD), (SECOND, THIRD):
        met = {tuple(v for v in item.params.values() if v in pair[0] or v in pair[1]) for item in tried}
        assert met == set(itertools.product(*pair))


def test_one_that_is_asked_for_is_tried():
    assert spread([_Item("c", True, 2.5)])[1] == []


@pytest.mark.parametrize(("every", "tried"), [(None, [*range(10)]), ("4", [0, 4, 8])])
def test_one_of_so_many(monkeypatch, every, tried):
    monkeypatch.setenv("PLIANT_TEST_EVERY", every) if every else monkeypatch.delenv("PLIANT_TEST_EVERY", raising=False)
    found = sample([*range(10)])
    assert found[0] == tried and sorted(found[0] + found[1]) == [*range(10)]
