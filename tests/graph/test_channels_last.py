"""Convolutions of inference read and write channels last where that is faster; nothing else of them can be seen."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pliant
from pliant.debug import events
from pliant.graph.passes import channels_last as channels_last_pass
from pliant.targets import registry

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="without oneDNN nothing is changed")
TARGETS = ("packed_convolution", "packed_transpose", "aten.convolution", "aten.clone", "aten.mm")


def graph_of(program: Callable[..., object], *inputs: torch.Tensor, **options: object) -> list[str]:
    """The operators of `TARGETS` in the compiled graph, whose results have eager's values and layouts, at three calls:
    weights are packed at the second."""
    with torch.no_grad(), events.collect("partition") as found:
        compiled = pliant.compile(program, **options)
        for _ in range(3):
            got, expected = compiled(*inputs), program(*inputs)
            for one, other in zip(*[v if isinstance(v, tuple) else (v,) for v in (got, expected)], strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
                assert one.stride() == other.stride()
    lines = found[0].fields["text"].splitlines()
    return [name for line in lines for name in TARGETS if f"= {name}" in line or f"= pliant.{name}" in line]


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.first(x)))
        return F.max_pool2d(F.relu(self.second(y) + y), 2).mean((2, 3))


def test_one_change_of_layout_for_many_convolutions() -> None:
    assert graph_of(Dense().eval(), torch.randn(2, 3, 16, 16)) == [
        "aten.clone", "packed_convolution", "packed_convolution",
    ]  # fmt: skip


def test_results_have_eagers_layout() -> None:
    first, second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)
    found = graph_of(lambda x: second(first(x)).relu(), torch.randn(2, 3, 16, 16))
    assert found == ["aten.clone", "packed_convolution", "packed_convolution", "aten.clone"]


def test_results_of_one_channel_have_eagers_strides() -> None:
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 1, 3))
    assert graph_of(layers, torch.randn(2, 3, 16, 16)).count("packed_convolution") == 2


def test_views_see_eagers_layout() -> None:
    first, second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = second(first(x))
        return y.view(2, -1) + 1, y.as_strided((3,), (5,)) * 2

    assert "packed_convolution" in graph_of(program, torch.randn(2, 3, 16, 16))


def test_a_lone_convolution_stays() -> None:
    layer = nn.Conv2d(3, 8, 3)
    assert graph_of(lambda x: layer(x).relu(), torch.randn(2, 3, 16, 16)) == ["aten.convolution"]


def test_few_positions_stay() -> None:
    first, second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)
    assert graph_of(lambda x: second(first(x)).mean((2, 3)), torch.randn(2, 3, 8, 8)) == ["aten.convolution"] * 2


@pytest.mark.parametrize(("channels", "changed"), [(32, True), (192, False)])
def test_few_positions_of_large_weights_stay(channels: int, changed: bool) -> None:
    layers = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1))
    found = graph_of(lambda x: layers(x).mean((2, 3)), torch.randn(1, channels, 7, 7))
    assert found.count("packed_convolution") == 2 * changed


def test_memory_of_convolutions_is_written_over() -> None:
    """Their results are memory of their own, and no view of it is kept."""
    layers, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.SiLU()), torch.randn(2, 3, 16, 16)
    with torch.no_grad(), events.collect("output_code") as found:
        compiled = pliant.compile(lambda x: layers(x).mean((2, 3)))
        for _ in range(3):
            torch.testing.assert_close(compiled(x), layers(x).mean((2, 3)))
    assert "# its memory is free again" in str([one.fields for one in found])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "size, matrix", [((2, 8, 12, 12), ["packed_transpose"]), ((3, 8, 1, 1), []), ((1, 8, 3, 2), [])]
)
def test_single_positions_are_products(size: tuple[int, ...], matrix: list[str], bias: bool) -> None:
    layers = nn.Sequential(nn.Conv2d(8, 5, 1, bias=bias), nn.SiLU(), nn.Conv2d(5, 8, 1, bias=bias))
    found = graph_of(lambda x: layers(x).mean((2, 3)), torch.randn(size))
    assert [name for name in found if name != "aten.clone"] == [*matrix, "aten.mm", *matrix, "aten.mm"]


def test_depthwise_layers_and_slices() -> None:
    depthwise, norm = nn.Conv2d(6, 6, 5, padding=2, groups=6), nn.LayerNorm(6)
    grouped = nn.Conv2d(6, 4, 3, padding=1, groups=2)

    def program(x: torch.Tensor) -> torch.Tensor:
        y = norm(depthwise(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        left, right = torch.cat([grouped(y), depthwise(y)], 1).chunk(2, 1)
        return (F.pad(left, (1, 1, 1, 1))[:, :, 1:-1, 1:-1] * right).mean((2, 3))

    assert graph_of(program, torch.randn(2, 6, 12, 12)).count("packed_convolution") == 3


def test_images_that_are_channels_last_already() -> None:
    image = torch.randn(2, 3, 16, 16).to(memory_format=torch.channels_last)
    first, second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)
    assert graph_of(lambda x: second(first(x)), image) == ["packed_convolution"] * 2


@pytest.mark.parametrize("batch", [1, 3])
def test_symbolic_sizes(batch: int) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2)
    ).eval()
    compiled = pliant.compile(model, dynamic=True)
    with torch.no_grad():
        for side in (16, 19, 16):
            x = torch.randn(batch, 3, side, side + 1)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
            assert compiled(x).stride() == model(x).stride()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_stay(dtype: torch.dtype) -> None:
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)).to(dtype)
    with torch.no_grad(), events.collect("partition") as found:
        pliant.compile(layers)(torch.randn(1, 3, 16, 16, dtype=dtype))
    assert found[0].fields["text"].count("aten.convolution") == 2


def test_training_and_computed_weights_stay() -> None:
    layers, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)), torch.randn(1, 3, 16, 16)
    with events.collect("partition") as found:
        pliant.compile(layers)(x)
        with torch.no_grad():
            pliant.compile(lambda a: F.conv2d(a, layers[0].weight * 2))(x)
    assert all("packed" not in one.fields["text"] for one in found)


def test_operations_are_counted() -> None:
    layers, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)), torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        found = pliant.cost(layers, x).evaluate()["flops"]
    assert found == 2 * 2 * (14 * 14 * 8 * 27 + 12 * 12 * 4 * 72)


# ---- targets whose library runs the operator itself channels last


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Half precision and, in TF32, float32 of any size, with no second copies of weights."""
    monkeypatch.setattr(channels_last_pass, "LEAST_WORK_IN_TF32", 0)
    there = registry.target_of(torch.device("cpu"))
    halves = frozenset((torch.float16, torch.bfloat16))
    target = dataclasses.replace(there, images_last=halves, tf32_images_last=True, packs_weights=False)
    registry.provide("cpu", lambda _: target)
    yield
    registry.provide("cpu", lambda _: there)


