"""`as_strided` of changing sizes: geometry is decided by guards on expressions, also in the derivative formula."""

from __future__ import annotations

import pytest
import torch
from tests.autograd.fuzz_memory import disagreement

import pliant

GEOMETRIES = {
    "overlapping rows": lambda n, m: ((n - 1, 2 * m), (m, 1), 0),
    "windows": lambda n, m: ((n * m - 3, 4), (1, 1), 0),
    "hops": lambda n, m: ((n * 2 - 1, m), (m // 2, 1), 0),
    "offset": lambda n, m: ((n - 1, m - 1), (m, 1), m),
    "repeated": lambda n, m: ((3, n, m), (0, m, 1), 0),
    "transposed": lambda n, m: ((m, n), (1, m), 0),
    "every other": lambda n, m: ((n, m // 2), (m, 2), 0),
    "diagonal": lambda n, m: ((n - 1,), (m + 1,), 0),
    "one row": lambda n, m: ((1, n), (5, 1), 1),
}
BASES = {
    "leaf": lambda x: x,
    "result": lambda x: x * 2,
    "transposed": lambda x: (x * 2).t(),
    "repeated": lambda x: (x * 2)[0].expand(x.size(0), -1),
}
SIZES = ((5, 6), (7, 8), (6, 10), (9, 8))


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()


def _outcome(function, x):
    x.grad = None
    out = function(x)
    (out * torch.arange(out.numel()).view(out.shape)).sum().backward()
    return out.detach(), x.grad


@pytest.mark.spread(2, "base", "geometry")
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_one_graph_for_all_sizes(geometry, base):
    def f(x):
        n, m = x.size(0), x.size(1)
        source = BASES[base](x)
        size, stride, offset = GEOMETRIES[geometry](n, m) if base != "repeated" else ((n - 1, m), (0, 1), 0)
        return source.as_strided(size, stride, offset).sin()

    if base == "repeated" and geometry != "offset":
        pytest.skip("the memory of one row has no other geometry")
    compiled = pliant.compile(f, dynamic=True)
    for sizes in SIZES:
        x = torch.randn(sizes, requires_grad=True)
        torch.testing.assert_close(_outcome(compiled, x), _outcome(f, x), equal_nan=True)
    assert pliant.stats()["graphs"] == 1 and not pliant.stats()["fallbacks"]


def test_written_through_overlap_free_geometry():
    def f(x, y):
        z = x * 1
        z.as_strided((x.size(0), 2), (x.size(1), 1), 1).mul_(y)
        return z.sin()

    compiled = pliant.compile(f, dynamic=True)
    for n, m in SIZES:
        x, y = torch.randn(n, m, requires_grad=True), torch.randn(n, 2)
        torch.testing.assert_close(*(_outcome(lambda x, f=f: f(x, y), x) for f in (compiled, f)))
    assert pliant.stats()["graphs"] == 1


def _of_copy(b):
    return b.clone().as_strided((2, 2), (1, 2)) * 2


def _of_written_copy(b):
    copy = b.clone()
    copy.diagonal().zero_()
    copy.as_strided((2, 2), (1, 2)).mul_(3)
    return copy, copy.as_strided((3,), (2,), 1)


def _of_part_of_copy(b):
    part = b.clone()[1:]
    part.as_strided((2, 2), (1, 2)).add_(1)
    return part, part * 2


def _written_twice(b):
    b.as_strided((2, 2), (1, 2), 4).mul_(3)
    return b.as_strided((3,), (1,), 5) * 2, b.as_strided((2,), (1,), 0) * 1


def _written_before(b):
    b.mul_(2)
    view = b.as_strided((2, 2), (1, 2), 5)
    view.add_(1)
    return b * 1, view * 1


def _part_written_before(b):
    b[1].mul_(2)
    view = b.as_strided((2, 2), (1, 2), 5)
    view.add_(1)
    return view * 2, b.sum()


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize(
    "program", [_of_copy, _of_written_copy, _of_part_of_copy, _written_twice, _written_before, _part_written_before]
)
def test_memory_that_begins_before_the_tensor(program, backend):
    """Positions count from the start of the memory: the copy of a part has memory of its own."""
    seen, compiled = [], pliant.compile(program, backend=backend)
    for transposed in (False, True):
        for function in (program, compiled):
            whole = torch.arange(18.0).reshape(6, 3)
            result = function(whole[1:5].t() if transposed else whole[1:5])
            seen.append((result, whole))
    torch.testing.assert_close(seen[1::2], seen[::2], rtol=0, atol=0)
    assert not pliant.stats()["fallbacks"]


@pytest.mark.parametrize(
    "part", [lambda whole: whole[1:5], lambda whole: whole[2:6:2], lambda whole: whole[:, :2]], ids=["rows", "every other", "gaps"]
)
def test_writes_of_memory_that_is_not_the_inputs_own(part):
    """They run eagerly: behind a graph an input's elements are written, and no others."""

    def program(b):
        b.as_strided((2, 2), (1, 2), 2).mul_(3)
        return b * 1

    seen = []
    for function in (program, pliant.compile(program, backend="aot_eager")):
        whole = torch.arange(18.0).reshape(6, 3)
        seen.append((function(part(whole)), whole))
    torch.testing.assert_close(seen[1], seen[0], rtol=0, atol=0)
    assert pliant.stats()["fallbacks"] or pliant.stats()["graph_breaks"]


BEYOND = {
    "given": lambda x: x.as_strided((2, 2), (1, 2)) + 1,
    "computed": lambda x: (x * 2).as_strided((2, 2), (1, 2)) + 1,
    "part": lambda x: (x * 2)[1:].as_strided((2, 2), (1, 2)) + 1,
    "offset": lambda x: (x * 2).as_strided((2, 2), (1, 2), 3) + 1,
    "asked": lambda x: torch.zeros(3).as_strided((2, 2), (1, 2)) + x[0],
    "in place": lambda x: (x * 2).as_strided_((2, 2), (1, 2)) + 1,
    "by sizes": lambda x: (x * 2).as_strided((x.shape[0], 2), (1, 2)).sum(0),
    "of another type": lambda x: (x * 2).view(torch.int32).as_strided((2, 2), (1, 2)) + 1,
    "of parts": lambda x: torch.view_as_real(torch.complex(x, x + 1)).as_strided((2, 4), (1, 2)) + 1,
    "of smaller elements": lambda x: x.view(torch.int16).as_strided((2, 4), (1, 2)) + 1,
}


@pytest.mark.parametrize("name", BEYOND)
def test_nothing_is_read_beyond_the_memory(name):
    """Eager says so, whatever sizes came before."""
    program = BEYOND[name]
    compiled = pliant.compile(program)
    for n in (4, 6, 3, 5, 3):
        x = torch.randn(n)
        try:
            expected = program(x)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match="out of bounds for storage") as caught:
                compiled(x)
            assert str(caught.value) == str(error)
        else:
            torch.testing.assert_close(compiled(x), expected)


def test_random_programs_on_memory():
    for seed in range(60):
        assert not disagreement(seed)
