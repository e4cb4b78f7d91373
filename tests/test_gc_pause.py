import gc

from pliant.gc_pause import GcPause


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
