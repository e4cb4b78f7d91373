"""Processes that order sets otherwise write the same entry, and find each other's."""

import json
import os
import subprocess
import sys
from pathlib import Path

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
