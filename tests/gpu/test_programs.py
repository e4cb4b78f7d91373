"""Whole programs on a GPU, compiled: inference, training, changing sizes, mixed precision, both devices at once."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.debug import events

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def clean():
    pliant.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", pliant.errors.FallbackWarning)
        yield
    pliant.reset()


def transformer():
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(16, 64), layer, nn.LayerNorm(64), nn.Linear(64, 10)), lambda n: torch.randn(n, 24, 16)


def convolutional():
    body = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3)]
    return nn.Sequential(*body, nn.GroupNorm(4, 32), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)), (
        lambda n: torch.randn(n, 3, 20, 20)
    )


def recurrent():
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.Tanh(), nn.LayerNorm(32), nn.Linear(32, 10)), (
        lambda n: torch.randn(n, 16)
    )


def depthwise():
    def block(width):
        inner = [nn.Conv2d(16, width, 1), nn.BatchNorm2d(width), nn.Hardswish()]
        inner += [nn.Conv2d(width, width, 5, padding=2, groups=width), nn.BatchNorm2d(width), nn.SiLU()]
        return nn.Sequential(*inner, nn.Conv2d(width, 16, 1), nn.BatchNorm2d(16))

    stem = [nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.Hardswish()]
    return nn.Sequential(*stem, block(32), block(48), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)), (
        lambda n: torch.randn(n, 3, 24, 24)
    )


MODELS = {"transformer": transformer, "convolutional": convolutional, "depthwise": depthwise, "pointwise": recurrent}


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_training_with_changing_sizes(name, amp, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # else a library may choose it for one layout alone
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    eager = model.cuda()
    exact = copy.deepcopy(eager).double()
    mine = copy.deepcopy(eager)
    compiled = pliant.compile(mine)
    for batch in (4, 6, 9, 5):
        x = inputs(batch).cuda()
        target = torch.arange(batch, device="cuda") % 10
        grads = []
        for m, run, given in ((eager, eager, x), (mine, compiled, x), (exact, exact, x.double())):
            m.zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=amp and m is not exact):
                out = run(given)
                loss = F.cross_entropy(out.reshape(batch, -1, 10).mean(1), target)
            loss.backward()
            grads.append([loss, *[p.grad for p in m.parameters()]])
        for theirs, ours, truth in zip(*grads, strict=True):
            scale = truth.abs().max().clamp(min=1e-3)
            error = (ours.double() - truth).abs().max() / scale
            allowed = 2 * (theirs.double() - truth).abs().max() / scale + (1e-2 if amp else 1e-4)
            assert error <= allowed
    stats = pliant.stats()
    assert stats["graph_breaks"] == 0 and stats["fallbacks"] == 0, stats
    assert stats["graphs"] <= 3


@pytest.mark.parametrize("name", MODELS)
def test_inference(name):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model = model.cuda().eval()
    compiled = pliant.compile(model)
    with torch.no_grad():
        for batch in (2, 3, 130):
            x = inputs(batch).cuda()
            torch.testing.assert_close(compiled(x), model(x), rtol=2e-3, atol=2e-4)
    assert pliant.stats()["fallbacks"] == 0


def test_both_devices():
    @pliant.compile
    def f(x, y, s):
        a = (x.sin() + 1).cuda() * y.exp()
        return a * s + 2, y.cpu().cos() + x, (y + torch.tensor(2.0)).sum()

    x, y, s = torch.randn(50), torch.randn(50, device="cuda"), torch.tensor(3.0)
    expected = ((x.sin() + 1).cuda() * y.exp() * s + 2, y.cpu().cos() + x, (y + 2).sum())
    for found, wanted in zip(f(x, y, s), expected, strict=True):
        assert found.device == wanted.device
        torch.testing.assert_close(found, wanted)


def test_dropout_draws_eagers_bits():
    def f(x):
        return F.dropout(x * 2, 0.3) + F.dropout(x, 0.5)

    x = torch.randn(1000, device="cuda", requires_grad=True)
    compiled = pliant.compile(f)
    results = []
    for run in (f, compiled):
        torch.manual_seed(7)
        y = run(x)
        (grad,) = torch.autograd.grad(y.sum(), x)
        results.append((y, grad, torch.randn(3, device="cuda")))
    for found, wanted in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found, wanted)


def test_large_reductions():
    def f(x):
        return x.sum(), x.double().mean(0), x.amax(1), x.softmax(-1), x.argmax(), (x > 3.5).any(), x.var(0)

    x = torch.randn(3000, 1500, device="cuda")
    for found, wanted in zip(pliant.compile(f)(x), f(x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_group_norm_in_training(dtype):
    def f(x, w, b):
        return torch.nn.functional.silu(torch.nn.functional.group_norm(x, 8, w, b))

    given = [torch.randn(s, device="cuda", dtype=dtype, requires_grad=True) for s in ((4, 16, 8, 8), (16,), (16,))]
    grad = torch.randn(4, 16, 8, 8, device="cuda", dtype=dtype)
    found, eager = (torch.autograd.grad(g(*given), given, grad) for g in (pliant.compile(f), f))
    exact = [one.detach().double().requires_grad_() for one in given]
    wanted = torch.autograd.grad(f(*exact), exact, grad.double())
    for mine, theirs, right in zip(found, eager, wanted, strict=True):
        error = (mine - right).norm()
        assert error <= 2 * (theirs - right).norm() + 1e-6 * right.norm()


@pytest.mark.parametrize("columns", [3, 45, 99, 1001])
def test_columns_of_any_number(columns):
    x = torch.randn(20000, columns, device="cuda")
    torch.testing.assert_close(pliant.compile(lambda x: x.sum(0))(x), x.sum(0), rtol=1e-4, atol=1e-2)


def test_gradients_with_rows_of_an_odd_length():
    """A gradient from outside is copied so that products read whole vectors."""

    def f(x, w):
        y = x @ w.t()
        return y, y.float().logsumexp(-1).sum()

    given = [torch.randn(s, device="cuda", dtype=torch.bfloat16, requires_grad=True) for s in ((1024, 768), (1001, 768))]
    exact = [one.detach().double().requires_grad_() for one in given]
    found, eager = (torch.autograd.grad(g(*given)[1], given) for g in (pliant.compile(f), f))
    wanted = torch.autograd.grad(torch.logsumexp(exact[0] @ exact[1].t(), -1).sum(), exact)
    for mine, theirs, right in zip(found, eager, wanted, strict=True):  # which logits are rounded up is the library's choice
        assert (mine - right).norm() <= 1.2 * (theirs - right).norm() + 1e-6 * right.norm()


def test_streams():
    @pliant.compile
    def f(x):
        for _ in range(20):
            x = torch.softmax(x @ x, -1) + 1
        return x

    x = torch.randn(512, 512, device="cuda")
    expected = f(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        found = f(x)
    torch.cuda.current_stream().wait_stream(side)
    torch.testing.assert_close(found, expected)


def test_writes_and_views():
    @pliant.compile
    def f(x, y):
        x.add_(y[1:])
        x[::2] = 0
        return x.t() * 2, y[1:]

    def g(x, y):
        x.add_(y[1:])
        x[::2] = 0
        return x.t() * 2, y[1:]

    x, y = torch.randn(7, 5, device="cuda"), torch.randn(8, 5, device="cuda")
    ours, theirs = x.clone(), x.clone()
    for found, wanted in zip(f(ours, y), g(theirs, y), strict=True):
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()
    torch.testing.assert_close(ours, theirs)


def test_attention_with_a_broadcast_mask_is_one_fused_call():
    def f(q, k, v, lengths):
        mask = torch.arange(64, device=q.device)[None, None, :, None] < lengths[:, None, None, None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(4, 2, 64, 64) | (lengths > 99)[:, None, None, None])

    q, k, v = (torch.randn(4, 2, 64, 32, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    lengths = torch.tensor([64, 64, 64, 64], device="cuda")
    compiled = pliant.compile(f)
    torch.testing.assert_close(compiled(q, k, v, lengths), f(q, k, v, lengths), rtol=2e-2, atol=2e-2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        compiled(q, k, v, lengths)
    assert not any(event.key == "aten::bmm" for event in recorded.key_averages())


def over_rows(x):
    written = torch.softmax(x.float(), -1), F.layer_norm(x.float(), x.shape[-1:])
    return *written, x.float().logsumexp(-1), x.float().sum(-1), (x - x.float().mean(-1, keepdim=True)).argmax(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [3, 200])
def test_long_rows(rows, dtype):
    """A warp, a block, a cluster of blocks or a loop of one takes a row; a dynamic program has all of them."""
    dynamic = pliant.compile(over_rows, dynamic=True)
    for length in (33_000, 65_536, 131_079, 262_144, 300_003, 40):
        x = torch.randn(rows, length, device="cuda").to(dtype)
        wanted, exact = over_rows(x), over_rows(x.double())[:3]
        for found in (dynamic(x), pliant.compile(over_rows, dynamic=False)(x)):
            for mine, theirs in zip(found[:3], exact, strict=True):
                torch.testing.assert_close(mine.double(), theirs.double(), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(found[3].double(), x.double().sum(-1), rtol=1e-4, atol=1e-2)
            assert torch.equal(found[4], wanted[4])
    assert pliant.stats()["fallbacks"] == pliant.stats()["assumptions"] == 0


def one_row(x, w, mask):
    q = (x[:, 0] @ w).unsqueeze(1).reshape(2, 1, 4, 16).permute(0, 2, 1, 3)
    kv = x.view(2, -1, 4, 16).transpose(1, 2)
    return F.scaled_dot_product_attention(q, kv, kv, attn_mask=mask)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_attention_of_one_row_and_masks_of_odd_lengths(masked, training, dynamic):
    """Fused kernels ask how far apart rows lie, that of a single one too."""
    compiled = pliant.compile(one_row, dynamic=dynamic)
    for length in (9, 17, 18):
        x, w = torch.randn(2, length, 64, device="cuda"), torch.randn(64, 64, device="cuda", requires_grad=training)
        mask = torch.randn(2, 1, 1, length, device="cuda") if masked else None
        found, wanted = compiled(x, w, mask), one_row(x, w, mask)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)
        if training:
            mine, theirs = (torch.autograd.grad(y.sum(), w)[0] for y in (found, wanted))
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)
    assert pliant.stats()["fallbacks"] == pliant.stats()["assumptions"] == 0


def test_memory_of_the_host_is_not_taken_for_the_gpus():
    def f(x):
        here = ~torch.zeros(2, 8, 8).to(device=x.device, dtype=torch.bool)
        rows, columns = here.cumsum(1, dtype=torch.float32), here.cumsum(2, dtype=torch.float32)
        return (rows / rows[:, -1:] + columns / columns[:, :, -1:]).cumsum(1) @ x

    x = torch.randn(2, 8, 8, device="cuda")
    torch.testing.assert_close(pliant.compile(f)(x), f(x), rtol=1e-4, atol=1e-4)


def test_elements_of_small_tensors_are_sizes():
    """As on a CPU: the guards read them, and wait for the GPU as the program would."""

    def images(x, grid):
        parts = torch.split(x, (grid[:, 0] * grid[:, 1]).tolist())
        return torch.cat([p.view(int(h), int(w), 4).mT.flatten() for p, (h, w) in zip(parts, grid.tolist())])

    compiled = pliant.compile(images, fullgraph=True)
    for grid in ([[2, 3], [4, 5]], [[3, 3], [4, 6]], [[6, 2], [2, 7]]):
        x = torch.randn(sum(h * w for h, w in grid), 4, device="cuda")
        there = torch.tensor(grid, device="cuda")
        torch.testing.assert_close(compiled(x, there), images(x, there))
    assert pliant.stats()["graphs"] <= 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", ["random", "equal", "runs"])
def test_gradients_of_small_tables(rows, dtype):
    """Threads side by side add to elements of their own, to one, or to a few."""
    torch.manual_seed(0)
    table = torch.randn(32, 8, device="cuda", dtype=dtype, requires_grad=True)
    compiled = pliant.compile(lambda rows, x: (F.embedding(rows, table).permute(2, 0, 1).float() * x).sum())
    for n in (300, 400, 401):
        given = torch.randint(0, 32, (n, n), device="cuda")
        given = {"random": given, "equal": torch.full_like(given, 7), "runs": given.sort(1)[0]}[rows]
        x = torch.randn(8, n, n, device="cuda")
        (mine,) = torch.autograd.grad(compiled(given, x), table)
        exact = torch.zeros(32, 8, device="cuda", dtype=torch.float64)
        exact.index_add_(0, given.flatten(), x.double().permute(1, 2, 0).reshape(-1, 8))
        error = 2**-7 if dtype is torch.bfloat16 else 1e-5
        assert (mine.double() - exact).norm() <= error * exact.norm()
    assert pliant.stats()["fallbacks"] == 0


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_second_gradients_are_of_the_numbers_drawn(mode):
    """What is computed again for them draws from the GPU's generator as the forward did, and leaves it as it is."""

    def dropped(x):
        return F.dropout(x.sin(), 0.5) * x

    def gradients(function):
        torch.manual_seed(3)
        x = torch.linspace(0.1, 2.0, 256, device="cuda", requires_grad=True)
        (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        return first.detach(), second, torch.rand(3, device="cuda")

    compiled = pliant.compile(dropped, mode=mode)
    expected = gradients(dropped)
    for _ in range(4):
        torch.testing.assert_close(gradients(compiled), expected)


@pytest.mark.filterwarnings("ignore")
def test_what_fails_behind_random_draws_leaves_eagers_state():
    def drawn(x, index):
        return F.dropout(x, 0.5) + torch.linalg.cholesky(x @ x.mT - index)

    states = []
    for function in (drawn, pliant.compile(drawn)):
        torch.manual_seed(5)
        for shift in (0.0, 1000.0):
            try:
                function(torch.eye(4, device="cuda") + 1, shift)
            except torch.linalg.LinAlgError:
                states.append("not positive-definite")
        states.append(torch.rand(3, device="cuda").tolist())
    assert states[:2] == states[2:] and len(states) == 4


def test_tensors_on_several_devices_are_refused_as_eager_refuses_them():
    def program(x, index):
        x.index_fill_(0, index, 0.5)
        return x * 2

    x, index = torch.rand(4, device="cuda"), torch.tensor([1])
    compiled = pliant.compile(program)
    for function in (program, compiled):
        with pytest.raises(RuntimeError, match="same device"):
            function(x, index)
    assert x._version == 0
    torch.testing.assert_close(compiled(x.clone(), index.cuda()), program(x, index.cuda()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_numbers_in_the_hosts_memory(dtype):
    """Each call reads them anew, and a kernel takes them as arguments."""

    def f(x, n):
        n = n + 1
        return torch.where(n > 2, x / n, x * n).relu() + n

    compiled = pliant.compile(f)
    x = torch.randn(5, 7, device="cuda")
    for value in (0, 1, 3):
        n = torch.tensor(value, dtype=dtype)
        found, wanted = compiled(x, n), f(x, n)
        assert found.dtype is wanted.dtype
        torch.testing.assert_close(found, wanted)
    assert pliant.stats()["graphs"] == 1


@pytest.mark.parametrize("count", [3, 60])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop, torch.optim.Adagrad])
def test_steps_of_optimizers_take_few_launches(kind, count):
    def made():
        torch.manual_seed(0)
        found = [torch.nn.Parameter(torch.randn(1 + 9 * (k % 4), 3, device="cuda")) for k in range(count)]
        for p in found:
            p.grad = torch.randn_like(p)
        return kind(found, lr=1e-2), found

    (plain, wanted), (mine, found) = made(), made()
    step = pliant.compile(mine.step)
    for _ in range(4):
        plain.step()
        step()
    torch.testing.assert_close(found, wanted)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    kernels = [one for one in profile.events() if one.device_type is torch.autograd.DeviceType.CUDA]
    assert len(kernels) <= 8


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_lies_and_counts_as_eagers(dtype, training):
    def normalized(x, mean, variance):
        affine = F.batch_norm(x, mean, variance, mean.clone(), variance.clone(), training)
        return affine, *torch.native_batch_norm(x, None, None, mean, variance, training, 0.1, 1e-5)

    torch.manual_seed(0)
    base = torch.randn(3, 4, 5, 6, device="cuda", dtype=dtype)
    for x in (base, base.transpose(2, 3), base.to(memory_format=torch.channels_last)):
        statistics = torch.randn(4, device="cuda"), torch.rand(4, device="cuda") + 0.5
        expected = normalized(x, *[one.clone() for one in statistics])
        found = pliant.compile(normalized, fullgraph=True)(x, *[one.clone() for one in statistics])
        for one, other in zip(found, expected, strict=True):
            assert one.stride() == other.stride()
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("given", [float, torch.tensor], ids=["number", "tensor of no dimension"])
def test_halves_beside_numbers_are_rounded_as_eagers(given, dtype):
    names = ("eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder")

    def program(x, value):
        return [getattr(torch, name)(x, value) for name in names], F.hardshrink(x, 0.3)

    compiled = pliant.compile(program)
    for value in (0.3, 0.1, -0.7, 2.5):
        x = torch.cat([torch.linspace(-3, 3, 61), torch.tensor([value])]).to("cuda", dtype)
        for name, found, expected in zip(names, compiled(x, given(value))[0], program(x, given(value))[0]):
            assert torch.equal(found, expected), name
        assert torch.equal(compiled(x, given(value))[1], F.hardshrink(x, 0.3))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_shifts(dtype):
    def program(x, amounts):
        return x << 3, x >> 2, x << amounts, x >> amounts, (x & 15) | (x >> 4)

    x = torch.randint(0, 255, (500,), device="cuda").to(dtype)
    amounts = torch.randint(0, 7, (500,), device="cuda").to(dtype)
    for found, expected in zip(pliant.compile(program)(x, amounts), program(x, amounts)):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("start", [0, 1, 8])  # where in memory keys and values begin
def test_attention_of_heads_that_share_keys(masked, start):
    def f(q, k, v, at):
        k, v = (t[:, :, None].expand(2, 2, 4, 256, 64).reshape(2, 8, 256, 64) for t in (k, v))
        mask = (torch.arange(256, device="cuda") <= at)[None, None, None] if masked else None
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)

    torch.manual_seed(0)
    q = torch.randn(2, 1, 8, 64, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
    k, v = (torch.randn(65544, device="cuda", dtype=torch.bfloat16)[start : start + 65536].view(2, 2, 256, 64) for _ in range(2))
    with torch.no_grad():
        call = pliant.compile(f, fullgraph=True)
        for at in (3, 100, 255):
            place = torch.tensor(at, device="cuda")
            exact = f(q.double(), k.double(), v.double(), place)
            error = (call(q, k, v, place).double() - exact).abs().max()
            assert error <= 2 * (f(q, k, v, place).double() - exact).abs().max() + 1e-3


@pytest.mark.parametrize("start", [0, 1, 8])
def test_gradients_of_attention_whose_operands_begin_anywhere(start):
    def f(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    torch.manual_seed(0)
    made = [torch.randn(65544, device="cuda", dtype=torch.bfloat16)[start : start + 65536].view(2, 8, 64, 64) for _ in range(3)]
    results = []
    for call, dtype in ((pliant.compile(f, fullgraph=True), torch.bfloat16), (f, torch.float64)):
        given = [t.to(dtype).requires_grad_() if dtype != t.dtype else t.detach().requires_grad_() for t in made]
        y = call(*given)
        results.append([y, *torch.autograd.grad(y.float().square().sum(), given)])
    for ours, exact in zip(*results):
        assert (ours.double() - exact).abs().max() <= 0.02 * exact.abs().max()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rotations_by_complex_numbers_are_one_kernel(dtype):
    def f(x, factors):
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * factors[:, None]).flatten(3).type_as(x)

    torch.manual_seed(0)
    factors = torch.polar(torch.ones(33, 32), torch.randn(33, 32)).cuda()
    made = torch.randn(2, 33, 4, 64, device="cuda", dtype=dtype)
    results = []
    with events.collect("loops") as found:
        for call in (pliant.compile(f, fullgraph=True), f):
            x = made.clone().requires_grad_()
            y = call(x, factors)
            results.append([y, *torch.autograd.grad(y.float().square().sum(), x)])
    torch.testing.assert_close(*results)
    assert all("aten.mul" not in e.fields["text"] for e in found)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("depth, columns", [(64, 96), (768, 2048), (2048, 768), (4096, 4096), (1030, 77)])
def test_a_single_row_times_a_matrix(dtype, depth, columns):
    def f(x, weight, bias, residual):
        return torch.nn.functional.silu(torch.nn.functional.linear(x, weight, bias)) + residual

    torch.manual_seed(0)
    x, weight = torch.randn(1, depth, device="cuda", dtype=dtype), torch.randn(columns, depth, device="cuda", dtype=dtype) / depth**0.5
    bias, residual = torch.randn(2, columns, device="cuda", dtype=dtype)
    exact = f(*[t.double() for t in (x, weight, bias, residual)])
    error = (pliant.compile(f)(x, weight, bias, residual).double() - exact).abs().max()
    assert error <= 2 * (f(x, weight, bias, residual).double() - exact).abs().max() + 1e-6
