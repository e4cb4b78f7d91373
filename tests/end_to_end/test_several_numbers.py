"""Functions of many numbers, of which any may be symbolic, beside constants."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F

import pliant

FUNCTIONS = {
    "max": max,
    "min": min,
    "max of a list": lambda *n: max(list(n)),
    "max with a key": lambda *n: max(n, key=lambda number: -number),
    "min with a default": lambda *n: min(n[1:], default=n[0]),
    "nested": lambda *n: max(n[0], min(*n, 40), n[-1]),
    "folded": lambda *n: torch.sym_max(n[0], torch.sym_max(n[-1], n[len(n) // 2])),
    "sum": lambda *n: sum(n),
    "sum from": lambda *n: sum(n, 1.5),
    "sym_sum": lambda *n: torch.sym_sum([one for one in n if type(one) is not float]),
    "prod": lambda *n: math.prod(n),
    "any": lambda *n: any(one > 4 for one in n),
    "all": lambda *n: all(one > 4 for one in n),
    "max of comparisons": lambda *n: max(*(one > 4 for one in n), False),
    "sorted": lambda *n: sorted(n)[0],
    "hypot": lambda *n: math.hypot(*n),
}
CASES = [(1, False, (3, 6.5, 7)), (3, False, (5,)), (5, False, ()), (5, True, (4.5,))]  # sizes, halved, constants
SIZES = [(3, 4, 5, 6, 7), (9, 4, 2, 6, 8), (5, 9, 11, 2, 3)]


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    yield
    pliant.reset()


def program_of(function, constants, count, halved):
    def program(x, others):
        sizes = [t.size(0) / 2 if halved else t.size(0) for t in (x, *others)][:count]
        return x.sum() + function(*sizes, *constants)

    return program


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers(name):
    for count, halved, constants in CASES:
        program = program_of(FUNCTIONS[name], constants, count, halved)
        compiled = pliant.compile(program, backend="aot_eager", dynamic=True)
        for sizes in SIZES:
            x, *others = (torch.ones(n) for n in sizes)
            assert torch.equal(compiled(x, others), program(x, others))
    assert pliant.stats()["fallbacks"] == 0


BESIDE_INTEGERS = {
    "pads": lambda x, n, v: F.pad(x, (n, n + 1), value=v),
    "one pad": lambda x, n, v: F.pad(x, (n, 1), value=v / 2),
    "loss": lambda x, n, v: F.cross_entropy(x, torch.arange(3), ignore_index=n, label_smoothing=v / 8),
    "rows": lambda x, n, v: x.new_full((n, n), v),
}


@pytest.mark.parametrize("name", BESIDE_INTEGERS)
@pytest.mark.parametrize("train", [False, True])
def test_floats_beside_integers(name, train):
    program = BESIDE_INTEGERS[name]
    compiled = pliant.compile(program, backend="aot_eager")
    for n, v in ((2, 0.5), (3, 1.5), (4, 2.5), (6, 3.5)):
        x = torch.randn(3, 8, requires_grad=train)
        torch.testing.assert_close(compiled(x, n, v), program(x, n, v))
    assert pliant.stats()["graphs"] == 2


@pytest.mark.parametrize("extreme", [max, min])
def test_sizes_of_kernels(extreme):
    def program(x, y, z):
        return torch.ones(extreme(x.size(0), y.size(0), z.size(0))) * 2

    compiled = pliant.compile(program, dynamic=True)
    for sizes in SIZES:
        tensors = [torch.ones(n) for n in sizes[:3]]
        assert torch.equal(compiled(*tensors), program(*tensors))
    assert pliant.stats()["fallbacks"] == 0
    assert pliant.stats()["graphs"] == 1


# ---- default devices
def makes(x):
    y = torch.ones(3) + torch.arange(3) * torch.tensor([1.0, 2.0, 3.0])
    return y.device, y.shape, torch.empty_like(x).device


def works(x):
    with torch.device("cpu"):
        return x * 2 + torch.ones(3).to(x.device), torch.rand(2).device


def meets(x):
    return x * torch.ones(3)


@pytest.mark.parametrize("program", [makes, works, meets])
@pytest.mark.parametrize("device", ["meta", "cpu:0"])
@pytest.mark.parametrize("scope", [torch.set_default_device, torch.device])
def test_default_device(program, device, scope):
    compiled = pliant.compile(program)
    with torch.device("cpu") if scope is torch.set_default_device else torch.device(device):
        if scope is torch.set_default_device:
            torch.set_default_device(device)
        try:
            for x in (torch.ones(3), torch.ones(3, device=device)):
                assert described(compiled, x) == described(program, x)
        finally:
            torch.set_default_device(None)
    reasons = pliant.stats()["fallback_reasons"]  # data as a tensor without any is not captured
    assert program is makes or not reasons, reasons


def described(function, x):
    try:
        found = function(x)
    except RuntimeError as error:
        return str(error)
    return [
        (t.device, t.shape, t.tolist() if t.device.type == "cpu" else ()) if isinstance(t, torch.Tensor) else t
        for t in (found if isinstance(found, tuple) else (found,))
    ]


# ---- recursion
class Endless:
    def __getattr__(self, name):
        return getattr(self, name + "_")

    def __repr__(self):
        return repr(self)


def calls_itself(depth):
    return calls_itself(depth + 1) if depth >= 0 else 0


def counts_down(depth):
    return 1 + counts_down(depth - 1) if depth else 0


def holds_itself():
    first, second = [], []
    first.append(first)
    second.append(second)
    return first == second


@pytest.mark.parametrize(
    "recurse",
    [lambda: calls_itself(0), lambda: Endless().name, lambda: repr(Endless()), holds_itself, lambda: counts_down(600)],
)
def test_recursion(recurse):
    def program(x):
        try:
            return x * recurse()
        except RecursionError:
            return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = torch.ones(2)
        assert torch.equal(pliant.compile(program)(x), program(x))
    reasons = pliant.stats()["fallback_reasons"]  # a call of the program's is several of the interpreter's
    assert all("recursion" in why or "nested too deeply" in why for why in reasons), reasons
