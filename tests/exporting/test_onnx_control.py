"""Branches, loops and recurrent layers as ONNX models, run by onnxruntime at several sizes: as eager."""

import pytest
import torch
from tests.exporting import loops
from torch.nn import functional as F

import pliant
from exporting.test_onnx import onnx, run
from pliant.errors import ExportError

REFUSED = {"random branch": "draws random numbers", "projected": "with projections"}


def written(tmp_path, model):
    path = tmp_path / "model.onnx"
    pliant.export(model, loops.arguments(3, 5), dynamic_shapes=loops.SAID).to_onnx(path)
    onnx.checker.check_model(str(path), full_check=True)
    return path


def same(path, model, size):
    args = loops.arguments(*size)
    for found, wanted in zip(run(path, *args), loops.plainly(model, args), strict=True):
        torch.testing.assert_close(found, torch.as_tensor(wanted), rtol=1e-4, atol=1e-5)


def nested(x, y):
    """A loop in a branch in a scan; all of them read what is computed outside."""
    z = x.sum() * y.shape[0]

    def step(so_far, one):
        def doubled(a):
            return loops.while_loop(lambda n, b: n < 2, lambda n, b: (n + 1, F.gelu(b) * 2 + z), (torch.zeros((), dtype=torch.int64), a))[1]

        return loops.cond(one.sum() > 0, doubled, lambda a: a - a.shape[0], (so_far,)), so_far + one

    return loops.scan(step, x[:, 0] * 0, x, dim=1)


def never(x, y):
    return loops.while_loop(lambda a: a.sum() > 1e9, lambda a: (a + 1,), (x,))


def last_first(x, y):
    return loops.associative_scan(torch.add, x, dim=1, reverse=True, combine_mode="generic")


@pytest.mark.parametrize("name", [name for name in loops.MODELS if name not in REFUSED])
def test_as_eager(name, tmp_path):
    path = written(tmp_path, loops.MODELS[name])
    for size in (*loops.SIZES, (2, 1)):
        same(path, loops.MODELS[name], size)


@pytest.mark.parametrize("model", [nested, never])
def test_bodies(model, tmp_path):
    path = written(tmp_path, model)
    for size in loops.SIZES:
        same(path, model, size)


def test_scans_from_the_end(tmp_path):
    path = written(tmp_path, last_first)
    for size in loops.SIZES:
        x, y = loops.arguments(*size)
        (found,) = run(path, x, y)
        torch.testing.assert_close(found, x.flip(1).cumsum(1).flip(1))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, tmp_path):
    with pytest.raises(ExportError, match=REFUSED[name]):
        written(tmp_path, loops.MODELS[name])


def test_decompositions_reach_bodies():
    def branched(x, y):
        return loops.cond(x.sum() > 0, lambda a: F.gelu(a), lambda a: F.silu(a), (x,))

    program = pliant.export(branched, loops.arguments(3, 5), dynamic_shapes=loops.SAID)
    smaller = program.decompose("aten.gelu", "aten.silu")
    assert "aten.erf" in str(smaller) and "aten.gelu" not in str(smaller) and "aten.silu" not in str(smaller)
    assert "aten.gelu" in str(program)
    for size in loops.SIZES:
        torch.testing.assert_close(smaller(*loops.arguments(*size)), program(*loops.arguments(*size)))
