"""Long runs of Python without an operation on tensors: tokenizers, loops over data. They are left to Python, which is faster.

In:     where a trace may turn round and round: jumps back, and calls.
Out:    `check`: a break before the operation that runs that long, in whatever calls it; before the loop, if it is one; of a
        function, or what is left of it behind a break, that begins with such a loop there is no capture at all.
Holds:  loops of PyTorch's own, as over the parameters of an optimizer, end with operators on tensors, however long they are.
        The trace is interrupted by an exception, and starts again. A whole graph that was asked for takes as long as it takes.
"""

from __future__ import annotations

import itertools
import types

from pliant.capture.frame import Frame
from pliant.capture.graph_breaks import BreakBefore, CannotCapture
from pliant.capture.signatures import Tracer
from pliant.capture.trace import BreakReason
from pliant.guards.sources import Source, held
from pliant.torch_adapter import PACKAGE

_KIND = "long-run"


def note_turn(frame: Frame) -> None:
    """The frame jumps back, or asks a loop's iterator."""
    count = frame.tracer.recorder.count
    if frame.turning[0] != count:
        frame.turning = count, frame.steps_at_op, frame.op.offset
    check(frame.tracer)


def check_rest(frame: Frame) -> None:
    """Refuse what stands, behind a break, where a loop goes on that was seen to run long."""
    places = [_place_of(frame.code, op.offset) for op in frame.program.ops[max(frame.ip - 1, 0) : frame.ip + 1]]
    if not frame.tracer.inputs.policy.broken_loops.isdisjoint(places):
        raise CannotCapture(BreakReason(_KIND, "a loop without an operation on tensors", None))


def _place_of(code: types.CodeType, offset: int) -> Source:
    return held(code, f"the long loop at {offset}")


def check(t: Tracer) -> None:
    """Interrupt the trace if nothing was recorded for so many steps."""
    count, since = t.idle
    if t.recorder.count != count:
        t.idle = t.recorder.count, t.steps
    elif t.steps - since > t.idle_steps and t.inputs.policy.may_break:
        _interrupt(t, count)


def _interrupt(t: Tracer, count: int) -> None:
    if t.frames[-1].code.co_filename.startswith(PACKAGE):
        return
    told = f"{t.idle_steps} steps of Python without an operation on tensors"
    frame = t.frames[0]
    for frame in itertools.takewhile(lambda one: one.linked, t.frames):
        runs_long = t.steps - frame.steps_at_op > t.idle_steps // 2
        if frame.nodes_at_op == count and runs_long:
            raise BreakBefore(BreakReason(_KIND, told, frame.location()), frame.steps_at_op)
        if not runs_long:
            break
    reason = BreakReason(_KIND, told, frame.location())
    if frame.turning[0] != count:
        raise BreakBefore(reason, frame.steps_at_op)
    if not count and frame is t.frames[0]:
        raise CannotCapture(reason)
    t.inputs.policy.broken_loops.add(_place_of(frame.code, frame.turning[2]))
    raise BreakBefore(reason, frame.turning[1])
