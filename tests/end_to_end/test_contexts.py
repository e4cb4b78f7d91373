"""Settings and blocks of PyTorch around calls of one compiled function, which change from call to call."""

import contextlib
import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import pliant


@contextlib.contextmanager
def setting(read, put, value):
    before = read()
    put(value)
    try:
        yield
    finally:
        put(before)


@contextlib.contextmanager
def both(outer, inner):
    with outer, inner:
        yield


def keeping():
    keep = pliant.keeps_saved_values(lambda saved: [saved])
    return torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: kept[0])


CONTEXTS = {
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "gradients in inference": lambda: both(torch.inference_mode(), torch.enable_grad()),
    "doubles": lambda: setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "deterministic": lambda: setting(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "casts": lambda: torch.autocast("cpu", torch.bfloat16),
    "casts in inference": lambda: both(torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)),
    "default device": lambda: torch.device("cpu"),
    "anomalies": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
    "hooks that keep": keeping,
    "own random numbers": lambda: torch.random.fork_rng(devices=[]),
}


def products(x, i, module):
    return torch.einsum("ab,cb->ac", x, x), torch.inner(x, x), module(x).relu()


def made(x, i, module):
    return x + torch.zeros(6) + torch.arange(6) / 2, torch.full((2,), 3.5), i / 2, i * 1.5, torch.rand(2)


def questions(x, i, module):
    y = x * 2
    answers = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), y.requires_grad, y.is_inference()
    settings = torch.is_autocast_enabled("cpu"), torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled()
    return y, answers, settings, torch.get_default_dtype()


def elements(x, i, module):
    lengths, written = torch.tensor([2, 3, 4]), torch.zeros(3)
    written[1:].add_(1)
    return x[: lengths[0].item()] * written.sum()


def written_elements(x, i, module):
    lengths = torch.tensor([2, 3, 4])
    lengths[:1].detach().unsqueeze(0).add_(1)
    return x[: lengths[0].item()], lengths


def writes(x, i, module):
    y = x.detach().clone()
    y[1:].mul_(2)
    y.unsqueeze(0).add_(1)
    i[1:].add_(1)
    return y, y[0], i.sum()


def breaks(x, i, module):
    y = module(x)
    pliant.graph_break()
    z = y.sin() + torch.ones(5)
    pliant.graph_break()
    return y.float() @ z.float().t()


def blocks(x, i, module):
    with torch.no_grad():
        a = module(x)
    with torch.enable_grad():
        b = module(x)
    with torch.autocast("cpu", torch.bfloat16):
        c = module(x)
    with torch.autocast("cpu", enabled=False):
        return a, b, c, module(x)


def decides(x, i, module):
    return x[x > 0] * 2 if x.sum() > 0 else x - 1


def own_gradients(x, i, module):
    return torch.func.vmap(lambda row: row.sin().sum())(x), module.weight[0].detach()


def losses(x, i, module):
    return F.cross_entropy(module(x), i.new_tensor([0, 1, 2, 3])), F.layer_norm(x, (6,)), F.softmax(x, -1)


PROGRAMS = [products, made, questions, elements, written_elements, writes, breaks, blocks, decides, own_gradients, losses]


def outcome(program, context):
    torch.manual_seed(0)
    module, x, i = torch.nn.Linear(6, 5), torch.randn(4, 6, requires_grad=True), torch.tensor([1, 2, 3])
    with context:
        results = torch.utils._pytree.tree_leaves(program(x, i, module))
    tensors = [one for one in results if isinstance(one, torch.Tensor)]
    if differentiable := [one.double().sum() for one in tensors if one.grad_fn is not None]:
        sum(differentiable).backward()
    flags = [(one.dtype, one.requires_grad, one.is_inference(), one.is_leaf) for one in tensors]
    told = [one for one in results if not isinstance(one, torch.Tensor)]
    return tensors, [x.grad, module.weight.grad, i, torch.rand(1)], flags + told


def assert_as_eager(compiled, program, context):
    ours, eagers = outcome(compiled, context()), outcome(program, context())
    assert ours[2] == eagers[2]
    for one, other in zip(ours[0] + ours[1], eagers[0] + eagers[1], strict=True):
        if other is None:
            assert one is None
        else:
            rounded = {"rtol": 2e-2, "atol": 2e-2} if other.dtype is torch.bfloat16 else {}
            torch.testing.assert_close(one, other, **rounded)


