"""Every reason why capture stops, as one table, and the exceptions that carry it.

In:     a handler meets something it cannot record: `raise GraphBreak("kind", "detail")`.
Out:    a `BreakReason` with the user's line; `docs/graph-breaks.md` has one section for each kind.
Holds:  `GraphBreak` derives from BaseException so that no `except Exception` of the traced program swallows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

from pliant.capture.trace import BreakReason
from pliant.errors import DataDependentError
from pliant.records import dataclass
from pliant.source import SourceLocation


@dataclass(frozen=True, slots=True)
class BreakKind:
    """id, why it cannot be recorded, what to do about it."""

    id: str
    why: str
    do: str


KINDS: dict[str, BreakKind] = {
    kind: BreakKind(kind, why, do)
    for kind, (why, do) in {
        "data-dependent": (
            "the value is computed by the graph being recorded and is not known yet",
            "branch with torch.where or torch.cond, or move the decision out of the compiled function",
        ),
        "side-effect-call": (
            "it acts on the world outside while the graph is being recorded",
            "move the call after the compiled function",
        ),
        "read-later": (
            "it reads from outside, when a gradient is asked for, what may be another by then",
            "keep it on the context in the forward (`ctx.scale = scale`), or give a hook its own (`scale=scale`)",
        ),
        "unknown-call": (
            "the function is implemented outside Python and is not known to be free of side effects",
            "declare it with pliant.allow_in_graph or pliant.assume_constant_result, or move it out",
        ),
        "unknown-object": (
            "the object's type is implemented outside Python and cannot be followed",
            "keep such objects out of the compiled function",
        ),
        "user-request": ("graph_break() or a disabled function was called", "remove the marker to capture across it"),
        "tensor-error": (
            "the operation fails on the shapes and types seen; eager raises the error",
            "correct the operation",
        ),
        "unsupported-operator": (
            "no rule says what the operator's result looks like",
            "register a fake implementation (torch.library.register_fake)",
        ),
        "unsupported-tensor": ("tensors of this kind are not followed", "keep them out of the compiled function"),
        "lasting-write": (
            "autograd records the write, so eager could not run the call anew where a later operator fails",
            "write a tensor of the function's own: x = x + y for x += y",
        ),
        "observed-call": (
            "what is around the call is to see each operator, which compiled code does not show",
            "put it inside the compiled function, or call the original function there",
        ),
        "looks-at-frames": (
            "the frames of the program's callers are there only when it runs",
            "move the call out of the compiled function, or look at the function's own frame alone",
        ),
        "debugger": (
            "it shows the lines and variables of the function as they are, so the function runs eagerly",
            "take the call out when you are done",
        ),
        "unsupported-opcode": ("this statement is not captured", "rewrite the statement"),
        "coroutine": ("asynchronous code runs between other code", "compile the synchronous part"),
        "runs-later": (
            "its code runs when it is asked for items, after the compiled call",
            "take its items in the compiled function and return these; of a generator function, compile what it calls",
        ),
        "exception": ("the function raises", "none: exceptions are raised by the original code"),
        "bad-call": ("the arguments do not fit the function; eager raises the error", "correct the call"),
        "long-run": (
            "it runs for long without an operation on tensors: following each step takes far longer than Python does",
            "none where Python is to run it; raise the option idle_steps, or compile what it calls",
        ),
        "recursion": ("the function calls itself too deeply", "bound the recursion"),
        "random-state": ("the random generator's state is read or set", "seed outside the compiled function"),
        "cannot-rebuild": (
            "a value alive here cannot be made again by generated code",
            "do not keep it across this point",
        ),
        "mutated-global-state": ("a global setting is changed in a way that is not recorded", "change it outside"),
        "varying-length": (
            "code for one length would not serve the next",
            "pass one tensor, stacked or padded; or compile with fullgraph=True, once for each length",
        ),
        "varying-number": (
            "the function takes numbers only as they are, and code for one would not serve the next",
            "compute it before the compiled function and pass the result, or with torch; or compile with fullgraph=True, once for each number",
        ),
        "backward-hook": (
            "the hook runs while autograd's engine goes backward, with the tensors and at the time that the engine gives it",
            "register it outside, on a parameter or an output; a tensor hook that only computes is captured",
        ),
    }.items()
}


def told_of(reason: BreakReason) -> dict[str, Any]:
    """What is told of a break."""
    kind = KINDS[reason.kind]
    why = f"{reason.detail}: {kind.why}"
    return {"reason": kind.id, "where": reason.location, "why": why, "do": reason.do or kind.do}


class GraphBreak(BaseException):
    """Capture cannot go on with the current operation. `again`: it can once the graph has run, which tells a number."""

    def __init__(self, kind: str, detail: str, do: str = "") -> None:
        super().__init__(f"[{kind}] {detail}")
        assert kind in KINDS, kind
        self.kind = kind
        self.detail = detail
        self.do = do  # more exact than the kind's advice
        self.again = False

    def reason(self, location: SourceLocation | None) -> BreakReason:
        return BreakReason(self.kind, self.detail, location, self.do, self.again)


class Stopped(BaseException):
    """The trace reached the operation at which an earlier attempt broke."""


class StartAgain(BaseException):
    """What the trace read has changed in a way that eager would have changed it too: trace again, after `first`."""

    def __init__(self, first: Callable[[], object] = bool) -> None:
        super().__init__()
        self.first = first


def needs_value(error: DataDependentError) -> GraphBreak:
    """The break of a decision on a number that only running the graph tells."""
    return GraphBreak("data-dependent", error.what, error.do)


class CannotCapture(Exception):
    """Nothing of the call can be captured: it runs eagerly. `is_final`: nor with a break before another operation."""

    is_final = False

    def __init__(self, reason: BreakReason) -> None:
        super().__init__(f"[{reason.kind}] {reason.detail}")
        self.reason = reason


class BreakBefore(CannotCapture):
    """Nothing can be captured of what goes on from this step: the trace starts again, and breaks before it."""

    def __init__(self, reason: BreakReason, step: int) -> None:
        super().__init__(reason)
        self.step = step


class CastsKept(CannotCapture):
    """A break would lose casts that autocast keeps and code behind it may take, wherever the trace is cut."""

    is_final = True


class CastsMeet(CastsKept):
    """Autocast may take casts that it kept before the trace, of another dtype than its block's."""


class Raised(Exception):
    """An exception of the traced program, on its way through the interpreter. `error` is the program's exception."""

    def __new__(cls, error: BaseException) -> Raised:
        return super().__new__(next((_RAISED[base] for base in type(error).__mro__ if base in _RAISED), cls), error)

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error
        self.where: SourceLocation | None = None  # in the innermost frame that it left
        self.has_context = False  # it was raised elsewhere, perhaps without an entry in its traceback


def is_end(error: BaseException | None) -> TypeGuard[StopIteration]:
    """Whether it says that an iterator is at its end."""
    return isinstance(error, StopIteration)


class Exhausted(Raised):
    """A StopIteration."""

    error: StopIteration


class NoAttribute(Raised):
    """An AttributeError."""


class WrongKind(Raised):
    """A TypeError."""


_RAISED: dict[type, type[Raised]] = {StopIteration: Exhausted, AttributeError: NoAttribute, TypeError: WrongKind}
