"""`python -m pliant.report PAGE SCRIPT [ARGUMENTS]`: runs a script, or `-m MODULE`, and writes the page when it ends."""

import os
import runpy
import sys

from pliant.report.writing import to

_USAGE = """usage: python -m pliant.report [--profile] PAGE.html SCRIPT [ARGUMENTS]
       python -m pliant.report [--profile] PAGE.html -m MODULE [ARGUMENTS]"""


def main(arguments: list[str]) -> int:
    profile = arguments[:1] == ["--profile"]
    page, *command = arguments[profile:] or [""]
    if not command or page.startswith("-") or command == ["-m"] or command[0].startswith("-") and command[0] != "-m":
        print(_USAGE, file=sys.stderr)
        return 2
    page = os.path.abspath(page)  # the script may go elsewhere
    with to(page, profile=profile, title=" ".join(command)):
        try:
            _run(command)
        finally:
            print(f"pliant: the report is {page}", file=sys.stderr)
    return 0


def _run(command: list[str]) -> None:
    """As Python runs a command line."""
    if command[0] == "-m":
        sys.argv = command[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = command
    sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
    runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
