"""A part of the table of operators that fail in functions that write: what it found, and a sample of the rest."""

import pytest
import torch
import torch.nn.functional as F
from tests.end_to_end.failing_writes import Case, difference, sample

import pliant

FOUND = [
    Case("index", "input", "before", "list", caught=False),  # a lookup and a write in one native call
    Case("index", "input", "before", "list", caught=True),
    Case("index of the written", "two inputs", "before", "list", caught=False),
    Case("gather", "view of an input", "around", "print", caught=True),
    Case("embedding", "written by the same", "after", "dict", caught=True),  # the value of a write may fail
    Case("cholesky", "two inputs", "before", "module", caught=True),
    Case("custom", "input", "before", "list", caught=False),  # which raises in the program's own Python
]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("case", FOUND, ids=str)
def test_case_is_as_in_eager(case, grad):
    assert difference(case, grad) is None
    pliant.reset()


@pytest.mark.parametrize("case", sample(10), ids=str)
def test_sampled_case_is_as_in_eager(case):
    assert difference(case) is None
    pliant.reset()


IN_PLACE = [
    Case("index", "input", "before", "list", caught=True),
    Case("custom", "two inputs", "before", "list", caught=False),
    Case("embedding", "statistics", "before", "list", caught=True),  # writes that no version counts
    Case("gather", "out", "around", "dict", caught=False),
]


def as_it_is(module, inputs):
    return module.forward


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", ["eager", as_it_is], ids=["eager", "own"])
@pytest.mark.parametrize("case", IN_PLACE, ids=str)
def test_case_where_the_graph_writes_as_it_goes(case, backend, grad):
    assert difference(case, grad, backend=backend) is None
    pliant.reset()


def test_writes_are_not_copied_where_nothing_may_fail():
    def f(x, y):
        return x.add_(F.layer_norm(y @ y, (3,)).relu()).sum() + x[0, 1:].sum()

    pliant.reset()
    compiled, x = pliant.compile(f, backend="eager", fullgraph=True), torch.ones(3, 3)
    clones = []
    clone = torch.Tensor.clone
    try:
        torch.Tensor.clone = lambda self: clones.append(self) or clone(self)
        compiled(x, torch.ones(3, 3))
    finally:
        torch.Tensor.clone = clone
    assert not clones
    pliant.reset()


def test_a_graph_that_cannot_fail_writes_where_it_computes():
    pliant.reset()
    compiled = pliant.compile(lambda x, y: x.add_(y.sin()).sum(), fullgraph=True)
    compiled(torch.zeros(3), torch.ones(3))
    assert pliant.stats()["fallbacks"] == 0
    pliant.reset()


def in_parts(seen, x, i):
    """Parts of its own for what the caller gets and more is computed from."""
    seen.add_(1)
    h = x.sin() * seen.sum()
    k = h.exp()[i] * 2
    seen.mul_(2)
    return h, k, k[i.flip(0)] + seen.sum()


def in_parts_recorded(seen, x, i):
    """The same where the history of an input records its write, which is not taken back: the graph breaks there."""
    seen = seen * x.sum()
    seen.add_(1)
    x.mul_(2)
    h = x.sin() * seen.sum()
    return h, h.exp()[i] * 2


@pytest.mark.parametrize(("function", "breaks"), [(in_parts, False), (in_parts_recorded, True)])
@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
def test_what_a_part_wrote_before_another_failed_is_written_once(function, breaks, backend):
    pliant.reset()
    answers = []
    for f in (function, pliant.compile(function, backend=backend)):
        seen, leaf = torch.zeros(3), torch.randn(3, generator=torch.Generator().manual_seed(0)).requires_grad_()
        x = leaf * 1
        for i in ([0, 2, 1], [0, 7, 1], [2, 1, 0]):
            try:
                sum(r.sum() for r in f(seen, x, torch.tensor(i))).backward(retain_graph=True)
            except IndexError as error:
                answers.append(str(error)[:30])
            except RuntimeError as error:  # of what was written over
                answers.append(str(error)[:60])
            answers += [seen.clone(), x.detach().clone(), leaf.grad.clone() if leaf.grad is not None else None]
    half = len(answers) // 2
    for wanted, got in zip(answers[:half], answers[half:], strict=True):
        assert torch.allclose(wanted, got) if isinstance(wanted, torch.Tensor) else wanted == got
    assert (pliant.stats()["graph_breaks"] > 0) is breaks and pliant.stats()["fallbacks"] == 0
    pliant.reset()
