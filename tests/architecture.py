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
