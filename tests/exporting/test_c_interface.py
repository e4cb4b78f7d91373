"""Programs as text for libraries without Python: what it says, what it refuses, that it compiles.

`python -m tests.exporting.c_programs` builds whole libraries and calls them from C, which takes half a minute each.
"""

import shutil
import subprocess

import pytest
import torch
from tests.exporting import loops
from tests.exporting.c_programs import MODELS, Controls
from torch import nn

import pliant
from pliant.errors import ConfigError, ExportError
from pliant.exporting.c_interface import library
from pliant.exporting.c_interface.writer import ProgramText
from pliant.exporting.writing import weights_of


def text_of(program):
    content, at = weights_of(program)
    return ProgramText(program, at, len(content)).text()


@pytest.fixture(scope="module")
def small():
    build, at, said = MODELS["small"]
    return text_of(pliant.export(build().eval(), at(4), dynamic_shapes=said))


def test_sizes_are_expressions_and_every_argument_is_passed(small):
    assert "const int64_t s0 = p_size(f, 0, 0);" in small
    assert 'p_fact(f, (s0 >= 1), "batch >= 1 does not hold");' in small
    assert "p_int(f, s0); p_result(f);" in small
    assert '{"aten::convolution", ""}' in small


@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler for C++")
def test_the_text_compiles(small, tmp_path):
    (tmp_path / "program.cpp").write_text(small)
    command = ["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Werror", f"-I{library._HERE}", tmp_path / "program.cpp"]
    subprocess.run(command, check=True)


NUMBERS = """
#include <stdio.h>
#include "frame.h"
void p_fact(Frame *, bool holds, const char *) { if (!holds) exit(2); }
int main() {
  for (int64_t a = -7; a < 8; a++)
    for (int64_t b = -7; b < 8; b++)
      if (b) printf("%ld %ld %g %ld ", p_floordiv(a, b), p_mod(a, b), p_fmod(a, b), p_min(a, b) - p_max(b, a));
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler for C++")
def test_numbers_are_as_in_python(tmp_path):
    (tmp_path / "numbers.cpp").write_text(NUMBERS)
    subprocess.run(["g++", f"-I{library._HERE}", tmp_path / "numbers.cpp", "-o", tmp_path / "numbers"], check=True)
    found = subprocess.run([tmp_path / "numbers"], capture_output=True, text=True, check=True).stdout.split()
    pairs = [(a, b) for a in range(-7, 8) for b in range(-7, 8) if b]
    wanted = [number for a, b in pairs for number in (a // b, a % b, a % b, min(a, b) - max(a, b))]
    assert [float(one) for one in found] == wanted


@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler for C++")
def test_branches_loops_and_layers_are_lines_around_those_of_their_bodies(tmp_path):
    program = pliant.export(Controls().eval(), loops.arguments(3, 5), dynamic_shapes=loops.SAID)
    text = text_of(program)
    assert text.count("if (p_truth(f, ") == 2 + 1 and text.count("if (!p_truth(f, ") == 1  # two of branches, one in a scan
    assert text.count("for (int64_t ") == 5 and "p_stack(f, " in text and '{"aten::gru", "input"}' in text
    (tmp_path / "program.cpp").write_text(text)
    command = ["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Werror", f"-I{library._HERE}", tmp_path / "program.cpp"]
    subprocess.run(command, check=True)


@pytest.mark.parametrize(
    ("program", "what"),
    [
        (lambda x: x[x > 0], "makes sizes that only its run tells"),
        (lambda x: x.t(), "a view of an argument"),
    ],
)
def test_what_the_library_cannot_say_is_an_error(program, what, tmp_path):
    exported = pliant.export(program, (torch.ones(2, 3),))
    with pytest.raises(ExportError, match=what):
        pliant.aot_compile(exported, tmp_path / "folder", interface="c")
    assert not (tmp_path / "folder").exists()


def test_interfaces_are_named(tmp_path):
    exported = pliant.export(nn.Linear(2, 2), (torch.ones(1, 2),))
    with pytest.raises(ConfigError, match="there is no interface 'rust'"):
        pliant.aot_compile(exported, tmp_path, interface="rust")


def test_arguments_that_are_written_are_checked_for_memory_of_others():
    def add(x, y, z):
        y.add_(x)
        return x * z

    text = text_of(pliant.export(add, tuple(torch.ones(2) for _ in "xyz")))
    assert [line.strip() for line in text.splitlines() if "p_apart(" in line] == ["p_apart(f, 1, 0);", "p_apart(f, 1, 2);"]
