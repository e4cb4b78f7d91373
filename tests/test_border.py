"""Pliant stands on eager PyTorch and never on the compiler stack it re-implements."""

import ast

import pytest

import architecture
import own_process

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


# One module may use one name: it gives users a program in PyTorch's form, and nothing of Pliant's is made with it.
CONVERTER, ITS_OWN = architecture.SOURCE / "pliant/exporting/torch_form/converter.py", "torch.export"


def is_forbidden(dotted: str) -> bool:
    return any(within(dotted, name) for name in FORBIDDEN)


def within(dotted: str, name: str) -> bool:
    return dotted == name or dotted.startswith(name + ".")


def is_exempt(file, dotted: str) -> bool:
    return file == CONVERTER and within(dotted, ITS_OWN)


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
    found = [str(e) for e in edges if is_forbidden(e.module) and not is_exempt(e.file, e.module)]
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
        uses = forbidden_uses(ast.parse(file.read_text()))
        found += [f"{file}:{line}: {what}" for line, what in uses if not is_exempt(file, what)]
    assert not found, "uses across the border:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text", ["torch.compile(f)", "torch._dynamo.reset()", "import_module('torch._inductor.config')", "torch.export.Dim"]
)
def test_the_check_sees_uses(text):
    assert list(forbidden_uses(ast.parse(text)))


def test_the_exemption_is_one_import_inside_one_function():
    tree = ast.parse(CONVERTER.read_text())
    inside = {id(one) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for one in ast.walk(f)}
    imports = [e for e in architecture.imports_of(CONVERTER) if is_forbidden(e.module)]
    assert [e.module for e in imports] == [ITS_OWN]
    assert all(id(n) in inside for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.lineno == imports[0].line)


@pytest.mark.parametrize("name", ["torch._dynamo", "torch._export", "torch.exports", "torch.fx.experimental"])
def test_the_exemption_is_no_wider(name):
    assert not is_exempt(CONVERTER, name) and not is_exempt(CONVERTER.with_name("exported.py"), ITS_OWN)


# Modules whose presence means that somebody else did the work.
PEER = ["torch._dynamo.convert_frame", "torch._dynamo.symbolic_convert", "torch._inductor.compile_fx",
        "torch._inductor.scheduler", "torch._functorch.aot_autograd", "torch.fx.experimental.proxy_tensor",
        "torch._subclasses.fake_tensor", "torch.export", "torch.fx.experimental.symbolic_shapes"]  # fmt: skip

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
    "export": """
program = pliant.export(torch.nn.Linear(4, 8), (torch.randn(3, 4),), dynamic_shapes=({0: pliant.Dim("n")},))
program(torch.randn(2, 4))
program.transform("dead_code").unflatten()
""",
    "training": """
m = pliant.compile(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8)))
for n in (2, 3, 5):
    m(torch.randn(n, 4)).sum().backward()
""",
    "training of several results": """
def f(x):
    return x.sigmoid(), x[0].tanh() * x.sigmoid()
first, second = pliant.compile(f)(torch.randn(4, 8, requires_grad=True))
(first.sum() + second.sum()).backward()
""",
}


@pytest.mark.parametrize("body", BODIES)
def test_nothing_of_the_peer_is_loaded(body, tmp_path):
    import pliant

    if BODIES[body] and not hasattr(pliant, "compile"):
        pytest.skip("pliant.compile is not there yet")
    program = PROGRAM.format(body=BODIES[body], peer=PEER)
    env = {**__import__("os").environ, "PLIANT_CACHE_DIR": str(tmp_path)}
    done = own_process.ran(program, env=env, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"
