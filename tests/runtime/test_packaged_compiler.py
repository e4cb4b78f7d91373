"""Kernels where the system has no C compiler: those of a package from PyPI build them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import own_process
import pliant
from pliant import config
from pliant.errors import ExportError
from pliant.runtime import compilers
from pliant.runtime.compilers import Compiler, CompilerNotFound, find_compiler

with_package = pytest.mark.skipif(not compilers.is_installed(), reason="needs ziglang (pip install pliant[compiler])")


@pytest.fixture
def found_anew(monkeypatch, tmp_path):
    """A machine without compilers, with a package in which nothing works; the package's program."""
    program = tmp_path / compilers.PACKAGE / compilers.PROGRAM
    program.parent.mkdir()
    for file in (program, program.with_name("__init__.py")):
        file.write_text("#!/bin/false\n")
        file.chmod(0o755)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    find_compiler.cache_clear()
    yield program
    find_compiler.cache_clear()


@pytest.mark.parametrize("wanted", ["", "ziglang", "zig", "zig cc"])
def test_clang_and_its_linker_are_used_as_they_are(wanted, found_anew, tmp_path):
    (tmp_path / "bin").mkdir()
    if wanted.startswith("zig "):
        (tmp_path / "bin" / "zig").symlink_to(found_anew)
    elif wanted == "zig":
        wanted = str(found_anew)
    compiler = find_compiler(wanted)
    assert compiler.command[1:] == ("clang",) and compiler.linker == (compiler.command[0], "ld.lld")
    assert os.path.realpath(compiler.command[0]) == str(found_anew.resolve())
    stamp = found_anew.stat().st_mtime_ns
    assert f"{found_anew.resolve()}:13:{stamp}" in compiler.identity
    assert "ziglang" not in sys.modules


def test_the_systems_compiler_comes_first(found_anew, tmp_path):
    own = tmp_path / "bin" / "gcc"
    own.parent.mkdir()
    own.write_text("#!/bin/false\n")
    own.chmod(0o755)
    assert find_compiler("").command == (str(own),) and not find_compiler("").linker


def test_what_is_named_is_not_replaced_by_another(found_anew):
    with pytest.raises(CompilerNotFound, match="`gcc-99` was not found(.|\n)*pip install pliant\\[compiler\\]"):
        find_compiler("gcc-99")


def test_without_the_package_the_message_names_it(found_anew):
    found_anew.unlink()
    with pytest.raises(CompilerNotFound, match="neither cc, gcc nor clang was found(.|\n)*pip install pliant\\[compiler\\]"):
        find_compiler("")


def test_flags_are_said_to_each_in_its_own_words():
    gcc, clang = Compiler(("gcc",), "gcc"), Compiler(("zig", "clang"), "zig clang", ("zig", "ld.lld"))
    more = ["-Wl,--gc-sections", "-Wl,-z,muldefs"]
    assert gcc.linking(more, ["a.o"], "a.so") == ["gcc", "-shared", "-nostdlib", *more, "a.o", "-o", "a.so"]
    assert clang.linking(more, ["a.o"], "a.so") == ["zig", "ld.lld", "-shared", "--gc-sections", "-z", "muldefs", "a.o", "-o", "a.so"]
    flags = ["-O2", "-fvect-cost-model=dynamic", "-fopenmp-simd"]
    assert gcc.flags(flags) == flags and set(clang.flags(flags)) <= {"-O2", "-fveclib=libmvec"}
    other = Compiler(("zig", "clang", "--target=aarch64-linux-gnu"), "zig clang")
    assert other.flags(flags) == ["-O2"]  # its C library is not this one's


PROGRAMS = Path(__file__).parent / "packaged_programs.py"


def environment(folder, **more):
    """One with no compiler, in which nothing may be written but the cache."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name != "CC" and not name.startswith("PLIANT_")}
    paths = os.pathsep.join([str(Path(pliant.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    own = {"PATH": "/nowhere", "HOME": str(home), "PLIANT_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": paths}
    return {**kept, **own, "PLIANT_STRICT": "1", **more}


@with_package
@pytest.mark.parametrize("what", ["operators", "training"])
def test_programs_do_what_eager_does(what, tmp_path):
    done = own_process.ran(PROGRAMS, what, env=environment(tmp_path), cwd=tmp_path, check=True)
    assert "fallbacks 0" in done.stdout
    assert os.listdir(tmp_path / "home") == []  # the package has a cache of its own, which is not used
    assert sorted(os.listdir(tmp_path)) == ["cache", "home"]


@with_package
def test_an_entry_is_found_by_the_next_process(tmp_path):
    first, second = (own_process.ran(PROGRAMS, "entry", env=environment(tmp_path), check=True).stdout for _ in range(2))
    assert "entries {'kept': 1}" in first and "entries {'found': 1}" in second


@with_package
@pytest.mark.multiprocess
def test_processes_that_build_at_once(tmp_path):
    command = [sys.executable, str(PROGRAMS), "entry"]
    both = [subprocess.Popen(command, env=environment(tmp_path), stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        _, said = process.communicate()
        assert process.returncode == 0, said


@with_package
def test_a_package_of_kernels(tmp_path):
    file = tmp_path / "model.pliant"
    made = own_process.ran(PROGRAMS, "package", file, env=environment(tmp_path), check=True)
    assert "fallbacks 0" in made.stdout
    there = environment(tmp_path, PLIANT_CC="/no/compiler", PLIANT_CACHE_DIR=str(tmp_path / "another"))
    assert "fallbacks 0" in own_process.ran(PROGRAMS, "load", file, env=there, check=True).stdout


@with_package
def test_a_library_that_needs_the_c_library_is_refused(tmp_path):
    program = pliant.export(torch.nn.Linear(4, 4).eval(), (torch.ones(2, 4),))
    with config.patch(compiler=compilers.PACKAGE), pytest.raises(ExportError, match="clang is alone here"):
        pliant.aot_compile(program, tmp_path / "library", interface="standalone")
