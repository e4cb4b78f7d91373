"""The smallest program that is left of a random one when statements are taken out as long as it still disagrees.

`python -m tests.capture.fuzz_reduce SEED [--theme NAME]` prints it, with `--python` one of `fuzz_python`. What all programs start
with (`fuzz_prelude`, or the grammar's) stays.
"""

import argparse
import ast
import functools
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.capture import fuzz_programs, fuzz_python
from tests.capture.fuzz_themes import NAMED

import pliant

BODIES = ("body", "orelse", "finalbody", "handlers")
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


class Reducer:
    """Takes out statements, the largest runs first, and levels of nesting, while `is_wanted(text)` holds."""

    def __init__(self, text: str, is_wanted: Callable[[str], bool]) -> None:
        self.tree = ast.parse(text)
        self.is_wanted = is_wanted
        self.tried: set[str] = set()
        self.added = [node for node in self.tree.body if re.fullmatch(r"[fgh]\d*", getattr(node, "name", "")) or self._has_class(node)]

    @staticmethod
    def _has_class(node: ast.AST) -> bool:
        return isinstance(node, ast.Try) and isinstance(node.body[0], ast.ClassDef)

    @property
    def added_text(self) -> str:
        return "\n\n".join(map(ast.unparse, self.added))

    @property
    def text(self) -> str:
        return ast.unparse(ast.fix_missing_locations(self.tree))

    def reduce(self) -> str:
        before = ""
        while before != self.text:
            before = self.text
            for function in self.added:
                self._reduce_lists(function)
        return before

    def _reduce_lists(self, node: ast.AST) -> None:
        for name in BODIES:
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                self._take_out_runs(statements, ast.Pass() if name == "body" else None)
                self._take_out_nesting(statements)
                for inner in statements:
                    self._reduce_lists(inner)

    def _take_out_runs(self, statements: list, least: ast.stmt | None) -> None:
        size = len(statements)
        while size:
            for start in range((len(statements) - 1) // size * size, -1, -size):
                self._try(statements, statements[:start] + statements[start + size :] or [least] * (least is not None))
            size //= 2

    def _take_out_nesting(self, statements: list) -> None:
        for index in range(len(statements) - 1, -1, -1):
            if not isinstance(statements[index], (*DEFINITIONS, ast.ExceptHandler)):
                for name in BODIES[:3]:
                    if inner := getattr(statements[index], name, None):
                        if self._try(statements, statements[:index] + inner + statements[index + 1 :]):
                            break

    def _try(self, statements: list, fewer: list) -> bool:
        whole = statements[:]
        statements[:] = fewer
        text = self.text
        if text not in self.tried:
            self.tried.add(text)
            if self.is_wanted(text):
                return True
        statements[:] = whole
        return False


def outcome(text: str, disagreement: Callable[[str], str]) -> str:
    """What is wrong with the program: the type of the compiler's error, what each did (`raised`, `returned`), or nothing.

    A program that raises in eager too must not stand for one that only the compiler lets fail.
    """
    try:
        compile(text, "<program>", "exec")
        with pliant.config.patch(strict=True), warnings.catch_warnings(action="ignore"):
            found = disagreement(text)
            if found.startswith("seed") and "+++ compiled" in found:  # of `fuzz_python`: the first line that differs
                return "differs " + re.sub(r"\d+", "", next(re.finditer(r"^[-+](?![-+]{2})(.{0,25})", found, re.M))[0])
            return found and "differs " + " ".join(
                re.findall(r"^(?: got|want) \('(?:raised|returned)'.{0,20}", found, re.M)
            )
    except Exception as error:
        return type(error).__name__


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--theme", default="", choices=("", *NAMED))
    parser.add_argument("--python", action="store_true")
    parser.add_argument("--file", type=Path, help="write it with the classes and functions that it uses here")
    options = parser.parse_args()
    seed, how = options.seed, {} if options.python else {"theme": options.theme}
    fuzzer: Any = fuzz_python if options.python else fuzz_programs
    text = fuzzer.program_of(seed, **how)
    asked = functools.partial(outcome, disagreement=lambda t: fuzzer.disagreement(seed, options.backend, t, **how))
    wanted = asked(text)
    if not wanted:
        raise SystemExit(f"seed {options.seed} agrees")
    reducer = Reducer(text, lambda t: asked(t) == wanted)
    left = reducer.reduce()
    print(reducer.added_text)
    if options.file is not None:
        options.file.write_text(left)


if __name__ == "__main__":
    main()
