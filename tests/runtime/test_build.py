"""Building: found once, kept by content, safe when many build at once."""

import multiprocessing
import subprocess
import sys

import pytest
import torch

from loop_programs import softmax
from pliant import config
from pliant.errors import CompileError
from pliant.runtime import build as building
from pliant.runtime.build import CompilerNotFound, build
from pliant.runtime.compile_program import compile_program

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
    subprocess.run([sys.executable, "-c", code], check=True, cwd=folder)


def test_compiler_is_looked_up_by_name():
    assert building.find_compiler("cc").path.endswith("cc")
