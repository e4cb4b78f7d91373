"""Programs that look at the frames of their callers find what eager finds: nothing of ours, no generated code.

Each way to look stands in each place: alone, behind a graph break, in functions and modules that are inlined.
"""

import bdb
import inspect
import linecache
import logging
import sys
import threading
import traceback
import types
import warnings

import pytest
import torch

import pliant
import short_stack

WAYS = {
    "line": "sys._getframe().f_lineno",
    "line-currentframe": "inspect.currentframe().f_lineno",
    "line-kept": "(lambda f: f.f_back.f_lineno)(sys._getframe())",
    "name": "sys._getframe().f_code.co_name",
    "qualified-name": "inspect.currentframe().f_code.co_qualname",
    "code-place": "sys._getframe(0).f_code.co_filename, sys._getframe(0).f_code.co_firstlineno",
    "locals-of-frame": "sorted(sys._getframe().f_locals)",
    "locals-currentframe": "sorted(inspect.currentframe().f_locals)",
    "locals-arguments": "sorted(inspect.getargvalues(inspect.currentframe()).locals)",
    "globals-of-frame": "sys._getframe().f_globals is globals()",
    "caller": "sys._getframe(1).f_code.co_name",
    "caller-line": "sys._getframe(1).f_lineno",
    "caller-globals": "sorted(sys._getframe(1).f_globals)[:3]",
    "back": "sys._getframe().f_back.f_code.co_name",
    "back-twice": "sys._getframe().f_back.f_back.f_code.co_name",
    "back-line": "inspect.currentframe().f_back.f_lineno",
    "two-out": "sys._getframe(2).f_code.co_name",
    "too-far": "too_far(sys._getframe)",
    "names-outward": "outward(sys._getframe())",
    "stack-innermost": "tuple(inspect.stack()[0][1:4])",
    "stack-caller": "inspect.stack()[1].function, inspect.stack()[1].lineno",
    "stack-all": "[(one.function, one.lineno) for one in inspect.stack()][:5]",
    "outer-frames": "[one.function for one in inspect.getouterframes(inspect.currentframe())][:4]",
    "frame-info": "tuple(inspect.getframeinfo(inspect.currentframe()))[:3]",
    "extract-stack": "[(one.name, one.lineno) for one in traceback.extract_stack()[-4:]]",
    "extract-limit": "[one.name for one in traceback.extract_stack(limit=2)]",
    "format-stack": "traceback.format_stack()[-3:]",
    "print-stack": "printed(traceback.print_stack)",
    "frames-of-threads": "sys._current_frames()[threading.get_ident()].f_lineno",
    "warning": "warnings.warn('told')",
    "warning-caller": "warnings.warn('told', stacklevel=2)",
    "warning-further": "warnings.warn('told', UserWarning, 3)",
    "log": "LOG.warning('told %d', 1)",
    "log-caller": "LOG.warning('told %d', 1, stacklevel=2)",
    "log-further": "LOG.warning('told %d', 1, stacklevel=3)",
    "log-exception": "LOG.exception('told %d', 1)",
    "log-exception-caller": "LOG.exception('told %d', 1, exc_info=False, stacklevel=2)",
    "log-adapter": "logging.LoggerAdapter(LOG, {}).warning('told %d', 1)",
    "locals": "sorted(locals())",
}  # fmt: skip
PROGRAM = """
def whole(x):
    k = 3
    y = x * k
    r = {way}
    return y + 1, r

def behind(x):
    k = 3
    y = x * k
    pliant.graph_break()
    r = {way}
    return y + 1, r

def inner(x):
    j = 4
    y = x * j
    r = {way}
    return y, r

def inlined(x):
    k = 3
    y, r = inner(x * k)
    return y + 1, r

def inner_behind(x):
    j = 4
    y = x * j
    pliant.graph_break()
    r = {way}
    return y, r

def inlined_behind(x):
    k = 3
    y, r = inner_behind(x * k)
    return y + 1, r

def behind_inlined(x):
    k = 3
    y, r = inner_behind(x * k)
    s = {way}
    return y + 1, (r, s)

class Inner(torch.nn.Module):
    def forward(self, x):
        j = 4
        y = x * j
        r = {way}
        return y, r

class InnerBehind(torch.nn.Module):
    def forward(self, x):
        j = 4
        y = x * j
        pliant.graph_break()
        r = {way}
        return y, r

class Outer(torch.nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        y, r = self.part(x * 2)
        return y + 1, r

class Hooked(Outer):
    def __init__(self, part):
        super().__init__(part)
        self.part.register_forward_hook(lambda module, given, made: None)

module = Outer(Inner())
module_behind = Outer(InnerBehind())
module_hooked = Hooked(InnerBehind())
module_alone = Inner()
module_alone_behind = InnerBehind()
"""
PLACES = [
    "whole", "behind", "inlined", "inlined_behind", "behind_inlined", "module", "module_behind", "module_hooked",
    "module_alone", "module_alone_behind",
]  # fmt: skip


_LINES_IN_PYTORCH = ("stack-all", "extract-stack", "format-stack", "warning-further", "log-further")


class _Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.told = []

    def emit(self, record):
        self.told.append((record.lineno, record.funcName, record.filename, record.getMessage()))


def _printed(show):
    class Lines(list):
        def write(self, text):
            self.append(text)

    lines = Lines()
    show(file=lines)
    return "".join(lines).splitlines()[-6:]


