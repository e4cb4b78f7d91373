"""What operators allocate, as a mode sees it."""

import torch

from pliant.runtime.cuda.placing import Watching
from pliant.runtime.cuda.room import Allocation

LARGE = 1 << 19  # elements: 2 MB


def test_what_is_allocated_and_when_it_is_free_again():
    x = torch.randn(LARGE)
    with Watching(torch.device("cpu")) as seen:
        a = x + 1  # operator 0
        b = a[1:]  # 1: a view
        c = torch.cat([a, x])  # 2
        c.mul_(2)  # 3: in place
        del c
        small = torch.zeros(4)  # 4
        del a
        d, e = torch.max(b.expand(2, -1), 1, keepdim=True)  # 5, 6
        del b
        torch.add(x, 1, out=x)  # 7
        f = torch.empty(LARGE, 2)[:, :1]  # 8, 9
    assert sorted(seen.allocations(), key=lambda one: one.at) == [
        Allocation(0, 7, 4 * LARGE),
        Allocation(2, 4, 8 * LARGE),
        Allocation(8, 10, 8 * LARGE),
    ]
    assert [size for _, size in seen.busy()] == [8 * LARGE]
    assert small is not None and d is not None and e is not None and f is not None


def test_other_devices_are_not_looked_at():
    with Watching(torch.device("cuda", 0)) as seen:
        torch.zeros(LARGE)
    assert not seen.allocations()
