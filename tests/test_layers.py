"""A module imports only leftwards: one order of layers for the whole package, and no circle inside a layer."""

from pathlib import Path

import pytest

import architecture

# From left to right. Modules of one row may import each other freely if they share a package, else only leftwards.
# A name stands for itself and what is below it; the longest match decides.
LAYERS: list[tuple[str, ...]] = [
    ("unpatched",),
    ("background", "own_modules", "records", "regular", "tables"),
    ("arity",),
    ("errors", "gc_pause", "option_types", "autograd_torch_adapter", "distributed_torch_adapter", "operators_torch_adapter"),
    ("interruptions",),
    ("config", "source", "torch_adapter", "cpython", "peer"),
    ("debug.events", "reached_objects", "saved_hooks", "set_orders"),
    ("targets", "wrappers", "together"),
    ("symbolic",),
    ("graph",),
    ("guards",),
    ("autograd",),
    ("patterns",),
    ("bytecode",),
    ("dispatch.dim_marks",),
    ("dispatch.entry", "dispatch.roots", "dispatch.markers", "dispatch.dynamic_policy", "dispatch.own_frames"),
    ("polyfills",),
    ("dispatch.tracebacks",),
    ("dispatch.running_frames",),
    ("capture",),
    ("dispatch",),
    ("debug.flops",),
    ("ir",),
    ("lowering",),
    ("schedule",),
    ("codegen",),
    ("cache",),
    ("runtime",),
    ("entries",),
    ("debug.cost",),
    ("exporting", "distributed", "debug"),
    ("report",),
    ("compiler",),
    ("backends",),
    ("api",),
    ("",),  # pliant/__init__.py
    ("__main__",),
]

# Edges between neighbours of one row that are meant, e.g. config -> torch_adapter.
ALLOWED = {("config", "torch_adapter"), ("source", "torch_adapter"), ("peer", "torch_adapter")}

# Packages of the project that only re-export: importing `pliant.debug` loads nothing.
RANK = {name: i for i, row in enumerate(LAYERS) for name in row}


def layer_of(module: str) -> str | None:
    """The layer's name, or None for a module that no layer names."""
    short = module.removeprefix("pliant").lstrip(".")
    parts = short.split(".")
    for n in range(len(parts), 0, -1):
        if ".".join(parts[:n]) in RANK:
            return ".".join(parts[:n])
    return "" if short == "" else None


def offending_edges(files: list[Path]) -> list[str]:
    found = []
    for file in files:
        for edge in architecture.imports_of(file):
            if edge.module.split(".")[0] != "pliant":
                continue
            source, target = layer_of(edge.importer), layer_of(architecture.modules_of_edge(edge))
            if source is None or target is None:
                found.append(f"{edge}  (no layer named: add it to LAYERS)")
            elif source != target and RANK[target] >= RANK[source] and (source, target) not in ALLOWED:
                found.append(f"{edge}  ({source or 'pliant'} must not import {target or 'pliant'})")
    return found


def test_imports_go_leftwards():
    found = offending_edges(architecture.sources())
    assert not found, "imports against the order of layers:\n" + "\n".join(found)


def test_no_modules_import_each_other():
    found = architecture.cycles(architecture.sources())
    assert not found, "circles of imports:\n" + "\n".join(" ".join(one) for one in found)


@pytest.mark.parametrize(
    ("texts", "circles"),
    [
        ({"a": "from pliant import b", "b": "from pliant.a import f"}, [["pliant.a", "pliant.b"]]),
        ({"a": "def f():\n    import pliant.b", "b": "import pliant.a"}, [["pliant.a", "pliant.b"]]),
        ({"a": "import pliant.b", "b": "import pliant.c", "c": "from pliant.a import f, g"}, [["pliant.a", "pliant.b", "pliant.c"]]),
        ({"a": "import pliant.b", "b": "if TYPE_CHECKING:\n    import pliant.a"}, []),
        ({"a": "from pliant.b import a", "b": ""}, []),
    ],
)  # fmt: skip
def test_the_check_sees_circles(texts, circles, tmp_path, monkeypatch):
    (tmp_path / "pliant").mkdir()
    for name, text in texts.items():
        (tmp_path / "pliant" / f"{name}.py").write_text(text)
    monkeypatch.setattr(architecture, "SOURCE", tmp_path)
    assert architecture.cycles(architecture.sources()) == circles


def test_every_module_has_a_layer():
    homeless = [n for f in architecture.sources() if layer_of(n := architecture.module_name(f)) is None]
    assert not homeless, f"modules that no layer names: {homeless}"


@pytest.mark.parametrize(
    ("importer", "text", "offends"),
    [
        ("ir/probe.py", "from pliant.lowering import registry", True),
        ("ir/probe.py", "def f():\n    import pliant.capture.trace", False),
        ("symbolic/probe.py", "def f():\n    from pliant import api", True),
        ("symbolic/probe.py", "from ..graph import contracts", True),
        ("graph/probe.py", "from pliant.debug import events", False),
        ("graph/probe.py", "from pliant.debug import repro", True),
        ("guards/probe.py", "import pliant.capture.trace", True),
    ],
)
def test_the_check_sees_bad_edges(importer, text, offends, tmp_path, monkeypatch):
    """The check itself: an edge to the right is found wherever it hides."""
    for name in ["lowering", "capture", "graph", "debug", "ir", "symbolic", "guards"]:
        (tmp_path / "pliant" / name).mkdir(parents=True)
        (tmp_path / "pliant" / name / "__init__.py").touch()
    for name in ["debug/repro.py", "debug/events.py", "api.py", "capture/trace.py"]:
        (tmp_path / "pliant" / name).touch()
    probe = tmp_path / "pliant" / importer
    probe.write_text(text)
    monkeypatch.setattr(architecture, "SOURCE", tmp_path)
    assert bool(offending_edges([probe])) == offends
