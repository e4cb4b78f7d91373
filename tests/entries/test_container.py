"""The example of a container: what is compiled on one machine serves on another, without a compiler, for another user's home."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

import pliant

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "container" / "serve.py"


def ran(home, package, what, bundle, **more):
    home.mkdir()
    libraries = str(Path(torch.__file__).parents[1])
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "SYSTEMROOT") if name in os.environ}
    environment = {**kept, "PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": os.pathsep.join([str(package), libraries]), **more}
    command = [sys.executable, str(PROGRAM), what, str(bundle)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=home)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_bundle_serves_where_the_package_lies_elsewhere_and_there_is_no_compiler(tmp_path):
    here, there = Path(pliant.__file__).parents[1], tmp_path / "elsewhere"
    shutil.copytree(here / "pliant", there / "pliant", ignore=shutil.ignore_patterns("__pycache__"))
    bundle = tmp_path / "bundle.tgz"
    assert "entries {'kept': 1}" in ran(tmp_path / "builder", here, "build", bundle)
    assert "entries {'found': 1}" in ran(tmp_path / "server", there, "run", bundle, PATH="/nowhere")
