"""What tracing a backward made is garbage when the compiled function is: autograd's graphs of fakes are unseen by the collector."""

import gc

import pytest
import torch
from torch import fx

import pliant


def saved_result(x):
    return x.exp()


def result_of_a_result(x):
    y = x * 2
    return y, y.sin()


def saved_view(x):
    return x.exp().t() @ x.tanh()


def written(x):
    y = x + 1
    y.mul_(2)
    return y, y.exp()


def refused(x):
    y = x.exp()
    z = y * x
    y.add_(1)
    return z.sum(), y


PROGRAMS = [saved_result, result_of_a_result, saved_view, written, refused]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
def test_no_graph_outlives_the_compiled_function(program, dynamic):
    for _ in range(2):  # the first call may load what stays
        pliant.reset()
        gc.collect()
        before = {id(one) for one in gc.get_objects() if isinstance(one, fx.GraphModule)}
        x = torch.rand(4, 3, requires_grad=True)
        found = pliant.compile(program, backend="aot_eager", dynamic=dynamic)(x)
        results = found if isinstance(found, tuple) else (found,)
        if program is not refused:
            sum(one.sum() for one in results).backward()
        del found, results, x
        pliant.reset()
        gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, fx.GraphModule) and id(one) not in before]
