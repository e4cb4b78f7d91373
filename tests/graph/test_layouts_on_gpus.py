"""Strides of what libraries of GPUs leave, as seen on one (H100, PyTorch 2.11); `tests/gpu` asks the GPU at hand."""

import pytest
import torch

from pliant.graph.shape_rules import RULES
from pliant.graph.tensor_spec import TensorSpec
from pliant.graph.unsupported import UnsupportedOperator
from pliant.symbolic.shape_env import ShapeEnv

aten = torch.ops.aten
GPU = torch.device("cuda", 0)


def spec(size, stride=None, dtype=torch.float32, device=GPU) -> TensorSpec:
    return TensorSpec(size, torch.empty(size, device="meta").stride() if stride is None else stride, dtype, device)


# kind, size and strides of the operand, dimensions, strides of the result
TRANSFORMS = [
    ("c2c", (4, 6), (6, 1), [0], (1, 4)),
    ("c2c", (2, 3, 8), (24, 8, 1), [0], (1, 16, 2)),
    ("c2c", (2, 3, 8), (24, 8, 1), [1, 0], (3, 1, 6)),
    ("c2c", (2, 3, 4, 8), (96, 32, 8, 1), [0, 1, 2, 3], (1, 64, 16, 2)),
    ("c2c", (8, 3, 2, 4), (1, 32, 96, 8), [2, 3], (8, 64, 4, 1)),
    ("c2c", (8, 3, 2, 4), (1, 32, 96, 8), [0, 1, 2, 3], (2, 64, 1, 16)),
    ("c2c", (2, 3, 4, 6, 8), (576, 192, 48, 8, 1), [0, 1, 2, 3, 4], (3, 1, 288, 48, 6)),
    ("r2c", (4, 6), (6, 1), [0, 1], (1, 4)),
    ("r2c", (4, 6), (6, 1), [1, 0], (1, 3)),
    ("r2c", (2, 3, 8), (24, 8, 1), [1, 2], (15, 5, 1)),
    ("r2c", (2, 3, 8), (24, 8, 1), [0, 1, 2], (3, 1, 6)),
    ("r2c", (8, 3, 2, 4), (1, 32, 96, 8), [0, 3], (3, 24, 72, 1)),
    ("r2c", (8, 3, 2, 4), (1, 32, 96, 8), [0, 1, 2, 3], (1, 8, 24, 48)),
    ("r2c", (2, 3, 4, 6, 8), (576, 192, 48, 8, 1), [0, 1, 2, 3, 4], (1, 48, 12, 2, 144)),
    ("both sides", (4, 6), (6, 1), [0, 1], (6, 1)),
    ("both sides", (2, 3, 8), (24, 8, 1), [1, 0], (1, 2, 6)),
    ("both sides", (8, 3, 2, 4), (1, 32, 96, 8), [0, 1, 2, 3], (24, 8, 4, 1)),
    ("c2r", (4, 6), (6, 1), [0], (1, 6)),
    ("c2r", (2, 3, 8, 4), (96, 32, 1, 8), [3], (144, 48, 6, 1)),
    ("c2r", (8, 3, 2, 4), (1, 32, 96, 8), [0, 3], (6, 96, 48, 1)),
    ("c2r", (8, 3, 2, 4), (1, 32, 96, 8), [0, 1, 2, 3], (6, 48, 144, 1)),
    ("c2r", (2, 3, 4, 6, 8), (576, 192, 48, 8, 1), [0, 1, 2, 3, 4], (14, 672, 168, 28, 1)),
]


@pytest.mark.parametrize(("kind", "size", "stride", "dims", "expected"), TRANSFORMS)
def test_fourier_transforms(kind, size, stride, dims, expected):
    x = spec(size, stride, torch.float32 if kind in ("r2c", "both sides") else torch.complex64)
    if kind == "c2c":
        result = RULES[aten._fft_c2c.default](x, dims, 0, True)
    elif kind == "c2r":
        result = RULES[aten._fft_c2r.default](x, dims, 0, 2 * (size[dims[-1]] - 1))
    else:
        result = RULES[aten._fft_r2c.default](x, dims, 0, kind == "r2c")
    assert result.stride == expected
    assert result.dtype is (torch.float32 if kind == "c2r" else torch.complex64)


def test_factorizations():
    tall, wide = spec((2, 5, 3)), spec((2, 3, 5))
    strides = [[one.stride for one in RULES[aten._linalg_svd.default](x, full)] for x in (tall, wide) for full in (False, True)]
    assert strides == [
        [(15, 1, 5), (3, 1), (9, 3, 1)], [(25, 1, 5), (3, 1), (9, 3, 1)],
        [(9, 1, 3), (3, 1), (15, 5, 1)], [(9, 1, 3), (3, 1), (25, 5, 1)],
    ]  # fmt: skip
    with pytest.raises(UnsupportedOperator):
        RULES[aten._linalg_svd.default](tall, False, driver="gesvd")
    assert RULES[aten.linalg_eig.default](spec((5, 5)))[1].stride == (5, 1)
    found = RULES[aten.linalg_lstsq.default](tall, spec((2, 5, 2)))
    assert [(one.size, one.stride) for one in found[:2]] == [((2, 3, 2), (10, 1, 5)), ((2, 2), (2, 1))]
    assert [one.size for one in RULES[aten.linalg_lstsq.default](wide, spec((2, 3, 2)))[1:]] == [(0,)] * 3


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("last", [False, True])
def test_bags_of_rows(mode, last):
    indices, offsets = spec((15,), dtype=torch.int64), spec((3,), dtype=torch.int64)
    found = RULES[aten._embedding_bag.default](spec((20, 8)), indices, offsets, False, mode, False, None, last, -1)
    bags = 2 if last else 3
    assert [one.size for one in found] == [(bags, 8), (15,), (3,), (bags, 8) if mode == 2 else (0,)]


