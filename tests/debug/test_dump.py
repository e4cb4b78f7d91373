"""Printed forms of stages on the terminal and as files."""

import os
import subprocess
import sys

import pytest

from pliant.debug import dump, events

PROGRAM = """
from pliant.debug import dump, events
dump.install()
for kind in ("joint", "loops"):
    if events.wants(kind):
        events.record(kind, name="f.<lambda>", text=f"text of {kind}")
"""


def run(**env):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **env}, capture_output=True, text=True, check=True
    ).stderr


def test_nothing_listens_by_default():
    assert run(PLIANT_DEBUG="", PLIANT_DEBUG_DIR="") == ""


def test_stages_are_printed():
    seen = run(PLIANT_DEBUG="loops")
    assert seen.startswith("-- loops f.<lambda> ---") and seen.endswith("\ntext of loops\n")
    assert "joint" not in seen
    assert "text of joint" in run(PLIANT_DEBUG="aot")


def test_one_numbered_file_a_stage(tmp_path):
    run(PLIANT_DEBUG_DIR=str(tmp_path / "new"))
    files = sorted((tmp_path / "new").iterdir())
    assert [f.name for f in files] == ["0000-f_lambda_-04-joint.py", "0001-f_lambda_-07-loops.ir"]
    assert files[0].read_text() == "text of joint\n"


def test_unknown_stages_are_refused():
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(PLIANT_DEBUG="gards")
    assert "unknown stage `gards`" in failed.value.stderr


def test_every_kind_of_file_is_a_kind_of_event():
    assert set(dump.FILES) <= set(events.KINDS)


def test_guards_of_a_program_share_a_file(tmp_path):
    for name, text in (("f", "one"), ("f", "two"), ("g", "three")):
        dump.write_event(tmp_path, events.Event("guard", 0.0, 0, {"name": name, "text": text, "where": "f.py:1"}))
    assert [len(one.read_text().splitlines()) for one in sorted(tmp_path.iterdir())] == [2, 1]
