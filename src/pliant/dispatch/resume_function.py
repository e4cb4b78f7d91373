"""What follows a graph break: a compiled function of its own, started in the middle of a frame.

In:     a resume point, the frame's globals and name, and the `Compilation` it belongs to.
Out:    a function `(cells, *stack values, *locals)` that runs the rest of the frame and returns its result.
        Of a generator's frame it goes on to the next `yield` and returns what `suspended.one_step` does.
Holds:  one per point and globals in each compilation. Eagerly it is the resume code itself, run with the cells as closure.
        One that ends in a further break of its frame returns to the one that ran first, which goes on. Where resume
        functions nest too deeply, the rest runs eagerly; so does the rest of an operation that enters nothing more.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable
from typing import Any

from pliant.bytecode.resume import ResumePoint, generator_code, is_generator, resume_code
from pliant.capture.iterators.suspended import one_step, with_generators
from pliant.capture.protocols import polyfills
from pliant.dispatch.dispatcher import DISPATCHER, Compilation, Dispatcher
from pliant.dispatch.dynamic_policy import DynamicPolicy
from pliant.dispatch.entry import Symbolic
from pliant.dispatch.own_frames import IN_TAIL, OWN_CODE, RESUMES, hide_frames
from pliant.dispatch.roots import ResumeRoot, resume_sources
from pliant.guards.sources import Source
from pliant.source import SourceLocation


def resume_function(
    compilation: Compilation, point: ResumePoint, globals_: dict[str, Any], name: str
) -> Callable[..., Any]:
    """The one resume function of the point."""
    key = (id(point.code), point.offset, point.stack, point.locals, point.handled, id(globals_), name)
    found: Callable[..., Any] | None = compilation.resumes.get(key)
    if found is None:
        found = compilation.resumes[key] = _make(compilation, point, globals_, name)
    return found


def _make(compilation: Compilation, point: ResumePoint, globals_: dict[str, Any], name: str) -> Callable[..., Any]:
    steps = is_generator(point.code)
    code = generator_code(point) if steps else resume_code(point)

    def eager(given_up: list[Any]) -> Any:
        cells, *values = given_up
        given_up[:] = reversed(with_generators(values))
        del values
        rest = types.FunctionType(code, globals_, name, None, cells or None)
        made = _taking(len(given_up))(rest, given_up.pop)
        return one_step(made) if steps else made

    def eager_call(*values: Any) -> Any:
        return eager(list(values))

    OWN_CODE.update((eager.__code__, eager_call.__code__))
    if globals_ is vars(polyfills) and point.code not in polyfills.GO_ON:
        return eager_call
    line = next((line for start, end, line in point.code.co_lines() if start <= point.offset < end and line), None)
    location = SourceLocation(point.code.co_filename, line or point.code.co_firstlineno, point.code.co_name)
    root = ResumeRoot(point, globals_, name)
    dispatcher = Dispatcher(root, eager, f"{name} (resumed at line {location.line})", location, compilation)

    def resume(*values: Any) -> Any:
        given_up = list(values)  # what runs empties it: no frame of ours keeps what the program lets go of
        del values
        if _depth.now >= _MAX_DEPTH:
            dispatcher.tell(f"{_MAX_DEPTH} resume functions are nested", "nested-resumes")
            return eager(given_up)
        _depth.now += 1
        serving = dispatcher
        try:
            while type(result := serving.call(given_up, {})) is _Following:
                given_up.clear()
                going, given_up = result.resume, result.values  # it lives as long as it runs
                serving = going.__dict__[DISPATCHER]
                del result
            return result
        except BaseException as error:
            hide_frames(error)
            raise
        finally:
            given_up.clear()
            _depth.now -= 1

    OWN_CODE.add(resume.__code__)
    RESUMES.add(resume.__code__)
    resume.__dict__[DISPATCHER] = dispatcher
    resume.__dict__[IN_TAIL] = _Following
    return resume


class _Following:
    """What an entry behind a break returns where it ends in a break itself: what goes on, and with which values. The resume
    function that ran the entry calls it, so a loop that breaks in each turn nests none in another."""

    __slots__ = ("resume", "values")

    def __init__(self, resume: Callable[..., Any], *values: Any) -> None:
        self.resume = resume
        self.values = list(values)


OWN_CODE.add(_Following.__init__.__code__)


def note_symbolic(function: Callable[..., Any], point: ResumePoint, known: Symbolic, before: DynamicPolicy) -> None:
    """Tell a resume function what was learnt before the break, so that it need not learn it again. `before`: the policy of the
    frame that broke."""
    if DISPATCHER not in function.__dict__:  # not compiled
        return
    policy: DynamicPolicy = function.__dict__[DISPATCHER].policy
    # Of the same code.
    policy.outcomes, policy.keys, policy.broken_loops = before.outcomes, before.keys, before.broken_loops
    for slot, source in resume_sources(point):
        match known.get(slot):
            case (rank, dims):
                policy.note_dynamic(source, rank, dims)
            case type() as number:
                policy.note_varies(source, number)
            case Source() as there:
                policy.share_lengths(source, before, there)


@functools.cache
def _taking(count: int) -> Callable[..., Any]:
    """Calls a function with so many values, taken one by one."""
    made: Callable[..., Any] = eval(f"lambda function, take: function({', '.join(['take()'] * count)})")
    OWN_CODE.add(made.__code__)
    return made


class _Depth(threading.local):
    """How many resume functions are active on this thread: calls that break inside calls nest one in another."""

    now = 0


_depth = _Depth()
_MAX_DEPTH = 50  # the rest runs eagerly, well before Python's own limit on recursion
