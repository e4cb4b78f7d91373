import gc
import weakref

import pytest

from pliant import background, gc_pause
from pliant.gc_pause import GcPause


@pytest.fixture(autouse=True)
def nothing_frozen(monkeypatch):
    """The suite freezes what it starts with."""
    gc.unfreeze()
    monkeypatch.setattr(gc_pause, "_freezes", False)
    yield
    gc.freeze()


def test_collection_is_on_again_after_the_last_pause():
    assert gc.isenabled()
    first, second = GcPause(), GcPause()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_collection_that_was_off_stays_off():
    gc.disable()
    try:
        with GcPause():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_allocated_meanwhile_is_old():
    with GcPause():
        made = [[] for _ in range(5000)]
    assert not any(one is made[-1] for one in gc.get_objects(generation=0))
    assert any(one is made[-1] for one in gc.get_objects(generation=2))
    assert gc.get_freeze_count() == 0


def test_what_the_interpreter_froze_is_not_the_programs(monkeypatch):
    monkeypatch.setattr(gc_pause.gc, "get_freeze_count", lambda: 375)
    with GcPause():
        made = [[] for _ in range(5000)]
    assert not any(one is made[-1] for one in gc.get_objects(generation=0))


def test_garbage_from_before_does_not_grow_old():
    class Node:
        pass

    node = Node()
    node.itself, gone = node, weakref.ref(node)
    del node
    with GcPause():
        assert gone() is None


def test_what_the_program_froze_stays_frozen():
    gc.freeze()
    frozen = gc.get_freeze_count()
    with GcPause():
        pass
    assert gc.get_freeze_count() >= frozen // 2 > 0  # some may have died


def test_who_waits_within_a_pause_for_a_thread_is_not_waited_for(monkeypatch):
    waits, wait = [], background.wait
    monkeypatch.setattr(gc_pause.background, "wait", lambda *given: waits.append(given) or wait(*given))
    with GcPause():
        background.start(gc_pause.await_end, "pliant-test")
        background.finish("pliant-test")
    assert len(waits) <= 2
