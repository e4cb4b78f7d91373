"""Small programs, by what they are made of (`kept_or_not.txt`): which entries another process finds, and which are not kept, and why.

    python -m tests.entries.kept_or_not [name ...]
"""

from __future__ import annotations

import sys
import tempfile
import textwrap
from pathlib import Path

from tests.entries.changes import Change, keeping, load, process_of


def _read() -> dict[str, str]:
    blocks = Path(__file__).with_suffix(".txt").read_text().split("\n\n")[1:]
    named = (block.partition("\n") for block in blocks)
    return {name: textwrap.dedent(body) for name, _, body in named}


PROGRAMS = _read()

# What is not kept, and the reason that is counted.
NOT_KEPT = {
    "identity number": "process-bound",
}
if sys.version_info >= (3, 13):  # which asks the class by a descriptor that has no name
    NOT_KEPT["single dispatch of methods"] = "no-name"


def processes(name: str, folder: str) -> tuple[str, str]:
    """What two processes of the program tell: "kept" and "found", or why it is not."""
    said = []
    change = Change("import contextlib\n" + PROGRAMS[name], "", "")
    with keeping(folder):
        for word in ("kept", "found"):
            told = process_of(lambda: load(change, ""))
            assert not told.wrong, told.wrong
            # A body of control flow may find what another of the process has just kept.
            done = "kept" if "kept" in told.entries else "found"
            said.append("; ".join(told.why) or (done if word == done else str(told.entries)))
    return said[0], said[1]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or PROGRAMS:
            print(f"{name}: {', '.join(dict.fromkeys(processes(name, folder)))}", flush=True)


if __name__ == "__main__":
    main()
