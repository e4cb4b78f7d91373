"""Values of the trace that vary: one table says what the program sees of each, whatever was imported before."""

import subprocess
import sys

import pliant.capture.tracer  # noqa: F401  # everything that capture knows
from pliant.capture.value_kinds import PLAIN_TYPES


def test_the_table_is_whole_from_the_start():
    program = "from pliant.capture.value_kinds import PLAIN_TYPES; print(*sorted(c.__name__ for c in PLAIN_TYPES))"
    shown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert shown.split() == sorted(cls.__name__ for cls in PLAIN_TYPES)
