"""Pliant stands on eager PyTorch and never on the compiler stack it re-implements."""

import ast
import subprocess
import sys

import pytest

import architecture

FORBIDDEN = (
    "torch._dynamo",
    "torch._inductor",
    "torch._functorch",
    "torch.export",
    "torch._export",
    "torch.fx.experimental",
    "torch._subclasses",
    "torch._C._dynamo",
    "torch.compile",
)


def is_forbidden(dotted: str) -> bool:
    return any(dotted == name or dotted.startswith(name + ".") for name in FORBIDDEN)


def dotted_name(node: ast.AST) -> str:
    """`a.b.c` for an attribute chain, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def test_no_forbidden_import():
    edges = [e for f in architecture.sources() for e in architecture.imports_of(f)]
    found = [str(e) for e in edges if is_forbidden(e.module)]
    assert not found, "imports across the border:\n" + "\n".join(found)


def forbidden_uses(tree: ast.AST):
    """Attribute chains that reach into a forbidden module (`torch._dynamo.x`), and imports by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_forbidden(dotted_name(node)):
            yield node.lineno, dotted_name(node)
        if isinstance(node, ast.Call) and dotted_name(node.func).split(".")[-1] in ("import_module", "__import__"):
            for arg in node.args:
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str) and is_forbidden(arg.value):
                    yield node.lineno, f"import of {arg.value!r}"


def test_no_forbidden_use():
    found = []
    for file in architecture.sources():
        found += [f"{file}:{line}: {what}" for line, what in forbidden_uses(ast.parse(file.read_text()))]
    assert not found, "uses across the border:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text", ["torch.compile(f)", "torch._dynamo.reset()", "import_module('torch._inductor.config')", "torch.export.Dim"]
)
def test_the_check_sees_uses(text):
    assert list(forbidden_uses(ast.parse(text)))


# Modules whose presence means that somebody else did the work.
PEER = ["torch._dynamo.convert_frame", "torch._dynamo.symbolic_convert", "torch._inductor.compile_fx",
        "torch._inductor.scheduler", "torch._functorch.aot_autograd", "torch.fx.experimental.proxy_tensor",
        "torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes"]  # fmt: skip

PROGRAM = """
import sys, torch
before = set(sys.modules)
import pliant
{body}
print([m for m in {peer} if m in sys.modules and m not in before])
"""

BODIES = {
    "import": "",
    "inference": """
def f(x):
    return torch.relu(x @ x.T).sum(-1)
with torch.no_grad():
    pliant.compile(f)(torch.randn(4, 8))
""",
    "training": """
m = pliant.compile(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8)))
for n in (2, 3, 5):
    m(torch.randn(n, 4)).sum().backward()
""",
}


@pytest.mark.parametrize("body", BODIES)
def test_nothing_of_the_peer_is_loaded(body, tmp_path):
    import pliant

    if BODIES[body] and not hasattr(pliant, "compile"):
        pytest.skip("pliant.compile is not there yet")
    program = PROGRAM.format(body=BODIES[body], peer=PEER)
    env = {**__import__("os").environ, "PLIANT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "[]"
