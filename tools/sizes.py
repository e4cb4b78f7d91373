"""Print lines per folder and the longest functions and files: `python -m tools.sizes [folder]`.

In:     a source folder (`src/pliant` if none is given).
Out:    a table on stdout; nothing is judged here.
"""

import ast
import statistics
import sys
from collections import defaultdict
from pathlib import Path


def functions(tree: ast.AST) -> list[tuple[int, int, str]]:
    """(lines, first line, name) of every function."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [n for n in ast.walk(tree) if isinstance(n, kinds)]
    return [((n.end_lineno or n.lineno) - n.lineno + 1, n.lineno, n.name) for n in found]


def main(root: Path) -> None:
    lines: dict[str, int] = defaultdict(int)
    lengths: dict[str, list[int]] = defaultdict(list)
    longest: list[tuple[int, str]] = []
    files: list[tuple[int, str]] = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text()
        parts = path.relative_to(root).parts
        folder = parts[0] if len(parts) > 1 else "."
        count = text.count("\n")
        lines[folder] += count
        files.append((count, str(path)))
        for length, line, name in functions(ast.parse(text)):
            lengths[folder].append(length)
            longest.append((length, f"{path}:{line} {name}"))
    print(f"{'folder':<16}{'lines':>8}{'functions':>11}{'mean':>7}{'> 30':>6}{'> 60':>6}")
    for folder in sorted(lines):
        print(_row(folder, lines[folder], lengths[folder]))
    print(_row("all", sum(lines.values()), [n for each in lengths.values() for n in each]))
    print("\nlongest functions\n" + "\n".join(f"{n:>6}  {name}" for n, name in sorted(longest, reverse=True)[:15]))
    print("\nlongest files\n" + "\n".join(f"{n:>6}  {name}" for n, name in sorted(files, reverse=True)[:10]))


def _row(name: str, lines: int, lengths: list[int]) -> str:
    mean = statistics.fmean(lengths) if lengths else 0.0
    over = [sum(n > limit for n in lengths) for limit in (30, 60)]
    return f"{name:<16}{lines:>8}{len(lengths):>11}{mean:>7.1f}{over[0]:>6}{over[1]:>6}"


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "src/pliant"))