def lowered(program: Callable[..., object], *inputs: torch.Tensor) -> tuple[list[str], str]:
    """Operators as `graph_of` gives them, and the loops."""
    with events.collect("loops") as found:
        names = graph_of(program, *inputs)
    return names, str(found[-1].fields["text"])


class Block(nn.Module):
    def __init__(self, channels: int, groups: int = 1) -> None:
        super().__init__()
        self.one, self.norm = nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels)
        self.three = nn.Conv2d(channels, channels, 3, padding=1, groups=groups)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.three(F.relu(self.norm(self.one(x)))) + x)


def network(groups: int = 1) -> nn.Module:
    torch.manual_seed(0)
    first = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    last = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    return nn.Sequential(first, Block(8, groups), Block(8, groups), last).eval()


def test_convolutions_run_channels_last(plain: None) -> None:
    found, loops = lowered(network(), torch.randn(2, 3, 32, 32))
    assert found.count("aten.convolution") == 5 and "packed_convolution" not in found
    copies = [line for line in loops.splitlines() if "] = load(" in line]
    assert len(copies) == 4  # the image, and each weight that has several positions


def test_casts_write_channels_last(plain: None) -> None:
    """Under autocast nothing is copied: the casts of the image and of the weights lay them."""
    model, x = network(), torch.randn(2, 3, 32, 32)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), events.collect("loops") as found:
        got, expected = pliant.compile(copy.deepcopy(model))(x), model(x)
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)
    loops = str(found[-1].fields["text"])
    assert loops.count("aten.convolution") == 5 and "] = load(" not in loops


def test_depthwise_layers_follow(plain: None) -> None:
    found, loops = lowered(network(groups=8), torch.randn(2, 3, 32, 32))
    assert found.count("aten.clone") == 2  # the image and its weight: of others the strides hold for both layouts
    assert "aten.clone" not in loops


def test_groups_of_several_channels_stay(plain: None) -> None:
    layers = nn.Sequential(*[nn.Conv2d(8, 8, 3, groups=2) for _ in range(3)])
    assert graph_of(layers, torch.randn(2, 8, 16, 16)) == ["aten.convolution"] * 3


