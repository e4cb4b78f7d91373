"""Operators below `vmap` at batches of any size are one graph (`python -m tests.capture.vmap_table` has all rows)."""

import pytest
from tests.capture.vmap_rows import ROWS
from tests.capture.vmap_table import judged

NAMES = (
    "gather", "scatter_add", "index_select", "index_put add", "embedding", "masked_scatter", "slice_scatter", "cat",
    "searchsorted", "diagonal_scatter", "layer_norm", "group_norm", "batch_norm training", "batch_norm eval", "conv2d",
    "conv_transpose1d", "max_pool2d", "adaptive_avg_pool2d", "pad reflect", "pad circular", "grid_sample",
    "interpolate linear", "attention 4d", "cross_entropy", "cross_entropy ignore", "binary_cross_entropy", "kl_div",
    "bilinear", "solve", "kron", "take_along_dim", "unfold", "glu", "setitem",
)  # fmt: skip


@pytest.mark.spread(2, "name", "way")
@pytest.mark.parametrize("way", ["map", "train", "grad", "grad first"])
@pytest.mark.parametrize("name", NAMES)
def test_one_graph_serves_all_batches(name, way):
    assert judged(ROWS[name], way) == ""


@pytest.mark.parametrize("name", ["conv2d", "conv1d", "index_copy", "layer_norm", "embedding", "batch_norm eval"])
def test_batches_in_other_arguments_only(name):
    assert judged(ROWS[name], "rest") == ""
    assert judged(ROWS[name], "grad rest") == ""


@pytest.mark.parametrize("name", ["gather", "conv2d", "layer_norm", "cross_entropy", "cat"])
def test_maps_in_maps_and_tangents(name):
    assert judged(ROWS[name], "twice") == ""
    assert judged(ROWS[name], "jvp") == ""
