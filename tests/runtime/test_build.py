"""Building: found once, kept by content, safe when many build at once."""

import multiprocessing
import os
import shutil
import tempfile
import warnings

import pytest
import torch

import own_process
import pliant
from loop_programs import softmax
from pliant import config
from pliant.errors import CompileError, FallbackWarning, NoKernels
from pliant.runtime import compilers
from pliant.runtime.build import build
from pliant.runtime.compile_program import compile_program
from pliant.runtime.compilers import CompilerNotFound

TEXT = "int pliant_test_{0}(void) {{ return {0}; }}\n"


def test_same_text_is_built_once(tmp_path):
    with config.patch(cache_dir=str(tmp_path)):
        options = config.get().build
        first = build([TEXT.format(1)], options)
        stamp = first.stat().st_mtime_ns
        assert build([TEXT.format(1)], options) == first and first.stat().st_mtime_ns == stamp
        assert build([TEXT.format(2)], options) != first
        assert build(["// src a node of another name\n" + TEXT.format(1)], options) == first


def test_no_compiler_is_a_typed_error():
    with config.patch(compiler="/nowhere/cc"), pytest.raises(CompilerNotFound):
        compile_program(softmax(3, 4))


def test_refused_text_is_kept(tmp_path):
    with config.patch(cache_dir=str(tmp_path)), pytest.raises(CompileError) as caught:
        build(["this is not C"], config.get().build)
    assert caught.value.where and "not C" in open(f"{caught.value.where}/part0.c").read()


@pytest.mark.parametrize(
    ("command", "said"), [("false", "it said nothing"), ("true", "wrote nothing"), ("cc -fnonsense", "-fnonsense")]
)
def test_a_compiler_that_does_not_work_is_not_taken_for_text_of_ours_that_is_wrong(command, said, tmp_path):
    with config.patch(compiler=command, cache_dir=str(tmp_path)), pytest.raises(CompileError) as caught:
        build([TEXT.format(1)], config.get().build)
    error = caught.value
    assert f"{command.split()[0]}` does not work: " in error.what and said in error.what
    assert "report" not in error.do and not error.where and not list(tmp_path.rglob("refused-*"))


def _build_in_process(folder: str) -> str:
    with config.patch(cache_dir=folder):
        return str(build([TEXT.format(7)], config.get().build))


def test_processes_that_build_at_once_agree(tmp_path):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        paths = pool.map(_build_in_process, [str(tmp_path)] * 6)
    assert len(set(paths)) == 1


def test_serial_without_openmp():
    x = torch.randn(300, 500)
    with config.patch(openmp=False, opt_flags=("-O1",)):
        (got,) = compile_program(softmax(300, 500))([x])
    torch.testing.assert_close(got, x.softmax(-1))


def test_addresses_instead_of_tensors():
    code = (
        "import torch\n"
        "from pliant.runtime import load\n"
        "load.tensor_reader = lambda: 0\n"
        "from loop_programs import softmax\n"
        "from pliant.runtime.compile_program import compile_program\n"
        "x = torch.randn(5, 7)\n"
        "run = compile_program(softmax(5, 7))\n"
        "assert 'data_ptr()' in run.wrapper_source\n"
        "torch.testing.assert_close(run([x])[0], x.softmax(-1))\n"
    )
    folder = str(__import__("pathlib").Path(__file__).parents[1])
    own_process.ran(code, cwd=folder, check=True)


def test_compiler_is_looked_up_by_name():
    assert compilers.find_compiler("cc").command[0].endswith("cc")


def test_compilers_are_named_with_flags_and_wrappers(tmp_path):
    found = compilers.find_compiler("env FLAG=1 cc -fno-common")
    assert found.command[0].endswith("env") and found.command[1:] == ("FLAG=1", "cc", "-fno-common")
    assert os.path.realpath(shutil.which("cc")) in found.identity  # which is replaced with the compiler
    blank = tmp_path / "my compilers"
    blank.mkdir()
    (blank / "cc").symlink_to(shutil.which("cc"))
    for named in (f"{blank}/cc", "env FLAG=1 cc -fno-common"):
        with config.patch(cache_dir=str(tmp_path / "cache"), compiler=named):
            assert build([TEXT.format(len(named))], config.get().build).exists()