@pytest.mark.parametrize("size", [(2, 1, 9, 9), (2, 8, 1, 1), (0, 3, 9, 9), (1, 3, 1, 9), (3, 8, 2, 1)])
@pytest.mark.parametrize("kernel", [1, 3])
def test_sizes_whose_layout_strides_do_not_tell(plain: None, size: tuple[int, ...], kernel: int) -> None:
    layers = [nn.Conv2d(size[1], 4, kernel, padding=2), nn.Conv2d(4, 1, 1), nn.Conv2d(1, 6, kernel, padding=1)]
    graph_of(nn.Sequential(*layers), torch.randn(size))
    gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 2, 1), nn.ReLU(), nn.Conv2d(2, 6, 1), nn.Sigmoid())

    def gated(x: torch.Tensor) -> torch.Tensor:
        y = layers[2](layers[1](layers[0](x)))
        return y * gate(y)

    if size[0]:
        graph_of(gated, torch.randn(size))


def test_callers_see_eagers_layouts(plain: None) -> None:
    model = network()
    parts = nn.Sequential(model[0], model[1])
    found = graph_of(lambda x: (parts(x), parts(x).view(2, -1) * 2), torch.randn(2, 3, 32, 32))
    assert found.count("aten.convolution") == 3


def test_float32_only_in_tf32(plain: None) -> None:
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert graph_of(network(), torch.randn(2, 3, 32, 32)) == ["aten.convolution"] * 5


@pytest.mark.parametrize("least, last", [(8 * 8 * 9, True), (8 * 8 * 9 + 1, False)])
@pytest.mark.parametrize("by_work, training", [(True, False), (True, True), (False, False)])
def test_tf32_is_for_large_convolutions(
    plain: None, monkeypatch: pytest.MonkeyPatch, least: int, last: bool, by_work: bool, training: bool
) -> None:
    """The library's kernels for small images that lie row-major are in full float32, as eager's are."""
    monkeypatch.setattr(channels_last_pass, "LEAST_WORK_IN_TF32", least * 32 * 32 * 2 if by_work else 1 << 60)
    monkeypatch.setattr(channels_last_pass, "LEAST_WEIGHT_IN_TF32", 1 << 60 if by_work else least)
    model = nn.Sequential(*[nn.Conv2d(8, 8, 3, padding=1) for _ in range(9)]).train(training)
    x = torch.randn(2, 8, 32, 32)
    with torch.set_grad_enabled(training), events.collect("partition") as found:
        result = pliant.compile(model)(x)
        if training:
            result.pow(2).sum().backward()
    assert ("memory_format=torch.channels_last" in found[0].fields["text"]) is last


@pytest.mark.parametrize("batch", [1, 3])
def test_symbolic_sizes_run_channels_last(plain: None, batch: int) -> None:
    model = network()
    compiled = pliant.compile(model, dynamic=True)
    with torch.no_grad():
        for side in (32, 19, 5, 32):
            x = torch.randn(batch, 3, side, side + 1)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
            assert compiled(x).stride() == model(x).stride()


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("groups", [1, 8])
def test_training_runs_channels_last(plain: None, groups: int, autocast: bool) -> None:
    """Forward and backward; gradients have eager's layouts."""
    model = network(groups).train()
    other, results = copy.deepcopy(model), []
    inputs = [torch.randn(2, 3, 32, 32).requires_grad_()]
    inputs.append(inputs[0].detach().clone().requires_grad_())
    with events.collect("partition") as found:
        for one, x in zip((pliant.compile(model), other), inputs):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                results.append(one(x))
            results[-1].float().pow(2).sum().backward()
    near = 8e-2 if autocast else 1e-4
    torch.testing.assert_close(*results, rtol=near, atol=near)
    pairs = [*zip(model.parameters(), other.parameters(), strict=True), inputs]
    for mine, theirs in ((a.grad, b.grad) for a, b in pairs):
        assert mine is not None and theirs is not None
        assert (mine - theirs).norm() <= near * theirs.norm() and mine.stride() == theirs.stride()
    changes = found[0].fields["text"].count("memory_format=torch.channels_last")
    assert changes == (4 if groups == 1 else 2)  # the image and the weights; strides of depthwise ones hold for both layouts


def test_activations_without_a_tag_follow(plain: None) -> None:
    """PyTorch does not tag these as pointwise."""
    activations = [nn.Hardswish(), nn.LeakyReLU(), nn.ELU(), nn.Hardtanh(), nn.SiLU(), nn.Softplus(), nn.Hardsigmoid()]
    layers = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), act) for act in activations]
    model, x = nn.Sequential(*layers, nn.Flatten(2)), torch.randn(2, 8, 9, 9)
    with events.collect("partition") as found:
        pliant.compile(model)(x).pow(2).sum().backward()
    assert found[0].fields["text"].count("memory_format=torch.channels_last") == 9  # image, gradient, weights


def test_lone_convolutions_of_training_stay(plain: None) -> None:
    layer, x = nn.Conv2d(3, 8, 3), torch.randn(2, 3, 16, 16, requires_grad=True)
    with events.collect("partition") as found:
        pliant.compile(lambda a: layer(a).relu())(x).sum().backward()
    assert "memory_format" not in found[0].fields["text"]
