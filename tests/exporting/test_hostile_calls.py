"""Operators that a file may call, and what their kernels are not given."""

import json
import zipfile

import pytest
import torch
from tests.exporting import fuzz_files, hostile_calls
from torch.nn import functional as F

import pliant
from pliant.errors import FileError
from pliant.exporting import form
from pliant.exporting.allowed import is_allowed
from pliant.exporting.unchecked import _ROWS

ONES, IMAGE, VOLUME = torch.ones, torch.ones(1, 4, 8, 8), torch.ones(1, 2, 4, 4, 4)
PLACES = torch.full((1, 2, 2), 1 << 40)
HOSTILE = [  # each ended the process, or read what is no memory of its tensors
    ("_adaptive_avg_pool3d_backward.default", [ONES(1, 9, 2, 2, 2), VOLUME]),
    ("_adaptive_avg_pool2d_backward.default", [ONES(1, 9, 2, 2), IMAGE]),
    ("native_layer_norm_backward.default", [ONES(40), ONES(10, 4), [4], ONES(1), ONES(1), ONES(4), ONES(4), [True] * 3]),
    ("native_group_norm_backward.default", [ONES(1, 4, 8), ONES(1, 4, 8), ONES(1, 1), ONES(1, 2), None, 1, 4, 8, 2, [True] * 3]),
    ("_upsample_bilinear2d_aa.default", [IMAGE, [9, 9], False, 1.7, 0.1]),
    ("grid_sampler_2d_backward.default", [ONES(1, 1, 1, 1), IMAGE, torch.zeros(1, 5, 5, 2), 0, 0, False, [True, True]]),
    ("glu_backward.default", [ONES(1, 1), ONES(400, 600), 1]),
    ("embedding_dense_backward.default", [ONES(1, 300), torch.zeros(500, dtype=torch.int64), 10, -1, False]),
    ("embedding_dense_backward.default", [ONES(2, 3), torch.tensor([1, 1 << 40]), 10, -1, True]),
    ("native_batch_norm_backward.default", [ONES(4, 9), ONES(4, 9), ONES(9), None, None, ONES(9), ONES(9), False, 1e-5, [True] * 3]),
    ("native_batch_norm_backward.default", [ONES(1, 9), ONES(4, 9), ONES(9), None, None, ONES(9), ONES(9), True, 1e-5, [True] * 3]),
    ("native_batch_norm_backward.default", [ONES(4, 9), ONES(4, 9), ONES(1), None, None, ONES(9), ONES(9), True, 1e-5, [True] * 3]),
    ("native_batch_norm_backward.default", [
        ONES(4, 9), ONES(4, 9), ONES(9), ONES(1).expand(9), ONES(9), ONES(9), ONES(9), False, 1e-5, [True] * 3]),
    ("native_batch_norm.default", [ONES(4, 9), ONES(9), ONES(9), None, None, False, 0.1, 1e-5]),
    ("native_batch_norm.default", [ONES(4, 900), ONES(1), ONES(900), None, None, True, 0.1, 1e-5]),
    ("_native_batch_norm_legit.no_stats", [ONES(4, 900), ONES(1), ONES(900), True, 0.1, 1e-5]),
    ("_native_batch_norm_legit.no_stats", [ONES(4, 9), ONES(9), ONES(9), False, 0.1, 1e-5]),
    ("_native_batch_norm_legit_functional.default", [ONES(4, 900), ONES(900), ONES(1), ONES(900), ONES(900), True, 0.1, 1e-5]),
    ("_native_batch_norm_legit_no_training.default", [ONES(4, 900), None, None, ONES(1), ONES(900), 0.1, 1e-5]),
    ("_scaled_dot_product_flash_attention_for_cpu_backward.default", [
        ONES(1, 2, 1, 8), *[ONES(1, 2, 500, 8)] * 3, ONES(1, 2, 1, 8), ONES(1, 1, 2), 0.0, False]),
    ("mkldnn_rnn_layer.default", [
        ONES(5, 2, 3), ONES(1, 1), ONES(1, 1), ONES(1), ONES(1), ONES(1, 2, 400), ONES(1, 2, 400), False, [], 2, 400, 1, True, False, False, False]),
    ("_weight_norm_interface.default", [ONES(400, 300), ONES(1, 1), 0]),
    ("_weight_norm_interface_backward.default", [ONES(1, 1), ONES(400, 300), ONES(400, 1), ONES(400, 1), 0]),
    ("_native_multi_head_attention.default", [*[ONES(1, 5, 8)] * 3, 8, 2, ONES(24, 8), ONES(1), ONES(8, 8), ONES(8)]),
    ("reflection_pad2d_backward.default", [ONES(1, 4, 9, 9), IMAGE, [3, 3, 3, 3]]),
    ("convolution_backward.default", [ONES(1, 4, 1, 1), IMAGE, ONES(4, 4, 3, 3), [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3]),
    ("fractional_max_pool2d_backward.default", [ONES(1, 2, 2), ONES(1, 4, 4), [2, 2], [2, 2], PLACES]),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "args"), HOSTILE, ids=[name for name, _ in HOSTILE])
