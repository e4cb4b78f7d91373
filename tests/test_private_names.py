"""Private names of torch stand in the adapter alone (`*torch_adapter.py`), so that a new torch release breaks these files."""

import ast
from collections.abc import Iterator

import pytest

import architecture

# Modules with an underscore that Pliant stands on, whose public names are an interface; what they hide is not.
STOOD_ON = ("torch.utils._pytree", "torch.utils._python_dispatch", "torch._decomp", "torch._refs", "torch._prims_common")
# Operators are called by their names, which schemas define; an underscore says how they are dispatched.
OPERATORS = "torch.ops."


def is_private(dotted: str) -> bool:
    """Whether a part of the name begins with an underscore. Special methods are Python's own names."""
    if dotted.startswith(OPERATORS):
        return False
    known = next((name for name in STOOD_ON if dotted == name or dotted.startswith(name + ".")), "torch")
    return any(part.startswith("_") and not part.startswith("__") for part in dotted[len(known) :].split("."))


def names_of_torch(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of what a module imports from torch, reads of it, and names in texts that are such a name."""
    known = {"torch": "torch"}

    def dotted(node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            return known.get(node.id)
        base = dotted(node.value) if isinstance(node, ast.Attribute) else None
        return base and f"{base}.{node.attr}"

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "torch":
                    yield node.lineno, alias.name
                    known[alias.asname or "torch"] = alias.name if alias.asname else "torch"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):  # names that stand for others: `aten = torch.ops.aten`
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (found := dotted(node.value)):
            known.setdefault(node.targets[0].id, found)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (found := dotted(node)):
            yield node.lineno, found
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("torch."):
            if all(part.isidentifier() for part in node.value.split(".")):
                yield node.lineno, node.value


def private_names(text: str) -> list[tuple[int, str]]:
    return sorted({(line, name) for line, name in names_of_torch(ast.parse(text)) if is_private(name)})


def test_private_names_of_torch_are_in_the_adapter():
    files = [file for file in architecture.sources() if not architecture.module_name(file).endswith("torch_adapter")]
    found = [f"{file}:{line}: {name}" for file in files for line, name in private_names(file.read_text())]
    assert not found, "private names of torch outside the adapter:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch\ntorch._C._set_grad_enabled(True)", ["torch._C", "torch._C._set_grad_enabled"]),
        ("from torch._ops import OpOverload", ["torch._ops.OpOverload"]),
        ("from torch import _C as c\nc.f()", ["torch._C", "torch._C.f"]),
        ("import torch._numpy as np\nnp.sum", ["torch._numpy", "torch._numpy.sum"]),
        ("from torch.optim import optimizer as base\nbase._hooks", ["torch.optim.optimizer._hooks"]),
        ("from torch.utils._pytree import tree_map, _flatten", ["torch.utils._pytree._flatten"]),
        ("import torch\nt = torch.Tensor\nt._make_subclass", ["torch.Tensor._make_subclass"]),
        ("import torch\naten = torch.ops.aten\naten._to_copy.default, torch.Tensor.__hash__", []),
        ("names = 'torch._dynamo.eval_frame'", ["torch._dynamo.eval_frame"]),
        ("advice = 'state it with torch._check(...)'", []),
    ],
)
def test_the_check_sees_private_names(text, expected):
    assert [name for _, name in private_names(text)] == expected
