"""Processes that order sets otherwise write the same entry, and find each other's."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.entries import same_text

PROGRAM = """
import hashlib, json, pathlib, sys, torch
import pliant
from tests.entries import programs
compiled = pliant.compile(programs.WithSets())
with torch.no_grad():
    compiled(torch.ones(4, 4))
pliant.background.finish()
files = pathlib.Path(sys.argv[1]).glob("v1/*/*/*/data*")
texts = {f"{file.parents[2].name}/{file.parent.name}": hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
print(json.dumps([pliant.stats()["entries"], texts]))
"""


def ran(seed, folder):
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PLIANT_KEEP_ENTRIES": "1", "PLIANT_CACHE_DIR": str(folder)}
    root = Path(__file__).parents[2]
    environment["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, [environment.get("PYTHONPATH")])])
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_seeds_of_hashes_change_nothing(tmp_path):
    counts, texts = ran(1, tmp_path / "one")
    assert counts == {"kept": 1}
    assert ran(2, tmp_path / "other") == [{"kept": 1}, texts]
    counts, after = ran(3, tmp_path / "one")
    assert counts == {"found": 1} and after == texts


def test_what_ran_before_changes_nothing(tmp_path):
    """`python -m tests.entries.same_text --public ...` does the same with public models."""
    found = same_text.both(["function", "gru"], ["training"], tmp_path)
    assert len(found) == 2
    for one, other in found.values():
        assert isinstance(one, dict) and len(one) > 1 and not same_text.different(one, other)
    assert not same_text.differing(found)
    assert same_text.differing({"a": [{"x": "1", "y": "2"}, {"x": "1", "y": "3"}], "b": [{}, {}]}) == {"a": ["y"]}
