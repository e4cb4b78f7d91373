"""Compiled models whose kernels are CUDA C, launched by their entries, on the CPU: results and gradients are eager's."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cpu_launcher
import pliant
from codegen.cuda.shim_backend import kernels_on_shim
from pliant.debug import events


@pytest.fixture(autouse=True)
def on_shim():
    pliant.reset()
    with kernels_on_shim():
        yield
    pliant.reset()


def launches():
    return cpu_launcher.calls().test_launched()


def check(module, *batches):
    """Forward and backward on each of the inputs, of which some kernel was launched."""
    torch.manual_seed(0)
    mine = copy.deepcopy(module)
    compiled = pliant.compile(mine)
    for inputs in batches:
        before = launches()
        for one in (module, compiled):
            one(*inputs).square().mean().backward()
        assert launches() > before
        torch.testing.assert_close(
            [p.grad for p in mine.parameters()], [p.grad for p in module.parameters()], rtol=1e-4, atol=1e-6
        )
    torch.testing.assert_close(mine.state_dict(), module.state_dict())
    assert pliant.stats()["fallbacks"] == 0


def test_mlp_of_changing_sizes():
    module = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3), nn.Softmax(-1))
    check(module, *[(torch.randn(n, 6),) for n in (4, 5, 7)])
    assert pliant.stats()["graphs"] == 2  # one for 4, one for every size


def test_convolution_and_batch_norm():
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3))
    check(module, (torch.randn(3, 2, 6, 6),), (torch.randn(3, 2, 6, 6),))


def test_embedding_and_loss():
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(11, 8), nn.Linear(8, 5)

        def forward(self, words, target):
            hidden = self.head(self.table(words).mean(1))
            return F.cross_entropy(hidden, target)

    check(Classifier(), (torch.randint(11, (4, 6)), torch.randint(5, (4,))))


def test_no_launch_for_empty_tensors():
    compiled = pliant.compile(lambda x: (x * 2 + 1).relu())
    for n in (3, 5):
        compiled(torch.randn(n, 2))
    before = launches()
    assert compiled(torch.randn(0, 2)).shape == (0, 2)
    assert launches() == before


def test_errors_are_those_of_eager():
    """A launch that fails makes the call run eagerly, which raises what eager raises."""
    compiled = pliant.compile(lambda table, rows: table[rows] * 2)
    table = torch.randn(4, 3)
    torch.testing.assert_close(compiled(table, torch.tensor([1, 3])), table[[1, 3]] * 2)
    with pytest.raises(IndexError, match="index 4 is out of bounds"):
        compiled(table, torch.tensor([1, 4]))


@pytest.mark.spread(2, "dtype", "start")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64, torch.int8])
@pytest.mark.parametrize("start", [0, 1, 3, 6, 7])
def test_rows_are_copied_from_where_they_begin_to_where_they_are_to(dtype, start):
    """Rows of sources and of results begin at other places of the pieces of memory that are read and written."""

    def program(x):
        part = x[:, start : start + 261]
        return part.contiguous(), part.float().amax(1)

    x = torch.arange(5 * 272).view(5, 272).remainder(113).to(dtype)
    torch.testing.assert_close(pliant.compile(program)(x), program(x))
    assert pliant.stats()["fallbacks"] == 0


def test_a_choice_within_a_choice_that_several_passes_read():
    """The inner one is computed in each pass: not under the conditions of the outer one, which reads it twice."""

    def windows(x, bias):
        joined = x.new_full((2, 3, 8, 16), float("-inf"))
        y = x + bias
        joined[:, :, 4:] = y[..., 16:]
        joined[:, 1:, :4] = y[:, :-1, :, :16]
        return joined.softmax(2)

    x, bias = torch.randn(2, 3, 4, 32), torch.randn(4, 32)
    before = launches()
    with torch.no_grad():
        torch.testing.assert_close(pliant.compile(windows)(x, bias), windows(x, bias))
    assert launches() > before and pliant.stats()["fallbacks"] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_blocks_add_up_what_goes_to_few_elements(dtype):
    """The gradient of a small table, for known and for varying numbers of rows; also of more than one block."""
    table = nn.Embedding(5, 16, dtype=dtype)
    compiled = pliant.compile(lambda rows, x: (table(rows) * x).sum())
    with events.collect("output_code") as found:
        for n in (5000, 7001, 30):
            rows, x = torch.randint(0, 5, (n,)), torch.randn(n, 16, dtype=dtype)
            (mine,) = torch.autograd.grad(compiled(rows, x), table.weight)
            expected = torch.zeros(5, 16, dtype=torch.float64).index_add(0, rows, x.double())
            error = 2e-2 if dtype is torch.bfloat16 else 1e-5
            torch.testing.assert_close(mine.double(), expected, rtol=error, atol=20 * error)
    assert sum("p_add_shared(x" in str(one.fields["text"]) for one in found) == 2
    assert pliant.stats()["fallbacks"] == 0


def test_large_tables_are_added_to_in_memory():
    table, rows = nn.Embedding(300, 16), torch.randint(0, 300, (5000,))
    with events.collect("output_code") as found:
        pliant.compile(lambda rows: table(rows).square().sum())(rows).backward()
    texts = [str(one.fields["text"]) for one in found]
    assert any("p_add(" in one for one in texts) and not any("p_add_shared(" in one for one in texts)


def test_short_rows_of_odd_length_have_few_lanes():
    """Eight lanes a row of 49 elements, not a warp's 32."""
    compiled = pliant.compile(lambda x: x.softmax(-1))
    x = torch.randn(30000, 49)
    with torch.no_grad(), events.collect("output_code") as found:
        torch.testing.assert_close(compiled(x), x.softmax(-1))
    assert "item = (int)blockIdx.x * 16 + threadIdx.x / 8" in str(found[0].fields["text"])


