"""Imports inside compiled functions."""

import sys
import textwrap

import pytest
import torch

import pliant


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a part that is not loaded, which notes when it is."""
    folder = tmp_path / "a_package_to_import"
    folder.mkdir()
    (folder / "__init__.py").write_text("loaded = []\nfactor = 2\n")
    (folder / "part.py").write_text(
        textwrap.dedent("""
            import torch
            from . import factor, loaded
            loaded.append(factor)
            weight = torch.ones(3) * factor
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("a_package_to_import")
    for name in [n for n in sys.modules if n.startswith("a_package_to_import")]:
        del sys.modules[name]
    pliant.reset()


def in_a_function(x):
    from a_package_to_import import part

    return x * part.weight


def in_full(x):
    import a_package_to_import.part

    return x * a_package_to_import.part.weight


@pytest.mark.parametrize("function", [in_a_function, in_full])
def test_a_module_that_is_not_loaded_is_no_break(package, function, monkeypatch):
    monkeypatch.setattr("pliant.capture.opcodes.names._tried", set())
    pliant.reset()
    compiled, x = pliant.compile(function, backend="eager"), torch.arange(3.0)
    assert torch.equal(compiled(x), 2 * x) and torch.equal(compiled(x), 2 * x)
    stats = pliant.stats()
    assert package.loaded == [2] and type(package.part.weight) is torch.Tensor
    assert (stats["graphs"], stats["graph_breaks"], stats["fallbacks"]) == (1, 0, 0)


def test_what_it_could_notice_comes_first(package, monkeypatch):
    monkeypatch.setattr("pliant.capture.opcodes.names._tried", set())

    def function(x):
        package.factor = 5
        from a_package_to_import import part

        return x * part.weight

    x = torch.arange(3.0)
    assert torch.equal(pliant.compile(function, backend="eager")(x), 5 * x)
    assert package.loaded == [5]


def test_a_module_that_does_not_exist():
    def function(x):
        try:
            from a_package_that_is_not_there import anything
        except ImportError:
            return x + 1
        return anything(x)

    x = torch.arange(3.0)
    assert torch.equal(pliant.compile(function, backend="eager")(x), x + 1)
    pliant.reset()


def test_relative_imports():
    namespace = {"__name__": "torch.nn.modules.added", "__package__": "torch.nn.modules"}
    text = """
        def program(x):
            from . import activation
            from .linear import Linear
            from .. import functional
            from ...utils import data
            return functional.relu(x), activation.__name__, Linear.__name__, data.__name__
    """
    exec(textwrap.dedent(text), namespace)
    compiled = pliant.compile(namespace["program"], backend="eager", fullgraph=True)
    assert compiled(torch.ones(2))[1:] == namespace["program"](torch.ones(2))[1:]