def test_cells_grids_and_losses():
    x, gates, bias = spec((3, 8)), spec((3, 24)), spec((24,))
    state, workspace = RULES[aten._thnn_fused_gru_cell.default](gates, gates, x, bias, bias)
    assert (state.size, workspace.size) == ((3, 8), (3, 40))
    backward = RULES[aten._thnn_fused_gru_cell_backward.default]
    assert [one.size for one in backward(x, workspace, True)] == [(3, 24), (3, 24), (3, 8), (24,), (24,)]
    assert backward(x, workspace, False)[3:] == (None, None)
    images, grid = spec((2, 3, 5, 6)), spec((2, 4, 7, 2))
    result = RULES[aten.cudnn_grid_sampler.default](images, grid)
    assert result.size == (2, 3, 4, 7)
    assert [one.size for one in RULES[aten.cudnn_grid_sampler_backward.default](images, grid, result)] == [(2, 3, 5, 6), (2, 4, 7, 2)]
    assert not hasattr(aten, "_use_miopen_ctc_loss") or aten._use_miopen_ctc_loss.Tensor in RULES
    asks = RULES[aten._use_cudnn_ctc_loss.default]
    logits = spec((5, 2, 4))
    assert asks(logits, spec((2, 2), dtype=torch.int64), [5, 5], [2, 2], 0) is False
    with pytest.raises(UnsupportedOperator):  # the lengths decide
        asks(logits, spec((2, 2), dtype=torch.int32), [5, 5], [2, 2], 0)


def test_log_sigmoid_keeps_nothing_there():
    x = spec((3, 4))
    result, buffer = RULES[aten.log_sigmoid_forward.default](x)
    assert (result.size, buffer.size) == ((3, 4), (0,))
    assert RULES[aten.log_sigmoid_backward.default](x, x, buffer).size == (3, 4)


def test_a_gpu_without_an_index_is_the_current_one(monkeypatch):
    assert spec((2,), device=torch.device("cuda")).device == GPU
    from pliant.graph import tensor_spec

    monkeypatch.setattr(tensor_spec, "current_gpu", lambda: 1)
    assert spec((2,), device=torch.device("cuda")).device == torch.device("cuda", 1)
    assert spec((2,), device=GPU).device == GPU and spec((2,), device=torch.device("cpu", 0)).device == torch.device("cpu")


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_lies_as_its_input(training):
    """The library's, too, but only in a memory format; in inference it gives no statistics."""
    turned, statistics = (100, 25, 1, 5), [spec((4,)), spec((4,))]
    own = RULES[aten.native_batch_norm.default](spec((3, 4, 5, 5), turned), None, None, *statistics, training, 0.1, 1e-5)
    assert [(one.size, one.stride) for one in own] == [((3, 4, 5, 5), turned), ((4,), (1,)), ((4,), (1,))]
    library = RULES[aten.cudnn_batch_norm.default](spec((3, 4, 5, 5), turned), *statistics, *statistics, training, 0.1, 1e-5)
    assert [one.size for one in library] == [(3, 4, 5, 5), *[(4,) if training else (0,)] * 2, (0,)]
    assert library[0].stride == (100, 25, 5, 1)


def test_gradients_of_dropout_are_row_major():
    grad, mask = spec((2, 3, 4), (12, 1, 3)), spec((2, 3, 4), (12, 1, 3), torch.bool)
    assert RULES[aten.native_dropout_backward.default](grad, mask, 2.0).stride == (12, 4, 1)


def test_nearest_pixels_of_few_channels():
    """The number of channels is asked of images with channels last alone: elsewhere no answer is a guard."""
    last = (48, 1, 12, 3)
    sizes = [((2, 3, 4, 4), None), ((2, 3, 4, 4), last), ((2, 4, 4, 4), (64, 1, 16, 4))]
    found = [RULES[aten.upsample_nearest2d.default](spec(size, stride), (8, 8)).stride for size, stride in sizes]
    assert found == [(192, 64, 8, 1), (192, 64, 8, 1), (256, 1, 32, 4)]
    env = ShapeEnv()
    many = env.wrap(env.create_symbol(3, "x.size(0)"))
    RULES[aten.upsample_nearest2d.default](spec((1, many, 4, 4), (16 * many, 16, 4, 1)), (8, 8))
    assert not env.guards
