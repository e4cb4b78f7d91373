"""Core operators as ONNX models, called as they are: run by onnxruntime at several sizes, as eager."""

import re

import pytest
import torch

import pliant
from exporting.test_onnx import BATCH, converted, onnx, run
from pliant.errors import ExportError

aten = torch.ops.aten


def rows(n, *more):
    return torch.linspace(-2, 3, n * torch.Size(more).numel()).sin().view(n, *more)


CALLS = {
    "parts of an image": (lambda x: (aten._adaptive_avg_pool2d(x, [3, 2]), aten._adaptive_avg_pool2d(x, [7, 9])), lambda n: rows(n, 2, 7, 5)),
    "parts of a volume": (lambda x: aten._adaptive_avg_pool3d(x, [2, 3, 1]), lambda n: rows(n, 2, 5, 4, 3)),
    "means of a volume": (lambda x: (aten.avg_pool3d(x, [2, 2, 2]), aten.avg_pool3d(x, [3], [2], [1], False, False)), lambda n: rows(n, 2, 6, 5, 4)),
    "largest of a volume": (lambda x: aten.max_pool3d_with_indices(x, [2], [2], [1], [1], True)[0], lambda n: rows(n, 2, 5, 6, 4)),
    "distances": (lambda x: [aten._cdist_forward(x, x[:, 1:] * 2, p, None) for p in (0.0, 1.0, 2.0, 3.0, float("inf"))], lambda n: rows(n, 4, 3)),
    "pairs": (lambda x: [aten._pdist_forward(x.sum(0) * 1, p) for p in (0.0, 1.0, 2.0, 1.5)], lambda n: rows(n, 5, 3)),
    "bags": (lambda x: [aten._embedding_bag(x, torch.tensor([0, 1, 1, 0, 1]), torch.tensor([0, 2, 2]), False, mode)[0] for mode in (0, 1)],
             lambda n: rows(n + 1, 3)),
    "weighed bags": (lambda x: aten._embedding_bag(x, torch.tensor([0, 1, 1]), torch.tensor([0, 2, 3]), False, 0, False, x[0], True)[0],
                     lambda n: rows(n + 1, 3)),
    "norms": (lambda x: (aten._native_batch_norm_legit_no_training(x, x[0, :, 0, 0], None, x[0, :, 0, 1], x[0, :, 0, 2].abs(), 0.1, 1e-5)[0],
                         aten._native_batch_norm_legit.no_stats(x, None, x[0, :, 0, 0], True, 0.1, 1e-5)[0]), lambda n: rows(n, 3, 2, 4)),
    "angles": (lambda x: torch.atan2(x, x.flip(1)), lambda n: rows(n, 6)),
    "diagonals": (lambda x: [aten.diagonal(x, o, a, b) * 1 for o, a, b in ((0, 0, 1), (1, 1, 2), (-2, -1, 1), (1, 2, 0))], lambda n: rows(n + 3, 4, 5)),
    "copied": (lambda x: (aten.copy(x, x[0] * 2), aten.copy(x.int(), x * 9)), lambda n: rows(n, 4)),
    "never dropped": (lambda x: aten.native_dropout(x, 0.5, False), lambda n: rows(n, 4)),
    "memory": (lambda x: aten.empty_strided([x.shape[0], 2], [2, 1]).fill_(3) + x, lambda n: rows(n, 2)),
    "resolutions": (lambda x: (aten.upsample_nearest2d.vec(x, None, [2.0, 2.0]), aten.upsample_bilinear2d.vec(x, [5, 7], False, None),
                               aten.upsample_bilinear2d.vec(x, [5, 7], True, None)), lambda n: rows(n, 2, 3, 4)),
    "several indices": (lambda x: (x[:, torch.tensor([[1], [0]]), torch.tensor([2, 0, 1])], x[torch.tensor([1, 0]), :, torch.tensor([2, -1])],
                                   x[:, :, torch.tensor([0, 3]), torch.tensor([1, 1])], x[:, torch.tensor([0, 1]), :, torch.tensor([1, 0])]),
                        lambda n: rows(n, 2, 4, 3)),
    "the derivative of a table": (lambda x: [aten.embedding_dense_backward(x, torch.tensor([2, 0, 2]), 5, padding, False) for padding in (-1, 2)],
                                  lambda n: rows(3, n)),
    "the derivative of a norm": (lambda x: aten.native_layer_norm_backward(x, x.cos(), [4], x.mean(-1, keepdim=True), x.var(-1, keepdim=True), x[0, 0], x[0, 0],
                                                                           [True] * 3), lambda n: rows(n, 2, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_as_eager(name, tmp_path):
    fn, at = CALLS[name]
    dim = 1 if name == "the derivative of a table" else 0
    said = {"bags": pliant.Dim("rows", min=2), "weighed bags": pliant.Dim("rows", min=2), "diagonals": pliant.Dim("rows", min=3)}.get(name, BATCH)
    path = converted(tmp_path, fn, at(3), dynamic=({dim: said},))
    for n in (3, 2, 5):
        wanted = torch.utils._pytree.tree_leaves(fn(at(n)))
        for found, one in zip(run(path, at(n)), wanted, strict=True):
            torch.testing.assert_close(found, one, rtol=1e-4, atol=1e-5)


def test_angles_of_all_signs(tmp_path):
    each = torch.tensor([0.0, -0.0, 1.0, -1.0, 2e-30, -3e30, float("inf"), -float("inf"), float("nan")])
    y, x = (one.reshape(-1) for one in torch.meshgrid(each, each, indexing="ij"))
    path = converted(tmp_path, torch.atan2, y, x, dynamic=({0: BATCH}, {0: BATCH}))
    (found,) = run(path, y, x)
    wanted = torch.atan2(y, x)
    torch.testing.assert_close(found, wanted, equal_nan=True)
    assert torch.equal(found.signbit()[~wanted.isnan()], wanted.signbit()[~wanted.isnan()])


def test_the_page_lists_core_operators_without_a_form():
    from exporting.test_core_operators import PAGE
    from pliant.exporting.core_operators import CORE, name_of
    from pliant.exporting.decompositions import RULES
    from pliant.exporting.onnx_form.operators import ROWS

    known = {*map(name_of, RULES), *(name.removeprefix("aten.").removesuffix(".default") for name in ROWS)}
    text = PAGE.read_text().partition("has no form of here: ")[2]
    count, _, table = text.partition("\n")
    names = [name for row in table.splitlines() if row.startswith("| `") for name in re.findall("`(.*?)`", row.split("|")[1])]
    assert sorted(names) == sorted(set(CORE) - known) and int(count) == len(names)


REFUSED = {
    "random numbers": (lambda x: aten.native_dropout(x, 0.5, True), "draws random numbers"),
    "largest rows": (lambda x: aten._embedding_bag(x, torch.tensor([0, 1]), torch.tensor([0]), False, 2)[0], "bags of largest rows"),
    "by count": (lambda x: aten.embedding_dense_backward(x, torch.tensor([2, 0, 2]), 5, -1, True), "by how often"),
    "complex": (lambda x: torch.fft.rfft(x).real, "complex64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, tmp_path):
    fn, message = REFUSED[name]
    with pytest.raises(ExportError, match=message):
        converted(tmp_path, fn, torch.randn(3, 4))
    assert onnx
