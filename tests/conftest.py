"""Settings of all tests: a private cache, verifiers on, fast tests first, device tests only where there is a device."""

import gc
import importlib.metadata
import os
import shutil
import sys
import tempfile

import pytest

from crossed import sample, spread
from older_pytorch import MISSING, OLD
from quick_build import quickly

# Before anything imports pliant: worker processes inherit the environment and so share one cache.
_OWNER = "PLIANT_TEST_CACHE_OWNER"
if _OWNER not in os.environ:
    os.environ[_OWNER] = str(os.getpid())
    os.environ["PLIANT_CACHE_DIR"] = tempfile.mkdtemp(prefix="pliant-tests-")
os.environ.setdefault("PLIANT_VERIFY", "1")
# Functions of one text in two tests are one function on disk: only tests of that find what others kept.
os.environ.setdefault("PLIANT_KEEP_ENTRIES", "0")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# transformers imports torchvision wherever it is installed: slow, not needed here, and it may not fit this torch.
sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]


def pytest_collection_modifyitems(items, config):
    spread_out, not_crossed = spread(items)
    items[:], not_sampled = sample(spread_out)
    config.hook.pytest_deselected(items=not_crossed + not_sampled)
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
    if tuple(map(int, importlib.metadata.version("torch").split(".")[:2])) < OLD:
        for item in items:
            if item.nodeid in MISSING:
                item.add_marker(pytest.mark.xfail(reason=f"PyTorch 2.11 {MISSING[item.nodeid]}", strict=True))
    if any(item.get_closest_marker("gpu") for item in items):
        import torch

        if not torch.cuda.is_available():
            for item in items:
                if item.get_closest_marker("gpu"):
                    item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_collection_finish():
    """Twenty thousand items and what they import stay to the end: no collection of a test need walk through them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)  # from 700: little of what a test makes is garbage, and less while it runs
    torch = sys.modules.get("torch")
    for seeds in (torch.cuda.random, torch.xpu.random, torch.mtia) if torch and not torch.accelerator.is_available() else ():
        # `torch.manual_seed` would keep, for a device that is not there, the stack below pytest as text: milliseconds a call.
        seeds._lazy_call = lambda *_, **__: None


def _full_collections():
    return gc.get_stats()[2]["collections"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    """What a test has left stays to the end, too, once a full collection has walked through it: such walks were a tenth of
    the time of all tests. Nothing that is frozen is garbage then."""
    before = _full_collections()
    result = yield
    if _full_collections() != before:
        gc.collect()
        gc.freeze()
    return result


def pytest_unconfigure():
    if os.environ.get(_OWNER) == str(os.getpid()):
        shutil.rmtree(os.environ["PLIANT_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(autouse=True)
def modes_of_torch_are_left_as_found():
    before = _modes()
    yield
    assert before in (None, _modes())


WATCHED = ("capture", "debug", "guards", "runtime", "symbolic")  # folders whose tests say where calls run eagerly


@pytest.fixture(autouse=True)
def nothing_runs_eagerly_unasked(request):
    """A test that compares results passes just as well where nothing is compiled: it says so, or looks itself."""
    if request.path.relative_to(request.config.rootpath / "tests").parts[0] not in WATCHED:
        yield
        return
    from fallback_watch import watching

    with watching() as watch:
        yield
    if not request.node.get_closest_marker("fallbacks_expected"):
        assert watch.unasked() == {}, "calls ran eagerly; mark the test `fallbacks_expected` if that is what it is about"


# What these test is the program's meaning, or what is done with what is built: they do without half of the C compiler's time.
# Kernels have tests of their own (`codegen`, `gpu`), all operators of `ops` and whole models are built as users have them built.
QUICKLY_BUILT = ("autograd", "capture", "debug", "end_to_end", "entries", "graph", "guards", "lowering", "schedule")


@pytest.fixture(autouse=True)
def kernels_are_built_quickly(request):
    folder = request.path.relative_to(request.config.rootpath / "tests").parts[0]
    if folder not in QUICKLY_BUILT or request.node.get_closest_marker("slow"):
        yield
        return
    with quickly():
        yield


@pytest.fixture(autouse=True)
def small_programs_are_compiled(request, monkeypatch):
    """Tests compute on few elements so as not to take long, and are about compiled code."""
    if not request.node.get_closest_marker("small_programs"):
        monkeypatch.setattr("pliant.autograd.small_programs.FEW", 0)


def _modes():
    torch = sys.modules.get("torch")
    return torch and (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype())
