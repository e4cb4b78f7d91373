"""The form of saved programs: names of members, versions, and how older ones become the present one.

Holds:  `FORMAT` counts changes of what `program.json` has, `OPERATORS` changes of what ATen operators mean that programs
        hold, `PACKAGES` changes of `package.json`. Each has a table of steps from a version to the next; a file that is newer
        is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.errors import FileError

FORMAT, OPERATORS = 4, 1
PACKAGES = 2  # of `package.json`
PLAIN, CONTROL, OBJECTS = 1, 2, 3  # of programs without branches and loops, without objects among results, without what 4 has
TENSORS, PROGRAM, PACKAGE = "tensors", "program.json", "package.json"
KERNELS, CUBINS = "kernels", "cubins"  # folders of the archive, and stores of built code
ALIGNED = 64
LARGEST_PROGRAM = 1 << 28  # bytes of `program.json`

Json = Any
Upgrade = Callable[[dict[str, Json]], dict[str, Json]]
# version -> what makes a program of that version one of the next
FORMAT_STEPS: dict[int, Upgrade] = dict.fromkeys((1, 2, 3), lambda program: program)
OPERATOR_STEPS: dict[int, Upgrade] = {}


def _of_one_processor(package: dict[str, Json]) -> dict[str, Json]:
    """The first version had kernels of one processor, and did not say its version."""
    made_for, entries = dict(package["made_for"]), package["entries"]
    model = made_for.pop("processor")
    processor = {"name": "native", "architecture": model.split()[0], "features": [], "model": model, "vector_math": False}
    variant = {"processor": processor, "gpu": None, "run": package["run"], "bodies": package["bodies"], "kernels": entries,
               "cubins": [], "shared": {"runtime": entries[-1]}}  # fmt: skip
    return {"version": 1, "made_for": made_for, "variants": [variant]}


PACKAGE_STEPS: dict[int, Upgrade] = {1: _of_one_processor}


def upgraded(program: Json) -> dict[str, Json]:
    """The program in the present form."""
    if not isinstance(program, dict):
        raise FileError("the file holds no program", kind="damaged")
    program = _stepped(program, "format", FORMAT, FORMAT_STEPS)
    return _stepped(program, "operators", OPERATORS, OPERATOR_STEPS)


def upgraded_package(package: Json) -> dict[str, Json]:
    """What `package.json` says in the present form."""
    if not isinstance(package, dict):
        raise FileError("the file has no list of its kernels", kind="damaged")
    return _stepped({"version": 1, **package}, "version", PACKAGES, PACKAGE_STEPS)


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
