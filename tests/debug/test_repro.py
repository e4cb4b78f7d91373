"""Scripts that repeat a failure."""

import operator
import os
import runpy
import shutil
import stat
import tempfile

import pytest
import torch
from torch import fx, nn

import pliant
from pliant import config
from pliant.cache import store
from pliant.debug import events
from pliant.debug.repro import crash_report, describe_value, write_repro
from pliant.errors import CacheWarning, ConstraintError, InternalError, Unsupported
from pliant.runtime import compile_graph


def traced(model):
    return fx.symbolic_trace(model)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("shift", torch.zeros(3, dtype=torch.float64))

    def forward(self, x, n):
        y = torch.nn.functional.relu(x * self.inner.scale) + self.shift
        return operator.getitem(y, 0) + n, y.to(torch.device("cpu"))


@pytest.fixture
def folder(tmp_path):
    with config.patch(cache_dir=str(tmp_path)):
        yield tmp_path


def test_the_script_holds_the_graph_and_runs(folder):
    x = torch.randn(4, 3).t().contiguous().t()
    path = write_repro(traced(Small()), [x, 2], ValueError('boom """ \\ '), stage="lower", dynamic=True)
    assert path.parent == folder / "repros"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    script = runpy.run_path(str(path), run_name="repro")
    assert script["DYNAMIC"] is True
    first, second = script["inputs"]()
    assert (first.shape, first.stride(), second) == (x.shape, x.stride(), 2)
    out = script["Repro"]()(first, second)
    assert [t.shape for t in out] == [(3,), (4, 3)]
    assert out[1].dtype == torch.float64
    assert "in stage `lower`" in script["__doc__"] and "ValueError: boom" in script["__doc__"]


def test_aten_graphs_print_too(folder):
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.ops.aten.sum.dim_IntList, (x, [-1]), {"dtype": torch.float32})
    graph.output((y,))
    path = write_repro(fx.GraphModule({}, graph), [torch.zeros(2, 3)])
    script = runpy.run_path(str(path), run_name="repro")
    assert script["Repro"]()(torch.ones(2, 3))[0].tolist() == [3.0, 3.0]


def test_it_never_raises(folder):
    path = write_repro(object(), [], RuntimeError("first"))
    assert "No script could be made" in path.read_text() and "first" in path.read_text()


def test_a_crash_names_its_stage_and_leaves_a_script(folder):
    with pytest.raises(InternalError) as caught, crash_report(traced(nn.ReLU()), [torch.zeros(1)], name="f"):
        with events.stage("lower"), events.stage("views"):
            raise KeyError("s0")
    path = next((folder / "repros").iterdir())
    assert str(caught.value) == (
        "InternalError [crash]: stage `lower/views` failed on f\n"
        "  why  KeyError: 's0'\n"
        f"  do   report it with {path}; the program goes on eagerly unless strict is set"
        "    (docs/debugging.md#crash)"
    )
    assert isinstance(caught.value.__cause__, KeyError)


def test_errors_that_are_not_crashes_pass(folder):
    for error in (Unsupported("x"), ConstraintError("y")):
        with pytest.raises(type(error)) as caught, crash_report(traced(nn.ReLU()), [], name="f"):
            raise error
        assert caught.value is error
    assert not (folder / "repros").exists()


def test_only_the_newest_scripts_are_kept(folder, monkeypatch):
    monkeypatch.setattr("pliant.debug.repro.KEPT", 2)
    module = traced(nn.ReLU())
    paths = [write_repro(module, [torch.zeros(1)]) for _ in range(4)]
    assert len(list((folder / "repros").iterdir())) == 2 and paths[-1].exists()


