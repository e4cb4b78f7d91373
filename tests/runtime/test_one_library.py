"""What any compiled code of a process needs is one library: compiled once, while the stages are loaded."""

import os
import sys
from pathlib import Path

import own_process
from pliant.guards.watch_in_c import C_TEXT
from pliant.runtime.load import process_text
from pliant.wrappers.shared_text import runtime_text

PROGRAM = """
import torch, pliant
from pliant import background
commands = []
started = background._started
background._started = lambda command: commands.append(command) or started(command)
compiled = pliant.compile(lambda x: (x * 2 + 1).relu())
with torch.no_grad():
    x = torch.randn(100)
    for _ in range(3):
        assert torch.equal(compiled(x), (x * 2 + 1).relu())
from pliant.guards import native_watch
assert native_watch.available()
background.finish()
print(len(commands), sum("-c" in command for command in commands), sum(command[-2:-1] == ["-o"] for command in commands))
"""


def test_a_small_function_takes_one_library_and_its_own(tmp_path):
    """Its own is compiled and linked: three commands."""
    environment = {**os.environ, "PLIANT_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = own_process.ran(PROGRAM, env=environment, cwd=Path(__file__).parents[2], check=True)
    assert done.stdout.split() == ["3", "1", "3"]


def test_it_has_both_parts():
    assert process_text() == runtime_text() + C_TEXT
