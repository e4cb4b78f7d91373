"""Programs as ONNX models, run by onnxruntime at several sizes: as eager."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import pliant
from exporting.test_models import SIZES, Network, bert
from lowering.tracing import accepted, both
from ops.samples import ROWS, values
from pliant.errors import ExportError
from pliant.exporting.onnx_form import writer
from pliant.patterns import Pattern

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

# What a runtime has no kernel for says nothing of the model.
_MISSING = ("NotImplemented",)
BATCH, LENGTH = pliant.Dim("batch"), pliant.Dim("length")


def run(path, *inputs):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    return [torch.from_numpy(one) for one in session.run(None, {n: x.numpy() for n, x in zip(names, inputs, strict=True)})]


def same(path, model, inputs, **named):
    with torch.no_grad():
        wanted = [w for w in pytree.tree_leaves(model(*inputs, **named)) if w is not None]
    found = run(path, *inputs, *named.values())
    for one, other in zip(wanted, found, strict=True):
        torch.testing.assert_close(other, torch.as_tensor(one), rtol=1e-4, atol=1e-5)


def converted(tmp_path, fn, *args, dynamic=None):
    path = tmp_path / "model.onnx"
    pliant.export(fn, args, dynamic_shapes=dynamic).to_onnx(path)
    onnx.checker.check_model(str(path), full_check=True)
    return path


def test_network(tmp_path):
    model = Network().eval()
    path = converted(tmp_path, model, torch.randn(2, 4, 12), dynamic=({0: BATCH, 2: LENGTH},))
    dims = onnx.load(path).graph.input[0].type.tensor_type.shape.dim
    assert [one.dim_param or one.dim_value for one in dims] == ["batch", 4, "length"]
    for rows, length in SIZES:
        same(path, model, (torch.randn(rows, 4, length),))


def test_bert(tmp_path):
    model, path = bert(), tmp_path / "bert.onnx"
    ids = lambda size: torch.randint(1, 64, size)  # noqa: E731
    said = {0: BATCH, 1: LENGTH}
    kwargs = {"input_ids": ids((2, 12)), "attention_mask": torch.ones(2, 12, dtype=torch.int64)}
    pliant.export(model, (), kwargs, dynamic_shapes=dict.fromkeys(kwargs, said)).to_onnx(path)
    for size in SIZES:
        mask = torch.ones(size, dtype=torch.int64)
        mask[0, size[1] // 2 :] = 0
        same(path, model, (), input_ids=ids(size), attention_mask=mask)


FUNCTIONS = {
    "sizes": lambda x: ((x + 1).reshape(-1), x.shape[0] * 2 + 1, x[: x.shape[0] // 2] * 2, torch.arange(x.shape[0]) * 7),
    "compared with sizes": lambda x: (x > x.shape[0], x.int() == x.shape[0] * 2, x.shape[0] < x.double(), x.new_ones(()) * x.shape[0] == x.numel()),
    "promotion": lambda x: (x + x.int(), x.int() / 2, x > 0, (x > 0) & (x.int() == 1), x.bool().sum(0), 1 - x, 2 / x),
    "clamped": lambda x: (x.clamp(0, 1), torch.maximum(x, -x), x.clamp(min=0.5), x.relu()),
    "reduced": lambda x: (x.sum(), x.mean(1), x.amax(0, keepdim=True), x.softmax(-1), x.log_softmax(0)),
    "parts": lambda x: (torch.cat([x, x[:, 1:]], 1), x[:, -2:] + 1, x[:, ::2] * 2, x[0] - 1, x.T @ x, torch.where(x > 0, x, 0.0)),
    "triangles": lambda x: (x.tril(1) + 1, x.triu() + 1, x.masked_fill(x > 0, -1.0), x.int().tril(-1) * 2),
    "filled": lambda x: (torch.zeros_like(x) + x, torch.full_like(x, 3) + x, torch.ones_like(x, dtype=torch.int64) * 2),
    "padded": lambda x: (F.pad(x, (1, 2, 0, 3), value=7.0), F.pad(x, (-1, 1)), x.repeat(2, 3), x.repeat(2, 1, 2)),
    "running sums": lambda x: (x.cumsum(0), x.int().cumsum(-1), (x > 0).cumsum(1)),
    "pieces": lambda x: (torch.stack([x, x + 1], 1), [y * 2 for y in x.unbind(1)], [y * 2 for y in x.split([1, 5], 1)]),
    "losses": lambda x: (F.cross_entropy(x, y := torch.arange(x.shape[0]).clamp(max=3), ignore_index=2), F.nll_loss(x, y, reduction="none")),
    "selections": lambda x: (x.topk(3, 1), x.topk(2, 0, largest=False)[0], (x > 0).nonzero(), x.new_empty(2, 3).fill_(1) * 2),
    "orders": lambda x: ((x * 9).int().sort(1), (x * 9).int().sort(dim=0, descending=True, stable=True), (x > 0).long().argsort(dim=1, stable=True)),
    "scattered": lambda x: (x.scatter(1, (x > 0).long(), 5.0), x.scatter(1, (x > 9).long()[:, :1], x[:, :1]), (x * 2).scatter(0, (x > 9).long(), 1)),
    "quotients": lambda x: (torch.div(x, 0.3, rounding_mode="floor"), (x * 9).int() // -4, torch.div((x * 9).int(), 4, rounding_mode="trunc")),
    "norms": lambda x: (x.norm(dim=1), torch.linalg.vector_norm(x, 1, 0, keepdim=True), F.normalize(x, dim=-1)),
    "numbers of elements": lambda x: (x * int(torch.arange(6)[4]), x.narrow(1, 0, int((x > -9).sum(1)[0])) + 0),
    "near 0": lambda x: (torch.expm1(x * 1e-6) * 1e6, torch.log1p(x.abs() * 1e-6) * 1e6, torch.expm1(x), torch.log1p(x.abs() * 1e4)),
    "logarithms": lambda x: (x.abs().log2(), x.abs().log10(), x.asinh(), (x.abs() + 1).acosh(), (x / 9).atanh(), (x * 3).trunc()),
    "slopes": lambda x: (F.leaky_relu(x, 0.3), F.elu(x, 1.5), F.selu(x), F.celu(x, 0.5), torch.logical_xor(x > 0, x.int() == 1)),
    "remainders": lambda x: (x % 0.7, x.fmod(-0.7), (x * 9).int() % -4, (x * 9).int().fmod(4), x.clamp(x[:1], x[:1] + 1), (1 / x.int()).isinf()),
    "truths": lambda x: ((x > 2).any(), (x > 0).all(1), (x > 0).any(-1, keepdim=True), x.argmax(), x.argmin(1), x.argmax(0, keepdim=True)),
    "spread": lambda x: (x.var(1), x.var((0, 1), correction=0), x.std(-1, keepdim=True), x.prod(1), x.prod()),
    "distances": lambda x: (F.mse_loss(x, x * 2), F.mse_loss(x, x + 1, reduction="none"), F.smooth_l1_loss(x, x * 3, beta=0.5), F.huber_loss(x, x * 4, delta=2.0)),
    "added by place": lambda x: (x.scatter_add(1, (x > 0).long(), x * 2), x.index_add(1, torch.tensor([1, 1, 0]), x[:, :3]),
        x.index_put((torch.tensor([1, 0]),), x[:2] * 3),
        x.index_put((torch.tensor([1, 1]), torch.tensor([0, 0])), x[0, :2], accumulate=True), x.masked_scatter(x > 0, x * 7)),
    "reduced by place": lambda x: [x.scatter_reduce(1, (x > 0).long(), x * 2, kind, include_self=own)
        for kind in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)],
    "one row": lambda x: (x.select_scatter(x[0] * 2, 0, -1), x.select_scatter(x[:, 0], 1, 2), x.flip(0), x.flip((0, 1)) + 1),
    "indices": lambda x: (x[:, torch.tensor([2, 0])], x[torch.tensor([0, -1]), torch.tensor([1, 2])], x[torch.tensor([-1])]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operators(name, tmp_path):
    fn = FUNCTIONS[name]
    path = converted(tmp_path, fn, torch.randn(4, 6), dynamic=({0: BATCH},))
    for rows in (2, 5, 8):
        same(path, fn, (torch.randn(rows, 6),))
    if name == "clamped":
        x = torch.tensor([[float("nan"), float("inf"), -float("inf"), -0.0, 2.0, 0.5]] * 2)
        for one, other in zip(fn(x), run(path, x), strict=True):
            torch.testing.assert_close(other, one, equal_nan=True)


def test_convolutions_and_pools(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(8), nn.Hardswish(), nn.MaxPool2d(3, 2, 1),
        nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 6), nn.LayerNorm(6),
    ).eval()  # fmt: skip
    path = converted(tmp_path, model, torch.randn(2, 3, 20, 20), dynamic=({0: BATCH},))
    for rows in (1, 2, 5):
        same(path, model, (torch.randn(rows, 3, 20, 20),))


POOLS = {
    "largest": lambda x: (F.max_pool2d(x, 3, 2, 1, ceil_mode=True), F.max_pool2d(x, (2, 3), (2, 1), dilation=2, ceil_mode=True)),
    "means": lambda x: (F.avg_pool2d(x, 2, 2, ceil_mode=True), F.avg_pool2d(x, 3, 2, 1, True, False), F.avg_pool2d(x, 3, 2, 1)),
    "columns": lambda x: (F.unfold(x, 3, 2, 1, (1, 2)), F.unfold(x, (2, 1))),
    "windows": lambda x: (x.unfold(2, 3, 2) + 1, x.unfold(-1, 2, 1) * 2, x[:, :, 0].unfold(1, 3, 3) - 1),
    "largest with places": lambda x: (x.max(1), x.min(-1, keepdim=True), (x * 2).int().max(2)),
    "from columns": lambda x: (F.fold(F.unfold(x, 3, 2, 1, 2), x.shape[2:], 3, 2, 1, 2), F.fold(F.unfold(x, 2), x.shape[2:], 2)),
    "borders": lambda x: (F.pad(x, (1, 2, 0, 3), "reflect"), F.pad(x, (3, 1, 2, 2), "replicate"), F.pad(x[:, 0], (2, 1), "reflect")),
    "samples": lambda x: [F.grid_sample(x, x[:, :2].movedim(1, -1), mode, border, corners) for mode in ("bilinear", "nearest")
        for border in ("zeros", "border", "reflection") for corners in (True, False)],
    "clipped": lambda x: (F.hardtanh(x), F.relu6(x * 9), F.softplus(x * 30), F.softplus(x, 2, 0.5)),
    "masked": lambda x: (torch.ops.aten.masked_fill(x, x > 0, 2), torch.ops.aten.masked_fill(x, x > 0, x.sum())),
    "products": lambda x: (
        torch.baddbmm(x[:, 0], x[:, 1], x[:, 2].mT, beta=0.5, alpha=2), torch.baddbmm(x[:, 0], x[:, 1], x[:, 1].mT),
        torch.baddbmm(x[:, 0] * torch.nan, x[:, 1], x[:, 1], beta=0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("side", [7, 10])
def test_windows(name, side, tmp_path):
    path = converted(tmp_path, POOLS[name], torch.randn(2, 3, side, side), dynamic=({0: BATCH},))
    for rows in (1, 2, 5):
        same(path, POOLS[name], (torch.randn(rows, 3, side, side),))


def test_a_number_that_is_none_is_the_largest_and_the_smallest(tmp_path):
    def fn(x):
        return x.max(1), x.min(0, keepdim=True), x.amax(0), x.amin((0, 1)), x.double().amax(-1, keepdim=True)

    path, nan = converted(tmp_path, fn, torch.randn(2, 3), dynamic=({0: BATCH},)), float("nan")
    given = torch.tensor([[1.0, nan, nan], [2.0, 0.0, 1.0], [nan, -float("inf"), 3.0]])
    for one, other in zip(pytree.tree_leaves(fn(given)), run(path, given), strict=True):
        torch.testing.assert_close(other, one, equal_nan=True)


def test_incomplete_windows_of_a_border_or_a_size_that_varies_are_refused(tmp_path):
    with pytest.raises(ExportError, match="of which a border counts"):
        converted(tmp_path, lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), torch.randn(2, 3, 8, 8))
    with pytest.raises(ExportError, match="whose sides vary"):
        converted(tmp_path, lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), torch.randn(2, 3, 8, 8), dynamic=({2: LENGTH},))
    with pytest.raises(ExportError, match="along a size that varies"):
        converted(tmp_path, lambda x: x.unfold(0, 2, 1) + 1, torch.randn(8), dynamic=({0: LENGTH},))


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_other_resolutions(mode, tmp_path):
    def fn(x):
        corners = () if mode == "nearest" else (True,)
        resized = [F.interpolate(x, size=(9, 5), mode=mode), F.interpolate(x, scale_factor=2, mode=mode)]
        return resized + [F.interpolate(x, size=(9, 5), mode=mode, align_corners=one) for one in corners]

    path = converted(tmp_path, fn, torch.randn(2, 3, 6, 7), dynamic=({0: BATCH, 2: LENGTH},))
    for rows, height in ((1, 6), (3, 8)):
        same(path, fn, (torch.randn(rows, 3, height, 7),))


def test_normed_weights(tmp_path):
    model = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 6, 3))
    path = converted(tmp_path, model, torch.randn(2, 4, 9), dynamic=({0: BATCH, 2: LENGTH},))
    same(path, model, (torch.randn(3, 4, 7),))


def test_norms_of_groups(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.GroupNorm(2, 8), nn.Conv2d(8, 6, 1), nn.GroupNorm(3, 6, affine=False))
    nn.init.normal_(model[0].weight)
    path = converted(tmp_path, model, torch.randn(2, 8, 5, 4), dynamic=({0: BATCH, 2: LENGTH},))
    for rows, height in ((1, 5), (3, 2)):
        same(path, model, (torch.randn(rows, 8, height, 4),))


def test_products_of_groups_of_rows(tmp_path):
    def fn(x, weights, ends):
        return torch._grouped_mm(x, weights, offs=ends)

    x, weights = torch.randn(12, 16), torch.randn(3, 16, 8)
    path = converted(tmp_path, fn, x, weights, torch.tensor([4, 4, 12], dtype=torch.int32), dynamic=({0: LENGTH}, None, None))
    for rows, ends in ((12, [5, 9, 12]), (20, [0, 20, 20])):
        same(path, fn, (torch.randn(rows, 16), weights, torch.tensor(ends, dtype=torch.int32)))


def test_what_is_rolled(tmp_path):
    def rolled(x):
        return x.roll(1, 0), x.roll((-3, 2), (1, 0)), x.roll(5), x.roll(x.shape[1] // 2, 1)

    path = converted(tmp_path, rolled, torch.randn(3, 5), dynamic=({0: BATCH, 1: LENGTH},))
    for rows, columns in ((3, 5), (1, 2), (6, 1), (2, 7)):
        same(path, rolled, (torch.randn(rows, columns),))


def test_ones_on_the_diagonal(tmp_path):
    def diagonal(x):
        rows, columns = x.shape
        return torch.eye(rows) @ x, torch.eye(rows, columns, dtype=torch.int64)

    path = converted(tmp_path, diagonal, torch.randn(3, 5), dynamic=({0: BATCH, 1: LENGTH},))
    for rows, columns in ((3, 5), (1, 2), (6, 1)):
        same(path, diagonal, (torch.randn(rows, columns),))


def test_bins(tmp_path):
    def counted(x):
        return torch.histc(x, 7, -2, 5), torch.histc(x, 4, 0, 3)

    path = converted(tmp_path, counted, torch.randn(9), dynamic=({0: BATCH},))
    for rows in (9, 1, 200):
        same(path, counted, (torch.randint(-40, 80, (rows,)) / 10,))
    same(path, counted, (torch.tensor([5.0, -2.0, float("nan"), float("inf"), 3.0]),))


def test_large_weights_lie_beside(tmp_path):
    model, path = nn.Linear(64, 32), tmp_path / "model.onnx"
    program = pliant.export(model, (torch.randn(2, 64),))
    for _ in range(2):
        writer.write_onnx(program, path, largest=100)
    assert path.stat().st_size < 2000 < (tmp_path / "model.onnx.data").stat().st_size < 20_000
    same(path, model, (torch.randn(2, 64),))


def test_an_unknown_operator_is_named_with_its_line(tmp_path):
    def fn(x):
        return torch.linalg.inv(x)

    with pytest.raises(ExportError) as error:
        converted(tmp_path, fn, torch.eye(3))
    assert "aten.linalg_inv_ex.default" in str(error.value) and "return torch.linalg.inv(x)" in str(error.value)


def test_views_of_arguments_are_refused(tmp_path):
    with pytest.raises(ExportError, match="a view of an argument"):
        converted(tmp_path, lambda x: x.T, torch.ones(2, 3))


@torch.library.custom_op("onnx_tests::half", mutates_args=())
def half(x: torch.Tensor) -> torch.Tensor:
    return x / 2


half.register_fake(torch.empty_like)


def test_a_pattern_replaces_operators_of_libraries(tmp_path):
    def fn(x):
        return torch.ops.onnx_tests.half(x.sin())

    program = pliant.export(fn, (torch.randn(3, 4),), dynamic_shapes=({0: BATCH},))
    with pytest.raises(ExportError, match="onnx_tests.half.default"):
        program.to_onnx(tmp_path / "model.onnx")
    pattern = Pattern(torch.ops.onnx_tests.half, lambda x: x * 0.5, example=(torch.randn(2, 2),))
    program.transform(pattern).to_onnx(tmp_path / "model.onnx")
    same(tmp_path / "model.onnx", fn, (torch.randn(5, 4),))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, x, total):
        self.calls += x.sum(0)
        total.mul_(2).add_(x)
        return total, self.calls * 2, x


def test_what_calls_write_are_results(tmp_path):
    model, x = Counting(), torch.randn(3, 2)
    path = converted(tmp_path, model, x, x.clone(), dynamic=({0: BATCH}, {0: BATCH}))
    session, state = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"]), {}
    assert [one.name for one in session.get_inputs()] == ["x", "total"]
    assert [one.name for one in session.get_outputs()] == ["result_0", "result_1", "result_2", "new_b_calls", "new_total"]
    for rows in (3, 5):
        given = [torch.randn(rows, 2) for _ in range(2)]
        found = session.run(None, {"x": given[0].numpy(), "total": given[1].numpy(), **state})
        wanted = [*model(*given), model.calls, given[1]]
        for one, other in zip(wanted, found, strict=True):
            torch.testing.assert_close(torch.from_numpy(other), one)
        state = {"b_calls": found[3]}


def test_without_onnx_the_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(pliant.PliantError, match="pip install onnx"):
        converted(tmp_path, torch.relu, torch.ones(3))


class Copied(nn.Module):
    """Results of their own: views of arguments are refused."""

    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return pytree.tree_map(lambda one: one.clone() if isinstance(one, torch.Tensor) else one, self.fn(*args))


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_every_operator_is_as_eager_or_refused(name, tmp_path):
    """Edges, infinities, NaN, empty tensors: a model that is written is right."""
    fn, samples = ROWS[name]
    for given in samples[:6]:
        args = tuple(values(one) if isinstance(one, torch.dtype) else one for one in given)
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        wanted, exact = both(fn, args)
        try:
            pliant.export(Copied(fn), args).to_onnx(tmp_path / "model.onnx")
        except pliant.PliantError:
            continue
        if any(one.dtype is torch.bfloat16 for one in (*tensors, *wanted)):
            continue  # NumPy, in which the runtime takes them, has none
        try:
            found = run(tmp_path / "model.onnx", *tensors)
        except Exception as error:
            if type(error).__name__ not in _MISSING:
                raise
            continue
        for mine, eager, right in zip(found, wanted, exact, strict=True):
            torch.testing.assert_close(mine, accepted(mine, eager, right), rtol=1e-4, atol=1e-5, equal_nan=True)


def test_names_of_arguments_are_no_names_of_values(tmp_path):
    def fn(v1, v2):
        return torch.relu(v1 + v2) * 3 - v1

    x, y = torch.randn(3), torch.randn(3)
    same(converted(tmp_path, fn, x, y), fn, (x, y))
    with pytest.raises(ExportError, match="name it otherwise"):
        converted(tmp_path, lambda result_0: result_0 * 2, x)


def test_nothing_is_rolled(tmp_path):
    path = converted(tmp_path, lambda x: x.roll(1, 0) + 1, torch.randn(3, 5), dynamic=({0: pliant.Dim("rows", min=0)},))
    for rows in (3, 0):
        same(path, lambda x: x.roll(1, 0) + 1, (torch.randn(rows, 5),))
