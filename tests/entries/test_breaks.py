"""Entries of functions with graph breaks, and of what follows the breaks."""

import threading
import traceback

import pytest
import torch
from tests.entries import programs_that_break as programs

import pliant
from pliant import background
from pliant.debug import events
from pliant.dispatch.compiled_function import dispatcher_of

X = torch.linspace(-1, 1, 12).view(3, 4)


@pytest.fixture(autouse=True)
def folder(tmp_path):
    pliant.reset()
    with pliant.config.patch(keep_entries=True, cache_dir=str(tmp_path / "cache"), strict=True):
        yield tmp_path / "cache"
        background.finish()
    pliant.reset()


def told(kind):
    return [event.fields for event in events.events(kind)]


def called(fn, *args):
    """Compiled and called by a dispatcher of its own: the result, which is eager's, and how often something was captured."""
    events.reset()
    expected, said = outcome(fn, *args)
    compiled = pliant.compile(fn)
    found, says = outcome(compiled, *args)
    background.finish()
    torch.testing.assert_close(found, expected)
    assert says == said
    return len(events.events("capture"))


def outcome(fn, *args):
    programs.SAID.clear()
    try:
        result = fn(*(a.clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args))
    except ValueError as error:
        result = torch.tensor(traceback.extract_tb(error.__traceback__)[-1].lineno)
    return result, list(programs.SAID)


CALLS = {
    "break": (programs.once, X),
    "in a call": (programs.outer, X),
    "in a method": (programs.Model(), X),
    "in a closure": (programs.make(2.0), X),
    "in a loop": (programs.looping, X, [1.0, 2.0, 3.0]),
    "with super": (programs.Derived(), X),
    "in a comprehension's function": (programs.nested, X),
    "writes": (programs.writing, X),
}


@pytest.mark.parametrize("name", CALLS)
def test_all_parts_are_found(name):
    fn, *args = CALLS[name]
    with torch.no_grad():
        assert called(fn, *args)
        breaks = {fields["where"] for fields in told("graph_break")}
        assert called(fn, *args) == 0, [e.line for e in events.events("entry")]
        assert {fields["where"] for fields in told("graph_break")} == breaks


NOT_WHOLE = {
    "in a block": (programs.in_a_block, X),
    "in except": (programs.in_except, X),
    "in a generator": (programs.through_a_generator, X),
    "raises": (programs.raising, X),
}


@pytest.mark.parametrize("name", NOT_WHOLE)
def test_some_parts_are_found(name):
    """Others have generators of the program, tracebacks, or are not captured as they raise."""
    fn, *args = NOT_WHOLE[name]
    with torch.no_grad():
        first, second = called(fn, *args), called(fn, *args)
    assert 0 < second < first


def test_gradients_go_through():
    for captures in (True, False):
        x = X.clone().requires_grad_()
        events.reset()
        pliant.compile(programs.once)(x).sum().backward()
        background.finish()
        assert bool(events.events("capture")) is captures
        expected = X.clone().requires_grad_()
        programs.once(expected).sum().backward()
        torch.testing.assert_close(x.grad, expected.grad)


@torch.no_grad()
def test_sizes_that_are_symbols_before_a_break_are_symbols_behind_it():
    for captures in (4, 0):
        events.reset()
        compiled = pliant.compile(programs.once)
        for rows in (3, 4, 5, 6):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(compiled(x), programs.once(x))
        background.finish()
        assert len(events.events("capture")) == captures


@torch.no_grad()
def test_a_text_of_sizes_is_found_unread():
    for captures in (4, 0):
        events.reset()
        compiled = pliant.compile(programs.telling)
        for rows in (3, 4, 5, 6):
            assert compiled(torch.randn(rows, 4))[1] == f"{rows} rows"
        background.finish()
        assert len(events.events("capture")) == captures


@torch.no_grad()
def test_an_entry_that_is_found_knows_what_is_symbolic_behind_it():
    """The part behind the break is not on disk: its first capture has the symbols that it had."""
    compiled = pliant.compile(programs.once)
    for rows in (3, 4):
        compiled(torch.randn(rows, 4))
    background.finish()
    for file in programs.files():
        if b"resumed" in file.read_bytes():
            file.unlink()
    events.reset()
    again = pliant.compile(programs.once)
    for rows in (5, 6, 7):
        again(torch.randn(rows, 4))
    assert len(events.events("capture")) == 1


@torch.no_grad()
def test_other_code_behind_the_break_is_not_served(monkeypatch):
    assert called(programs.outer, X)
    monkeypatch.setattr(programs, "inner", programs.other_inner)
    assert called(programs.outer, X)


@torch.no_grad()
def test_breaks_that_are_errors_are_not_found(monkeypatch):
    assert called(programs.once, X)
    monkeypatch.setattr("pliant.peer.breaks_are_errors", lambda: True)
    with pytest.raises(pliant.errors.GraphBreakError):
        pliant.compile(programs.once)(X)


@torch.no_grad()
def test_the_rest_runs_without_the_lock():
    """It may wait for another thread that calls the same function."""
    assert called(programs.meets, X, threading.Barrier(1, timeout=60))
    compiled, barrier = pliant.compile(programs.meets), threading.Barrier(2, timeout=60)
    results = []
    threads = [threading.Thread(target=lambda: results.append(compiled(X, barrier))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert len(dispatcher_of(compiled).entries) == 1


@torch.no_grad()
def test_an_entry_is_taken_before_what_follows_the_break():
    """Which may call the function again, or never end."""
    assert called(programs.again, X, 3)
    events.reset()
    pliant.compile(programs.again)(X, 3)
    names = [fields["name"] for fields in told("entry")]
    assert names.count("again") == 1


@torch.no_grad()
def test_what_the_program_lets_go_of_dies_before_the_rest():
    assert called(programs.lets_go, X)
    assert not called(programs.lets_go, X)
    assert "lets_go" in [fields["name"] for fields in told("entry") if fields["what"] == "found"]
