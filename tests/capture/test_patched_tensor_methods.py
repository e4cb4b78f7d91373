"""Methods of `torch.Tensor` that the program replaces by its own, before a function is captured and after."""

import operator

import pytest
import torch

import pliant

X = torch.tensor([0.5, 1.5, 2.5])
SEEN = []
PROGRAMS = {
    "relu": lambda x: x.relu(),
    "add": lambda x: x.add(1),
    "view": lambda x: x.view(-1) * 2,
    "size": lambda x: x * x.size(0),
    "__add__": lambda x: x + 1,
    "__radd__": lambda x: 1 + x,
    "__iadd__": lambda x: operator.iadd(x.clone(), 1),
    "__getitem__": lambda x: x[0],
    "__setitem__": lambda x: operator.setitem(x.clone(), 0, 1),
    "__neg__": lambda x: -x,
    "__eq__": lambda x: x == 0.5,
    "__len__": lambda x: x * len(x),
    "__iter__": lambda x: [*x][0],
    "__float__": lambda x: x * float(x.sum()),
    "__bool__": lambda x: x * bool(x.sum() > 1),
    "__index__": lambda x: x * [1, 2, 3][x.argmax()],
}


def _other(original):
    def method(self, *args):
        SEEN.append(len(args))
        found = original(self, *args)
        return torch.mul(torch.sub(found, 3), 2) if isinstance(found, torch.Tensor) and found.is_floating_point() else found

    return method


@pytest.mark.spread(2, "later", "name")
@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_methods_of_the_programs_own_run_at_each_call(monkeypatch, name, later):
    program = PROGRAMS[name]
    pliant.reset()
    compiled = pliant.compile(lambda x: (program(x),)[0])
    if later:
        compiled(X)
    monkeypatch.setattr(torch.Tensor, name, _other(getattr(torch.Tensor, name)))
    SEEN.clear()
    expected, seen = program(X), list(SEEN)
    found = []
    for _ in range(2):
        SEEN.clear()
        found.append((compiled(X), list(SEEN)))
    monkeypatch.undo()
    assert [calls for _, calls in found] == [seen, seen] or name == "size"  # which the compiler asks, too
    for result, _ in found:
        torch.testing.assert_close(result, expected, rtol=0, atol=0) if expected is not None else None
