"""The examples that call a library from C, C++ and Rust: they are built as their first lines say, and give the model's results."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples" / "standalone"
COMPILERS = {"caller.c": "gcc", "caller.cpp": "g++", "caller.rs": "rustc"}
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The folder of the library, and the model that it is of."""
    folder = tmp_path_factory.mktemp("library")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["make.py", str(folder)])
        return folder, runpy.run_path(str(EXAMPLES / "make.py"))["model"]


@pytest.mark.parametrize("name", COMPILERS)
def test_a_caller_prints_what_the_model_gives(name, library):
    if shutil.which(COMPILERS[name]) is None:
        pytest.skip(f"{COMPILERS[name]} is not installed")
    folder, model = library
    made, build, run = (EXAMPLES / name).read_text().splitlines()[0].strip("/* ").split("; ")
    assert made == "python make.py folder" and run == "./caller folder/weights"
    subprocess.run(build.replace("folder", str(folder)).replace("-o caller", f"-o {folder}/caller").split(), cwd=EXAMPLES, check=True)
    done = subprocess.run([folder / "caller", folder / "weights"], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]})
    elements = torch.arange(16.0).view(2, 8)
    with torch.no_grad():
        wanted = model(elements)[:, 0] if name == "caller.cpp" else model(elements * 0.1).flatten()
    found = torch.tensor([float(one) for one in re.findall(r"-?\d+\.\d+(?:e-?\d+)?|-?\d+", done.stdout)])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
