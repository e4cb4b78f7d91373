"""The script that says whether a change may land: its status is that of the tests, and pytest's closing line comes last."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "run"


@pytest.mark.parametrize(("ends", "line"), [(0, "2 passed in 0.10s"), (1, "1 failed, 1 passed, 3 skipped in 61.20s (0:01:01)")])
def test_its_status_is_that_of_the_tests(ends, line, tmp_path):
    copied = tmp_path / ".ci" / "run"
    copied.parent.mkdir()
    shutil.copy(SCRIPT, copied)
    (tmp_path / "Makefile").write_text(f"test:\n\t@echo 'a test says 1 passed'; echo '{line}'; echo later; exit {ends}\n")
    done = subprocess.run([copied], capture_output=True, text=True, timeout=60)
    assert bool(done.returncode) is bool(ends)
    assert done.stdout.splitlines()[-1] == line
