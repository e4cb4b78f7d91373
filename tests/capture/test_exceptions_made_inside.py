"""Exceptions that a program makes, or raises from outside: every field, traceback and chain is as in Python."""

import builtins
import traceback

import pytest

import pliant
from pliant import config

# Some of each memory layout.
_NAMES = """Exception KeyError SystemExit StopIteration ImportError ModuleNotFoundError OSError FileNotFoundError SyntaxError
IndentationError UnicodeDecodeError UnicodeEncodeError UnicodeTranslateError AttributeError NameError UnboundLocalError
BaseExceptionGroup ExceptionGroup""".split()
CLASSES = [getattr(builtins, name) for name in _NAMES]
ARGUMENTS = [
    (), ("a",), ("a", "b"), (2, "text"), (2, "text", "file.py"), (2, "text", "f.py", None, "g.py"),
    ("text", ("f.py", 1, 5, "line", 1, 7)), ("utf-8", b"abc", 0, 1, "why"), ("abc", 0, 1, "why"),
    ("ascii", "abc", 1, 2, "why"), ("text", [ValueError(1)]), (None,), (0,),
]  # fmt: skip
KEYWORDS = [{}, {"name": "n"}, {"name": "n", "path": "p"}, {"name": "n", "obj": 3}]


class OfSystem(OSError):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.more = 1


class OfImport(ImportError):
    def __new__(cls, *args, **kwargs):
        made = super().__new__(cls, *args, **kwargs)
        made.more = 2
        return made


class OfExit(SystemExit):
    @property
    def args(self):
        return "hidden"


class OfSyntax(SyntaxError):
    def __setattr__(self, name, value):
        raise AssertionError("code of the program ran")


class OfStop(StopIteration):
    pass


class OfDecoding(UnicodeDecodeError):
    pass


class OfKeys(KeyError):
    pass


CLASSES += [OfSystem, OfImport, OfExit, OfSyntax, OfStop, OfDecoding, OfKeys]
FIELDS = sorted({name for cls in CLASSES for base in cls.__mro__ for name, one in vars(base).items() if not callable(one)})
HIDDEN = {"__doc__", "__module__", "__traceback__", "__dict__", "__weakref__", "__cause__", "__context__"}


def state(error):
    if not isinstance(error, BaseException):
        return repr(error)
    fields = [(name, state(getattr(error, name, "missing"))) for name in FIELDS if name not in HIDDEN]
    chain = state(error.__cause__), state(error.__context__)
    return type(error).__name__, str(error), fields, entries(error), chain, vars(error)


def entries(error):
    """Of the traceback, below the call of the program."""
    names = [(one.name, one.lineno) for one in traceback.extract_tb(error.__traceback__)]
    return [one for one in names if one[0] not in ("outcome", "compiled")]


def outcome(function, *args):
    try:
        return state(function(*args))
    except BaseException as error:
        return "raised", state(error)


def made(cls, args, kwargs):
    return cls(*args, **kwargs)


def behind(cls, args, kwargs):
    error = cls(*args, **kwargs)
    pliant.graph_break()
    return error


def caught(cls, args, kwargs):
    try:
        raise cls(*args, **kwargs)
    except BaseException as error:
        return error


def given_new_arguments(cls, args, kwargs):
    error = cls(*args, **kwargs)
    error.__init__("other")
    return error


@pytest.mark.spread(2, "program", "cls")
@pytest.mark.parametrize("program", [made, behind, caught, given_new_arguments], ids=lambda f: f.__name__)
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.fallbacks_expected  # constructors that raise
def test_all_fields(program, cls):
    compiled = pliant.compile(program, backend="eager")
    with config.patch(recompile_limit=100):
        for args in ARGUMENTS:
            for kwargs in KEYWORDS if len(args) < 2 else KEYWORDS[:1]:
                assert outcome(compiled, cls, args, kwargs) == outcome(program, cls, args, kwargs), (args, kwargs)


OUTSIDE, OTHER = ValueError("outside"), KeyError("other")


class Keeping:
    def __enter__(self):
        return self

    def __exit__(self, cls, error, trace):
        self.got = cls, trace is not None
        return True


def raised_again(error):
    try:
        raise error
    except ValueError as found:
        return found


def raised_deeper(error):
    def deeper():
        raise error

    try:
        try:
            deeper()
        finally:
            del deeper
    except ValueError as found:
        return found


def raised_in_handler(error):
    try:
        try:
            raise OTHER
        except KeyError:
            raise error
    except ValueError as found:
        return found


def raised_from_another(error):
    try:
        raise error from OTHER
    except ValueError as found:
        return found


def raised_and_cleared(error):
    try:
        raise error.with_traceback(None)
    except ValueError as found:
        return found


def raised_in_block(error):
    with Keeping() as kept:
        raise error
    return kept.got


def looked_at(error):
    try:
        raise error
    except ValueError as found:
        return [one.name for one in traceback.extract_tb(found.__traceback__)]


def behind_a_break(error):
    try:
        raise error
    except ValueError as found:
        pliant.graph_break()
        return found


def raised_into_a_cycle(error):
    """What led to an exception is forgotten where it is raised while what it led to is handled."""
    found = []
    made = KeyError("made")
    for _ in range(2):
        try:
            raise made
        except KeyError:
            try:
                raise ValueError("first")
            except ValueError:
                try:
                    raise made
                except KeyError as last:
                    found.append((repr(last.__context__), repr(last.__context__.__context__)))
    return found


class NoException(Exception):
    def __new__(cls):
        return 5


def raised_class_that_makes_none(error):
    try:
        raise NoException
    except TypeError as complaint:
        return str(complaint)


def never_raised(error):
    made = KeyError("made")
    held = [made, pliant.graph_break()]
    return held[0].__traceback__ is None, error


OUTSIDE_PROGRAMS = [
    raised_again, raised_deeper, raised_in_handler, raised_from_another, raised_and_cleared, raised_in_block, looked_at,
    behind_a_break, never_raised, raised_into_a_cycle, raised_class_that_makes_none,
]  # fmt: skip


@pytest.mark.parametrize("program", OUTSIDE_PROGRAMS, ids=lambda f: f.__name__)
def test_exceptions_from_outside(program):
    found = []
    for function in (program, pliant.compile(program, backend="eager")):
        for error in (OUTSIDE, OTHER):
            error.__traceback__ = error.__context__ = error.__cause__ = None
            error.__suppress_context__ = False
        given = [OUTSIDE, OUTSIDE, ValueError("fresh"), ValueError("fresh"), OUTSIDE]
        found.append([(outcome(function, error), state(error), state(OTHER)) for error in given])
    assert found[1] == found[0]
