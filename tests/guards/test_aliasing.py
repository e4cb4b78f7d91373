"""Arguments that share memory, or are one object, where others did not: in any order of calls."""

import itertools

import pytest
import torch

import pliant


def apart():
    return torch.ones(4), torch.ones(4)


def same():
    a = torch.ones(4)
    return a, a


def view():
    a = torch.ones(4)
    return a, a[:]


def base():
    a = torch.ones(4)
    return a[:], a


def overlapping():
    a = torch.ones(8)
    return a[:4], a[2:6]


def halves():
    a = torch.ones(8)
    return a[:4], a[4:]


def writes_first(a, b):
    a.add_(1)
    return a * 1 + b * 2


def writes_second(a, b):
    b.mul_(2)
    return a - b


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "pliant"])
@pytest.mark.parametrize("program", [writes_first, writes_second])
@pytest.mark.fallbacks_expected  # memory that inputs share is written
def test_tensors(program, backend):
    for first, second in itertools.permutations((apart, same, view, base, overlapping, halves), 2):
        compiled = pliant.compile(program, backend=backend)
        for make in (first, second, first):
            given, expected = make(), make()
            torch.testing.assert_close(compiled(*given), program(*expected), msg=f"{first.__name__} {make.__name__}")
            torch.testing.assert_close(given, expected)


def test_lists():
    def program(x, a, b):
        a.append(2)
        return x * len(b)

    compiled = pliant.compile(program, backend="eager")
    x, one = torch.ones(2), [1]
    assert torch.equal(compiled(x, [1], [1]), x)
    assert torch.equal(compiled(x, one, one), x * 2)


def test_objects():
    class Box:
        value = 1

    def program(x, a, b):
        a.value = 5
        return x * b.value

    compiled = pliant.compile(program, backend="eager")
    x = torch.ones(2)
    for make in (lambda: (Box(), Box()), lambda: (Box(),) * 2, lambda: (Box(), Box())):
        assert torch.equal(compiled(x, *make()), program(x, *make()))


def test_a_buffer_that_is_written_and_an_argument():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total.add_(x)
            return x * 2 + self.total

    ours, eager = Counter(), Counter()
    compiled = pliant.compile(ours)
    for own in (False, False, True, False):
        x = torch.ones(3)
        torch.testing.assert_close(compiled(ours.total if own else x), eager(eager.total if own else x))
        torch.testing.assert_close(ours.total, eager.total)