def texts_of(function, *tensors):
    pliant.reset()
    with torch.no_grad(), events.collect("output_code") as found:
        torch.testing.assert_close(pliant.compile(function)(*tensors), function(*tensors))
    return [one.partition("\n}\n")[0] for one in str(found[0].fields["text"]).split('extern "C"')[1:]]


def test_kernels_that_differ_in_how_many_points_they_have_are_one_text():
    """Of copies of parameters in other types, say, which a model has as many of as parameters."""
    for function in (torch.Tensor.double, lambda x: x.softmax(-1)):
        first, second = (texts_of(function, torch.randn(rows, 128)) for rows in (2048, 4096))
        assert first == second
    both = texts_of(lambda x, y: (x.double(), y.double()), torch.randn(256, 64), torch.randn(80, 40))
    assert len(both) == 1


@pytest.mark.parametrize("columns, whole", [(9999, True), (7001, False)])
def test_only_the_ends_of_a_row_have_code_for_a_part_of_a_group(columns, whole):
    text = "".join(texts_of(lambda x: x.log_softmax(-1), torch.randn(6, columns).bfloat16()))
    assert "const int low = k > 0 ? 0 : " in text
    assert ("const int cnt = k < " in text) is whole


def test_depthwise_layers_of_training_are_kernels():
    """Of channels-last images in half precision: forward, the image's gradient and the weight's."""
    torch.manual_seed(0)
    first, deep, last = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 8, 1)
    module = nn.Sequential(first, deep, nn.Hardswish(), last)
    mine = copy.deepcopy(module)
    x = torch.randn(3, 3, 9, 9).to(memory_format=torch.channels_last)
    with events.collect("loops") as programs:
        for one in (module, pliant.compile(mine)):
            with torch.autocast("cpu", torch.bfloat16):
                loss = one(x).float().square().mean()
            loss.backward()
    torch.testing.assert_close(
        [p.grad for p in mine.parameters()], [p.grad for p in module.parameters()], rtol=5e-2, atol=2e-2
    )
    forward, backward = (e.fields["text"] for e in programs)
    assert forward.count("aten.convolution.default(") == backward.count("aten.convolution_backward.default(") == 2
    assert pliant.stats()["fallbacks"] == 0


def steps(xs, ys):
    for x, y in zip(xs, ys, strict=True):
        y.lerp_(x, 0.25)
        x.sub_(y.tanh() * 0.5)


def pairs(sizes, dtype=torch.float32):
    return [[torch.randn(size, dtype=torch.float64).to(dtype) for size in sizes] for _ in range(2)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_small_kernels_that_are_alike_are_one_launch(dtype):
    sizes = [(8, 4 * k) for k in range(1, 20)] + [(3, 5)] * 5 + [(700,)]
    mine = pairs(sizes, dtype)
    theirs = copy.deepcopy(mine)
    compiled, before = pliant.compile(steps), launches()
    for _ in range(3):
        compiled(*mine)
        steps(*theirs)
    near = {"atol": 2e-2, "rtol": 2e-2} if dtype is torch.bfloat16 else {}  # rounded once, not at each operator
    torch.testing.assert_close(mine, theirs, **near)
    assert launches() - before <= 3 * 8


def test_more_of_them_than_one_launch_takes():
    mine = pairs([(4, 4)] * 300)
    theirs = copy.deepcopy(mine)
    compiled, before = pliant.compile(steps), launches()
    compiled(*mine)
    steps(*theirs)
    torch.testing.assert_close(mine, theirs)
    assert launches() - before == 2  # of 160 rows of 3 words at most


def test_kernels_that_depend_on_each_other_keep_their_order():
    def f(x, y):
        found = []
        for _ in range(6):
            x = (x @ y).relu() + 1  # a call between
            found.append(x.sum(0).exp())
        for _ in range(6):
            y = y.roll(1, 0).cumsum(0) * x.mean()
            found.append(y)
        return found

    x, y = torch.randn(4, 4) * 0.1, torch.randn(4, 4) * 0.1
    torch.testing.assert_close(pliant.compile(f)(x, y), f(x, y))


def test_numbers_of_each_row():
    def f(xs, numbers):
        return [x * n + k for k, (x, n) in enumerate(zip(xs, numbers, strict=True))]

    xs = [torch.randn(4, 4 * k) for k in range(1, 9)]
    compiled = pliant.compile(f)
    for first in (0.5, 1.5, 2.5):
        numbers = [first + k for k in range(8)]
        torch.testing.assert_close(compiled(xs, numbers), f(xs, numbers))


def test_fast_numerics_add_products_at_once():
    def program(x, w):
        return torch.softmax(torch.tanh(x) * w + 1, -1)

    x, w = torch.randn(2, 40, 70)
    with pliant.config.patch(numerics="fast"), events.collect("output_code") as found:
        got = pliant.compile(program)(x, w)
    text = found[-1].fields["text"]
    assert "return fmaf(a, b, c)" in text and "p_muladdf(t" in text and "return tanhf(x)" in text
    torch.testing.assert_close(got, program(x, w), rtol=2e-6, atol=0)