def _too_far(getframe):
    with pytest.raises(ValueError, match="not deep enough"):
        getframe(10000)
    return True


def _outward(frame):
    names = []
    while frame is not None and len(names) < 5:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


def _program(way):
    text = PROGRAM.replace("{way}", WAYS[way])
    name = f"/nowhere/program_{way}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = {
        "__name__": "program", "inspect": inspect, "sys": sys, "traceback": traceback, "warnings": warnings,
        "threading": threading, "torch": torch, "pliant": pliant, "LOG": logging.getLogger("looking"), "types": types,
        "logging": logging, "printed": _printed, "too_far": _too_far, "outward": _outward,
    }  # fmt: skip
    exec(compile(text, name, "exec"), space)
    return space


def _looked(function, x):
    """What a call found: its values, the places of warnings and of records."""
    logger, records = logging.getLogger("looking"), _Records()
    logger.propagate = False
    logger.addHandler(records)
    try:
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            _, found = function(x)
    finally:
        logger.removeHandler(records)
    return found, [(one.filename, one.lineno) for one in given], records.told


@pytest.mark.spread(4, "way", "place")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.fallbacks_expected  # frames cannot be made again
def test_frames_are_those_of_eager(way, place):
    if place == "module_hooked" and way in _LINES_IN_PYTORCH:
        pytest.skip("PyTorch's call of hooks takes another line where code is compiled")
    x = torch.ones(3)
    functions = _program(way)[place], pliant.compile(_program(way)[place])
    found = [short_stack.called(_looked, function, x) for function in (functions[0], functions[1], functions[1])]
    assert found[1] == found[0]
    assert found[2] == found[0]


def test_looking_at_traced_frames_breaks_nothing():
    def inner(x):
        name = sys._getframe(1).f_code.co_name
        return x * inspect.currentframe().f_back.f_lineno, name, "x" in inspect.currentframe().f_locals

    def f(x):
        return inner(x)

    x = torch.ones(3)
    (y, *found), (expected, *names) = pliant.compile(f, fullgraph=True)(x), f(x)
    assert torch.equal(y, expected)
    assert found == names == ["f", True]


def test_a_break_says_that_frames_are_looked_at():
    def f(x):
        return x + 1, sys._getframe(1).f_code.co_name

    pliant.reset()
    assert pliant.compile(f)(torch.ones(2))[1] == "test_a_break_says_that_frames_are_looked_at"
    assert pliant.stats()["break_reasons"] == {"looks-at-frames": 1}


@pytest.mark.fallbacks_expected  # a frame cannot be made again
def test_a_frame_that_is_kept_is_looked_at_by_eager():
    def f(x):
        frame = inspect.currentframe()
        y = x + 1
        pliant.graph_break()
        return y, frame.f_lineno - f.__code__.co_firstlineno

    compiled, x = pliant.compile(f), torch.ones(2)
    assert [compiled(x)[1], compiled(x)[1]] == [f(x)[1]] * 2 == [4, 4]


class Stepped(bdb.Bdb):
    """A debugger that steps through all that follows."""

    def user_line(self, frame):
        if frame.f_code.co_filename == __file__:
            STEPS.append((frame.f_code.co_name, frame.f_lineno, sorted(frame.f_locals)))
        self.set_next(frame)


STEPS = []


@pytest.mark.fallbacks_expected  # which is what it is to be
@pytest.mark.parametrize("stop", [breakpoint, lambda: Stepped().set_trace(sys._getframe(1))], ids=["builtin", "bdb"])
def test_a_debugger_steps_through_the_program(stop, monkeypatch):
    monkeypatch.setattr(sys, "breakpointhook", lambda: Stepped().set_trace(sys._getframe(1)))

    def f(x, unused=3):
        y = x.sin()
        stop()
        z = y + 1
        return z * 2

    def steps_of(function):
        STEPS.clear()
        try:
            function(torch.ones(2))
        finally:
            sys.settrace(None)
        return [step for step in STEPS if step[0] == "f"]

    expected = steps_of(f)
    pliant.reset()
    assert len(expected) >= 2 and steps_of(pliant.compile(f)) == expected
    assert pliant.stats()["fallback_reasons"] == {"[debugger] a debugger is called": 1}


def test_a_callback_finds_its_caller():
    def f(x):
        return x + sum(map(lambda n: n + len(sys._getframe(1).f_code.co_name), [1, 2]))

    x = torch.ones(2)
    assert torch.equal(pliant.compile(f)(x), f(x))


def test_records_show_the_exception_that_is_handled():
    shown = []

    class Shows(logging.Handler):
        def emit(self, record):
            shown.append((record.getMessage(), record.funcName, record.exc_info and repr(record.exc_info[1])))

    logger = logging.getLogger("shows")
    logger.propagate, logger.handlers = False, [Shows()]

    def program(x):
        try:
            raise ValueError("inside")
        except ValueError:
            logger.exception("one")
            logger.error("two", exc_info=True)
        logger.warning("three", exc_info=True)
        return x * 2

    def called(function):
        shown.clear()
        function(torch.ones(2))
        try:
            raise KeyError("outside")
        except KeyError:
            function(torch.ones(2))
        return list(shown)

    expected = called(program)
    assert called(pliant.compile(program, backend="eager")) == expected
    assert expected[0] == ("one", "program", "ValueError('inside')")
