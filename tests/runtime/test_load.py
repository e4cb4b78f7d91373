"""Libraries of kernels in the process: mapped while a function of theirs is there, by whichever way it is held."""

import gc
import sys
import threading
from pathlib import Path

import pytest
import torch

import pliant

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads what Linux tells of the process")


def mapped():
    """The libraries of kernels, but for what all share."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {path for line in lines if (path := line.split()[-1]).endswith("data.so") and " r-xp " in line}


def compiled(factor):
    def function(x):
        return (x * factor).sin() + factor

    return pliant.compile(function)


@pytest.fixture(scope="module", autouse=True)
def shared():
    compiled(0.5)(torch.ones(3, requires_grad=True)).sum().backward()
    gc.collect()


def test_a_library_goes_with_its_last_function():
    before = mapped()
    one, other = compiled(1.25), compiled(1.25)
    x = torch.randn(300, requires_grad=True)
    want = (x * 1.25).sin() + 1.25
    torch.testing.assert_close(one(x), want)
    with torch.no_grad():
        torch.testing.assert_close(other(x), want)
    result = one(x)
    assert mapped() - before
    one = None
    gc.collect()
    result.sum().backward()  # holds its kernels
    torch.testing.assert_close(x.grad, 1.25 * (x * 1.25).cos())
    assert mapped() - before
    other = result = None
    gc.collect()
    assert mapped() == before


def test_functions_come_and_go_in_several_threads():
    before, wrong, x = mapped(), [], torch.randn(70_000)
    want = (x * 1.75).sin() + 1.75

    def work():
        for _ in range(4):
            function = compiled(1.75)
            for _ in range(3):
                if not torch.allclose(function(x), want, rtol=1e-4, atol=1e-5):
                    wrong.append(function)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    gc.collect()
    assert mapped() == before
