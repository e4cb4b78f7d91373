"""Classes registered with abstract ones: each process counts them, and only those that are asked about matter."""

import abc
import collections.abc
import importlib.machinery
import sys
import types

import pytest
import torch

import pliant
from pliant import background
from pliant.debug import events
from pliant.entries.content import digest
from pliant.guards.facts import CacheToken

X = torch.randn(4)


class Shape(abc.ABC):  # noqa: B024
    """What may be registered with."""


class Other(abc.ABC):  # noqa: B024
    """Of which nobody asks."""


class Square:
    """No shape, unless it is registered."""


def asked(x, what):
    return x * 2 if isinstance(what, Shape) else x + 1


def asked_of_class(x):
    return x * 2 if issubclass(Square, Shape) else x + 1


def asked_of_sequence(x, sizes):
    return x * len(sizes) if isinstance(sizes, collections.abc.Sequence) else x


@pytest.fixture(autouse=True)
def folder(tmp_path):
    pliant.reset()
    with pliant.config.patch(keep_entries=True, cache_dir=str(tmp_path / "cache"), strict=True):
        yield
    pliant.reset()


def called(fn, *args):
    """What a new dispatcher does."""
    events.reset()
    pliant.reset()
    compiled = pliant.compile(fn)  # which has the entry until it is written down
    result = compiled(*args)
    background.finish()
    torch.testing.assert_close(result, fn(*args))
    return pliant.stats()["entries"]


CALLS = [(asked, X, Square()), (asked_of_class, X), (asked_of_sequence, X, [1, 2])]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0].__name__)
def test_what_is_registered_elsewhere_does_not_matter(call):
    assert called(*call) == {"kept": 1}
    assert called(*call) == {"found": 1}
    before = abc.get_cache_token()
    Other.register(type("New", (), {}))
    assert abc.get_cache_token() != before
    assert called(*call) == {"found": 1}


@pytest.mark.parametrize("call", CALLS[:2], ids=lambda call: call[0].__name__)
def test_what_is_registered_with_the_class_matters(call, monkeypatch):
    class Fresh(abc.ABC):  # noqa: B024
        """In place of the other, so that no test finds what another one registered."""

    Fresh.__name__, Fresh.__qualname__ = "Shape", "Shape"
    monkeypatch.setattr(sys.modules[__name__], "Shape", Fresh)
    assert called(*call) == {"kept": 1}
    assert called(*call) == {"found": 1}
    Fresh.register(Square)
    assert "found" not in called(*call)
    assert called(*call) == {"found": 1}


def test_what_is_registered_after_an_entry_was_found_matters(monkeypatch):
    class Fresh(abc.ABC):  # noqa: B024
        """As above."""

    Fresh.__name__, Fresh.__qualname__ = "Shape", "Shape"
    monkeypatch.setattr(sys.modules[__name__], "Shape", Fresh)
    assert called(asked_of_class, X) == {"kept": 1}
    pliant.reset()
    compiled = pliant.compile(asked_of_class)
    torch.testing.assert_close(compiled(X), X + 1)
    Fresh.register(Square)
    torch.testing.assert_close(compiled(X), X * 2)


def test_what_an_extension_module_registers_for_itself_does_not_count(monkeypatch):
    """Its objects come with it; other classes, and those that it shows, count."""

    class Fresh(abc.ABC):  # noqa: B024
        """As above."""

    module = types.ModuleType("an_extension")
    module.__spec__ = importlib.machinery.ModuleSpec("an_extension", importlib.machinery.ExtensionFileLoader("an_extension", "/nowhere.so"))
    monkeypatch.setitem(sys.modules, "an_extension", module)
    hidden, shown = (type(name, (), {"__module__": "an_extension"}) for name in ("Hidden", "Shown"))
    module.Shown = shown
    before = digest(CacheToken(0, [Fresh]))
    Fresh.register(hidden)
    assert digest(CacheToken(0, [Fresh])) == before
    Fresh.register(shown)
    assert digest(CacheToken(0, [Fresh])) != before
