"""Count tests of a value's class: `python -m tools.class_tests [folder] [--of Class]`.

In:     a source folder (`src/pliant/capture` if none is given).
Out:    how often each file asks, and about which classes; with `--of`, each place that asks about that class.
"""

import argparse
import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path


def class_tests(tree: ast.AST) -> Iterator[tuple[ast.AST, list[str]]]:
    """Each `isinstance`, `issubclass` and comparison of a `type(...)`, with the names of the classes it asks about."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, asked]):
                yield node, _names(asked)
            case ast.Compare(left=ast.Call(func=ast.Name(id="type"), args=[_]), comparators=[asked]):
                yield node, _names(asked)
            case ast.MatchClass(cls=asked):
                yield node, _names(asked)


def _names(asked: ast.expr) -> list[str]:
    match asked:
        case ast.Tuple(elts=each) | ast.List(elts=each) | ast.Set(elts=each):
            return [name for one in each for name in _names(one)]
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _names(left) + _names(right)
    return [ast.unparse(asked)]


def main(root: Path, of: str | None) -> None:
    files: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    for path in sorted(root.rglob("*.py")):
        lines = path.read_text().splitlines()
        for node, names in class_tests(ast.parse("\n".join(lines))):
            files[str(path)] += 1
            classes.update(names)
            if of in names:
                print(f"{path}:{node.lineno}: {lines[node.lineno - 1].strip()}")  # type: ignore[attr-defined]
    if of is None:
        for title, counts in (("files", files), ("classes", classes)):
            print(f"{title}\n" + "\n".join(f"{n:>6}  {name}" for name, n in counts.most_common()))
    print(f"{sum(files.values())} tests of a class in {root}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path("src/pliant/capture"))
    parser.add_argument("--of")
    arguments = parser.parse_args()
    main(arguments.root, arguments.of)
