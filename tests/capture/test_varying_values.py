"""Values of the trace that vary: one table says what the program sees of each, whatever was imported before."""

import own_process
import pliant.capture.tracer  # noqa: F401  # everything that capture knows
from pliant.capture.value_kinds import PLAIN_TYPES


def test_the_table_is_whole_from_the_start():
    program = "from pliant.capture.value_kinds import PLAIN_TYPES; print(*sorted(c.__name__ for c in PLAIN_TYPES))"
    assert own_process.ran(program, check=True).stdout.split() == sorted(cls.__name__ for cls in PLAIN_TYPES)
