"""Raising, catching, `with`."""

from __future__ import annotations

from typing import Any, TypeGuard

from pliant.bytecode.decode import Op
from pliant.capture.frame import Frame, Handlers
from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.protocols import polyfills
from pliant.capture.signatures import Tracer
from pliant.capture.structures import as_tuple
from pliant.capture.value_kinds import derives, is_exception, is_method, misused, plain_class

ROWS = Handlers()
opcode, takes = ROWS.row, ROWS.takes


@takes("RAISE_VARARGS")
def raise_varargs(t: Tracer, op: Op, *values: Any) -> None:
    if not values:
        current = t.handling()
        raise Raised(RuntimeError("No active exception to reraise") if current is None else current)
    error = _instance(t, values[0], "exceptions")
    for cause in values[1:]:
        _set_cause(t, error, None if cause is None else _instance(t, cause, "exception causes"))
    t.raise_(error)


def _set_cause(t: Tracer, error: BaseException, cause: BaseException | None) -> None:
    if t.world.is_foreign(error):
        t.world.slot_set(error, "__cause__", cause, "plain")
        t.world.slot_set(error, "__suppress_context__", True, "plain")
        return
    error.__cause__ = cause
    error.__suppress_context__ = True


def _instance(t: Tracer, value: Any, what: str) -> BaseException:
    if derives(value, BaseException):
        made = t.call(value, (), {})
        if not is_exception(made) and what != "exceptions":
            raise GraphBreak("unsupported-opcode", "a class of exceptions that makes none is called for a cause")
        if not is_exception(made):
            said = f"calling {value!r} should have returned an instance of BaseException, not {plain_class(made)!r}"
            raise Raised(TypeError(said))
        return made
    if not is_exception(value):
        raise Raised(TypeError(f"{what} must derive from BaseException"))
    return value


@takes("PUSH_EXC_INFO")
def push_exc_info(t: Tracer, op: Op, error: Any) -> tuple[Any, Any]:
    before, t.own_exception = t.own_exception, error
    return before, error


@opcode("POP_EXCEPT")
def pop_except(frame: Frame, op: Op) -> None:
    frame.tracer.own_exception = frame.pop()


@takes("CHECK_EXC_MATCH")
def check_exc_match(t: Tracer, op: Op, wanted: Any) -> bool:
    mro = type(t.frames[-1].stack[-1]).__mro__  # what a metaclass says of its subclasses is not asked
    return any(cls in mro for cls in as_tuple(_catchable(wanted, star=False)))


def _catchable(wanted: Any, star: bool) -> Any:
    """The exception class or tuple of such, if it is one."""
    for cls in as_tuple(wanted):
        if not derives(cls, BaseException):
            inherit = "catching classes that do not inherit from BaseException is not allowed"
            raise Raised(TypeError(inherit))
        if star and derives(cls, BaseExceptionGroup):
            raise Raised(TypeError("catching ExceptionGroup with except* is not allowed. Use except instead."))
    return wanted


@takes("RERAISE")
def reraise(t: Tracer, op: Op, error: Any) -> None:
    if not is_exception(error):
        raise GraphBreak("unsupported-opcode", "re-raising what is no exception")
    raise Raised(error)


@takes("BEFORE_WITH")
def before_with(t: Tracer, op: Op, manager: Any) -> tuple[Any, Any]:
    enter = t.special_method(manager, "__enter__")
    leave = t.special_method(manager, "__exit__") if enter is not None else None
    if enter is None or leave is None:
        missed = " (missed __exit__ method)" if enter is not None else ""
        raise misused(manager, f"'{{}}' object does not support the context manager protocol{missed}")
    if not is_method(enter):
        return leave, t.call(enter, (), {})
    result, leave = t.call(polyfills.entered, (enter, leave), {}, linked=True)
    return leave, result


@takes("WITH_EXCEPT_START")
def with_except_start(t: Tracer, op: Op) -> Any:
    leave, _, _, error = t.frames[-1].stack[-4:]
    return t.call(leave, (type(error), error, t.get_attr(error, "__traceback__")), {}, linked=True)


# ---- except*
@takes("CHECK_EG_MATCH")
def check_eg_match(t: Tracer, op: Op, error: Any, wanted: Any) -> tuple[Any, Any]:
    """Exception and class(es) -> what is left, and the group of what matches (None if nothing does)."""
    _catchable(wanted, star=True)
    if _is_group(error):
        matching, rest = t.native(error.split, wanted)
    elif isinstance(error, wanted):
        matching, rest = BaseExceptionGroup("", (error,)), None  # as CPython makes it
    else:
        matching, rest = None, error
    if matching is not None:
        t.own_exception = matching
    return rest, matching


@takes("PREP_RERAISE_STAR", "CALL_INTRINSIC_2")
def prep_reraise_star(t: Tracer, op: Op, original: Any, found: Any) -> Any:
    """The original exception and the list of what the blocks raised or left over -> what to raise, or None."""
    if op.name == "CALL_INTRINSIC_2" and op.arg != "PREP_RERAISE_STAR":
        raise GraphBreak("unsupported-opcode", f"the interpreter operation {op.arg}")
    errors = [error for error in t.sequence(found) if error is not None]  # behind a break the list is from outside
    if not _is_group(original):
        return errors[0] if errors else None
    left = [error for error in errors if _is_part(error, original)]
    raised = [error for error in errors if not any(error is one for one in left)]
    leaves = {id(leaf) for part in left for leaf in _leaves(part)}
    rest = original.split(lambda leaf: id(leaf) in leaves)[0] if leaves else None
    if rest is not None and raised:
        raised.append(rest)
    if not raised:
        return rest
    return raised[0] if len(raised) == 1 and rest is None else BaseExceptionGroup("", raised)


def _is_part(error: Any, original: BaseException) -> bool:
    """Whether the exception was split off the original, and not raised by a block."""
    same = error.__cause__ is original.__cause__ and error.__context__ is original.__context__
    return same and _is_group(error) and error.message == getattr(original, "message", None)


def _is_group(error: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    return isinstance(error, BaseExceptionGroup)


def _leaves(error: BaseException) -> list[BaseException]:
    if _is_group(error):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]
