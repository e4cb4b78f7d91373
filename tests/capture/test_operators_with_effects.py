"""Operators that programs register and that do more than return tensors: they write, return numbers, act on the world."""

import pytest
import torch

import pliant

LIBRARY = torch.library.Library("pliant_effects", "DEF")
OPS = torch.ops.pliant_effects
LOG = []


def _define(schema, kernel, fake=None):
    name = schema.split("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    if fake is not None:
        torch.library.register_fake(f"pliant_effects::{name}", fake, lib=LIBRARY)


def _outcome(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def _agree(program, *given, backend="pliant"):
    """The compiled program does what eager does, twice; how many graphs it is."""
    compiled = pliant.compile(program, backend=backend)
    for _ in range(2):
        mine, theirs = ([a.detach().clone().requires_grad_(a.requires_grad) for a in given] for _ in range(2))
        LOG.clear()
        wanted = _outcome(program, *mine), list(LOG)
        LOG.clear()
        found = _outcome(compiled, *theirs), list(LOG)
        torch.testing.assert_close((found, theirs), (wanted, mine))
    return pliant.stats()["graphs"]


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    LOG.clear()


# ---- operators that write: schema, kernel, a call that returns a tensor or nothing, the fake implementation if needed
def _write(x, *_):
    x.add_(1)


def _copy_into(x, y):
    x.copy_(y)


def _add_if_given(x, y):
    if x is not None:
        x.add_(y)


def _write_each(tensors, k=1):
    for tensor in tensors:
        if tensor is not None:
            tensor.add_(k)


WRITERS = {
    "w_one(Tensor(a!) x) -> ()": (_write, lambda x: OPS.w_one(x), None),
    "w_self(Tensor(a!) x) -> Tensor(a!)": (lambda x: x.add_(1), lambda x: OPS.w_self(x) * 2, None),
    "w_copy(Tensor(a!) x, Tensor y) -> ()": (_copy_into, lambda x: OPS.w_copy(x, x * 3), None),
    "w_given(Tensor(a!)? x, Tensor y) -> ()": (_add_if_given, lambda x: OPS.w_given(x, x * 3), None),
    "w_none(Tensor(a!)? x, Tensor y) -> Tensor": (
        lambda x, y: y + 1, lambda x: OPS.w_none(None, x * 3), lambda x, y: torch.empty_like(y),
    ),
    "w_list(Tensor(a!)[] xs, int k=1) -> ()": (_write_each, lambda x: OPS.w_list([x, x.clone()], 4), None),
    "w_rows(Tensor(a!)[] xs) -> ()": (_write_each, lambda x: OPS.w_rows(list(x) if x.is_contiguous() else [x]), None),
    "w_out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)": (
        lambda x, out: out.copy_(x + 1), lambda x: OPS.w_out(x * 2, out=x), None,
    ),
    "w_two(Tensor(a!) x, Tensor(b!) y) -> (Tensor(a!), Tensor(b!))": (
        lambda x, y: (x.add_(1), y.mul_(2)), lambda x: OPS.w_two(x, x.clone())[1], None,
    ),
    "w_fresh(Tensor(a!) x) -> Tensor": (
        lambda x: x.add_(1).clone(), lambda x: OPS.w_fresh(x) + 1, torch.empty_like,
    ),
    "w_mixed(Tensor(a!) x) -> (Tensor, Tensor(a!))": (
        lambda x: (x * 5, x.add_(1)), lambda x: sum(OPS.w_mixed(x)), lambda x: (torch.empty_like(x), x),
    ),
    "w_after(Tensor x, Tensor y, Tensor(a!) z, float k=2.0) -> ()": (
        lambda x, y, z, k=2.0: _copy_into(z, x * y * k), lambda x: OPS.w_after(x * 2, x + 1, x), None,
    ),
}  # fmt: skip
for _schema, (_kernel, _, _fake) in WRITERS.items():
    _define(_schema, _kernel, _fake)


def _with(x, result):
    return (x * 2, result) if isinstance(result, torch.Tensor) else x * 2


PLACES = {
    "input": lambda call, x: _with(x, call(x)),
    "row": lambda call, x: _with(x, call(x[0])),
    "column": lambda call, x: _with(x, call(x[:, 1])),
    "turned": lambda call, x: _with(x, call(x.t())),
    "intermediate": lambda call, x: _with(y := x.sin(), call(y)),
    "part": lambda call, x: _with(y := x.sin(), call(y[1])),
}


@pytest.mark.parametrize("schema", WRITERS)
def test_what_is_written(schema):
    call = WRITERS[schema][1]

    def program(x, w):
        results = [place(call, x + 0 if name in ("intermediate", "part") else x) for name, place in PLACES.items()]
        return results, (w * x).sum()

    x = torch.arange(6.0).reshape(2, 3)
    assert _agree(program, x, torch.ones(3), backend="aot_eager") == 1


@pytest.mark.parametrize("schema", WRITERS)
def test_what_is_written_where_gradients_are_recorded(schema):
    call = WRITERS[schema][1]
    with torch.no_grad():
        x = torch.arange(6.0).reshape(2, 3)

    def program(x, w):
        before = (w * x.exp()).sum()
        results = PLACES["row"](call, x), PLACES["part"](call, x)
        return results, torch.autograd.grad(before + (w * x).sum(), w)

    _agree(program, x, torch.ones(3, requires_grad=True), backend="aot_eager")


def test_what_is_written_by_compiled_code():
    def program(x):
        results = [PLACES["row"](call, x) for _, call, _ in WRITERS.values()]
        return results, [PLACES["part"](call, x) for _, call, _ in WRITERS.values()]

    assert _agree(program, torch.arange(6.0).reshape(2, 3)) == 1


SHARED = {
    "the same": lambda x: OPS.w_copy(x, x),
    "parts": lambda x: OPS.w_after(x[:1], x[1:], x[1:]),
    "a part of it": lambda x: OPS.w_copy(x[0], x[0]),
    "a list": lambda x: OPS.w_list([x, x[0]]),
}


@pytest.mark.parametrize("name", SHARED)
def test_memory_that_is_given_twice_breaks(name):
    def program(x):
        y = x * 2
        SHARED[name](y)
        return y

    _agree(program, torch.arange(6.0).reshape(2, 3), backend="aot_eager")
    assert pliant.stats()["graph_breaks"] == 1


# ---- operators that return numbers: schema, kernel, a program; whether it is one graph
NUMBERS = {
    "n_total(Tensor x) -> float": (lambda x: x.sum().item(), lambda x: x * OPS.n_total(x), True),
    "n_count(Tensor x) -> int": (lambda x: int((x > 0).sum()), lambda x: x + OPS.n_count(x), True),
    "n_size(Tensor x) -> SymInt": (lambda x: int((x > 0).sum()), lambda x: x.new_zeros(OPS.n_size(x)), True),
    "n_any(Tensor x) -> bool": (lambda x: bool((x > 0).any()), lambda x: x + OPS.n_any(x), True),
    "n_branch(Tensor x) -> bool": (
        lambda x: bool((x > 0).any()), lambda x: x + 1 if OPS.n_branch(x) else x - 1, False,
    ),
    "n_pair(Tensor x) -> (Tensor, int)": (
        lambda x: (x * 2, int(x.sum())), lambda x: OPS.n_pair(x)[0] + OPS.n_pair(x)[1], True,
    ),
    "n_alone(Tensor x) -> float": (lambda x: x.sum().item(), lambda x: OPS.n_alone(x), True),
    "n_of_number(int k) -> int": (lambda k: LOG.append(k) or len(LOG), lambda x: x + OPS.n_of_number(3), True),
    "n_written(Tensor(a!) x) -> (Tensor, int)": (
        lambda x: (x.add_(1) * 2, int(x.sum())), lambda x: (y := x * 2, *OPS.n_written(y), OPS.n_written(y)[1] * y), True,
    ),
    "n_list(Tensor x) -> int[]": (lambda x: [int(v) for v in x], lambda x: x + sum(OPS.n_list(x)), False),
    "n_maybe(Tensor x) -> int?": (
        lambda x: int(x[0]) if x[0] > 0 else None, lambda x: x + (OPS.n_maybe(x) or 0), False,
    ),
    "n_text(Tensor x) -> str": (
        lambda x: "up" if x[0] > 0 else "down", lambda x: x + len(OPS.n_text(x)), False,
    ),
    "n_any_number(Tensor x) -> Scalar": (lambda x: x[0].item(), lambda x: x + OPS.n_any_number(x), False),
}  # fmt: skip
_FAKES = {
    "float": 1.5, "int": 7, "SymInt": 7, "bool": True, "int[]": [1, 2], "int?": None, "str": "x", "Scalar": 4,
}  # fmt: skip
for _schema, (_kernel, _, _) in NUMBERS.items():
    _kind = _schema.split(" -> ")[1]
    _pair = _kind.startswith("(")
    _define(_schema, _kernel, lambda x, k=_kind: (torch.empty_like(x), 3) if k.startswith("(") else _FAKES[k])


@pytest.mark.parametrize("schema", NUMBERS)
def test_numbers_are_those_of_the_call(schema):
    _, program, whole = NUMBERS[schema]
    compiled = pliant.compile(program, fullgraph=whole)
    for values in ([1.0, 2.0], [3.0, 5.0], [-1.0, -3.0]):
        x = torch.tensor(values)
        LOG.clear()
        wanted = program(x), list(LOG)
        LOG.clear()
        torch.testing.assert_close((compiled(x), list(LOG)), wanted)
    stats = pliant.stats()
    assert whole or stats["graph_breaks"]


def test_a_number_beside_a_derivative_breaks():
    @torch.library.custom_op("pliant_effects_beside::scaled", mutates_args=())
    def scaled(x: torch.Tensor) -> tuple[torch.Tensor, float]:
        return x * 3, x.sum().item()

    scaled.register_fake(lambda x: (torch.empty_like(x), 1.0))
    scaled.register_autograd(lambda ctx, g, n: g * 3)

    def program(x):
        y, n = scaled(x)
        return y * n

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    for compiled in (program, pliant.compile(program)):
        torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x), (torch.tensor([9.0, 9.0]),))
    assert pliant.stats()["graph_breaks"] == 1


