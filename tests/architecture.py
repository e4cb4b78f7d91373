"""What the source imports, read with `ast`: shared by the tests of layers and of the border."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"


@dataclass(frozen=True)
class Import:
    """One imported name: `module` may be a module or a name inside one."""

    importer: str
    module: str
    file: Path
    line: int
    type_only: bool

    def __str__(self) -> str:
        return f"{self.file.relative_to(SOURCE.parent)}:{self.line}: {self.importer} -> {self.module}"


def module_name(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _imported(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            up = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*up, base]).rstrip(".")
        return [f"{base}.{alias.name}" for alias in node.names]
    return []


def imports_of(file: Path) -> Iterator[Import]:
    """Every import of a file, those inside functions too."""
    name = module_name(file)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]

    def visit(node: ast.AST, type_only: bool) -> Iterator[Import]:
        for module in _imported(node, package):
            yield Import(name, module, file, node.lineno, type_only)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, type_only or _is_type_checking(node))

    yield from visit(ast.parse(file.read_text()), False)


def modules_of_edge(edge: Import) -> str:
    """The module that an import reaches: `from a import b` reaches a.b if that is a module, else a."""
    path = SOURCE.joinpath(*edge.module.split("."))
    is_module = path.with_suffix(".py").exists() or (path / "__init__.py").exists()
    return edge.module if is_module else edge.module.rpartition(".")[0]


def cycles(files: list[Path]) -> list[list[str]]:
    """Sets of modules that import each other, at the top or inside functions; imports for type checkers don't count."""
    edges: dict[str, set[str]] = {module_name(file): set() for file in files}
    for file in files:
        for edge in imports_of(file):
            if not edge.type_only and edge.importer != (target := modules_of_edge(edge)) and target in edges:
                edges[edge.importer].add(target)
    reached = {module: _reached(module, edges) for module in edges}
    found = {frozenset(b for b in reached[a] if a in reached[b]) for a in edges if a in reached[a]}
    return sorted(sorted(one) for one in found)


def _reached(module: str, edges: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [module]
    while waiting:
        new = edges[waiting.pop()] - found
        found |= new
        waiting += new
    return found