def test_what_another_compiler_built_serves_where_there_is_none(tmp_path):
    with config.patch(cache_dir=str(tmp_path)):
        path = build([TEXT.format(11)], config.get().build)
    with config.patch(cache_dir=str(tmp_path), compiler="/nowhere/cc"):
        assert build([TEXT.format(11)], config.get().build) == path
        with pytest.raises(CompilerNotFound):
            build([TEXT.format(12)], config.get().build)
    with config.patch(cache_dir=str(tmp_path), compiler="env cc"):
        assert build([TEXT.format(11)], config.get().build) != path


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, monkeypatch):
    full = tmp_path / "cc"
    full.write_text("#!/bin/sh\necho 'as: out.s: No space left on device'\nexit 1\n")
    full.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with config.patch(cache_dir=str(tmp_path / "cache"), compiler=str(full)), pytest.raises(NoKernels) as caught:
        build([TEXT.format(13)], config.get().build)
    assert caught.value.kind == "no-space" and "PLIANT_CACHE_DIR" in caught.value.do
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "cc"]


def run_program(x, w):
    return (x @ w).softmax(-1).sum() + x.sin().sum()


@pytest.mark.parametrize("strict", [False, True])
def test_without_a_compiler_graphs_run_operator_by_operator(strict, tmp_path):
    pliant.reset()
    x, w = torch.randn(4, 5, requires_grad=True), torch.randn(5, 3)
    expected = run_program(x, w)
    with config.patch(compiler="/nowhere/cc", cache_dir=str(tmp_path), strict=strict), warnings.catch_warnings():
        warnings.simplefilter("always")
        compiled = pliant.compile(run_program)
        if strict:
            with pytest.raises(CompilerNotFound):
                compiled(x, w)
            return
        with pytest.warns(FallbackWarning, match="operator by operator") as caught:
            got = compiled(x, w)
            (gradient,) = torch.autograd.grad(got, x)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, x)[0])
    assert len(caught) == 1 and "report" not in str(caught[0].message)
    seen = pliant.stats()
    assert seen["graphs"] == 1 and seen["graph_breaks"] == 0 and seen["fallbacks"] == 2  # forward and backward
    assert not list(tmp_path.rglob("repro-*"))


def test_a_text_that_is_refused_is_tried_once(tmp_path):
    tried, refusing = tmp_path / "tried", tmp_path / "cc"
    refusing.write_text(
        f"#!/bin/sh\nfor a in \"$@\"; do case $a in *.c) grep -q p_exp $a && echo $a >> {tried} && exit 1;; esac; done\n"
        'exec cc "$@"\n'
    )
    refusing.chmod(0o755)
    pliant.reset()
    x = torch.randn(4, 5, requires_grad=True)
    with config.patch(compiler=str(refusing), cache_dir=str(tmp_path / "cache")):
        compiled, other = pliant.compile(run_exp), pliant.compile(lambda x: run_exp(x))
        with pytest.warns(FallbackWarning, match="operator by operator\n.*\n  why  the C compiler refused") as caught:
            results = [compiled(x), compiled(x), other(x)]
    for result in results:
        torch.testing.assert_close(result, run_exp(x))
        torch.testing.assert_close(torch.autograd.grad(result.sum(), x), torch.autograd.grad(run_exp(x).sum(), x))
    assert len(caught) == 1 and "report" in str(caught[0].message)
    assert pliant.stats()["graphs"] == 2 and pliant.stats()["fallbacks"] == 4  # two forward and backward
    assert len(tried.read_text().splitlines()) == 2  # their two texts


def run_exp(x):
    return (x.exp() * 2).sum(-1)