# ---- operators that return nothing: they act, in their order, as often as eager
_define("note(Tensor x, int place) -> ()", lambda x, place: LOG.append((place, x.sum().item())))
_define("say(int k) -> ()", LOG.append)


def test_calls_that_return_nothing_happen_in_order():
    def program(x):
        OPS.note(x, 1)
        y = (x * 2).cumsum(0)
        OPS.say(3)
        OPS.note(y, 2)
        z = y.floor() @ x.t()
        OPS.note(x, 1)
        OPS.say(3)
        OPS.note(z, 4)
        return z

    assert _agree(program, torch.arange(6.0).reshape(2, 3)) == 1


class _Noting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        OPS.note(x, 5)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        OPS.note(g, 6)
        OPS.say(1)
        OPS.note(ctx.saved_tensors[0].sin(), 7)
        return g * 2


def test_calls_that_return_nothing_in_a_backward():
    def program(x):
        return (_Noting.apply(x.sin()) * _Noting.apply(x)).sum()

    compiled = pliant.compile(program)
    x = torch.arange(3.0, requires_grad=True)
    logs = []
    for run in (program, compiled, compiled):
        LOG.clear()
        gradient = torch.autograd.grad(run(x), x)
        logs.append((list(LOG), gradient))
    torch.testing.assert_close(logs[1], logs[0])
    torch.testing.assert_close(logs[2], logs[0])
    assert pliant.stats()["graph_breaks"] == 0
