"""The form of saved programs: names of members, versions, and how older ones become the present one.

Holds:  `FORMAT` counts changes of what `program.json` has, `OPERATORS` changes of what ATen operators mean that programs
        hold. Each has a table of steps from a version to the next; a file that is newer is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.errors import FileError

FORMAT, OPERATORS = 4, 1
PLAIN, CONTROL, OBJECTS = 1, 2, 3  # of programs without branches and loops, without objects among results, without what 4 has
TENSORS, PROGRAM, PACKAGE = "tensors", "program.json", "package.json"
ALIGNED = 64
LARGEST_PROGRAM = 1 << 28  # bytes of `program.json`

Json = Any
Upgrade = Callable[[dict[str, Json]], dict[str, Json]]
# version -> what makes a program of that version one of the next
FORMAT_STEPS: dict[int, Upgrade] = dict.fromkeys((1, 2, 3), lambda program: program)
OPERATOR_STEPS: dict[int, Upgrade] = {}


def upgraded(program: Json) -> dict[str, Json]:
    """The program in the present form."""
    if not isinstance(program, dict):
        raise FileError("the file holds no program", kind="damaged")
    program = _stepped(program, "format", FORMAT, FORMAT_STEPS)
    return _stepped(program, "operators", OPERATORS, OPERATOR_STEPS)


def _stepped(program: dict[str, Json], key: str, now: int, steps: dict[int, Upgrade]) -> dict[str, Json]:
    version = program.get(key)
    if type(version) is not int or version < 1:
        raise FileError(f"the file does not say which version of its {key} it has", kind="damaged")
    if version > now:
        made_by = program.get("made_by")
        raise FileError(
            f"the file is newer than this release: {key} {version}, and {now} is known", kind="version",
            why=f"it was made by {made_by}", do="update Pliant",
        )  # fmt: skip
    for one in range(version, now):
        program = steps[one](program)
    return {**program, key: now}
