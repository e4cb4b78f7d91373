"""What libraries do with the arguments of a call before they compute: keys for caches, items in order, views of dicts."""

import collections
import pickle

import pytest
import torch

import pliant

X = torch.ones(3)


def keyed(x, **named):
    return x * len(named), pickle.dumps(named)


@pytest.mark.parametrize("named", [{}, {"upper": True}, {"times": 2, "mode": "full", "eps": 1.5, "dim": None}])
def test_plain_arguments_make_a_key(named):
    found, key = pliant.compile(keyed, fullgraph=True)(X, **named)
    assert torch.equal(found, X * len(named))
    assert key == pickle.dumps(named)


def test_another_number_makes_another_key():
    compiled = pliant.compile(keyed, fullgraph=True)
    for times in (2, 3, 4, 2):
        assert compiled(X, times=times)[1] == pickle.dumps({"times": times})


@pytest.mark.parametrize("named", [{"a": "b", "b": "b"}, {"a": "a"}, {"a": [1]}, {"a": (1, 2)}], ids=str)
def test_a_key_that_may_tell_one_object_from_two_is_left_to_python(named):
    pliant.reset()
    assert pliant.compile(keyed)(X, **named)[1] == pickle.dumps(named)
    assert pliant.stats()["break_reasons"] == {"unknown-call": 1}


def test_items_that_begin_with_other_names_are_sorted_by_these():
    def program(x, **named):
        for name, value in sorted(named.items()):
            x = x * 2 + value(x) if name == "b" else x + value
        return x

    linear = torch.nn.Linear(3, 3)
    found = pliant.compile(program, fullgraph=True)(X, b=linear, a=1)
    torch.testing.assert_close(found, program(X, b=linear, a=1))


@pytest.mark.parametrize("name", ["keys", "values", "items"])
@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_views_of_dicts_cross_a_break(kind, name):
    def program(x, held):
        view = getattr(held, name)()
        pliant.graph_break()
        return x + len(view), list(view)

    pliant.reset()
    compiled = pliant.compile(program)
    for held in (kind(a=1, b=2), kind(a=1)):
        (found, listed), (expected, wanted) = compiled(X, held), program(X, held)
        assert torch.equal(found, expected)
        assert listed == wanted
    assert not pliant.stats()["fallbacks"]
