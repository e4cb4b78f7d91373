"""Kernels in Python, which the dispatcher looks for while programs are traced: by threads at once, too."""

import threading
import time

import pytest
import torch

from pliant import torch_adapter
from pliant.graph.map_rules import kernels


@pytest.mark.parametrize("key", ["AutogradCPU", "Python", "CPU"])
def test_what_another_thread_found_is_taken(key):
    op, key = torch.ops.aten.gelu_backward.default, getattr(torch._C.DispatchKey, key)
    with torch_adapter.python_kernels():  # the dispatcher looks into the cache and then asks; meanwhile others run
        op._dispatch_cache.pop(key, None)
        first = op._get_dispatch(key)
        assert op._get_dispatch(key) is first is op._dispatch_cache[key]


def test_an_operator_gets_its_kernel_once(monkeypatch):
    """PyTorch refuses a second one; the second thread asks while the first is at it."""
    installed, together = [], threading.Barrier(2)
    kernels._installed()  # for the tests behind this one

    def install(rows):
        installed.append(rows)
        time.sleep(0.05)

    def ask():
        together.wait()
        kernels._taken()

    monkeypatch.setattr(kernels, "install", install)
    kernels._installed.cache_clear()
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(installed) == 1
