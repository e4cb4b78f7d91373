"""What is kept of a table of small programs: all but what is listed with its reason."""

import os
import subprocess
import sys

import pytest
from tests.entries import kept_or_not

import pliant


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    with pliant.config.patch(strict=True):
        yield
    pliant.reset()


@pytest.mark.parametrize("name", kept_or_not.PROGRAMS)
def test_the_next_process_finds_what_is_not_listed(name, tmp_path):
    told = kept_or_not.processes(name, str(tmp_path))
    if told == ("kept", "a set of texts has another order here"):  # two of them collide by the hashes of this process
        command = [sys.executable, "-m", "tests.entries.kept_or_not", name]
        said = subprocess.check_output(command, text=True, env={**os.environ, "PYTHONHASHSEED": "1"})
        told = tuple(said.strip().partition(": ")[2].split(", "))
    if name not in kept_or_not.NOT_KEPT:
        assert told == ("kept", "found")
    else:
        assert told[0] == told[1] and told[0].startswith(kept_or_not.NOT_KEPT[name])