@pytest.mark.parametrize("program", PROGRAMS)
def test_calls_are_eagers_in_any_context_that_changes_between_them(program):
    pliant.reset()
    compiled = pliant.compile(program, backend="aot_eager", options={"recompile_limit": 50})
    for context in CONTEXTS.values():
        assert_as_eager(compiled, program, context)
        assert_as_eager(compiled, program, contextlib.nullcontext)
    assert not pliant.stats()["fallbacks"]


def test_contexts_belong_to_threads():
    compiled = pliant.compile(products, backend="aot_eager")
    failed = []

    def call():
        try:
            assert_as_eager(compiled, products, contextlib.nullcontext)
        except AssertionError as error:
            failed.append(error)

    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert_as_eager(compiled, products, contextlib.nullcontext)
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert not failed


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("called_before", [False, True])
def test_a_checkpoint_around_compiled_code_ends_what_it_runs_again(backend, called_before):
    def program(x):
        return (x.sin() * 2 + x.sum(-1, keepdim=True)).relu()

    compiled = pliant.compile(program, backend=backend)
    if called_before:
        compiled(torch.randn(3, 4))
    for _ in range(2):
        x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        found = torch.autograd.grad(checkpoint(lambda a: compiled(a * 1), x, use_reentrant=False).sum(), x)
        torch.testing.assert_close(found, torch.autograd.grad(program(x).sum(), x))


def test_blocks_of_autocast_under_a_default_device_do_not_break_the_graph():
    def program(x):
        with torch.autocast("cpu", torch.bfloat16):
            return x @ x

    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    with torch.device("cpu"):
        assert compiled(torch.ones(2, 2)).dtype is torch.bfloat16


@pytest.mark.parametrize("name", ["einsum", "bilinear", "linear", "cdist", "inner"])
def test_composite_operators_are_cast_in_inference_mode(name):
    program = {
        "einsum": lambda x: torch.einsum("ab,cb->ac", x, x),
        "bilinear": lambda x: F.bilinear(x, x, torch.ones(2, 6, 6)),
        "linear": lambda x: F.linear(x, x),
        "cdist": lambda x: torch.cdist(x, x),  # as a whole in float32, products included
        "inner": lambda x: torch.inner(x, x) if torch.inner(x, x).dtype is torch.bfloat16 else x,
    }[name]
    pliant.reset()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        found = pliant.compile(program, backend="aot_eager")(torch.ones(4, 6))
        assert found.dtype is program(torch.ones(4, 6)).dtype


def test_writes_of_a_tensor_that_was_given_other_data_are_that_ones_in_inference_mode():
    def program(x):
        a, b = torch.tensor([2, 3]), torch.tensor([3, 4])
        a.data = b
        a.mul_(2)
        return x * b[0].item()

    with torch.inference_mode():
        assert pliant.compile(program, backend="eager")(torch.ones(1)).item() == 6


class Cached(nn.Module):
    """Keeps what it computed in inference mode for its next calls."""

    def __init__(self):
        super().__init__()
        self.layer, self.kept = nn.Linear(4, 4), None

    def forward(self, x):
        with torch.inference_mode():
            made = self.layer(x)
            self.kept = made if self.kept is None else torch.cat([self.kept, made])
            return self.kept.sum(0)

    def outside(self, x):
        with torch.no_grad():
            return self(x).clone() + self.layer(x)


@pytest.mark.parametrize("method", ["forward", "outside"])
def test_what_was_kept_in_inference_mode_is_read_in_later_calls_outside(method):
    pliant.reset()
    model = Cached()
    twin = copy.deepcopy(model)
    compiled = pliant.compile(getattr(model, method), backend="aot_eager")
    for n in (1, 2, 1, 3):
        x = torch.randn(n, 4)
        found, wanted = compiled(x), getattr(twin, method)(x)
        torch.testing.assert_close((found, model.kept), (wanted, twin.kept))
        assert found.is_inference() == wanted.is_inference() and model.kept.is_inference()
    assert pliant.stats()["fallbacks"] == 0


def test_what_autograd_would_keep_of_inference_mode_is_an_error():
    def program(x, weight):
        return (x * weight).detach()

    pliant.reset()
    with torch.inference_mode():
        x = torch.ones(3)
    for one in (program, pliant.compile(program, backend="aot_eager")):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            one(x, torch.ones(3, requires_grad=True))