def test_kernels_that_trust_sizes_are_given_right_ones(operator, args):
    with pytest.raises((ValueError, RuntimeError, IndexError)):
        hostile_calls.let_through(f"aten.{operator}", args, {})


GOOD = [
    ("_standard_gamma_grad.default", [ONES(1), ONES(2, 3)]),
    ("_dirichlet_grad.default", [ONES(3) / 2, ONES(1), ONES(2, 3)]),
    ("native_batch_norm.default", [IMAGE, None, None, None, None, True, 0.1, 1e-5]),
    ("_native_batch_norm_legit.no_stats", [IMAGE, ONES(4), None, True, 0.1, 1e-5]),
    ("native_batch_norm_backward.default", [IMAGE, IMAGE, None, ONES(4), ONES(4), ONES(0), ONES(0), False, 1e-5, [True] * 3]),
    ("_native_batch_norm_legit_no_training.default", [IMAGE, ONES(4), ONES(4), ONES(4), ONES(4), 0.1, 1e-5]),
    ("_adaptive_avg_pool3d_backward.default", [ONES(1, 2, 2, 2, 2), VOLUME]),
    ("native_layer_norm_backward.default", [ONES(10, 4), ONES(10, 4), [4], ONES(10, 1), ONES(10, 1), ONES(4), ONES(4), [True] * 3]),
    ("_upsample_bilinear2d_aa.default", [IMAGE, [13, 4], False, 1.7, 0.5]),
    ("_upsample_bilinear2d_aa.default", [IMAGE, [9, 9], False]),
    ("grid_sampler_2d_backward.default", [ONES(1, 4, 5, 5), IMAGE, torch.zeros(1, 5, 5, 2), 0, 0, False, [True, True]]),
    ("mkldnn_rnn_layer.default", [
        ONES(5, 2, 3), ONES(16, 3), ONES(16, 4), ONES(16), ONES(16), ONES(1, 2, 4), ONES(2, 4), False, [], 2, 4, 2, True, True, False, False]),
    ("reflection_pad2d_backward.default", [ONES(1, 4, 14, 14), IMAGE, [3, 3, 3, 3]]),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "args"), GOOD)
def test_right_sizes_are_let_through(operator, args):
    target, made = hostile_calls.let_through(f"aten.{operator}", args, {})
    with torch.no_grad():
        assert hostile_calls.agree(hostile_calls.described(made), hostile_calls.described(target(*args)))


