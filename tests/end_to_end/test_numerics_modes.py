"""The option `numerics`: training with eager's bits, what is fast, and code of one mode that serves no other."""

from __future__ import annotations

import platform

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional

import pliant
from pliant import config
from pliant.errors import ConfigError

BITWISE = {"numerics": "eager-bitwise"}


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.each, self.last, self.head = nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.Conv2d(8, 16, 3, stride=2), nn.Linear(16, 5)

    def forward(self, x):
        x = functional.relu(self.norm(self.first(x)))
        x = x + functional.hardswish(self.each(x))
        return self.head(functional.max_pool2d(functional.silu(self.last(x)), 2).mean((2, 3)))


class Layer(nn.Module):
    """One of BERT's, its residuals and dropouts included."""

    def __init__(self, width=24):
        super().__init__()
        self.given, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.wide, self.back, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(0.1)

    def forward(self, x):
        many, length, width = x.shape
        q, k, v = (t.view(many, length, 3, -1).transpose(1, 2) for t in self.given(x).chunk(3, -1))
        weights = self.drop(torch.softmax(q @ k.transpose(-1, -2) / (width // 3) ** 0.5, -1))
        x = self.norms[0](x + self.drop(self.out((weights @ v).transpose(1, 2).reshape(many, length, width))))
        return self.norms[1](x + self.drop(self.back(functional.gelu(self.wide(x)))))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(31, 24), nn.Embedding(11, 24), nn.LayerNorm(24)
        self.layers, self.head = nn.Sequential(Layer(), Layer()), nn.Linear(24, 5)

    def forward(self, words):
        return self.head(self.layers(self.norm(self.words(words) + self.places(torch.arange(words.shape[1])))))[:, 0]


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.GRU(7, 13, 2, batch_first=True), nn.Linear(13, 5)

    def forward(self, x):
        return self.head(self.layers(x)[0][:, -1])


def _perceptron():
    return nn.Sequential(nn.Linear(17, 33), nn.ReLU(), nn.Linear(33, 33), nn.Tanh(), nn.Linear(33, 5))


MODELS = {"perceptron": _perceptron, "convolutions": Convolutions, "bert": Bert, "gru": Gru}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01),
    "adam": lambda p: torch.optim.Adam(p, 0.01, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01),
}


def _inputs(name, dtype):
    g = torch.Generator().manual_seed(1)
    if name == "bert":
        return torch.randint(0, 31, (4, 11), generator=g)
    return torch.randn(*{"perceptron": (9, 17), "convolutions": (4, 3, 15, 15), "gru": (5, 6, 7)}[name], generator=g).to(dtype)


def _trained(name, optimizer, dtype, compiling):
    """Losses, gradients, weights and running statistics of three steps."""
    torch.manual_seed(3)
    model, x = MODELS[name]().to(dtype), _inputs(name, dtype)
    made, labels = OPTIMIZERS[optimizer](model.parameters()), torch.arange(len(x)) % 5
    loss_of, step = compiling(lambda x: functional.cross_entropy(model(x), labels)), compiling(lambda: made.step())
    found = []
    for _ in range(3):
        made.zero_grad()
        loss = loss_of(x)
        loss.backward()
        found += [loss.detach(), *(p.grad.clone() for p in model.parameters())]
        step()
        found += [t.detach().clone() for t in model.state_dict().values()]
    return found


@pytest.mark.parametrize(
    ("name", "optimizer", "dtype"),
    [
        *(("perceptron", one, torch.float32) for one in OPTIMIZERS),
        ("perceptron", "sgd", torch.bfloat16),
        ("perceptron", "adamw", torch.bfloat16),
        *((name, "adamw", torch.float32) for name in ("convolutions", "bert", "gru")),
        ("gru", "sgd", torch.bfloat16),
    ],
)
def test_training_with_eagers_bits(name, optimizer, dtype):
    pliant.reset()
    expected = _trained(name, optimizer, dtype, lambda f: f)
    found = _trained(name, optimizer, dtype, lambda f: pliant.compile(f, options=BITWISE))
    assert [k for k, (one, other) in enumerate(zip(expected, found, strict=True)) if not torch.equal(one, other)] == []


def test_gradients_of_several_uses_are_added_in_eagers_order():
    def program(x):
        return (x * 1e8).sum() + (x * 1.1).sum() - (x * 1e8).sum() + (x * x).sum() / 3

    x = torch.randn(50)
    ours, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
    pliant.compile(program, options=BITWISE)(ours).backward()
    program(eager).backward()
    assert torch.equal(ours.grad, eager.grad)


def test_a_row_that_is_written_in_place_lies_as_in_eager():
    """Eager's kernel computes the end of a row otherwise than what fills vectors."""

    def program(x):
        x = x.clone()
        part = x.chunk(3, 1)[1]
        part.add_(1).sigmoid_()
        return x

    x = torch.randn(5, 39)
    assert torch.equal(pliant.compile(program, options=BITWISE)(x), program(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes_that_vary_have_eagers_bits(dynamic):
    program = lambda x: (x * 1.1 + 0.3).softmax(-1) / x.shape[0]  # noqa: E731
    compiled = pliant.compile(program, options=BITWISE, dynamic=dynamic)
    for size in (5, 9, 33):
        x = torch.randn(size, 7)
        assert torch.equal(compiled(x), program(x))


# -- fast ----------------------------------------------------------------------------------------------------------------
FAST = {"numerics": "fast"}


ARRAYS = {  # and whether NumPy itself computes it
    "sum": (lambda a: a.sum(), True),
    "mean": (lambda a: a.mean(0), True),
    "reduce": (numpy.add.reduce, True),
    "exp": (numpy.exp, True),
    "product": (lambda a: a @ a.T, True),
    "arithmetic": (lambda a: (a * 3 - 1) / a, False),
    "in place": (lambda a: a.__imul__(3), False),
    "moves": (lambda a: numpy.where(a > 0, a[::2].repeat(2, 0), numpy.concatenate([a[1:], a[:1]])), False),
    "whole numbers": (lambda a: a.astype(numpy.int64).sum() + a.argmax(), False),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_have_numpys_bits(name):
    function, breaks = ARRAYS[name]
    pliant.reset()

    def program(x):
        return torch.as_tensor(numpy.asarray(function(x.numpy().copy())))

    x = torch.randn(64, 299, generator=torch.Generator().manual_seed(0))
    assert torch.equal(pliant.compile(program, backend="aot_eager", options=BITWISE)(x), program(x))
    assert (pliant.stats()["graph_breaks"] > 0) is breaks


def test_products_are_added_in_one_rounding():
    a, b, c = torch.rand(3, 10_000, generator=torch.Generator().manual_seed(0))
    found = pliant.compile(lambda a, b, c: a * b + c, options=FAST)(a, b, c)
    once = torch.addcmul(c.double(), a.double(), b.double()).float()
    assert torch.equal(found, once) or not _fuses()
    assert not torch.equal(once, a * b + c)


def _fuses():
    with open("/proc/cpuinfo") as told:
        return " fma " in told.read() or platform.machine() == "aarch64"


@pytest.mark.parametrize(
    "difference",
    [
        lambda x, square: square - x * x,
        lambda x, square: x * x - square,
        lambda x, square: square + -(x * x),
        lambda x, square: square + x * -x,
        lambda x, square: x * x + -square,
        lambda x, square: square + x * x * -1.0,
    ],
)
def test_what_products_leave_of_themselves_is_zero(difference):
    """Of a fused multiply-add it would be what rounding took: below zero, its root would be no number."""
    pliant.reset()
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    assert not pliant.compile(difference, options=FAST)(x, x * x).any()


def test_a_product_that_is_read_twice_is_rounded():
    x, y = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0))

    def program(x, y):
        product = x * y
        return (product + 1) * product

    assert torch.equal(pliant.compile(program, options=FAST)(x, y), program(x, y))


EDGES = [0.0, -0.0, 1e-45, -1e-40, 1e-30, 1.0, -1.0, 9.1, -9.1, 88.72, 89.0, -110.0, 3.4e38, -3.4e38, torch.inf, -torch.inf, torch.nan]
FUNCTIONS = {
    "exp": torch.exp, "tanh": torch.tanh, "erf": torch.erf, "sigmoid": torch.sigmoid, "gelu": lambda x: functional.gelu(x.double()).float(),
    "tanh gelu": lambda x: functional.gelu(x, approximate="tanh"), "silu": functional.silu, "softmax": lambda x: torch.softmax(x, 0),
}  # fmt: skip


@pytest.mark.spread(2, "dtype", "name")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_infinities_and_zeros_are_kept(name, dtype):
    """In vectors, and in what they leave of a row."""
    pliant.reset()
    x = torch.tensor(EDGES * 2).to(dtype)
    found, expected = (f(x) for f in (pliant.compile(FUNCTIONS[name], options=FAST), pliant.compile(FUNCTIONS[name])))
    assert found.dtype is expected.dtype and torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.isinf(), expected.isinf()) and torch.equal(found == 0, expected == 0)
    assert torch.equal(found[found == 0].signbit(), expected[found == 0].signbit())
    torch.testing.assert_close(found, expected, rtol=torch.finfo(dtype).eps * 8, atol=0, equal_nan=True)


def test_training_that_is_fast_ends_near_eager():
    pliant.reset()
    expected = _trained("bert", "sgd", torch.float32, lambda f: f)
    found = _trained("bert", "sgd", torch.float32, lambda f: pliant.compile(f, options=FAST))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
def test_fast_functions_of_sizes_that_vary(dynamic):
    program = lambda x: torch.softmax(x * 2 + 1, -1).sum(0) + torch.tanh(x)  # noqa: E731
    compiled = pliant.compile(program, options=FAST, dynamic=dynamic)
    for size in (1, 5, 33):
        x = torch.randn(size, 7)
        torch.testing.assert_close(compiled(x), program(x))


# -- keys ---------------------------------------------------------------------------------------------------------------
def test_each_mode_has_entries_of_its_own():
    def program(x):
        return x * 1.1 * 1.1 * 1.1 - x

    x = torch.randn(100, dtype=torch.bfloat16)
    compiled = pliant.compile(program)
    plain = compiled(x)
    with config.patch(numerics="eager-bitwise"):
        assert torch.equal(compiled(x), program(x))
    assert torch.equal(compiled(x), plain)
    assert not torch.equal(plain, program(x))


def test_keys_on_disk_tell_the_modes_apart():
    modes = ("default", "eager-bitwise", "fast")
    keys = {config.get().with_options({"numerics": mode}).code_key for mode in modes}
    assert len(keys) == len(modes)


def test_an_entry_on_disk_serves_its_own_mode(tmp_path):
    x = torch.randn(100, dtype=torch.bfloat16)
    for mode in ("default", "eager-bitwise"):
        pliant.reset()
        with config.patch(cache_dir=str(tmp_path), numerics=mode):
            found = pliant.compile(_chain)(x)
        assert torch.equal(found, _chain(x)) is (mode == "eager-bitwise")


def _chain(x):
    return x * 1.1 * 1.1 * 1.1 - x


def test_another_mode_is_an_error():
    with pytest.raises(ConfigError, match="`numerics` cannot be 'bitwise'"):
        pliant.compile(_chain, options={"numerics": "bitwise"})


def test_explain_lists_the_calls_that_the_mode_asks_for():
    told = pliant.explain(lambda x: (x + 1).exp() * 2, options=BITWISE)(torch.randn(5))
    (line,) = told.fallbacks
    assert "aten.exp.default" in line and "numerics" in line
    assert "numerics: eager-bitwise" in str(told)
    assert told.numerics == "eager-bitwise"


def test_attention_that_is_written_out_stays_so():
    def attend(q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2) * 0.25, -1) @ v

    q, k, v = torch.randn(3, 12, 200, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(pliant.compile(attend, options=BITWISE)(q, k, v), attend(q, k, v))
