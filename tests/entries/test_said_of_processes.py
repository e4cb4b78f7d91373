"""What capture learnt of its process and another process asks for itself: orders of sets, answers, types without names."""

import functools
import itertools
import random
from typing import NamedTuple

import numpy as np
import pytest
import torch

import pliant
from pliant import background
from pliant.cpython import order_in_table, table_of
from pliant.debug import events
from pliant.entries import form
from pliant.entries.content import digest

X = torch.randn(4, 4)


@pytest.fixture(autouse=True)
def folder(tmp_path):
    pliant.reset()
    with pliant.config.patch(keep_entries=True, cache_dir=str(tmp_path / "cache"), strict=True):
        yield
    pliant.reset()


def called(fn, *args, again=None):
    """What a new dispatcher does."""
    events.reset()
    pliant.reset()
    compiled = pliant.compile(fn, dynamic=True)  # which has the entry until it is written down
    result = compiled(*args)
    background.finish()
    results, expected = (one if isinstance(one, tuple) else (one,) for one in (result, fn(*(again or args))))
    assert results[1:] == expected[1:]
    torch.testing.assert_close(results[0], expected[0])
    return pliant.stats()["entries"]


# ---- orders of sets
@pytest.mark.parametrize("count", [2, 3, 5, 20])
def test_the_order_is_that_of_slots_unless_two_meet(count):
    rng = random.Random(count)
    told = 0
    for _ in range(300):
        items = [str(rng.random()) for _ in range(count)]
        for one in (set(items), frozenset(items), {*items[::-1]}):
            order = order_in_table(items, table_of(one))
            told += order is not None
            assert order in (None, list(one))
    assert told or count == 20


def test_tables_that_something_was_taken_out_of_are_not_told_of():
    items = {"a", "b", "c"}
    assert table_of(items) == 8
    items.discard("a")
    assert table_of(items) is None
    items |= set(map(str, range(20)))  # laid anew
    assert table_of(items) is not None
    items.pop()
    items |= set(map(str, range(200)))
    assert table_of(items) is None  # what is popped next depends on what was


ITEMS = next(two for two in itertools.combinations("abcdefgh", 2) if order_in_table(two, 8) is not None)


def of_a_set(x):
    for text in set(ITEMS):
        x = x * len(text) + ord(text)
    return x


def test_an_entry_is_found_where_sets_have_its_order(monkeypatch):
    assert called(of_a_set, X) == {"kept": 1}
    assert called(of_a_set, X) == {"found": 1}
    with monkeypatch.context() as patch:
        patch.setattr(form, "order_in_table", lambda items, size: order_in_table(items, size)[::-1])
        assert called(of_a_set, X) == {"not found": 1, "kept": 1}
    with monkeypatch.context() as patch:
        patch.setattr(form, "order_in_table", lambda items, size: None)
        assert "found" not in called(of_a_set, X)


def of_a_sorted_set(x):
    return x + ord(sorted({"a", "b"})[0])


def test_sorted_sets_have_no_order(monkeypatch):
    assert called(of_a_sorted_set, X) == {"kept": 1}
    monkeypatch.setattr(form, "order_in_table", lambda items, size: None)
    assert called(of_a_sorted_set, X) == {"found": 1}


# ---- answers of functions that are marked constant
SAID = {"value": 1.0}


@torch.compiler.assume_constant_result
def said(name, *, more=1):
    if isinstance(SAID[name], Exception):
        raise SAID[name]
    return SAID[name]


def of_what_is_said(x):
    return x * said("value", more=2)


@pytest.mark.parametrize("other", [2.0, 1, True, ValueError()])
def test_functions_marked_constant_are_asked_again(monkeypatch, other):
    assert called(of_what_is_said, X) == {"kept": 1}
    assert called(of_what_is_said, X) == {"found": 1}
    with monkeypatch.context() as patch:
        patch.setitem(SAID, "value", other)
        if isinstance(other, Exception):
            with pytest.raises(ValueError):
                called(of_what_is_said, X)
            assert [e.fields["why"] for e in events.events("entry")][0] == "said says something else"
        else:
            assert called(of_what_is_said, X) == {"not found": 1, "kept": 1}
    assert called(of_what_is_said, X)["found"] == 1


@functools.lru_cache
@torch.compiler.assume_constant_result
def said_once():
    return SAID["value"]


def of_what_is_kept(x):
    return x * said_once()


def test_answers_that_are_kept_are_asked_for_where_they_are(monkeypatch):
    assert called(of_what_is_kept, X) == {"kept": 1}
    assert called(of_what_is_kept, X) == {"found": 1}
    monkeypatch.setitem(SAID, "value", 3.0)
    said_once.cache_clear()
    assert "found" not in called(of_what_is_kept, X)
    said_once.cache_clear()


@torch.compiler.assume_constant_result
def made():
    return object()


def of_what_has_no_form(x):
    return x * 2, made()


def test_answers_without_a_form_are_not_kept():
    events.reset()
    compiled = pliant.compile(of_what_has_no_form)
    compiled(X)
    background.finish()
    assert pliant.stats()["entries"] == {"not kept": 1}


# ---- what has no name of its own
def of_an_iterator(x, rows):
    return x * next(rows)[1]


def test_types_of_iterators_have_names():
    rows = {"a": 2.0, "b": 3.0}
    assert called(of_an_iterator, X, iter(rows.items()), again=(X, iter(rows.items()))) == {"kept": 1}
    assert called(of_an_iterator, X, iter(rows.items()), again=(X, iter(rows.items()))) == {"found": 1}


class Pair(NamedTuple):
    one: float
    other: float


PAIR = Pair(2.0, 3.0)


def of_a_named_tuple(x):
    return x * PAIR.other


def test_fields_of_named_tuples_have_content(monkeypatch):
    assert called(of_a_named_tuple, X) == {"kept": 1}
    assert called(of_a_named_tuple, X) == {"found": 1}
    assert digest(Pair.one) != digest(Pair.other)
    with monkeypatch.context() as patch:
        patch.setattr(Pair, "other", Pair.one)
        assert "found" not in called(of_a_named_tuple, X)


ROOT = np.sqrt


def of_a_function_of_numpy(x):
    return x * float(ROOT(4.0))


def test_functions_of_numpy_have_names(monkeypatch):
    assert called(of_a_function_of_numpy, X) == {"kept": 1}
    assert called(of_a_function_of_numpy, X) == {"found": 1}
    monkeypatch.setitem(globals(), "ROOT", np.square)
    assert "found" not in called(of_a_function_of_numpy, X)
    monkeypatch.setitem(globals(), "ROOT", np.frompyfunc(float, 1, 1))
    assert "found" not in called(of_a_function_of_numpy, X)


def of_a_text(x):
    size = x.shape[0]
    return x + 1, f"{size:3d} rows", "%05d" % size  # noqa: UP031


def test_texts_of_sizes_are_kept():
    assert called(of_a_text, X) == {"kept": 1}
    assert called(of_a_text, X) == {"found": 1}