def test_unwritable_folders_give_none(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    store.private_root(os.getpid())  # is there before
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file" / "below"))
    events.reset()
    with config.patch(cache_dir=str(tmp_path / "file")), pytest.warns(CacheWarning, match="is not used"):
        assert write_repro(traced(nn.ReLU()), [torch.zeros(1)]) is None


def test_no_planted_folder_is_used(tmp_path):
    """Where the cache cannot be used, scripts go to a folder that nobody can foresee; a link is not followed."""
    (tmp_path / "cache" / "elsewhere").mkdir(parents=True, mode=0o700)
    mine = tmp_path / "cache" / "elsewhere" / "repro-mine.py"
    mine.touch()
    (tmp_path / "cache" / "repros").symlink_to(mine.parent)
    with config.patch(cache_dir=str(tmp_path / "cache")):
        script = write_repro(traced(nn.ReLU()), [torch.zeros(1)])
    assert script is not None and list(mine.parent.iterdir()) == [mine] and tmp_path not in script.parents
    assert not script.parent.is_symlink() and script.parent.stat().st_mode & 0o077 == 0
    shutil.rmtree(script.parent)
    store._kept_folder.cache_clear()


def plant_link(folder):
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(folder.with_name("moved"))


def plant_owner(folder):
    if os.getuid() != 0:
        pytest.skip("needs root")
    os.chown(folder, 4321, -1)


@pytest.mark.parametrize("plant", [plant_link, plant_owner, lambda folder: folder.chmod(0o777)])
def test_scripts_do_not_go_where_others_write(tmp_path, plant):
    cache = tmp_path / "cache"
    (cache / "repros").mkdir(parents=True, mode=0o700)
    tmp_path.chmod(0o755), cache.chmod(0o755)
    (cache / "repros" / "repro-mine.py").touch()
    plant(cache / "repros")
    with config.patch(cache_dir=str(cache)):
        store.usable_root.cache_clear()
        script = write_repro(traced(nn.ReLU()), [torch.zeros(1)])
    assert script is not None and tmp_path not in script.parents
    assert [path.name for path in (cache / "repros").iterdir()] == ["repro-mine.py"]
    shutil.rmtree(script.parent)
    store._kept_folder.cache_clear()


def test_links_among_the_scripts_are_removed_and_not_followed(folder, monkeypatch):
    monkeypatch.setattr("pliant.debug.repro.KEPT", 1)
    (folder / "repros").mkdir(mode=0o700)
    (folder / "kept").write_text("mine")
    (folder / "repros" / "repro-0.py").symlink_to(folder / "kept")
    (folder / "repros" / "repro-1.py").symlink_to(folder / "nowhere")
    script = write_repro(traced(nn.ReLU()), [torch.zeros(1)])
    assert list((folder / "repros").iterdir()) == [script] and (folder / "kept").read_text() == "mine"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.zeros(2, 3, dtype=torch.int64), "make((2, 3), torch.int64, (3, 1), 'cpu', False)"),
        (torch.zeros(3, requires_grad=True), "make((3,), torch.float32, (1,), 'cpu', True)"),
        (1.5, "1.5"),
        (None, "None"),
    ],
)
def test_values_are_described_by_kind_only(value, text):
    assert describe_value(value) == text


@pytest.mark.fallbacks_expected
def test_a_crash_with_symbols_and_options_is_repeated_with_them(folder, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("at sizes that vary")

    monkeypatch.setattr(compile_graph, "lower", fail)
    compiled = pliant.compile(lambda x: x.sin() + 1, dynamic=True, options={"fusion_limit": 3})
    with pytest.warns(pliant.PliantWarning, match="ZeroDivisionError"):
        compiled(torch.ones(3, 4))
    (path,) = (folder / "repros").iterdir()
    script = runpy.run_path(str(path), run_name="repro")
    assert script["DYNAMIC"] is True and script["OPTIONS"]["fusion_limit"] == 3 and "fuse" not in script["OPTIONS"]
    with pytest.raises(pliant.PliantError, match="ZeroDivisionError"):
        runpy.run_path(str(path), run_name="__main__")
