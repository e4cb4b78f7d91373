"""Keeping and finding entries holds nothing of the program's: what it drops is gone, without a cyclic collection."""

import gc
import weakref

import pytest
import torch

import pliant
from capture.test_compiled_objects import graph_module
from capture.test_release import broken, called_in_two_ways, trained
from pliant import background
from pliant.cache.store import WRITING


@pytest.fixture(autouse=True)
def keeping(tmp_path):
    with pliant.config.patch(keep_entries=True, cache_dir=str(tmp_path / "cache")):
        yield
        background.finish(WRITING)


@pytest.mark.parametrize("make", [trained, broken, called_in_two_ways])
def test_what_is_dropped_is_gone_once_it_is_written_down(make):
    for width in (8, 9, 9):  # the last may find what the one before kept
        gc.collect()
        gc.disable()
        try:
            seen = [weakref.ref(value) for value in make(width)]
            background.finish(WRITING)
            assert [ref() for ref in seen] == [None, None, None]
        finally:
            gc.enable()


def test_a_class_made_for_one_object_is_not_held():
    module = graph_module()
    cls = weakref.ref(type(module))
    pliant.compile(module)(torch.ones(2, 3))
    del module
    background.finish(WRITING)
    gc.collect()  # a class is part of a cycle
    assert cls() is None


def test_a_module_that_leads_to_its_own_entries_is_gone_after_a_collection():
    for _ in range(2):  # the second finds what the first kept
        model = torch.nn.Linear(4, 7)
        gone = weakref.ref(model)
        pliant.compile_(model)
        model(torch.ones(2, 4)).sum().backward()
        del model
        background.finish(WRITING)
        gc.collect()
        assert gone() is None
    assert pliant.stats()["entries"]["found"]