class Trained(torch.nn.Module):
    """Whose derivatives have a row."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.bag = torch.nn.Embedding(10, 8, padding_idx=0), torch.nn.EmbeddingBag(10, 8)
        self.conv, self.norm, self.groups = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.GroupNorm(2, 4)
        self.normed = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(8, 8))
        self.layer, self.attend = torch.nn.LayerNorm(8), torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, ids):
        x = self.normed(self.layer(self.table(ids) + self.bag(ids)[:, None]))
        x = self.attend(x, x, x, need_weights=False)[0]
        images = self.groups(self.norm(self.conv(x.view(ids.shape[0], 4, -1, 8))))
        wide = F.pad(F.interpolate(F.glu(images, 1), size=(9, 7), mode="bilinear", antialias=True), (1, 1, 1, 1), mode="reflect")
        return F.avg_pool2d(F.max_pool2d(wide, 2), 2).square().sum() + F.adaptive_avg_pool2d(wide, 3).tanh().sum()


def test_training_programs_load_as_they_were_exported(tmp_path):
    model, ids = Trained(), torch.arange(24).view(3, 8) % 10
    program = pliant.export(model, (ids,), dynamic_shapes=({0: pliant.Dim("batch")},), training=True)
    program.save(tmp_path / "file")
    loss, gradients = pliant.load(tmp_path / "file")(ids[:2])
    wanted = model(ids[:2])
    wanted.backward()
    torch.testing.assert_close(loss, wanted.detach())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad)


@pytest.mark.parametrize("masked", [False, True])
def test_encoders_in_one_kernel_load_as_they_were_exported(masked, tmp_path):
    torch.manual_seed(0)
    layer, batch = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), pliant.Dim("batch")
    mask = torch.arange(5)[None].expand(3, 5) > 3
    args, sizes = ((torch.randn(3, 5, 8), None, mask), ({0: batch}, None, {0: batch})) if masked else ((torch.randn(3, 5, 8),), ({0: batch},))
    program = pliant.export(layer, args, dynamic_shapes=sizes)
    assert "aten._transformer_encoder_layer_fwd.default" in program.operators()
    program.save(tmp_path / "file")
    with torch.no_grad():
        torch.testing.assert_close(pliant.load(tmp_path / "file")(*args), layer(*args))


def test_operators_with_a_row_may_be_called():
    assert all(map(is_allowed, _ROWS))


def test_other_operators_run_in_files_that_are_trusted(tmp_path):
    scale = torch.tensor(0.1)
    program = pliant.export(lambda x: torch.ops.aten.lcm(x, x + 1) * scale, (torch.tensor([4, 6]),))
    program.save(tmp_path / "file")
    with pytest.raises(FileError, match=r"calls `aten.lcm.default`(.*\n)*.*libraries=\('aten',\)"):
        pliant.load(tmp_path / "file")
    loaded = pliant.load(tmp_path / "file", libraries=("aten",))
    x = torch.tensor([10, 12])
    assert torch.equal(loaded(x), program(x))
    assert torch.equal(program.transform("dead_code")(x), program(x))


UNCHECKED = ["quantized_lstm_cell.default", "_weight_int4pack_mm_for_cpu.default", "embedding_renorm.default",
             "binomial.default"]  # of a count that is NaN it never comes back


@pytest.mark.parametrize("name", [f"aten.{one}" for one in UNCHECKED])
def test_kernels_that_are_not_known_to_check_are_refused_by_name(name, tmp_path):
    fuzz_files.program().save(tmp_path / "file")
    with zipfile.ZipFile(tmp_path / "file") as archive:
        said = json.loads(archive.read(form.PROGRAM))
    said["nodes"][0]["operator"] = name
    fuzz_files.rewritten(tmp_path / "file", said, tmp_path / "changed")
    with pytest.raises(FileError, match=f"`{name}`"):
        pliant.load(tmp_path / "changed")


class Segments(torch.nn.Module):
    def __init__(self, kind, initial, total=False):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([1.0, 2.0, -0.5]))
        self.kind, self.initial, self.total = kind, initial, total

    def forward(self, x, offsets):
        found = torch.segment_reduce(x * self.scale, self.kind, offsets=offsets, initial=self.initial, unsafe=True)
        return found.tanh().sum() if self.total else found


SIZES = ({0: pliant.Dim("n")}, {0: pliant.Dim("m")})
OFFSETS = ((8, [1, 2, 3, 5]), (12, [0, 3, 12]), (9, [4, 5]))


@pytest.mark.parametrize(("kind", "initial"), [("sum", None), ("mean", 0.5), ("max", None), ("prod", None)])
def test_offsets_of_segments_are_lengths_in_files(kind, initial, tmp_path):
    """Kernels check lengths, and not offsets."""
    model = Segments(kind, initial)
    program = pliant.export(model, (torch.randn(8, 3), torch.tensor([1, 2, 2, 5])), dynamic_shapes=SIZES)
    program.save(tmp_path / "file")
    for call in (program, pliant.load(tmp_path / "file")):
        for rows, offsets in (*OFFSETS, (8, [2, 2, 2])):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(call(x, torch.tensor(offsets)), model(x, torch.tensor(offsets)).detach(), rtol=0, atol=0, equal_nan=True)
        with pytest.raises(RuntimeError, match="lengths contains negative value"):
            call(torch.randn(4, 3), torch.tensor([3, 9]))


@pytest.mark.parametrize("kind", ["mean", "prod"])
def test_derivatives_of_segments_are_those_of_offsets(kind, tmp_path):
    model = Segments(kind, None, total=True)
    program = pliant.export(model, (torch.randn(8, 3), torch.tensor([1, 2, 3, 5])), dynamic_shapes=SIZES, training=True)
    program.save(tmp_path / "file")
    loaded = pliant.load(tmp_path / "file")
    for rows, offsets in OFFSETS:
        x = torch.randn(rows, 3)
        x[0] = torch.inf if offsets[0] else 1.0  # outside of all segments
        model.scale.grad = None
        wanted = model(x, torch.tensor(offsets))
        wanted.backward()
        loss, gradients = loaded(x, torch.tensor(offsets))
        torch.testing.assert_close((loss, gradients["scale"]), (wanted.detach(), model.scale.grad), equal_nan=True)


def test_batches_of_segments(tmp_path):
    def fn(x, offsets):
        return torch.segment_reduce(x, "mean", offsets=offsets, axis=1, initial=1.0)

    n, m = pliant.Dim("n"), pliant.Dim("m")
    x, offsets = torch.randn(3, 8, 2), torch.tensor([[1, 2, 5]] * 3)
    pliant.export(fn, (x, offsets), dynamic_shapes=({0: n, 1: m}, {0: n})).save(tmp_path / "file")
    assert torch.equal(pliant.load(tmp_path / "file")(x, offsets), fn(x, offsets))
